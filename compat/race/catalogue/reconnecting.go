package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// reconnecting releases under WATCH through a client library that, when the
// connection has broken, makes another and goes on: the WATCH was the first one's.
type reconnecting struct{ tokened }

func (reconnecting) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	held, exists, err := compat.Watch(c, l.Key)
	if err != nil {
		return err
	}
	if !exists || held != l.Value {
		compat.Unwatch(c)
		return compat.ErrLost
	}
	replies, err := compat.Exec(c, compat.Cmd{"DEL", l.Key})
	if c.Err() != nil {
		c = redial(c)
		replies, err = compat.Exec(c, compat.Cmd{"DEL", l.Key})
	}
	if err == nil && replies == nil {
		return compat.ErrLost
	}
	return err
}
