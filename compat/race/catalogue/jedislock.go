package catalogue

import (
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// jedisLock is jedis-lock's master: UUID:MILLISECONDS. A lock that has expired and
// one that is its own are the same to it, when it asks and when it renews, and what
// it can't read has expired.
type jedisLock struct {
	stamped
	uuid func() string
}

func (j jedisLock) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	return j.take(c, now, key, ttl, j.uuid())
}

func (j jedisLock) take(c *compat.Conn, now time.Time, key string, ttl time.Duration, uuid string) (compat.Lease, error) {
	l := lease(key, uuid, now, ttl)
	won, err := redis.Bool(c.Do("SETNX", key, l.Value))
	if won || err != nil {
		return l, err
	}
	held, err := get(c, "GET", key)
	if err != nil {
		return l, err
	}
	if !expiredOrMine(held, uuid, now) {
		return l, &compat.HeldError{Key: key, Value: held}
	}
	old, err := get(c, "GETSET", key, l.Value)
	if err == nil && (old == "" || old != held) {
		err = &compat.HeldError{Key: key, Value: old}
	}
	return l, err
}

// Extend is renew(): whatever happened in the meantime, a lock that is free or
// dead is as good as its own.
func (j jedisLock) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	uuid, _, _ := strings.Cut(l.Value, ":")
	return lease(l.Key, uuid, now, ttl), by(l, func(c *compat.Conn) error {
		held, err := get(c, "GET", l.Key)
		if err != nil {
			return err
		}
		if !expiredOrMine(held, uuid, now) {
			return compat.ErrLost
		}
		if _, err := j.take(c, now, l.Key, ttl, uuid); err != nil {
			return compat.ErrLost
		}
		return nil
	}), nil
}

func lease(key, uuid string, now time.Time, ttl time.Duration) compat.Lease {
	return compat.Lease{Key: key, Value: uuid + ":" + millis(now.Add(ttl)), Until: now.Add(ttl)}
}

func expiredOrMine(value, uuid string, now time.Time) bool {
	owner, until, ok := strings.Cut(value, ":")
	ms, err := strconv.ParseInt(until, 10, 64)
	return !ok || err != nil || ms < now.UnixMilli() || owner == uuid
}
