package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// blindRenew extends whatever lock there is (Redisson's watchdog in 2016, redlock-rb).
type blindRenew struct{ tokened }

func (b blindRenew) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
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
