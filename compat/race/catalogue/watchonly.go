package catalogue

import "github.com/setnxlock/setnxlock/compat"

// watchOnly watches the key that it releases and does without MULTI: the DEL runs
// at once, whatever has become of the key (redis-py 2.10.0–2.10.5, do_release).
type watchOnly struct{ tokened }

func (watchOnly) Release(l compat.Lease) compat.Change {
	return by(l, func(c *compat.Conn) error {
		if _, err := c.Do("WATCH", l.Key); err != nil {
			return err
		}
		held, err := get(c, "GET", l.Key)
		if err != nil {
			return err
		}
		if held != l.Value {
			c.Unwatch()
			return compat.ErrLost
		}
		if _, err := c.Do("DEL", l.Key); err != nil {
			return err
		}
		c.Unwatch()
		return nil
	})
}
