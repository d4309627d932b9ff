package compat

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/internal/lease"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/mux"
	"github.com/setnxlock/setnxlock/compat/internal/slot"
	"github.com/setnxlock/setnxlock/compat/internal/stock"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// server is the Backend of one Algorithm on the servers of one Source: each step borrows a
// connection for its own length.
type server struct {
	source  Source
	algo    protocol.Algorithm
	traits  protocol.Traits
	checked atomic.Uint64 // 1 + the epoch in which the server was found safe; 0: none, or a connection has broken since

	compares wire.Compares // by itself: protocol.IfEq

	trip atomic.Int64 // how long an answer took when it was last checked, in nanoseconds

	mu     sync.Mutex
	exams  map[int]*exam        // checks under way, by group
	stocks map[int]*stock.Stock // by group

	keeps    int          // how many connections stay in a stock between two steps
	shared   *mux.Pool    // of steps that need no connection of their own; nil: each has one
	pipes    atomic.Int32 // what is known of transactions that are pipelined
	underWay atomic.Int32 // steps
	batcher  batcher

	owned atomic.Bool // by a Locker
	jobs  *cleaning.Jobs

	silent    atomic.Pointer[time.Time] // until when releases wake nobody; nil: they do
	hungUp    atomic.Int64              // wake-ups in a row that ended with their connection
	listeners atomic.Int64              // connections that listen, of Source.Listen
	hears     atomic.Int64              // for how many seconds at once one can listen here; 0: not known to be few
	lists     atomic.Uint64             // what volatile found, and in which epoch
}

// NewBackend returns a [Backend]: a on the servers of source, each key on its own server. It is for [NewLocker],
// and for a part of a lock made of several.
func NewBackend(source Source, a protocol.Algorithm) Backend {
	s := &server{source: source, algo: a, traits: a.Traits(), exams: make(map[int]*exam), stocks: make(map[int]*stock.Stock)}
	if source.odd == nil {
		s.source.odd = new(atomic.Bool)
	}
	return s
}

func (s *server) Abilities() Abilities {
	return Abilities{Shared: s.traits.Shared, Most: s.traits.Most, Rotates: s.traits.Rotates, Epoch: s.source.Epoch, Valid: s.valid, Ready: s.ready, server: s}
}

func (s *server) Acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (Grant, error) {
	l := Grant{Lease: Lease{Key: key}}
	safe, err := s.check(ctx, key)
	if err != nil {
		return l, protocol.NotSent.Mark(err)
	}
	t := tries{s: s, ctx: ctx, key: key}
	defer t.abandon()
	for t.next() {
		c := t.c
		epoch, err := s.still(safe)
		if err != nil {
			t.end(err)
			continue
		}
		c.wire.Pins = s.keeps > 0 && c.alone
		l.Lease, err = s.algo.Acquire(&c.Conn, now(), key, ttl)
		l.epoch = epoch
		c.refused, c.pins = errors.Is(err, ErrHeld), err == nil && c.wire.Saw.Watches(l.Value)
		t.end(err)
	}
	l.pin = t.pin
	return s.placed(ctx, now, l, t.err), t.err
}

// placed moves l to the epoch of the server now in charge, if the key still holds it there. A server replaced in
// the meantime may have sent the write on to its successor. A later release without an answer then found the lock
// there, and did not lose it (any/failover).
func (s *server) placed(ctx context.Context, now func() time.Time, l Grant, err error) Grant {
	if err != nil {
		return l
	}
	epoch := s.since(l.Key)
	if epoch <= l.epoch {
		return l
	}
	if st, err := s.Inspect(ctx, now, l.Key); err == nil && st.Holds(l.Value) {
		l.epoch = epoch
	}
	return l
}

// still returns the epoch, and an error if the server was found safe in another epoch.
func (s *server) still(safe uint64) (uint64, error) {
	epoch := s.epoch()
	if s.traits.Check != nil && epoch != safe {
		return epoch, protocol.NotSent.Mark(errReplaced) // the new one may be of another version
	}
	return epoch, nil
}

// errReplaced looks like a closed connection to the Locker, which asks again.
var errReplaced = fmt.Errorf("setnxlock: the server was replaced: %w", net.ErrClosed)

func (s *server) anew() Backend { return NewBackend(s.source, s.algo) }

func (s *server) claim() (before bool) { return s.owned.Swap(true) }

func (s *server) inTurn() bool { return s.traits.Leave != nil }

func (s *server) leave(ctx context.Context, key, waiter string) {
	s.do(ctx, key, func(c *call) error { //nolint:errcheck // it goes by itself
		_, err := c.Pipe(s.traits.Leave(key, waiter)...)
		return err
	})
}

func (s *server) runID(ctx context.Context, key string) (id string) {
	s.do(ctx, key, func(c *call) error { //nolint:errcheck // it is not told
		info, err := redis.String(c.Do("INFO"))
		id = answer.Info(info, "run_id")
		return err
	})
	return id
}

// epoch returns the Source's epoch, or 0 for a Source without epochs.
func (s *server) epoch() uint64 {
	if s.source.Epoch != nil {
		return s.source.Epoch()
	}
	return 0
}

// since returns the epoch of the last replacement of key's server.
func (s *server) since(key string) uint64 {
	if s.source.Since != nil {
		return s.source.Since(key)
	}
	return s.epoch()
}

// change returns the extension of l to ttl as of now, and the lease after it.
func (s *server) change(now time.Time, l Grant, ttl time.Duration) (Grant, protocol.Change, error) {
	if lease.Past(now, l.Until) {
		return l, protocol.Change{}, ErrLost
	}
	le, ch, err := s.algo.Extend(now, l.Lease, ttl, l.Rotate)
	if err != nil {
		return l, ch, err
	}
	next := Grant{Lease: le, epoch: l.epoch}
	next.Final = ch.Final && ch.Custom != nil || le.Value != l.Value || ch.Watches()
	next.drew = ch.TakeFence || ch.After != nil // reading the key can't tell what else was to be done
	return next, ch, nil
}

// extended returns the lease after an extension's replies.
func (c *call) extended(l, next Grant, ch *protocol.Change, replies []any, err error) (Grant, error) {
	err = lostOf(l.Key, ch, err)
	if err == nil && ch.TakeFence {
		next.Fence, err = c.Fence(ch.Key, replies[len(replies)-1])
	}
	if o := protocol.OutcomeOf(err); o == protocol.Refused || o == protocol.NotSent {
		return l, err
	}
	return next, err
}

func (s *server) Extend(ctx context.Context, now func() time.Time, l Grant, ttl time.Duration) (Grant, error) {
	next, errs := s.extendAll(ctx, now, []Grant{l}, []time.Duration{ttl})
	return next[0], errs[0]
}

// batchAtMost is how many leases are extended in one write: a server runs it without a pause
// for anybody else.
const batchAtMost = 128

// batches groups the leases by server, for one write each.
func (s *server) batches(leases []Grant) [][]int {
	return slot.Batches(len(leases), batchAtMost, func(i int) (key string, alone bool) {
		if s.source.Slots {
			return leases[i].Key, false
		}
		return "", false
	})
}

// extendAll extends leases over one connection. Each has its own outcome: a lost one does not keep the others from
// being extended.
func (s *server) extendAll(ctx context.Context, now func() time.Time, leases []Grant, ttls []time.Duration) ([]Grant, []error) {
	next, errs := slices.Clone(leases), make([]error, len(leases))
	ran := false
	err := s.do(ctx, leases[0].Key, func(c *call) error {
		epoch, t := s.epoch(), now()
		var changes []protocol.Change
		var asked []int
		for i, l := range leases {
			var ch protocol.Change
			if next[i], ch, errs[i] = s.change(t, l, ttls[i]); errs[i] == nil {
				next[i].epoch = epoch
				asked, changes = append(asked, i), append(changes, ch)
			}
		}
		ran = true
		c.asks(s, changes...)
		replies, failed := c.RunAll(changes)
		for n, i := range asked {
			next[i], errs[i] = c.extended(leases[i], next[i], &changes[n], replies[n], c.verdict(leases[i].Key, failed[n]))
		}
		return c.joined(errs)
	})
	if !ran || len(errs) == 1 && protocol.OutcomeOf(err) == protocol.NotSent { // the step's word: nothing was written
		for i := range errs {
			next[i], errs[i] = leases[i], err
		}
	}
	for i, err := range errs {
		next[i] = s.placed(ctx, now, next[i], err)
	}
	return next, errs
}

// A pool's idle connections are all dead after a restart of the server or a night under its
// timeout, and each one is found out by using it. A Source that does not say how many there
// are has no more than these.
const staleAtMost = 16

// idle returns how many connections may have gone stale.
func (s *server) idle() int {
	if s.source.Idle != nil {
		return s.source.Idle()
	}
	return staleAtMost
}

// again repeats a step over further connections while they turn out closed, or lead to a server without the key.
// The step must only read, so a repetition does no harm.
func (s *server) again(ctx context.Context, key string, do func(context.Context, string, func(*call) error) error,
	step func(*call) error) error {
	var err error
	for range staleAtMost + s.idle() {
		if err = do(ctx, key, step); !answer.Closed(err) && !answer.Redirected(err) {
			break
		}
	}
	return err
}

// Release removes the key of l. It leaves a value that proves nothing once its time has run out: the key may then
// hold another client's.
func (s *server) Release(ctx context.Context, now func() time.Time, l Grant) (err error) {
	ch := s.algo.Release(l.Lease)
	defer func() { err = lostOf(l.Key, &ch, err) }()
	if (l.Ambiguous || ch.Custom == nil && ch.If == protocol.Unguarded) && lease.Past(now(), l.Until) {
		return ranOut(l.Key)
	}
	t := tries{s: s, ctx: ctx, key: l.Key}
	defer t.abandon()
	if t.c = s.pinned(ctx, l); t.c != nil {
		_, err := t.c.Run(ch)
		if t.end(err); protocol.OutcomeOf(t.err) != protocol.NotSent && !wrongServer(t.err) {
			return t.err
		}
	}
	if s.joins(&ch) {
		return s.join(ctx, ch)
	}
	for t.next() {
		t.c.asks(s, ch)
		_, err := t.c.Run(ch)
		t.end(err)
	}
	return t.err
}

// lostOf puts the lock's key into a LostError about a key beside it.
func lostOf(key string, ch *protocol.Change, err error) error {
	if lost, ok := err.(*LostError); ok && lost.Key == ch.Key && ch.Key != key {
		of := *lost
		of.Key = key
		return &of
	}
	return err
}

// pinned returns a call over the connection that has watched l's key since the acquisition. As long as EXEC does
// not abort, nobody has touched the key, and there is nothing to compare. It returns nil without such a
// connection: the release then takes the other way.
func (s *server) pinned(ctx context.Context, l Grant) *call {
	if l.pin == 0 || limit.Over(ctx) != nil {
		return nil
	}
	conn := s.stock(l.Key).Unpin(l.pin)
	if conn == nil {
		return nil
	}
	c := calls.Get().(*call)
	c.own = conn
	c.lendOwn()
	c.begin(ctx)
	c.wire.Hurry()
	c.wire.Session.Watched()
	c.wire.Pinned = true
	return c
}

func (s *server) Inspect(ctx context.Context, now func() time.Time, key string) (State, error) {
	st := State{Key: key, TTL: NoTTL}
	err := s.again(ctx, key, s.do, func(c *call) (err error) {
		st, err = s.algo.Inspect(&c.Conn, now(), key)
		return err
	})
	return st, err
}

func (s *server) Repair(ctx context.Context, now func() time.Time, st State, ttl time.Duration) error {
	if s.traits.Repair == nil {
		return ErrHeld
	}
	return s.do(ctx, st.Key, func(c *call) error {
		ch, err := s.traits.Repair(now(), st, ttl)
		if err == nil {
			_, err = c.Run(ch)
		}
		if errors.Is(err, ErrLost) {
			err = ErrHeld
		}
		return err
	})
}

func (s *server) Find(ctx context.Context, now func() time.Time, key, value string) (Grant, error) {
	l, err := find(ctx, s, now, key, value)
	l.epoch = s.epoch()
	return l, err
}

// valid returns ErrInvalid for a ttl out of the algorithm's range. It asks the algorithm for an extension, which
// sends nothing.
func (s *server) valid(key string, ttl time.Duration) error {
	if _, _, err := s.algo.Extend(time.Unix(0, 0), Lease{Key: key, Value: "v"}, ttl, false); errors.Is(err, ErrInvalid) {
		return err
	}
	return nil
}

// find carries out Find for a lock that one read shows whole.
func find(ctx context.Context, b Backend, now func() time.Time, key, value string) (Grant, error) {
	st, err := b.Inspect(ctx, now, key)
	if err != nil {
		return Grant{}, err
	}
	if value == "" || !st.Holds(value) {
		return Grant{}, &LostError{Key: key, Value: st.Value, Gone: st.Status == StatusFree}
	}
	return Grant{Lease: Lease{Key: key, Value: value, Until: st.End(value), Ambiguous: st.Ambiguous}}, nil
}
