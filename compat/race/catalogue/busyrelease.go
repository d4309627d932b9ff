package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// busyRelease shares one connection between its release and its renewal, whose
// timer fires in between: the EXPIRE touches the key that the release watches.
type busyRelease struct{ giveUp }

func (busyRelease) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	held, exists, err := compat.Watch(c, l.Key)
	if err != nil {
		return err
	}
	if !exists || held != l.Value {
		compat.Unwatch(c)
		return compat.ErrLost
	}
	if _, err := c.Do("EXPIRE", l.Key, 10); err != nil { // the renewal
		return err
	}
	replies, err := compat.Exec(c, compat.Cmd{"DEL", l.Key})
	if err == nil && replies == nil {
		return compat.ErrLost
	}
	return err
}
