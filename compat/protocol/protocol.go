// Package protocol is what an author of a lock needs: [Algorithm], what it sends with ([Conn], [Write]), what it returns
// as data ([Lease], [Change]), and the errors. It has no goroutine, no clock and no pool: package compat is the engine
// that runs what is written with it.
//
// Every step has one of four outcomes: done; refused ([ErrHeld], [ErrLost]); not sent; and unknown: the command may have
// run, and only its reply was lost. [OutcomeOf] tells which by the error.
package protocol

import (
	"slices"
	"time"
)

// An Algorithm is a lock protocol. Acquire and Inspect are one attempt each, over one connection;
// Extend and Release only say what is to change, and the engine changes it. An Algorithm is given
// the time. It does not wait, retry without bound, read a clock or start a goroutine: the Locker
// does that. A type that embeds an Algorithm and only forwards loses nothing.
//
// [OutcomeOf] says what an error leaves open: an error that is not one of this package's means that
// the command may have run, and only its reply was lost. Acquire then still returns the lease that
// it asked for, so that the Locker can look for it.
type Algorithm interface {
	// Acquire makes one attempt to hold key until now+ttl. It returns ErrHeld (a *HeldError)
	// if another client holds it.
	Acquire(c *Conn, now time.Time, key string, ttl time.Duration) (Lease, error)

	// Extend returns the change that moves the end of l to now+ttl (it sets, it does not add), and
	// the lease that l becomes. It sends nothing. With rotate the new lease must have a new value:
	// somebody else knows this one, or a request that was sent with it may still arrive. A lock that
	// can't be extended returns errors.ErrUnsupported.
	Extend(now time.Time, l Lease, ttl time.Duration, rotate bool) (Lease, Change, error)

	// Release returns the change that ends l. It sends nothing. The change must be harmless for a
	// lease that was never obtained.
	Release(l Lease) Change

	// Inspect reads the key and changes nothing.
	Inspect(c *Conn, now time.Time, key string) (State, error)

	// Traits say what else it can do. They are the same at each call.
	Traits() Traits
}

// Traits are what an [Algorithm] can do beyond taking, extending and releasing.
type Traits struct {
	// Shared says that several clients hold a key at once: readers. Waiters in one process
	// then do not wait for each other's locks, and nothing is handed off.
	Shared bool

	// Rotates says that Extend obeys rotate. Without it, a lock whose value is known outside
	// the engine is released instead of handed off.
	Rotates bool

	// Check, if there is one, returns [ErrUnsafeServer] (an [*UnsafeServerError]) if an answer of
	// the server proves that the lock is not safe on it. It may write only to scratch keys of
	// random names in key's slot, with a TTL, and removes them. The Locker calls it before the
	// first acquisition, in each epoch, and again after a connection broke, because another server
	// may answer from then on.
	Check func(c *Conn, key string) error

	// Leave, if there is one, returns the commands that remove the word of a waiter ([Conn.Waiter])
	// beside key. The Locker sends them when the wait ends without an acquisition: the waiter
	// gave up, or the lock was handed off to it.
	Leave func(key, waiter string) []Cmd

	// Repair, if there is one, returns the change that gives s.Key the end now+ttl, or removes it:
	// because its holder died before it could set a TTL, or because the end that it shows is not
	// trusted. [ErrHeld]: leave the key as it is. The Locker carries the change out when it has
	// seen the same value unchanged for a whole ttl as [StatusPersistent], or for s.Watch where
	// that is set and longer.
	Repair func(now time.Time, s State, ttl time.Duration) (Change, error)
}

// A Lease says that we hold Key until Until, by our own clock.
type Lease struct {
	Key   string
	Value string    // the exact bytes on the key; Extend and Release compare with them
	Until time.Time // counted from before the request was sent, less a margin for drift
	Fence int64     // grows with every acquisition of the key; 0 if not asked for
	How   How       // how it was obtained

	// Ambiguous says that Value on the key does not prove that the lease is ours: another client
	// can write the same bytes, or a losing attempt of ours can leave them behind. An unknown
	// outcome is then never resolved by reading, and a release of unknown outcome is not repeated.
	Ambiguous bool

	_ struct{} // no positional literals
}

// How tells how a lease was obtained.
type How string

const (
	Free      How = "free"       // nobody held the key
	TakenOver How = "taken over" // its holder's lease had run out
	Resolved  How = "resolved"   // the reply was lost and the key was found to be ours
	Adopted   How = "adopted"    // by a handle or a token
	HandedOff How = "handed off" // by the holder before, in this process, without a release on the server
)

// A State is what a client sees that only reads the key.
type State struct {
	Key    string
	Value  string
	Status Status
	Format string        // what the value was read as: "token", "float seconds", …
	Until  time.Time     // when the lease ends, by our clock; zero if there is no end or it can't be read
	Clock  string        // whose clock decides: "server" (a TTL) or "clients" (a timestamp)
	TTL    time.Duration // the key's TTL, or NoTTL
	Watch  time.Duration // how long the value must be seen unchanged before it may be repaired, whatever Until says; 0: for a ttl, if Status is persistent

	// Holders are all holders, if a lock can have several (readers). Value and Until are then those
	// of the holder that keeps others out longest.
	Holders []Holder

	// Open says that an attempt makes sense although the key is held: by a reader, beside readers;
	// by a writer, which must renew its word that it waits.
	Open bool

	_ struct{}
}

// A Holder is one of several clients that hold a key.
type Holder struct {
	Value string
	Until time.Time // by our clock; zero if it is not known
}

// Holds reports whether value is on the key, whether its lease has ended or not.
func (s State) Holds(value string) bool {
	if s.Status == StatusFree {
		return false
	}
	return s.Value == value || slices.ContainsFunc(s.Holders, func(h Holder) bool { return h.Value == value })
}

// End is when value's hold of the key ends, at the latest, by our clock; zero if it is not known.
// Until may be up to a second earlier: a server that counts the TTL in seconds leaves out a part of one.
func (s State) End(value string) time.Time {
	end := s.Until
	for _, h := range s.Holders {
		if h.Value == value {
			end = h.Until
			break
		}
	}
	if s.Clock == "server" && s.TTL != NoTTL && !end.IsZero() {
		end = end.Add(time.Second)
	}
	return end
}

// Status says what an attempt on the key would meet.
type Status string

const (
	StatusFree       Status = "free"       // there is no such key
	StatusHeld       Status = "held"       // another client holds it
	StatusDead       Status = "dead"       // it is there, but its lease has run out
	StatusPersistent Status = "persistent" // held, and has no TTL: its holder may be dead
	StatusForeign    Status = "foreign"    // holds something that can't be read as a lock of this kind

	NoTTL time.Duration = -1 // the TTL of a key that never expires
)

// Until is the end of a lease of ttl that is asked for at now, by the clock that now was read from.
// The holder must have stopped before it. It is now + ttl, less a hundredth of the ttl and two
// milliseconds: for clocks that run at different rates and timers that fire late. (The figures are
// Redlock's.)
func Until(now time.Time, ttl time.Duration) time.Time {
	return now.Add(ttl - ttl/100 - 2*time.Millisecond) // lease.Until has the same
}
