package compat

import (
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/lease"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// longest is the longest ttl of a lock, a hundred years: what ends later has more digits than
// the clients of timestamp locks read.
const longest = 100 * 365 * 24 * time.Hour

// validTTL returns ErrInvalid for a ttl outside the range of all locks. Drift and the time to stop leave nothing
// of a shorter one; no server and no client counts a longer one.
func validTTL(ttl time.Duration) error {
	now := time.Unix(0, 0)
	if s := lease.New(lease.Claim{Until: protocol.Until(now, max(ttl, 0)), TTL: ttl}, false, now); ttl <= 0 || !s.End().After(now) {
		return fmt.Errorf("%w: a ttl of %v leaves no time to work: the least is 4 ms", ErrInvalid, ttl)
	}
	if ttl > longest {
		return fmt.Errorf("%w: a ttl of %v is longer than %v", ErrInvalid, ttl, longest)
	}
	return nil
}
