package catalogue

import "github.com/setnxlock/setnxlock/compat"

// lateRenew releases while its renewal is already on the way: nobody waited for
// the renewing thread before the DEL.
type lateRenew struct{ tokened }

func (t lateRenew) Release(l compat.Lease) compat.Change {
	return by(l, func(c *compat.Conn) error {
		if _, err := c.Run(t.tokened.Release(l)); err != nil {
			return err
		}
		_, err := c.Do("EXPIRE", l.Key, 10) // the renewal
		return err
	})
}
