package catalogue

import (
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// forgetful takes a reply that was lost for a refusal: it goes away, and what it
// may have taken stays.
type forgetful struct{ endless }

func (f forgetful) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := f.endless.Acquire(c, now, key, ttl)
	if err != nil {
		return l, compat.ErrHeld
	}
	return l, nil
}
