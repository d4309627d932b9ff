package catalogue

import (
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// redisPy29 is redis-py's Lock up to 2.9: float seconds, taken over with GETSET,
// released if the value is not less than what it wrote. decimals are those that
// str() of a float leaves: 2 on Python before 2.7, for which the file was written
// that compares exactly.
type redisPy29 struct {
	stamped
	decimals int
	exactly  bool // released if the value equals what it wrote: before PR 384
}

func (r redisPy29) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	until := now.Add(ttl)
	l := compat.Lease{Key: key, Value: float(until, r.decimals), Until: until}
	won, err := redis.Bool(c.Do("SETNX", key, l.Value))
	if won || err != nil {
		return l, err
	}
	for _, cmd := range []redis.Args{{"GET", key}, {"GETSET", key, l.Value}} {
		held, err := get(c, cmd[0].(string), cmd[1:]...)
		if err != nil {
			return l, err
		}
		if held == "" {
			held = "1" // `or 1`: gone is dead
		}
		n, err := strconv.ParseFloat(held, 64)
		if err != nil {
			return l, err // ValueError leaves acquire()
		}
		if n >= unix(now) {
			return l, &compat.HeldError{Key: key, Value: held}
		}
	}
	return l, nil
}

// Release says nothing when it does nothing.
func (r redisPy29) Release(l compat.Lease) compat.Change {
	return by(l, func(c *compat.Conn) error {
		held, err := get(c, "GET", l.Key)
		if err != nil {
			return err
		}
		if held == "" {
			held = "1"
		}
		n, err := strconv.ParseFloat(held, 64)
		if err != nil {
			return err
		}
		if mine := unix(l.Until); n < mine || r.exactly && n != mine {
			return nil
		}
		_, err = c.Do("DEL", l.Key)
		return err
	})
}
