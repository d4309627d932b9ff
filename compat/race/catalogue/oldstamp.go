package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// oldStamp computes the time that it will write once, before it begins to wait.
type oldStamp struct{ stamped }

func (oldStamp) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: wholeSeconds(now.Add(ttl))}
	for try := 0; try < 2; try++ {
		if try > 0 {
			now = clock(c, now) // it reads the clock to judge others', not to write its own
		}
		won, err := redis.Bool(c.Do("SETNX", key, l.Value))
		if err != nil {
			return l, err
		}
		if won {
			l.Until = now.Add(ttl)
			return l, nil
		}
	}
	return l, &compat.HeldError{Key: key}
}
