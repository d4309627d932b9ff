package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// naiveDel takes a dead lock over by removing it: the way that the SETNX page
// shows first, to say that it must not be gone.
type naiveDel struct{ stamped }

func (naiveDel) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: wholeSeconds(now.Add(ttl)), Until: now.Add(ttl)}
	won, err := redis.Bool(c.Do("SETNX", key, l.Value))
	if won || err != nil {
		return l, err
	}
	held, err := get(c, "GET", key)
	if err != nil {
		return l, err
	}
	if until, ok := leading(held); !ok || until >= unix(now) {
		return l, &compat.HeldError{Key: key}
	}
	if _, err := c.Do("DEL", key); err != nil {
		return l, err
	}
	won, err = redis.Bool(c.Do("SETNX", key, l.Value))
	if err == nil && !won {
		err = &compat.HeldError{Key: key}
	}
	return l, err
}
