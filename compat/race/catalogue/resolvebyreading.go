package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// resolveByReading settles a lost reply by looking whether the key has its own
// time on it. Two clients that ask in the same second write the same.
type resolveByReading struct{ stamped }

func (resolveByReading) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: wholeSeconds(now.Add(ttl)), Until: now.Add(ttl)}
	won, err := redis.Bool(c.Do("SETNX", key, l.Value))
	if c.Err() != nil {
		var held string
		held, err = get(redial(c), "GET", key)
		won = held == l.Value
	}
	if err == nil && !won {
		err = &compat.HeldError{Key: key}
	}
	return l, err
}
