package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// staleWatch extends under a WATCH that no EXEC and no UNWATCH ends, and gives its
// connection back so. Its release gets the same connection from the pool.
type staleWatch struct{ giveUp }

func (staleWatch) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	held, exists, err := compat.Watch(c, l.Key)
	if err != nil {
		return l, err
	}
	if !exists || held != l.Value {
		return l, compat.ErrLost
	}
	there, err := redis.Bool(c.Do("EXPIRE", l.Key, int64(ttl/time.Second)))
	if err != nil {
		return l, err
	}
	if !there {
		return l, compat.ErrLost
	}
	l.Until = now.Add(ttl)
	return l, nil
}
