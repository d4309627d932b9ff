package getsetlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Patient is Guarded for clocks that don't agree: whatever time a key tells,
// it is another client's until it has stood there unchanged for a whole lease,
// as our own clock runs. Then its holder has let it go, or is dead, and the key is
// removed under WATCH. Redis 2.2 and later.
//
//	SETNX key T              1: ours; 0: held, whatever the time
//	GET key; GET key; …      the Locker looks on, for a Lease
//	WATCH key; GET key       unchanged since
//	MULTI; DEL key; EXEC     nil: it lives
//
// Clocks need to run at the same rate, not to show the same time; the Locker's
// is to be the computer's own, which no correction moves. The price: a
// dead lock is recovered a whole Lease after it was first seen, and by Lock and
// Do only, for TryLock does not look twice.
//
// It keeps us from taking a lock that is held because our clock is wrong; it
// can't keep others from taking ours because theirs is, unless they are Patient
// too. And two clients with different clocks can write the same time in a
// dialect without an owner (getset/same-stamp): seen only before and
// after, they look like one.
type Patient struct {
	Options

	// Lease is the longest lease that any client of the fleet asks for, and it
	// may not be extended without the value changing. A shorter one takes locks
	// that are held. It must be set.
	Lease time.Duration
}

// Acquire makes one attempt to hold key until now+ttl, and takes nothing over.
func (p Patient) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := p.Options.Lease(key, now, ttl)
	if err == nil && ttl > p.Lease {
		err = fmt.Errorf("%w: a ttl of %v is longer than Patient.Lease, %v: others would take it over too soon", compat.ErrInvalid, ttl, p.Lease)
	}
	if err != nil {
		return l, err
	}
	won, err := p.setnx(c, &l)
	if err == nil && !won {
		err = &compat.HeldError{Key: key} // until nobody knows when
	}
	return l, err
}

// Extend moves the end of a lease that is still ours to now+ttl.
func (p Patient) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	if ttl > p.Lease {
		return l, fmt.Errorf("%w: a ttl of %v is longer than Patient.Lease, %v", compat.ErrInvalid, ttl, p.Lease)
	}
	return Guarded{p.Options}.Extend(c, now, l, ttl)
}

// Release deletes the key if it still has our time on it.
func (p Patient) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	return Guarded{p.Options}.Release(c, now, l)
}

// Inspect reads the value. A time of the dialect is held, come or gone by, and
// to be watched: for Lease and what clocks may drift in it.
func (p Patient) Inspect(c redis.Conn, now time.Time, key string) (compat.State, error) {
	s, err := p.Options.Inspect(c, now, key)
	if err == nil && (s.Status == compat.StatusHeld || s.Status == compat.StatusDead) {
		s.Status = compat.StatusHeld
		s.Watch = p.Lease + compat.Drift(p.Lease)
	}
	return s, err
}

// Repair removes the key if it still holds s.Value.
func (p Patient) Repair(c redis.Conn, now time.Time, s compat.State, ttl time.Duration) error {
	replies, err := compat.IfHolds(c, compat.Lease{Key: s.Key, Value: s.Value}, compat.Cmd{"DEL", s.Key})
	if errors.Is(err, compat.ErrLost) || err == nil && replies[0] == int64(0) {
		return compat.ErrHeld
	}
	return err
}

// Check is Guarded's.
func (p Patient) Check(c redis.Conn, key string) error { return Guarded{p.Options}.Check(c, key) }
