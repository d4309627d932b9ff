package protocol

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Whole returns ttl in units of time.Second, or of time.Millisecond for Redis 2.6 and later. It rounds up: a
// key must not end before its lease does. It returns [ErrInvalid] for a ttl below one unit. Servers before 2.6
// count in seconds only: rounded down, such a ttl would become EXPIRE key 0, and delete the key under its
// holder (tx/zero-ttl).
func Whole(ttl, unit time.Duration) (int64, error) {
	if ttl < unit {
		return 0, fmt.Errorf("%w: a ttl of %v is shorter than the %v that this lock counts in", ErrInvalid, ttl, unit)
	}
	n := int64(ttl / unit)
	if ttl%unit > 0 { // ttl+unit-1 would overflow into a negative EXPIRE, which deletes the key
		n++
	}
	return n, nil
}

// SetEx returns the command to set key to value with a TTL, in milliseconds (PSETEX: Redis 2.6) or in whole
// seconds. Its errors are [Whole]'s.
func SetEx(millis bool, key, value any, ttl time.Duration) (Cmd, error) {
	m := Cmd{"SETEX", key, nil, value}
	return m, m.count(millis, "PSETEX", ttl)
}

// Expire returns the command to set key's TTL, in milliseconds (PEXPIRE: Redis 2.6) or in whole seconds. Its
// errors are [Whole]'s.
func Expire(millis bool, key any, ttl time.Duration) (Cmd, error) {
	m := Cmd{"EXPIRE", key, nil}
	return m, m.count(millis, "PEXPIRE", ttl)
}

// count puts ttl into m: in seconds, or in milliseconds and with the other name.
func (m Cmd) count(millis bool, name any, ttl time.Duration) error {
	var n int64
	var err error
	if millis {
		m[0] = name
		n, err = Whole(ttl, time.Millisecond)
	} else {
		n, err = Whole(ttl, time.Second)
	}
	m[2] = ttlArg(n)
	return err
}

// ttlArg converts n to an argument. Most programs ask for one ttl again and again: ttlArg keeps the last and
// allocates once.
func ttlArg(n int64) any {
	last := lastTTL.Load()
	if m, ok := last.(int64); ok && m == n {
		return last
	}
	lastTTL.Store(n)
	return n
}

var lastTTL atomic.Value

// Expired reports whether a reply to TTL or PTTL says that the key is gone: it expired since a read before, in the same
// write. Servers before Redis 2.8 do not tell.
func Expired(reply any) bool { return reply == int64(-2) }

// ReadTTL returns the duration in a reply to TTL or PTTL, counted in unit, or [NoTTL]. Before Redis 2.8 the
// reply for a missing key is the same as for a key without a TTL: read the value in the same write to tell them
// apart.
func ReadTTL(reply any, unit time.Duration) (time.Duration, error) {
	n, err := redis.Int64(reply, nil)
	if err != nil {
		return NoTTL, err
	}
	if n < 0 {
		return NoTTL, nil
	}
	if n > int64(math.MaxInt64/unit) { // some clients write such a TTL for "for ever"
		return math.MaxInt64, nil
	}
	return time.Duration(n) * unit, nil
}
