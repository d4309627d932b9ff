// Package compat is the common interface of setnxlock's locks, and the one
// engine that waits for them, renews them and releases them.
//
// A lock is made of two parts. An [Algorithm] is a protocol: what is sent to Redis to take, extend
// and release a key, one attempt at a time, over one connection, at a time that it is given. A
// [Locker] is the engine: it borrows the connection, waits, renews, finds out what a broken
// connection left unknown, and ends a context before the lease ends.
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
// Every step has one of four outcomes: done; refused ([ErrHeld], [ErrLost]); not sent; and unknown:
// the command may have run, and only its reply was lost. The Locker resolves an unknown outcome by
// reading the key; if it can't, it returns [ErrUnknown].
//
// What a caller brings along, the cause of its context's end or the error of its pool or Dial, decides nothing: it may
// be another lock's ErrHeld. errors.Is does not find it in the errors of this package. The part that carries it has a
// method Caller:
//
//	if b := (interface{ Caller() error })(nil); errors.As(err, &b) { … b.Caller() … }
package compat

import (
	"context"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/lease"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
)

// An Algorithm is a lock protocol. Acquire and Inspect are one attempt each, over one connection;
// Extend and Release only say what is to change, and the engine changes it. An Algorithm is given
// the time. It does not wait, retry without bound, read a clock or start a goroutine: the [Locker]
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
	// random names in key's slot, with a TTL, and removes them. The [Locker] calls it before the
	// first acquisition, in each epoch, and again after a connection broke, because another server
	// may answer from then on.
	Check func(c *Conn, key string) error

	// Leave, if there is one, returns the commands that remove the word of a waiter ([Conn.Waiter])
	// beside key. The [Locker] sends them when the wait ends without an acquisition: the waiter
	// gave up, or the lock was handed off to it.
	Leave func(key, waiter string) []Cmd

	// Repair, if there is one, returns the change that gives s.Key the end now+ttl, or removes it:
	// because its holder died before it could set a TTL, or because the end that it shows is not
	// trusted. [ErrHeld]: leave the key as it is. The [Locker] carries the change out when it has
	// seen the same value unchanged for a whole ttl as [StatusPersistent], or for s.Watch where
	// that is set and longer.
	Repair func(now time.Time, s State, ttl time.Duration) (Change, error)
}

// A Backend is an [Algorithm] together with the connections it runs on. A lock that spans several
// servers or several keys is another kind of Backend, so one engine serves them all. now reads the
// clock; a Backend reads it after it has its connection and before it sends the request.
//
// An Extend of unknown outcome returns the lease that the key may have: whatever the outcome was,
// the lease on the server does not end before Until.
type Backend interface {
	Acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (Grant, error)
	Extend(ctx context.Context, now func() time.Time, g Grant, ttl time.Duration) (Grant, error)
	Release(ctx context.Context, now func() time.Time, g Grant) error
	Inspect(ctx context.Context, now func() time.Time, key string) (State, error)
	Repair(ctx context.Context, now func() time.Time, s State, ttl time.Duration) error

	// Find returns the grant that value stands for, or [ErrLost] if value is no longer on key.
	// Until is what the key shows; zero if nothing will end the lease.
	Find(ctx context.Context, now func() time.Time, key, value string) (Grant, error)

	// Abilities say what else it can do. They are the same at each call.
	Abilities() Abilities
}

// Abilities are what a [Backend] can do beyond its methods. A wrapper that only forwards returns
// the Abilities of what it wraps; batches, pinned connections and wake-ups then work through it.
type Abilities struct {
	Shared  bool          // as in Traits
	Rotates bool          // as in Traits
	Epoch   func() uint64 // the Source's; nil: it has none

	// Valid returns [ErrInvalid] for a ttl that the Backend can't keep, before anything is sent. It
	// is not asked about whole seconds up to a day. nil: every ttl will do.
	Valid func(key string, ttl time.Duration) error

	// Ready waits until the server of key was found safe (Traits.Check), so that a step which has little time need not, and
	// returns how long it took to answer. It gives up when an answer takes longer than trip; 0: at once, with [ErrTimeout]
	// if a check is under way whose answers come. nil: there is nothing to wait for.
	Ready func(ctx context.Context, key string, trip time.Duration) (took time.Duration, err error)

	server *server // batches, pins and wakes
}

// RunID is what INFO calls the process of the server that has key; "" if that is not told. Two names or databases of one
// server have the same.
func (a Abilities) RunID(ctx context.Context, key string) (id string) {
	if a.server != nil {
		a.server.do(ctx, key, func(c *call) error { //nolint:errcheck // it is not told
			info, err := redis.String(c.Do("INFO"))
			id = answer.Info(info, "run_id")
			return err
		})
	}
	return id
}

// A Source is where connections come from: a pool (Pooled), or several servers.
type Source struct {
	// Get returns a connection to the server that has key, or to the one that serves now, where one
	// replaces another.
	Get func(ctx context.Context, key string) (redis.Conn, error)

	// Slots says that keys of different hash slots may be on different servers: a cluster.
	Slots bool

	// Epoch grows each time the Source learns that a server was replaced by one that may lack its
	// last writes: a replica that was promoted. The Locker checks the server again in each epoch,
	// and reports a lock whose key was written in one epoch and is gone in the next as lost, not as
	// released. nil: servers are not replaced.
	Epoch func() uint64

	// Since is the epoch in which the server that has key was last replaced, for a Source of
	// several servers: a key that is gone was lost only if it was written before that epoch. nil:
	// the present epoch.
	Since func(key string) uint64

	// Prompt says that Get never outlasts its context, and does not wait if that has no end. Else
	// the engine calls it in the background, at the cost of some microseconds, so that a Dial can't
	// hold up a step. What a step had no time to wait for is the next one's: at most one Get goes on
	// for nobody, and while it hangs, no other begins.
	Prompt bool

	// Idle is how many connections are kept for later; nil: that is not known. When one of them does
	// not answer, those that are idle with it are closed, for they may be as dead.
	Idle func() int
}

// A Pool hands out connections to one server. A *redis.Pool is one.
type Pool interface {
	GetContext(ctx context.Context) (redis.Conn, error)
}

// Pooled is the Source of one server's pool. A reply that can't be read ends its connection, and leaves the step's
// outcome unknown. But redigo allocates what the head of a reply asks for, recurses into lists, and reads the replies
// to AUTH and SELECT in a goroutine of its own: a server that lies can end the process. The option
// redis.DialContextFunc(guard.Dial(nil)) in the pool's Dial prevents that: package compat/guard.
func Pooled(p Pool) Source {
	s := Source{Get: func(ctx context.Context, _ string) (redis.Conn, error) {
		c, err := p.GetContext(ctx)
		return c, limit.Dialled(err)
	}}
	if p, ok := p.(*redis.Pool); ok {
		s.Idle = p.IdleCount
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

	// Ambiguous says that Value on the key does not prove that the lease is ours: another client
	// can write the same bytes, or a losing attempt of ours can leave them behind. An unknown
	// outcome is then never resolved by reading, and a release of unknown outcome is not repeated.
	Ambiguous bool

	_ struct{} // no positional literals
}

// A Grant is a lease as a [Backend] keeps it: with what else is known of the keys.
type Grant struct {
	Lease

	// Or are the values that Key may hold instead of Value, in a part of a lock that is made of
	// several: the outcome of an extension is unknown. [Settled] extends and releases the lease by
	// the value that it finds.
	Or []string

	// Rotate asks the next extension to put a new value on the key. The extension of a lock made of
	// several leaves it set if one of the parts kept its value, and has to change it still.
	Rotate bool

	// Final says of the grant that an Extend returns that no extension sent before can take effect any
	// more. Of an [Algorithm]'s the engine sees that: see [Change.Final].
	Final bool

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
func Until(now time.Time, ttl time.Duration) time.Time { return lease.Until(now, ttl) }
