package compat

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
)

// WholeSeconds returns ttl in seconds, rounded up: a key must not end before
// the lease does. A ttl below a second is ErrInvalid: rounded down it would be
// EXPIRE key 0, which deletes the key under its holder (tx/zero-ttl), and
// servers before 2.6 know nothing shorter.
func WholeSeconds(ttl time.Duration) (int64, error) {
	return roundUp(ttl, time.Second)
}

// WholeMillis returns ttl in milliseconds, rounded up, for Redis 2.6 and later.
// A ttl below a millisecond is ErrInvalid.
func WholeMillis(ttl time.Duration) (int64, error) {
	return roundUp(ttl, time.Millisecond)
}

func roundUp(ttl, unit time.Duration) (int64, error) {
	if ttl < unit {
		return 0, fmt.Errorf("%w: a ttl of %v is shorter than the %v that this lock counts in", ErrInvalid, ttl, unit)
	}
	return int64((ttl + unit - 1) / unit), nil
}

// SetEx is the command that makes key with value and a TTL, in milliseconds
// (PSETEX: Redis 2.6) or in whole seconds. Errors are WholeMillis' and WholeSeconds'.
func SetEx(millis bool, key, value string, ttl time.Duration) (Cmd, error) {
	if millis {
		ms, err := WholeMillis(ttl)
		return Cmd{"PSETEX", key, ms, value}, err
	}
	s, err := WholeSeconds(ttl)
	return Cmd{"SETEX", key, s, value}, err
}

// Expire is the command that sets key's TTL, likewise.
func Expire(millis bool, key string, ttl time.Duration) (Cmd, error) {
	if millis {
		ms, err := WholeMillis(ttl)
		return Cmd{"PEXPIRE", key, ms}, err
	}
	s, err := WholeSeconds(ttl)
	return Cmd{"EXPIRE", key, s}, err
}

// ReadTTL returns the time that reply, TTL's or PTTL's, gives in unit, or NoTTL.
// Before 2.8 a missing key answers as one without a TTL does: read the value in
// the same write to tell them apart.
func ReadTTL(reply any, unit time.Duration) (time.Duration, error) {
	n, err := redis.Int64(reply, nil)
	if err != nil {
		return NoTTL, err
	}
	if n < 0 {
		return NoTTL, nil
	}
	return time.Duration(n) * unit, nil
}
