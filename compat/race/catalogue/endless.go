package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// endless is the lock before clients were expected to die: SETNX, work, DEL. The key
// has neither a time on it nor a TTL (redis-objects, the first version).
type endless struct {
	stamped
	token func() string
}

func (e endless) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: e.token(), Until: now.Add(ttl)}
	won, err := redis.Bool(c.Do("SETNX", key, l.Value))
	if err == nil && !won {
		err = &compat.HeldError{Key: key}
	}
	return l, err
}
