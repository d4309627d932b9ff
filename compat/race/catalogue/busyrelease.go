package catalogue

import "github.com/setnxlock/setnxlock/compat"

// busyRelease shares one connection between its release and its renewal, whose
// timer fires in between: the EXPIRE touches the key that the release watches.
type busyRelease struct{ giveUp }

func (busyRelease) Release(l compat.Lease) compat.Change {
	return by(l, func(c *compat.Conn) error {
		held, exists, err := c.Watch(l.Key)
		if err != nil {
			return err
		}
		if !exists || held != l.Value {
			c.Unwatch()
			return compat.ErrLost
		}
		if _, err := c.Do("EXPIRE", l.Key, 10); err != nil { // the renewal
			return err
		}
		replies, err := c.Exec(compat.Cmd{"DEL", l.Key})
		if err == nil && replies == nil {
			return compat.ErrLost
		}
		return err
	})
}
