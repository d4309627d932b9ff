// Package protocol serves the author of a lock. An [Algorithm] sends commands with [Conn] and [Write], and
// returns data ([Lease], [Change]) and errors. The package has no goroutine, no clock and no pool: package
// compat is the engine, and runs an Algorithm.
//
// Every step ends with one of four outcomes: done; refused ([ErrHeld], [ErrLost]); not sent; and unknown. After
// an unknown outcome the command may have run, and only its reply was lost. [OutcomeOf] reads the outcome from
// the error.
package protocol

import "time"

// An Algorithm implements a lock protocol. Acquire and Inspect make one attempt each, over one connection.
// Extend and Release only return the change to make, and the engine makes it. An Algorithm receives the time as
// an argument. It does not wait, retry without bound, read a clock or start a goroutine: the Locker does that.
// A type that embeds an Algorithm and only forwards calls keeps all of its abilities.
//
// An error from outside this package means that the command may have run, and only its reply was lost:
// [OutcomeOf] returns [Unknown]. Acquire then still returns the requested lease, and the Locker looks for it on
// the key.
type Algorithm interface {
	// Acquire makes one attempt to hold key until now+ttl. It returns ErrHeld (a *HeldError)
	// if another client holds key.
	Acquire(c *Conn, now time.Time, key string, ttl time.Duration) (Lease, error)

	// Extend returns the change that moves the end of l to now+ttl, and the lease that l becomes. The
	// change sets the end, and adds nothing to it. Extend sends nothing. With rotate the new lease must
	// have a new value: another client knows the old value, or a request with the old value may still
	// arrive. A lock that draws fences takes one for an l without a fence ([Change.TakeFence]): l was
	// adopted or handed off, or its number was lost. A lock without extensions returns
	// errors.ErrUnsupported.
	Extend(now time.Time, l Lease, ttl time.Duration, rotate bool) (Lease, Change, error)

	// Release returns the change that ends l. Release sends nothing. The change must be harmless for a
	// lease that was never obtained.
	Release(l Lease) Change

	// Inspect reads the key and changes nothing.
	Inspect(c *Conn, now time.Time, key string) (State, error)

	// Traits returns the algorithm's further abilities: the same at each call.
	Traits() Traits
}

// Traits list the abilities of an [Algorithm] beyond taking, extending and releasing.
type Traits struct {
	// Shared says that several clients can hold a key at once, as readers do. Waiters in one process
	// then do not wait for each other's locks, and no lock is handed off.
	Shared bool

	// Most is how many clients can hold a key at once, if Shared. 0: any number. A quorum refuses such a
	// lock: three clients could have two of three servers each, where each server lets two in.
	Most int

	// Rotates says that Extend obeys rotate. Without Rotates, the engine does not hand off a lock whose
	// value is known outside the engine: it releases the lock.
	Rotates bool

	// Check returns [ErrUnsafeServer] (an [*UnsafeServerError]) if an answer of the server proves that
	// the lock is not safe there. Check may be nil. It may write only to scratch keys of random names in
	// key's slot, with a TTL, and removes them. The Locker calls Check before the first acquisition of
	// each epoch, and again after a connection broke: another server may answer from then on.
	Check func(c *Conn, key string) error

	// Leave returns the commands that remove a waiter's ticket ([Conn.Waiter]) beside key. Leave may be
	// nil. The Locker sends the commands when the wait ends without an acquisition: the waiter gave up,
	// or received the lock by a hand-off.
	Leave func(key, waiter string) []Cmd

	// Repair returns the change that sets the end of s.Key to now+ttl, or removes s.Key: its holder died
	// before it could set a TTL, or the end on the key is not trusted. Repair may be nil. [ErrHeld] means:
	// leave the key as it is. The Locker makes the change when the same value has stayed unchanged for a
	// whole ttl as [StatusPersistent], or for s.Watch if s.Watch is longer.
	Repair func(now time.Time, s State, ttl time.Duration) (Change, error)
}
