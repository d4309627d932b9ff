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

func (j jedisLock) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	return j.take(c, now, key, ttl, j.uuid())
}

func (j jedisLock) take(c redis.Conn, now time.Time, key string, ttl time.Duration, uuid string) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: uuid + ":" + millis(now.Add(ttl)), Until: now.Add(ttl)}
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
func (j jedisLock) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	held, err := get(c, "GET", l.Key)
	if err != nil {
		return l, err
	}
	uuid, _, _ := strings.Cut(l.Value, ":")
	if !expiredOrMine(held, uuid, now) {
		return l, compat.ErrLost
	}
	next, err := j.take(c, now, l.Key, ttl, uuid)
	if err != nil {
		return l, compat.ErrLost
	}
	return next, nil
}

func expiredOrMine(value, uuid string, now time.Time) bool {
	owner, until, ok := strings.Cut(value, ":")
	ms, err := strconv.ParseInt(until, 10, 64)
	return !ok || err != nil || ms < now.UnixMilli() || owner == uuid
}
