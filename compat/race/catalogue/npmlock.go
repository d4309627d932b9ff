package catalogue

import (
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// npmLock is npm redis-lock 0.0.x: milliseconds, read by parseFloat. What it can't
// read is NaN, and NaN is not greater than now: dead. first is its first release,
// which took a key that is gone for a value it can't read.
type npmLock struct {
	stamped
	first bool
}

func (n npmLock) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: millis(now.Add(ttl + time.Millisecond)), Until: now.Add(ttl + time.Millisecond)}
	won, err := redis.Bool(c.Do("SETNX", key, l.Value))
	if won || err != nil {
		return l, err
	}
	held, err := get(c, "GET", key)
	if err != nil {
		return l, err
	}
	if held == "" && !n.first { // gone since the SETNX: errorception/redis-lock, PR 4
		return l, &compat.HeldError{Key: key}
	}
	until, number := leading(held)
	if number && until > float64(now.UnixMilli()) {
		return l, &compat.HeldError{Key: key, Value: held}
	}
	old, err := get(c, "GETSET", key, l.Value)
	if err != nil {
		return l, err
	}
	if was, ok := leading(old); !ok || !number || was != until { // NaN equals nothing
		return l, &compat.HeldError{Key: key, Value: old}
	}
	return l, nil
}

// Release deletes the key unless its own time has gone by.
func (npmLock) Release(l compat.Lease) compat.Change {
	return by(l, func(c *compat.Conn) error {
		until, err := strconv.ParseInt(l.Value, 10, 64)
		if err != nil || until <= clock(c, time.Time{}).UnixMilli() {
			return compat.ErrLost
		}
		_, err = c.Do("DEL", l.Key)
		return err
	})
}
