// Package protocol is what an author of a lock needs: [Algorithm], what it sends with ([Conn], [Write]), what it returns
// as data ([Lease], [Change]), and the errors. It has no goroutine, no clock and no pool: package compat is the engine
// that runs what is written with it.
//
// Every step has one of four outcomes: done; refused ([ErrHeld], [ErrLost]); not sent; and unknown: the command may have
// run, and only its reply was lost. [OutcomeOf] tells which by the error.
package protocol

import "time"

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
