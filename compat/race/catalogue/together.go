package catalogue

import (
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// together puts SETNX and EXPIRE into one MULTI, so that no crash can come between
// them: the EXPIRE runs for a refused client too.
type together struct{ tokened }

func (t together) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := t.lease(key, now, ttl)
	replies, err := c.Exec(compat.Cmd{"SETNX", key, l.Value}, compat.Cmd{"EXPIRE", key, int64(ttl / time.Second)})
	if err == nil && replies[0] != int64(1) {
		err = &compat.HeldError{Key: key}
	}
	return l, err
}
