package catalogue

import (
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/race/catalogue/broken"
)

// shortRepair is Redis in Action's lock of a client whose leases are 3 s long. What
// has no TTL gets one, any client's.
type shortRepair struct{ broken.RepairAtOnce }

func (s shortRepair) Acquire(c *compat.Conn, now time.Time, key string, _ time.Duration) (compat.Lease, error) {
	return s.RepairAtOnce.Acquire(c, now, key, 3*time.Second)
}
