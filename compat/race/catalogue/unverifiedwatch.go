package catalogue

import (
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// unverifiedWatch keeps its connection and watches the key while it holds it, so
// that it need not compare when it gives it back. It begins when it has been told that the
// key is its own, and never reads what it watches.
type unverifiedWatch struct{ tokened }

func (u unverifiedWatch) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := u.tokened.Acquire(c, now, key, ttl)
	if err == nil {
		_, err = c.Do("WATCH", key)
	}
	return l, err
}

func (unverifiedWatch) Release(l compat.Lease) compat.Change {
	return by(l, func(c *compat.Conn) error {
		replies, err := c.Exec(compat.Cmd{"DEL", l.Key})
		if err == nil && replies == nil {
			return compat.ErrLost
		}
		return err
	})
}
