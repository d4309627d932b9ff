// Package compat is the common interface of setnxlock's locks, and the one
// engine that waits for them, renews them and gives them back.
//
// A lock is made of two parts. An [Algorithm] is a protocol: what is sent to
// Redis to take, extend and release a key, one attempt at a time, over one
// connection, with the time handed in. A [Locker] is the engine: it borrows
// the connection, waits, renews, resolves what a broken connection left
// unknown, and tells when the lease ends.
//
//	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", "127.0.0.1:6379") }}
//	locks := compat.New(pool, txlock.Renamed{}, compat.Options{})
//	err := locks.Do(ctx, "report", 30*time.Second, func(ctx context.Context) error {
//		return writeReport(ctx) // ctx ends, with cause ErrLost, before the lease does
//	})
//
// The algorithms are in getsetlock (any Redis since 1.2) and txlock (since
// 2.2); package auto chooses between them by asking the server.
//
// Every step has three outcomes: done; refused ([ErrHeld], [ErrLost]); and
// unknown: the command may have run and only its reply been lost. The Locker
// resolves the unknown by reading the key; what stays unknown is [ErrUnknown].
package compat

import (
	"context"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"
)

// An Algorithm is one attempt at each step of a lock protocol, over one
// connection. It is told the time. It does not wait, retry without bound, read
// a clock or start a goroutine: those are the Locker's.
//
// An error that is none of this package's leaves the outcome unknown: the
// command may have run and only its reply been lost. Acquire and Extend then
// still return the lease they asked for, so that the Locker can look for it.
// Release must be harmless for a lease that was never taken.
type Algorithm interface {
	// Acquire makes one attempt to hold key until now+ttl. It returns
	// ErrHeld (a *HeldError) if another client holds it.
	Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (Lease, error)

	// Extend moves the end of a lease that is still ours to now+ttl: it
	// sets, it does not add. It returns ErrLost if the lease is not ours any
	// more or now is not before its Until. A lease whose Fence is 0 gets one, if
	// the algorithm draws them. A lock that can't be extended returns
	// errors.ErrUnsupported.
	Extend(c redis.Conn, now time.Time, l Lease, ttl time.Duration) (Lease, error)

	// Release gives the lease back. It returns ErrLost if the key was not
	// ours any more, and then changes nothing.
	Release(c redis.Conn, now time.Time, l Lease) error

	// Inspect reads the key and changes nothing.
	Inspect(c redis.Conn, now time.Time, key string) (State, error)
}

// A Shared is an Algorithm whose lock several clients hold at once: readers. Its
// waiters in one process do not wait for each other's locks, and nothing is handed on.
type Shared interface {
	Shared() bool
}

// A Checker is an Algorithm that can tell whether it is safe on a server.
// Check returns ErrUnsafeServer (an *UnsafeServerError) if it is not. It
// writes, if at all, to a scratch key of random name in key's slot and removes
// it. The Locker calls it before the first acquisition and again after a
// connection broke, because another server may answer from then on.
type Checker interface {
	Check(c redis.Conn, key string) error
}

// A Repairer is an Algorithm whose keys can be left without an end: the holder
// died between taking the key and giving it a TTL, or the end that it tells is
// not believed. Repair gives s.Key an end, now+ttl, or removes it, on the
// condition that it still holds s.Value and still has no end; it returns ErrHeld
// if the key has changed. The Locker calls it when it has seen the same value
// unchanged, as StatusEndless for a whole ttl, or for s.Watch where there is one
// and it is longer.
type Repairer interface {
	Repair(c redis.Conn, now time.Time, s State, ttl time.Duration) error
}

// A Backend is an Algorithm together with the connections it runs on. A lock
// that spans several servers or several keys is a Backend of its own, so that
// one engine serves all. now reads the clock; a Backend reads it after it has
// its connection and before the request is sent.
type Backend interface {
	Acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (Lease, error)
	Extend(ctx context.Context, now func() time.Time, l Lease, ttl time.Duration) (Lease, error)
	Release(ctx context.Context, now func() time.Time, l Lease) error
	Inspect(ctx context.Context, now func() time.Time, key string) (State, error)
	Repair(ctx context.Context, now func() time.Time, s State, ttl time.Duration) error
}

// A Finder is a Backend that can't tell by Inspect alone whether a lease still
// stands: of several servers some may not answer. Find returns the lease that
// value stands for, ErrLost if it holds key no more. Adopt and ReleaseToken use it.
type Finder interface {
	Find(ctx context.Context, now func() time.Time, key, value string) (Lease, error)
}

// A Source hands out connections. A *redis.Pool is one.
type Source interface {
	GetContext(ctx context.Context) (redis.Conn, error)
}

// A KeySource is a Source of many servers, each of which has some of the keys: a
// cluster. GetFor returns a connection to the server that has key; every other
// key of the same hash slot (see Aux) is there too.
type KeySource interface {
	Source
	GetFor(ctx context.Context, key string) (redis.Conn, error)
}

// An EraSource is a Source whose server can be replaced by one that lacks its
// last writes: a replica that was promoted. Era grows with each replacement
// that the Source has learnt of. The Locker asks a Checker anew in each era, and takes a key that
// was written in one and is gone in the next for lost, not for released.
type EraSource interface {
	Source
	Era() uint64
}

// A Lease says that we hold Key until Until, by our own clock.
type Lease struct {
	Key   string
	Value string    // the exact bytes on the key; Extend and Release compare with them
	Until time.Time // counted from before the request was sent, less a margin for drift
	Fence int64     // grows with every acquisition of the key; 0 if not asked for
	How   How       // how it was obtained

	// Ambiguous says that finding Value on the key does not prove the lease
	// ours: another client can write the same bytes, or a losing attempt can
	// leave ours behind. Such a lease is never resolved by reading, and a
	// release of unknown outcome is not repeated.
	Ambiguous bool

	era uint64 // the EraSource's, when the lease was asked for
	pin *pin   // the connection that has watched Key since it held Value; nil: none

	_ struct{} // no positional literals
}

// How tells how a lease was obtained.
type How string

const (
	Free      How = "free"       // nobody held the key
	TakenOver How = "taken over" // its holder's lease had run out
	Resolved  How = "resolved"   // the reply was lost and the key was found to be ours
	Adopted   How = "adopted"    // handed over by another process or goroutine
	HandedOn  How = "handed on"  // by the holder before, in this process, without a release on the server
)

// A State is what a key looks like to somebody who only reads it.
type State struct {
	Key    string
	Value  string
	Status Status
	Format string        // what the value was read as: "token", "float seconds", …
	Until  time.Time     // when the lease ends, by our clock; zero if there is no end or it can't be read
	Clock  string        // whose clock decides: "server" (a TTL) or "clients" (a timestamp)
	TTL    time.Duration // the key's TTL, or NoTTL
	Watch  time.Duration // how long the value must be seen unchanged before it may be repaired, whatever Until says; 0: if endless, for a ttl

	// Holders are all who hold it, if a lock can have more than one (readers).
	// Value and Until are then those of the one that keeps others out longest.
	Holders []Holder

	// Open says that an attempt is worth making although the key is held: a
	// reader's beside readers; a writer's that has to say again that it waits.
	Open bool

	_ struct{}
}

// A Holder is one of several who hold a key.
type Holder struct {
	Value string
	Until time.Time // by our clock; zero if it is not known
}

// Holds reports whether value is on the key, dead or alive.
func (s State) Holds(value string) bool {
	if s.Status == StatusFree {
		return false
	}
	return s.Value == value || slices.ContainsFunc(s.Holders, func(h Holder) bool { return h.Value == value })
}

// until is the end of value's hold; zero if it is not known.
func (s State) until(value string) time.Time {
	for _, h := range s.Holders {
		if h.Value == value {
			return h.Until
		}
	}
	return s.Until
}

// NoTTL is the TTL of a key that never expires.
const NoTTL time.Duration = -1

// Status says what an attempt on the key would meet.
type Status string

const (
	StatusFree    Status = "free"    // there is no such key
	StatusHeld    Status = "held"    // another client holds it
	StatusDead    Status = "dead"    // it is there, but its lease has run out
	StatusEndless Status = "endless" // held, but nothing will ever end it: its holder may be dead
	StatusForeign Status = "foreign" // holds something that can't be read as a lock of this kind
)

// Drift is what is taken off every lease: a hundredth of the ttl and two
// milliseconds, for clocks that run at different rates and a timer that fires
// late. (The figures are Redlock's.)
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Until is the end of a lease of ttl asked for at now, by the clock now was
// read from: the moment before which the holder must have stopped.
func Until(now time.Time, ttl time.Duration) time.Time { return now.Add(ttl - Drift(ttl)) }
