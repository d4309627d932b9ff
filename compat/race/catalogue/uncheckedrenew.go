package catalogue

import (
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// uncheckedRenew sends EXPIRE and takes it for done: its reply is not read.
type uncheckedRenew struct{ tokened }

func (u uncheckedRenew) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	l.Until = now.Add(ttl)
	return l, by(l, func(c *compat.Conn) error {
		_, err := c.Do("EXPIRE", l.Key, int64(ttl/time.Second))
		return err
	}), nil
}
