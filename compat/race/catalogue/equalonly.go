package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// equalOnly is the SETNX page to the letter: "If such a timestamp is equal to the
// current Unix time the lock is no longer valid." The page of 2009 had <=, and the
// conversion to Markdown ate the <.
type equalOnly struct{ stamped }

func (equalOnly) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: wholeSeconds(now.Add(ttl + time.Second)), Until: now.Add(ttl)}
	won, err := redis.Bool(c.Do("SETNX", key, l.Value))
	if won || err != nil {
		return l, err
	}
	for _, cmd := range []redis.Args{{"GET", key}, {"GETSET", key, l.Value}} {
		held, err := get(c, cmd[0].(string), cmd[1:]...)
		if err != nil {
			return l, err
		}
		if until, ok := leading(held); !ok || int64(until) != now.Unix() {
			return l, &compat.HeldError{Key: key, Value: held}
		}
	}
	return l, nil
}
