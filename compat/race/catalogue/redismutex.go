package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// redisMutex is kenn/redis-mutex: float seconds, read by Ruby's to_f, to which
// what is no number is 0: dead since 1970.
type redisMutex struct{ stamped }

func (redisMutex) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: float(now.Add(ttl), 3), Until: now.Add(ttl)}
	won, err := redis.Bool(c.Do("SETNX", key, l.Value))
	if won || err != nil {
		return l, err
	}
	for _, cmd := range []redis.Args{{"GET", key}, {"GETSET", key, l.Value}} {
		held, err := get(c, cmd[0].(string), cmd[1:]...)
		if err != nil {
			return l, err
		}
		if until, _ := leading(held); until > unix(now) {
			return l, &compat.HeldError{Key: key, Value: held}
		}
	}
	return l, nil
}

// Release deletes the key if it still has its own time on it.
func (redisMutex) Release(l compat.Lease) compat.Change {
	return by(l, func(c *compat.Conn) error {
		held, err := get(c, "GET", l.Key)
		if err != nil {
			return err
		}
		if held != l.Value {
			return compat.ErrLost
		}
		_, err = c.Do("DEL", l.Key)
		return err
	})
}
