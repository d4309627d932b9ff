package catalogue

import "github.com/setnxlock/setnxlock/compat"

// reconnecting releases under WATCH through a client library that, when the
// connection has broken, makes another and goes on: the WATCH was the first one's.
type reconnecting struct{ tokened }

func (reconnecting) Release(l compat.Lease) compat.Change {
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
		if c.Err() != nil {
			c = redial(c)
			replies, err = c.Exec(compat.Cmd{"DEL", l.Key})
		}
		if err == nil && replies == nil {
			return compat.ErrLost
		}
		return err
	})
}
