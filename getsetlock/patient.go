package getsetlock

import (
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Patient is [Guarded] for clocks that disagree: whatever time a key shows, the lock counts as held
// until the key has been unchanged for a whole Lease by our own clock. Its holder has then lost it
// or is dead, and the key is removed under WATCH. Redis 2.2 and later.
//
//	SETNX key T              1: ours; 0: held, whatever the time
//	GET key; GET key; …      the Locker looks on, for a Lease
//	WATCH key; GET key       unchanged since
//	MULTI; DEL key; EXEC     nil: it lives
//
// Clocks must run at the same rate, but need not show the same time. The Locker's clock must be the
// computer's own, not one that is corrected, such as probe.Clock. The price: a dead lock is
// recovered a whole Lease after it was first seen, and in a dialect without an owner two units later.
// Only Lock and Do recover it, because TryLock does not look twice.
//
// It keeps us from taking a held lock when our clock is wrong; it can't keep others from taking
// ours when theirs is, unless they are Patient too. In a dialect without an owner, two clients with
// different clocks can write the same time (getset/same-stamp); to a waiter that reads only now and
// then, they look like one client.
type Patient struct {
	Options

	// Lease is the longest lease that any client of the fleet asks for; each extension must change
	// the value, unless it comes in the same unit of the dialect. If Lease is set too short, held
	// locks are taken. It must be set.
	Lease time.Duration
}

// Acquire makes one attempt to hold key until now+ttl. It never takes a lock over.
func (p Patient) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, err := p.Options.Lease(key, now, ttl)
	if err == nil && ttl > p.Lease {
		err = fmt.Errorf("%w: a ttl of %v is longer than Patient.Lease, %v: others would take it over too soon", protocol.ErrInvalid, ttl, p.Lease)
	}
	if err != nil {
		return l, err
	}
	_, won, err := p.setnx(c, &l, false)
	if err == nil && !won {
		err = &protocol.HeldError{Key: key} // until nobody knows when
	}
	return l, err
}

// Extend moves the end of l to now+ttl, by a new value each time: waiters would take an unchanged value for a dead
// holder's, and remove the key.
func (p Patient) Extend(now time.Time, l protocol.Lease, ttl time.Duration, _ bool) (protocol.Lease, protocol.Change, error) {
	if ttl > p.Lease {
		return l, protocol.Change{}, fmt.Errorf("%w: a ttl of %v is longer than Patient.Lease, %v", protocol.ErrInvalid, ttl, p.Lease)
	}
	return p.extend(protocol.Watch, now, l, ttl, true)
}

// Release deletes the key if it still has our time on it.
func (p Patient) Release(l protocol.Lease) protocol.Change { return release(protocol.Watch, l) }

// Inspect reads the value. A time of the dialect counts as held, expired or not. State.Watch is
// Lease and what clocks may drift in that time, and in a dialect without an owner two units more.
func (p Patient) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	s, err := p.Options.Inspect(c, now, key)
	if err == nil && (s.Status == protocol.StatusHeld || s.Status == protocol.StatusDead) {
		s.Status = protocol.StatusHeld
		s.Watch = 2*p.Lease - protocol.Until(now, p.Lease).Sub(now) // a lease and its drift
		if s.Ambiguous {
			s.Watch += 2 * p.Dialect.orFloat().Unit // its holder may have written the same value that much later
		}
	}
	return s, err
}

// Traits make the Locker check the server, and remove a key after a Lease without a change.
func (p Patient) Traits() protocol.Traits {
	return protocol.Traits{Rotates: true, Check: Guarded{p.Options}.check, Repair: p.repair}
}

// repair removes the key if it still holds s.Value.
func (p Patient) repair(_ time.Time, s protocol.State, _ time.Duration) (protocol.Change, error) {
	return release(protocol.Watch, protocol.Lease{Key: s.Key, Value: s.Value}), nil
}
