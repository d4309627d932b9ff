package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// uncheckedRenew sends EXPIRE and takes it for done: its reply is not read.
type uncheckedRenew struct{ tokened }

func (u uncheckedRenew) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	_, err := c.Do("EXPIRE", l.Key, int64(ttl/time.Second))
	if err == nil {
		l.Until = now.Add(ttl)
	}
	return l, err
}
