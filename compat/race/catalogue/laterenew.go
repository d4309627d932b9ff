package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// lateRenew releases while its renewal is already on the way: nobody waited for
// the renewing thread before the DEL.
type lateRenew struct{ tokened }

func (t lateRenew) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	if err := t.tokened.Release(c, now, l); err != nil {
		return err
	}
	_, err := c.Do("EXPIRE", l.Key, 10) // the renewal
	return err
}
