package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// compareDel looks whose the key is, then deletes it.
type compareDel struct{ tokened }

func (compareDel) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	held, err := get(c, "GET", l.Key)
	if err != nil {
		return err
	}
	if held != l.Value {
		return compat.ErrLost
	}
	_, err = c.Do("DEL", l.Key)
	return err
}
