package setlock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
)

// Published is the lock of SET as it is copied from article to article by those
// who do without a script: the client compares, then deletes. It is NOT SAFE, and here to
// compare and to teach.
//
//	SET key token NX PX ttl     OK: ours; nil: held
//	GET key                     ours?
//	PEXPIRE key ttl             whosever it is by now
//	DEL key                     whosever it is by now
//
// Between the GET and the DEL the lease may end and another client take the
// key: that client's lock is deleted, and a third one gets in beside it
// (set/compare-then-del). An extension gives another's lock a new end in the
// same way. Where it works one of Lua and Watched does too.
type Published struct{ Options }

// Acquire makes one attempt to hold key until now+ttl. This part is safe.
func (k Published) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	return k.set(c, now, key, ttl, false)
}

// Extend sets the end of what the key holds to now+ttl, if it was ours a moment ago.
func (k Published) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	l.Rotate = false // it would put our token on another's lock
	return k.extend(compat.Unguarded, now, l, ttl)
}

// Release deletes what the key holds, if it was ours a moment ago.
func (k Published) Release(l compat.Lease) compat.Change { return release(compat.Unguarded, l) }

// Traits say that it checks the server.
func (k Published) Traits() compat.Traits { return compat.Traits{Check: k.check} }

// check returns ErrUnsafeServer if the server has no SET … NX PX. What is unsafe about Published
// itself no server can mend.
func (k Published) check(c *compat.Conn, key string) error {
	return ability.Check(c, key, true, sets()...)
}
