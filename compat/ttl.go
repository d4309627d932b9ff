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
func SetEx(millis bool, key, value any, ttl time.Duration) (Cmd, error) {
	m := Cmd{"SETEX", key, nil, value}
	return m, m.count(millis, "PSETEX", ttl)
}

// Expire is the command that sets key's TTL, likewise.
func Expire(millis bool, key any, ttl time.Duration) (Cmd, error) {
	m := Cmd{"EXPIRE", key, nil}
	return m, m.count(millis, "PEXPIRE", ttl)
}

// count puts ttl in, in seconds, or in milliseconds under the name that has them.
func (m Cmd) count(millis bool, name any, ttl time.Duration) error {
	var n int64
	var err error
	if millis {
		m[0] = name
		n, err = WholeMillis(ttl)
	} else {
		n, err = WholeSeconds(ttl)
	}
	m[2] = n
	return err
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
