package catalogue

import (
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// lateLease counts its lease from when it learned that it has one, by which time
// the server has been counting for as long as the reply took (retools 0.1–0.3).
type lateLease struct{ tokened }

func (t lateLease) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := t.tokened.Acquire(c, now, key, ttl)
	if err == nil {
		l.Until = clock(c, now).Add(ttl)
	}
	return l, err
}
