package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// staleWatch extends under a WATCH that no EXEC and no UNWATCH ends, and gives its
// connection back so. Its release gets the same connection from the pool.
type staleWatch struct{ giveUp }

func (staleWatch) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	l.Until = now.Add(ttl)
	return l, by(l, func(c *compat.Conn) error {
		held, exists, err := c.Watch(l.Key)
		if err != nil {
			return err
		}
		if !exists || held != l.Value {
			return compat.ErrLost
		}
		there, err := redis.Bool(c.Do("EXPIRE", l.Key, int64(ttl/time.Second)))
		if err == nil && !there {
			err = compat.ErrLost
		}
		return err
	}), nil
}
