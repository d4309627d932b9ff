package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/txlock"
)

// tokened is what clients with a token on the key have in common: SETNX, then
// EXPIRE; and no margin in what they believe.
type tokened struct {
	txlock.Options // Extend, Release and Inspect, where a client has nothing worse
}

func (tokened) Traits() compat.Traits { return compat.Traits{} }

func (t tokened) lease(key string, now time.Time, ttl time.Duration) compat.Lease {
	return compat.Lease{Key: key, Value: t.Token(), Until: now.Add(ttl)}
}

func (t tokened) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := t.lease(key, now, ttl)
	won, err := redis.Bool(c.Do("SETNX", key, l.Value))
	if err != nil {
		return l, err
	}
	if !won {
		return l, &compat.HeldError{Key: key}
	}
	_, err = c.Do("EXPIRE", key, int64(ttl/time.Second))
	return l, err
}
