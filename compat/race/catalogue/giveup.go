package catalogue

import "github.com/setnxlock/setnxlock/compat"

// giveUp releases under WATCH and takes an EXEC that was aborted for a lock that
// is lost: it leaves the key.
type giveUp struct{ tokened }

func (giveUp) Release(l compat.Lease) compat.Change {
	return by(l, func(c *compat.Conn) error {
		held, exists, err := c.Watch(l.Key)
		if err != nil {
			return err
		}
		if !exists || held != l.Value {
			c.Unwatch()
			return compat.ErrLost
		}
		replies, err := c.Exec(compat.Cmd{"DEL", l.Key})
		if err == nil && replies == nil {
			return compat.ErrLost
		}
		return err
	})
}
