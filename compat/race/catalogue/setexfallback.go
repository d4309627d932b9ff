package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// setexFallback asks for SET NX PX and, told that there is none, writes the key
// with SETEX: over any holder (redlock-py, PR 12).
type setexFallback struct{ tokened }

func (s setexFallback) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := s.lease(key, now, ttl)
	won, err := get(c, "SET", key, l.Value, "NX", "PX", ttl.Milliseconds())
	switch err.(type) {
	case nil:
		if won == "" {
			return l, &compat.HeldError{Key: key}
		}
		return l, nil
	case redis.Error:
		_, err = c.Do("SETEX", key, int64(ttl/time.Second), l.Value)
	}
	return l, err
}
