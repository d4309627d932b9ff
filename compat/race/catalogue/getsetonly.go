package catalogue

import (
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// getsetOnly takes the key with GETSET and looks at what was there: nothing, ours.
// Each look takes the holder's TTL away (redis-semaphore's exists key).
type getsetOnly struct{ tokened }

func (g getsetOnly) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := g.lease(key, now, ttl)
	old, err := get(c, "GETSET", key, l.Value)
	if err != nil {
		return l, err
	}
	if old != "" {
		return l, &compat.HeldError{Key: key, Value: old}
	}
	_, err = c.Do("EXPIRE", key, int64(ttl/time.Second))
	return l, err
}
