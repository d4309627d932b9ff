package catalogue

import "github.com/setnxlock/setnxlock/compat"

// bareDel releases whatever lock there is (Laravel up to 5.7, jedis-lock, most
// timestamp clients).
type bareDel struct{ tokened }

func (bareDel) Release(l compat.Lease) compat.Change {
	return by(l, func(c *compat.Conn) error {
		_, err := c.Do("DEL", l.Key)
		return err
	})
}
