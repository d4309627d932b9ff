package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// giveUp releases under WATCH and takes an EXEC that was aborted for a lock that
// is lost: it leaves the key.
type giveUp struct{ tokened }

func (giveUp) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	held, exists, err := compat.Watch(c, l.Key)
	if err != nil {
		return err
	}
	if !exists || held != l.Value {
		compat.Unwatch(c)
		return compat.ErrLost
	}
	replies, err := compat.Exec(c, compat.Cmd{"DEL", l.Key})
	if err == nil && replies == nil {
		return compat.ErrLost
	}
	return err
}
