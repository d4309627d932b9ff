package catalogue

import "github.com/setnxlock/setnxlock/compat"

// retryDel compares, deletes, and sends the DEL again over another connection if
// no reply came: "at least once" for a command that must run at most once.
type retryDel struct{ tokened }

func (retryDel) Release(l compat.Lease) compat.Change {
	return by(l, func(c *compat.Conn) error {
		held, err := get(c, "GET", l.Key)
		if err != nil {
			return err
		}
		if held != l.Value {
			return compat.ErrLost
		}
		if _, err = c.Do("DEL", l.Key); c.Err() != nil {
			_, err = redial(c).Do("DEL", l.Key)
		}
		return err
	})
}
