// Package compat is the common interface of setnxlock's locks, and the one
// engine that waits for them, renews them and releases them.
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
// Every step has one of four outcomes: done; refused ([ErrHeld], [ErrLost]); not sent; and
// unknown: the command may have run and only its reply been lost. The Locker resolves the
// unknown by reading the key; what stays unknown is [ErrUnknown].
package compat

import (
	"context"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/lease"
)

// An Algorithm is a lock protocol. Acquire and Inspect are one attempt each, over one
// connection; Extend and Release only say what is to change, and the engine changes it. An
// Algorithm is given the time. It does not wait, retry without bound, read a clock or start a
// goroutine: those are the Locker's. A type that embeds an Algorithm and only forwards keeps
// everything that it can.
//
// [OutcomeOf] says what an error leaves open: one that is none of this package's means that
// the command may have run and only its reply been lost. Acquire then still returns the lease
// it asked for, so that the Locker can look for it.
type Algorithm interface {
	// Acquire makes one attempt to hold key until now+ttl. It returns ErrHeld (a *HeldError)
	// if another client holds it.
	Acquire(c *Conn, now time.Time, key string, ttl time.Duration) (Lease, error)

	// Extend is the change that moves the end of l to now+ttl (it sets, it does not add), and
	// the lease that l becomes. It sends nothing. If l.Rotate is set the value is to be a new
	// one. A lock that can't be extended returns errors.ErrUnsupported.
	Extend(now time.Time, l Lease, ttl time.Duration) (Lease, Change, error)

	// Release is the change that ends l. It sends nothing. It must be harmless for a lease
	// that was never obtained.
	Release(l Lease) Change

	// Inspect reads the key and changes nothing.
	Inspect(c *Conn, now time.Time, key string) (State, error)

	// Traits say what else it can. They are the same at each call.
	Traits() Traits
}

// Traits are what an Algorithm can beyond taking, extending and releasing.
type Traits struct {
	// Shared says that several clients hold a key at once: readers. Waiters in one process
	// then do not wait for each other's locks, and nothing is handed off.
	Shared bool

	// Rotates says that Extend heeds Lease.Rotate. Without it a lock whose value is known
	// outside of the engine is released instead of handed off.
	Rotates bool

	// Check, if there is one, returns ErrUnsafeServer (an *UnsafeServerError) if an answer of
	// the server proves that the lock is not safe on it. It writes, if at all, to a scratch
	// key of random name in key's slot, with a TTL, and removes it. The Locker calls it before
	// the first acquisition, in each epoch, and again after a connection broke, because
	// another server may answer from then on.
	Check func(c *Conn, key string) error

	// Leave, if there is one, are the commands that take back what a waiter (Conn.Waiter) has
	// left beside key to be let in. The Locker sends them when the wait ends without an
	// acquisition of its own: it gave up, or was handed the lock.
	Leave func(key, waiter string) []Cmd

	// Repair, if there is one, is the change that gives s.Key an end, now+ttl, or removes it:
	// its holder died between taking the key and giving it a TTL, or the end that it shows is
	// not believed. ErrHeld: it is not to be repaired. The Locker carries it out when it has
	// seen the same value unchanged, as StatusPersistent for a whole ttl, or for s.Watch where
	// there is one and it is longer.
	Repair func(now time.Time, s State, ttl time.Duration) (Change, error)
}

// A Backend is an Algorithm together with the connections it runs on. A lock that spans
// several servers or several keys is a Backend of its own kind, so that one engine serves
// all. now reads the clock; a Backend reads it after it has its connection and before the
// request is sent.
//
// An Extend of unknown outcome returns the lease that may stand; its Until is never later
// than any outcome allows.
type Backend interface {
	Acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (Lease, error)
	Extend(ctx context.Context, now func() time.Time, l Lease, ttl time.Duration) (Lease, error)
	Release(ctx context.Context, now func() time.Time, l Lease) error
	Inspect(ctx context.Context, now func() time.Time, key string) (State, error)
	Repair(ctx context.Context, now func() time.Time, s State, ttl time.Duration) error

	// Find returns the lease that value stands for, ErrLost if it does not hold key any more.
	// Its end is what the key shows; zero if nothing will end it.
	Find(ctx context.Context, now func() time.Time, key, value string) (Lease, error)

	// Abilities say what else it can. They are the same at each call.
	Abilities() Abilities
}

// Abilities are what a Backend can beyond its methods. A wrapper that only forwards returns
// those of what it wraps, and with them its batches, pinned connections and wake-ups.
type Abilities struct {
	Shared  bool          // as in Traits
	Rotates bool          // as in Traits
	Epoch   func() uint64 // the Source's; nil: it has none

	// Valid returns ErrInvalid for a ttl that it can't keep, before anything is sent. It is
	// asked about those only that are not whole seconds, a day at most. nil: it can keep all.
	Valid func(key string, ttl time.Duration) error

	server *server // batches, pins and wakes
}

// A Source is where connections come from: a pool (Pooled), or several servers.
type Source struct {
	// Get returns a connection to the server that has key, or, of servers that are alike, to
	// the one that answers now.
	Get func(ctx context.Context, key string) (redis.Conn, error)

	// Slots says that keys of different hash slots may be on different servers: a cluster.
	Slots bool

	// Epoch grows with each replacement of a server by one that may lack its last writes (a
	// replica that was promoted) that the Source has learnt of. The Locker checks anew in each
	// epoch, and takes a key that was written in one and is gone in the next for lost, not
	// for released. nil: servers are not replaced.
	Epoch func() uint64

	// Since is the epoch in which the server that has key was last replaced, where there are several: a
	// key that is gone was lost only if it was written before that. nil: in the present one.
	Since func(key string) uint64

	// Prompt says that Get never outlasts its context. Idle is how many connections are there
	// to be had without waiting, Fresh how long they stay unused before they are dropped (0: for
	// ever). Otherwise the engine calls Get in the background, so that a Dial that knows of no
	// context can't hold up a step: some microseconds each.
	Prompt bool
	Idle   func() int
	Fresh  time.Duration
}

// A Pool hands out connections to one server. A *redis.Pool is one.
type Pool interface {
	GetContext(ctx context.Context) (redis.Conn, error)
}

// Pooled is the Source of one server's pool.
func Pooled(p Pool) Source {
	s := Source{Get: func(ctx context.Context, _ string) (redis.Conn, error) { return p.GetContext(ctx) }}
	if p, ok := p.(*redis.Pool); ok && p.TestOnBorrow == nil && p.TestOnBorrowContext == nil && p.MaxConnLifetime == 0 {
		s.Idle, s.Fresh = p.IdleCount, p.IdleTimeout
	}
	return s
}

// A Lease says that we hold Key until Until, by our own clock.
type Lease struct {
	Key   string
	Value string    // the exact bytes on the key; Extend and Release compare with them
	Until time.Time // counted from before the request was sent, less a margin for drift
	Fence int64     // grows with every acquisition of the key; 0 if not asked for
	How   How       // how it was obtained

	// Or are what Key may hold as ours instead of Value, in a part of a lock that is made of
	// several: an extension of it is open. Settled extends and releases it by whichever it holds.
	Or []string

	// Ambiguous says that finding Value on the key does not prove the lease
	// ours: another client can write the same bytes, or a losing attempt can
	// leave ours behind. Such a lease is never resolved by reading, and a
	// release of unknown outcome is not repeated.
	Ambiguous bool

	// Rotate asks the next extension to put a new value on the key: somebody else knows
	// this one, or a request that was sent with it may still arrive. An extension of a lock made of
	// several returns it if one of them kept its value.
	Rotate bool

	final bool   // no extension that was sent before can take effect any more
	drew  bool   // more than the value was to change with it: a number was drawn, or an After ran
	epoch uint64 // the Source's, when the lease was asked for
	pin   *pin   // the connection that has watched Key since it held Value; nil: none

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

// A State is what a key looks like to somebody who only reads it.
type State struct {
	Key    string
	Value  string
	Status Status
	Format string        // what the value was read as: "token", "float seconds", …
	Until  time.Time     // when the lease ends, by our clock; zero if there is no end or it can't be read
	Clock  string        // whose clock decides: "server" (a TTL) or "clients" (a timestamp)
	TTL    time.Duration // the key's TTL, or NoTTL
	Watch  time.Duration // how long the value must be seen unchanged before it may be repaired, whatever Until says; 0: if persistent, for a ttl

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

// Until is the end of a lease of ttl asked for at now, by the clock now was read from: the
// moment before which the holder must have stopped. It is a hundredth of the ttl and two
// milliseconds sooner than the server's, for clocks that run at different rates and a timer
// that fires late. (The figures are Redlock's.)
func Until(now time.Time, ttl time.Duration) time.Time { return lease.Until(now, ttl) }
