// Package compat is what a user of setnxlock's locks imports: the one engine that waits for them, renews
// them and releases them.
//
// A lock is made of two parts. A [protocol.Algorithm] is what is sent to Redis to take, extend
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
// The algorithms are in getsetlock (any Redis since 1.2), txlock (2.2) and setlock
// (2.6.12); package probe asks the server and chooses one.
//
// Every step has one of four outcomes: done; refused ([ErrHeld], [ErrLost]); not sent; and unknown:
// the command may have run, and only its reply was lost. The Locker resolves an unknown outcome by
// reading the key; if it can't, it returns [ErrUnknown].
//
// A caller's own error (the cause of its context's end, an error of its pool or Dial) decides nothing: it may be
// another lock's ErrHeld. errors.Is does not find it in the errors of this package, but their method Caller returns
// it:
//
//	if b := (interface{ Caller() error })(nil); errors.As(err, &b) { … b.Caller() … }
package compat

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/queue"
	"github.com/setnxlock/setnxlock/compat/internal/stock"
)

// A Backend is a [protocol.Algorithm] together with the connections it runs on. A lock that spans several
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
	Most    int           // as in Traits
	Rotates bool          // as in Traits
	Epoch   func() uint64 // the Source's; nil: it has none

	// Valid returns [ErrInvalid] for a ttl that the Backend can't keep, before anything is sent. It
	// is not asked about whole seconds up to a day. nil: every ttl will do.
	Valid func(key string, ttl time.Duration) error

	// Ready waits until the server of key has passed Traits.Check, so that a step with little time need not wait, and
	// returns how long the server took to answer. Ready gives up when an answer takes longer than trip. If trip is 0,
	// it returns at once, with [ErrTimeout] while a check is under way whose answers come. nil: there is nothing to
	// wait for.
	Ready func(ctx context.Context, key string, trip time.Duration) (took time.Duration, err error)

	server serving // what else it can do for the engine; nil: nothing, as of several servers or keys
}

// A serving Backend is that of one Algorithm on the servers of one Source: each key has one server, which can be asked for
// more than a Backend can.
type serving interface {
	// anew is the same for another Locker: every Locker keeps connections of its own.
	anew() Backend

	// claim reports whether it had a Locker before.
	claim() (before bool)

	// keep has it keep connections between two steps, until close.
	keep(jobs *cleaning.Jobs)
	close()

	// batches puts together which leases one server can be asked for at once, and extendAll extends them.
	batches(leases []Grant) [][]int
	extendAll(ctx context.Context, now func() time.Time, leases []Grant, ttls []time.Duration) ([]Grant, []error)

	// signals are how releases wake clients elsewhere; nil: they don't.
	signals(now func() time.Time, pause func(time.Duration), step, cleanup func(context.Context) (context.Context, func())) *queue.Signals

	// inTurn reports that waiters take turns, and leave takes back what one has left beside the key.
	inTurn() bool
	leave(ctx context.Context, key, waiter string)

	// since is the epoch in which the server that has key was last replaced.
	since(key string) uint64

	// runID is what INFO calls the process that has key; "" if that is not told.
	runID(ctx context.Context, key string) string
}

// RunID returns the run_id in INFO of the server that has key, or "" if the server does not tell. Two names or
// databases of one server have the same.
func (a Abilities) RunID(ctx context.Context, key string) string {
	if a.server == nil {
		return ""
	}
	return a.server.runID(ctx, key)
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

	// Bounded says that Get never outlasts its context, and does not wait if that has no end. Else
	// the engine calls it in the background, at the cost of some microseconds, so that a Dial can't
	// hold up a step. A connection that comes too late for its step serves the next one: at most one
	// such Get goes on, and while it hangs, no other begins.
	Bounded bool

	// Idle is how many connections a pool keeps for later; nil: that is not known. When one of them does
	// not answer, those that are idle with it are closed, for they may be as dead.
	Idle func() int

	// Keep is how many connections a Locker may keep between two steps, each for a second at most. Simultaneous steps
	// share some of them. A lock that was taken under WATCH may keep its connection. For each key for which goroutines
	// wait, one listens for a release elsewhere. The rest serve the next steps. Over a shared connection one goroutine
	// sends while another receives: redigo's connections allow that. 0: none is kept, and each step borrows its own. A
	// cluster's connections are never kept.
	Keep int

	// Listen is how many connections may listen for a release elsewhere, beside those of Keep: for a Source that keeps
	// none, but can give many. 0: those of Keep. Negative: none listens, and no release wakes anybody.
	Listen int

	pool *redis.Pool  // of which it was made
	odd  *atomic.Bool // its connections are not redigo's own, but what the program's Dial made; nil: that is not known
}

// full reports whether a pool has handed out all its connections.
func (s *Source) full() bool {
	return s.pool != nil && s.pool.MaxActive > 0 && s.pool.ActiveCount()-s.pool.IdleCount() >= s.pool.MaxActive
}

// A Pool hands out connections to one server. A *redis.Pool is one.
type Pool interface {
	GetContext(ctx context.Context) (redis.Conn, error)
}

// keep limits Source.Keep of a redis.Pool, beside a quarter of MaxActive.
const keep = 16

// Pooled returns the Source of one server's pool. A quarter of a *redis.Pool's MaxActive connections may be kept,
// 16 at most, if they are redigo's own; of no other pool any. A reply that can't be read ends its connection, and
// leaves the step's outcome unknown. But redigo allocates what the head of a reply asks for, recurses into lists,
// and reads the replies to AUTH and SELECT in a goroutine of its own: a server that lies can end the process. The
// option redis.DialContextFunc(guard.Dial(nil)) in the pool's Dial prevents that: package compat/guard.
func Pooled(p Pool) Source {
	s := Source{odd: new(atomic.Bool)}
	s.Get = func(ctx context.Context, _ string) (redis.Conn, error) {
		c, err := p.GetContext(ctx)
		if err == nil && s.pool != nil && !stock.Shareable(c) {
			s.odd.Store(true)
		}
		return c, limit.Dialled(err)
	}
	if p, ok := p.(*redis.Pool); ok {
		s.Idle, s.Keep, s.pool = p.IdleCount, keep, p
		if p.MaxActive > 0 {
			s.Keep = min(keep, p.MaxActive/4)
		}
	}
	return s
}

// A Grant is a lease as a [Backend] keeps it: with what else is known of the keys.
type Grant struct {
	_ struct{} // no positional literals

	Lease

	// OtherValues are the values that Key may hold instead of Value, in a part of a lock that is made of
	// several: the outcome of an extension is unknown. [Settled] extends and releases the lease by
	// the value that it finds.
	OtherValues []string

	// Rotate asks the next extension to put a new value on the key. The extension of a lock made of
	// several leaves it set while one of the parts still has its old value.
	Rotate bool

	// Final, set by Extend, says that no earlier extension can still take effect. For a
	// [protocol.Algorithm] the engine knows it: see [protocol.Change].
	Final bool

	drew  bool      // more than the value was to change with it: a number was drawn, or an After ran
	epoch uint64    // the Source's, when the lease was asked for
	pin   stock.Pin // the connection that has watched Key since it held Value; 0: none
}
