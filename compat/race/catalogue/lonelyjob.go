package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// lonelyJob is resque-lonely_job: whole seconds, read by Ruby's to_i, which cuts
// the fraction off, and gone by when it is less than now or the same.
type lonelyJob struct{ stamped }

func (lonelyJob) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: wholeSeconds(now.Add(ttl)), Until: now.Add(ttl)}
	won, err := redis.Bool(c.Do("SETNX", key, l.Value))
	if won || err != nil {
		return l, err
	}
	for _, cmd := range []redis.Args{{"GET", key}, {"GETSET", key, l.Value}} {
		held, err := get(c, cmd[0].(string), cmd[1:]...)
		if err != nil {
			return l, err
		}
		if until, _ := leading(held); int64(until) > now.Unix() {
			return l, &compat.HeldError{Key: key, Value: held}
		}
	}
	return l, nil
}
