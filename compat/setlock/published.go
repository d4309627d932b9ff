package setlock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
)

// Published is the lock of SET as many articles have it, without a script: the client compares,
// then deletes. It is NOT SAFE. It is here for comparison, and to teach.
//
//	SET key token NX PX ttl     OK: ours; nil: held
//	GET key                     ours?
//	PEXPIRE key ttl             whoever has it by now
//	DEL key                     whoever has it by now
//
// Between the GET and the DEL the lease may end and another client may take the key. That client's
// lock is then deleted, and a third client gets in beside it (set/compare-then-del). In the same
// way, an extension may change the end of another client's lock. Wherever Published works, [Lua] or
// [Watched] works too.
type Published struct{ Options }

// Acquire makes one attempt to hold key until now+ttl. This part is safe.
func (k Published) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	return k.set(c, now, key, ttl, false)
}

// Extend sets the key's TTL to ttl if the lock was ours when it looked. By then it may be another
// client's.
func (k Published) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	l.Rotate = false // it would put our token on another's lock
	return k.extend(compat.Unguarded, now, l, ttl)
}

// Release deletes the key if the lock was ours when it looked. By then it may be another client's.
func (k Published) Release(l compat.Lease) compat.Change { return release(compat.Unguarded, l) }

// Traits say that it checks the server.
func (k Published) Traits() compat.Traits { return compat.Traits{Check: k.check} }

// check returns ErrUnsafeServer if the server has no SET … NX PX. What is unsafe about Published
// itself no server can mend.
func (k Published) check(c *compat.Conn, key string) error {
	return ability.Check(c, key, true, sets()...)
}
