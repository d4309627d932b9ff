package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// blindRenew extends whatever lock there is (Redisson's watchdog in 2016, redlock-rb).
type blindRenew struct{ tokened }

func (b blindRenew) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	l.Until = now.Add(ttl)
	return l, by(l, func(c *compat.Conn) error {
		there, err := redis.Bool(c.Do("EXPIRE", l.Key, int64(ttl/time.Second)))
		if err == nil && !there {
			err = compat.ErrLost
		}
		return err
	}), nil
}
