package compat

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/lease"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/mux"
	"github.com/setnxlock/setnxlock/compat/internal/safe"
	"github.com/setnxlock/setnxlock/compat/internal/slot"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// server is the Backend of one Algorithm on the servers of one Source: each step borrows a
// connection for its own length.
type server struct {
	source    Source
	algo      Algorithm
	traits    Traits
	checked   atomic.Uint64 // 1 + the epoch in which the server was found safe; 0: none, or a connection has broken since
	checking  chan struct{} // has room for the checks that may run at a time; nil: any number
	reaps     atomic.Uint64 // 1 + the epoch in which it said that its DEL reaps; 0: none, or …
	borrowing atomic.Int64  // steps that are getting their connection
	returned  atomic.Int64  // when a connection was last returned alive, in nanoseconds of Unix

	shared *mux.Pool   // of steps that need no connection of their own; nil: each has one
	apart  atomic.Bool // the server does not keep transactions apart that are pipelined: no connection is shared

	pins  bool         // leases may pin their connections
	free  atomic.Int64 // how many more may
	clock clock.Clock

	silent atomic.Int64  // until when releases wake nobody, in nanoseconds of Unix
	lists  atomic.Uint64 // what volatile found, and in which epoch
}

// NewBackend returns the [Backend] that runs a on the servers of source, each key on the server
// that has it: for [NewLocker], and as a part of a lock that is made of several.
func NewBackend(source Source, a Algorithm) Backend {
	s := &server{source: source, algo: a, traits: a.Traits()}
	if !source.Slots { // else each key may have a server of its own, and the one that hangs must not hold up the others
		s.checking = make(chan struct{}, checksAtOnce)
	}
	return s
}

func (s *server) Abilities() Abilities {
	return Abilities{Shared: s.traits.Shared, Rotates: s.traits.Rotates, Epoch: s.source.Epoch, Valid: s.valid, server: s}
}

// do runs one step over a connection that is borrowed for it; over another one if all that happened was that a cluster
// redirected it in a way that its Source could not follow, or that this one leads to a server that can't serve us.
func (s *server) do(ctx context.Context, key string, step func(*Conn) error) error {
	c := conns.Get().(*Conn)
	err := s.over(ctx, key, c, step)
	if c.alive { // else what was to be sent may still be read
		*c = Conn{}
		conns.Put(c)
	}
	return err
}

// alone is do over a connection that the step does not share.
func (s *server) alone(ctx context.Context, key string, step func(*Conn) error) error {
	return s.over(ctx, key, &Conn{alone: true}, step)
}

// Conns are large, and needed for the length of a step.
var conns = sync.Pool{New: func() any { return new(Conn) }}

// over is do with a Conn that may outlive the step.
func (s *server) over(ctx context.Context, key string, c *Conn, step func(*Conn) error) error {
	err := s.once(ctx, key, c, step)
	left := 1
	if answer.Elsewhere(err) { // each idle connection may lead there
		left += s.idle()
	}
	for ; left > 0 && elsewhere(err); left-- {
		*c = Conn{alone: c.alone}
		err = s.once(ctx, key, c, step)
	}
	return err
}

// elsewhere reports that a step did nothing because its connection led to the wrong server.
func elsewhere(err error) bool {
	o := OutcomeOf(err)
	return (o == NotSent || o == Refused) && (answer.Redirected(err) || answer.Elsewhere(err))
}

// once asks, before it borrows a connection, whether the context is done: redigo would kill a
// healthy connection for it.
func (s *server) once(ctx context.Context, key string, c *Conn, step func(*Conn) error) error {
	if ctx.Err() != nil {
		return NotSent.Mark(limit.Cause(ctx))
	}
	pins := c.pins
	var together *mux.Step
	var waits time.Time // since when, for a connection; zero: it had one at once
	if s.shared != nil && !c.alone && !s.apart.Load() {
		c.step = s.shared.Step(key)
		together = &c.step
		c.lend(together)
	} else {
		borrowed, since, err := s.get(ctx, key)
		if err != nil {
			return noConnection(ctx, err)
		}
		waits = since
		c.lend(borrowed)
	}
	c.begin(ctx)
	if !waits.IsZero() {
		c.wire.Since(waits)
	}
	c.pins = pins
	err := c.verdict(key, step(c))
	if together != nil && together.Unsent() && OutcomeOf(err) == Unknown {
		err = noConnection(ctx, err)
	}
	if c.wire.Session.Useless {
		wire.Drop(c.Conn)
	}
	live := c.Err() == nil
	c.pinned = c.pinned && live
	switch {
	case c.pinned:
	case c.refused && live && c.wire.Session.Watching:
		s.returnLater(c)
	default:
		s.putBack(c)
	}
	return err
}

func noConnection(ctx context.Context, err error) error {
	return NotSent.Mark(fmt.Errorf("setnxlock: no connection: %w", limit.Because(ctx, err)))
}

// share has steps share so many connections. Those of a cluster lead to servers of their own.
func (s *server) share(most int) {
	if most > 0 && !s.source.Slots {
		s.shared = &mux.Pool{Most: most, Epoch: s.source.Epoch, Borrow: s.borrow}
	}
}

// borrow gets a connection, and never outlasts ctx or the step's limit. With a context that has
// ended it asks nobody: redigo's Pool panics if it is closed, and asked so.
func (s *server) borrow(ctx context.Context, key string) (redis.Conn, error) {
	c, _, err := s.get(ctx, key)
	return c, err
}

// get is borrow, and says since when it waited; zero: it did not.
func (s *server) get(ctx context.Context, key string) (c redis.Conn, waits time.Time, err error) {
	if ctx.Err() != nil {
		return nil, waits, limit.Cause(ctx)
	}
	here := s.borrowing.Add(1)
	defer s.borrowing.Add(-1)
	if s.source.Prompt || s.source.Idle != nil && s.fresh() && s.source.Idle() >= int(here) {
		c, err = s.connect(ctx, key)
		return c, waits, err
	}
	waits = time.Now()
	c, err = limit.Await(ctx, func(ctx context.Context) (redis.Conn, error) { return s.connect(ctx, key) }, func(c redis.Conn, _ error) {
		if c != nil {
			c.Close()
		}
	})
	return c, waits, err
}

// fresh reports that the connections that are idle can't be too old for the pool.
func (s *server) fresh() bool {
	return s.source.Fresh == 0 || time.Since(time.Unix(0, s.returned.Load())) < s.source.Fresh/2
}

// connect gets a connection, and closes the errored one that a redis.Pool returns beside an error.
func (s *server) connect(ctx context.Context, key string) (c redis.Conn, err error) {
	defer safe.Catch(&err)
	c, err = s.source.Get(ctx, key)
	switch {
	case err == nil:
		return safe.Over(c), nil
	case c != nil:
		c.Close()
	}
	return nil, err
}

// returnLater returns a connection in the background: a client that was refused, or lets a
// lock go, does not wait for the server once more.
func (s *server) returnLater(c *Conn) {
	c.wire.Anew()
	s.clock.AfterFunc(0, func() { s.putBack(c) })
}

func (s *server) putBack(c *Conn) {
	if c.Err() != nil {
		s.checked.Store(0) // the next connection may lead to another server
		s.reaps.Store(0)
	}
	if c.alive = c.wire.Return(); c.alive && s.source.Fresh > 0 {
		s.returned.Store(time.Now().UnixNano())
	}
}

// verdict is a step's error after what happened to the connection and what a cluster answered in it. An algorithm's
// word is no answer where a reply never came. That a server was found unsafe while it was moving the slot says
// nothing about it.
func (c *Conn) verdict(key string, err error) error {
	if o := OutcomeOf(err); c.wire.Session.Open && (o == Refused || o == NotSent) {
		return Unknown.Mark(&limit.CallerError{Err: err})
	}
	if c.wire.Session.NotNow != "" && errors.Is(err, ErrUnsafeServer) {
		err = c.wire.Session.NotNow
	}
	if e, ok := err.(redis.Error); ok && strings.Contains(string(e), "would overflow") { // only a fence's counter counts
		return noFence(key, e)
	}
	_, notNow := answer.NotNow(err)
	switch denied := c.Denied(key, err); {
	case c.wire.Session.Ran || answer.Known(err) == nil:
		return denied
	case notNow:
		return NotSent.Mark(err)
	default:
		return Refused.Mark(denied)
	}
}

func (s *server) Acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (Lease, error) {
	l := Lease{Key: key}
	safe, err := s.check(ctx, key)
	if err != nil {
		return l, NotSent.Mark(err)
	}
	attempt := func(c *Conn) (err error) {
		epoch, err := s.still(safe)
		if err != nil {
			return err
		}
		l, err = s.algo.Acquire(c, now(), key, ttl)
		l.epoch = epoch
		return err
	}
	if !s.pins || s.free.Add(-1) < 0 {
		if s.pins {
			s.free.Add(1)
		}
		err = s.do(ctx, key, attempt)
		return s.placed(ctx, now, l, err), err
	}
	p := &pin{s: s, key: key}
	p.pins = true
	err = s.over(ctx, key, &p.Conn, func(c *Conn) error {
		err := attempt(c)
		p.epoch, c.pinned, c.refused = l.epoch, err == nil && c.seen.watches(l.Value), errors.Is(err, ErrHeld)
		return err
	})
	if p.pinned {
		p.value, l.pin = l.Value, p
	} else {
		s.free.Add(1)
	}
	return s.placed(ctx, now, l, err), err
}

// placed is l, which was written without an error, in the epoch of the server that has it. One that
// was replaced in the meantime may have sent what was written on to its successor: then a release that is not
// answered found the lock there, and it was not lost (any/failover).
func (s *server) placed(ctx context.Context, now func() time.Time, l Lease, err error) Lease {
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

// still returns the epoch, or an error if it is not the one in which the server was found safe.
func (s *server) still(safe uint64) (uint64, error) {
	epoch := s.epoch()
	if s.traits.Check != nil && epoch != safe {
		return epoch, NotSent.Mark(errReplaced) // the new one may be of another version
	}
	return epoch, nil
}

// errReplaced is a connection's end to the Locker: it asks again.
var errReplaced = fmt.Errorf("setnxlock: the server was replaced: %w", net.ErrClosed)

// epoch is 0 for a Source that has none.
func (s *server) epoch() uint64 {
	if s.source.Epoch != nil {
		return s.source.Epoch()
	}
	return 0
}

// since is the epoch in which the server that has key was last replaced.
func (s *server) since(key string) uint64 {
	if s.source.Since != nil {
		return s.source.Since(key)
	}
	return s.epoch()
}

// change is what an extension of l to ttl is now, and what it makes of l.
func (s *server) change(now time.Time, l Lease, ttl time.Duration) (Lease, Change, error) {
	if lease.Past(now, l.Until) {
		return l, Change{}, ErrLost
	}
	l.Final = false
	next, ch, err := s.algo.Extend(now, l, ttl)
	if err != nil {
		return l, ch, err
	}
	next.Rotate, next.pin = false, nil
	next.Final = next.Final && ch.By != nil || next.Value != l.Value || ch.By == nil && ch.If == Watch
	next.drew = ch.Draw || ch.After != nil // reading the key can't tell what else was to be done
	return next, ch, nil
}

// extended is the lease that an extension's replies come to.
func (c *Conn) extended(l, next Lease, ch *Change, replies []any, err error) (Lease, error) {
	if err == nil && ch.Draw {
		next.Fence, err = c.Fence(ch.Key, replies[len(replies)-1])
	}
	if o := OutcomeOf(err); o == Refused || o == NotSent {
		return l, err
	}
	return next, err
}

func (s *server) Extend(ctx context.Context, now func() time.Time, l Lease, ttl time.Duration) (Lease, error) {
	next := l
	step := func(c *Conn, pinned bool) error {
		epoch := s.epoch()
		var ch Change
		var err error
		if next, ch, err = s.change(now(), l, ttl); err != nil {
			return err
		}
		next.epoch = epoch
		var replies []any
		if pinned && ch.pinnable() {
			replies, err = c.pinnedRun(&ch, next.Value)
			replies, err = ch.ended(c, replies, err, &after{})
		} else {
			replies, err = c.Run(ch)
		}
		next, err = c.extended(l, next, &ch, replies, c.verdict(l.Key, err))
		return err
	}
	err, ran := s.overPinned(ctx, l, &next, step)
	if !ran {
		err = s.do(ctx, l.Key, func(c *Conn) error { return step(c, false) })
	}
	if OutcomeOf(err) == NotSent {
		pin := next.pin
		next = l
		next.pin = pin
	}
	return s.placed(ctx, now, next, err), err
}

// batchAtMost is how many leases are extended in one write: a server runs it without a pause
// for anybody else.
const batchAtMost = 128

// batches puts together what one server can be asked at once. A lease that has pinned its
// connection is extended over that.
func (s *server) batches(leases []Lease) [][]int {
	return slot.Batches(len(leases), batchAtMost, func(i int) (key string, alone bool) {
		if l := &leases[i]; s.source.Slots {
			return l.Key, l.pin != nil
		}
		return "", leases[i].pin != nil
	})
}

// extendAll is Extend of many leases over one connection. Each has its own outcome: one that
// was lost does not keep the others from being extended.
func (s *server) extendAll(ctx context.Context, now func() time.Time, leases []Lease, ttls []time.Duration) ([]Lease, []error) {
	next, errs := slices.Clone(leases), make([]error, len(leases))
	ran := false
	err := s.do(ctx, leases[0].Key, func(c *Conn) error {
		epoch, t := s.epoch(), now()
		changes := make([]Change, len(leases))
		var batch, apart []int
		for i, l := range leases {
			if next[i], changes[i], errs[i] = s.change(t, l, ttls[i]); errs[i] != nil {
				continue
			}
			next[i].epoch = epoch
			if ch := &changes[i]; ch.batches() && (len(batch) == 0 || ch.If == changes[batch[0]].If) {
				batch = append(batch, i)
			} else {
				apart = append(apart, i)
			}
		}
		ran = true
		settle := func(i int, replies []any, err error) {
			next[i], errs[i] = c.extended(leases[i], next[i], &changes[i], replies, c.verdict(leases[i].Key, err))
		}
		if len(batch) > 0 {
			together := make([]Change, len(batch))
			for n, i := range batch {
				together[n] = changes[i]
			}
			replies, failed := c.runAll(together)
			for n, i := range batch {
				settle(i, replies[n], failed[n])
			}
		}
		for _, i := range apart {
			replies, err := c.Run(changes[i])
			settle(i, replies, err)
		}
		return errors.Join(errs...)
	})
	if !ran {
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

// idle is how many connections may have gone stale.
func (s *server) idle() int {
	if s.source.Idle != nil {
		return s.source.Idle()
	}
	return staleAtMost
}

// again is do for a step that can be repeated without harm, because it only reads: it goes on
// to the next connection as long as the one it got turns out to be closed, or to lead to a
// server that has the key no more.
func (s *server) again(ctx context.Context, key string, do func(context.Context, string, func(*Conn) error) error,
	step func(*Conn) error) error {
	var err error
	for range staleAtMost + s.idle() {
		if err = do(ctx, key, step); !answer.Closed(err) && !answer.Redirected(err) {
			break
		}
	}
	return err
}

func (s *server) Release(ctx context.Context, now func() time.Time, l Lease) error {
	return s.release(ctx, now, l, nil)
}

// release is Release, with a wake-up if there is one. A value that proves nothing is not removed
// when its time has run out: what is on the key then may be another client's.
func (s *server) release(ctx context.Context, now func() time.Time, l Lease, k *wire.Wakeup) error {
	ch := s.algo.Release(l)
	if (l.Ambiguous || ch.By == nil && ch.If == Unguarded) && lease.Past(now(), l.Until) {
		s.unpin(l)
		return ErrLost
	}
	gone := l
	step := func(c *Conn, pinned bool) error {
		c.wire.Wake = k
		if pinned && ch.pinnable() {
			replies, err := c.pinnedRun(&ch, "")
			_, err = ch.ended(c, replies, err, &after{})
			return err
		}
		_, err := c.Run(ch)
		if err == nil && c.wire.Wake != nil && c.wire.Wake.Err == nil { // it did not go with the release
			k.Woken, k.Err = c.wakeOne(k.Cmds)
		}
		return err
	}
	err, ran := s.overPinned(ctx, l, &gone, step)
	if !ran {
		s.unpin(l)
		err = s.do(ctx, l.Key, func(c *Conn) error { return step(c, false) })
	}
	return err
}

func (s *server) Inspect(ctx context.Context, now func() time.Time, key string) (State, error) {
	st := State{Key: key, TTL: NoTTL}
	err := s.again(ctx, key, s.do, func(c *Conn) (err error) {
		st, err = s.algo.Inspect(c, now(), key)
		return err
	})
	return st, err
}

func (s *server) Repair(ctx context.Context, now func() time.Time, st State, ttl time.Duration) error {
	if s.traits.Repair == nil {
		return ErrHeld
	}
	return s.do(ctx, st.Key, func(c *Conn) error {
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

func (s *server) Find(ctx context.Context, now func() time.Time, key, value string) (Lease, error) {
	l, err := find(ctx, s, now, key, value)
	l.epoch = s.epoch()
	return l, err
}

// valid is ErrInvalid for a ttl that the algorithm can't keep: it says so when it is asked to
// extend, which sends nothing.
func (s *server) valid(key string, ttl time.Duration) error {
	if _, _, err := s.algo.Extend(time.Unix(0, 0), Lease{Key: key, Value: "v"}, ttl); errors.Is(err, ErrInvalid) {
		return err
	}
	return nil
}

// find is Find for a lock of which one read tells everything.
func find(ctx context.Context, b Backend, now func() time.Time, key, value string) (Lease, error) {
	st, err := b.Inspect(ctx, now, key)
	if err != nil {
		return Lease{}, err
	}
	if value == "" || !st.Holds(value) {
		return Lease{}, fmt.Errorf("%w: %q does not hold this token", ErrLost, key)
	}
	return Lease{Key: key, Value: value, Until: st.End(value)}, nil
}

// check asks the algorithm, once in each epoch, whether it is safe on this server, and returns
// the epoch. A proxy answers what it does not know by closing the connection, and so does a
// broken network: that is no proof, and said as it was seen. Neither the check nor what is asked then shares a
// connection: where no new one is to be had, one that lives would prove nothing.
func (s *server) check(ctx context.Context, key string) (epoch uint64, err error) {
	epoch = s.epoch()
	if s.traits.Check == nil && s.shared == nil || s.checked.Load() == epoch+1 {
		return epoch, nil
	}
	if s.checking != nil {
		select {
		case s.checking <- struct{}{}:
		default:
			var stop func()
			ctx, stop = limit.Whole(ctx) // what it waits for others' checks, its own has not
			defer stop()
			select {
			case s.checking <- struct{}{}:
			case <-ctx.Done():
				return epoch, limit.Cause(ctx)
			}
		}
		defer func() { <-s.checking }()
		if epoch = s.epoch(); s.checked.Load() == epoch+1 {
			return epoch, nil
		}
	}
	blamed := ""
	for range checksAtMost {
		on := ""
		err = s.alone(ctx, key, func(c *Conn) (err error) {
			epoch = s.epoch()
			if s.traits.Check != nil {
				err = s.traits.Check(c, key)
			}
			on = c.wire.Session.BrokeOn
			if err == nil && s.pins && answer.ReapsBeforeDEL(c.version()) {
				s.reaps.Store(epoch + 1)
			}
			if err == nil && s.shared != nil {
				s.apart.Store(c.merges(key))
			}
			return err
		})
		if err == nil {
			s.checked.Store(epoch + 1)
			return epoch, nil
		}
		var e redis.Error
		if ctx.Err() != nil || OutcomeOf(err) != Unknown || errors.As(err, &e) || !answer.Closed(err) || errors.Is(err, net.ErrClosed) {
			return epoch, err
		}
		proof := s.again(ctx, key, s.alone, func(c *Conn) error {
			_, err := c.Do("GET", key)
			if answer.Refused(err) && !answer.Elsewhere(err) { // an answer all the same
				return nil
			}
			return err
		})
		switch {
		case answer.Elsewhere(proof): // it has no room for another client, …
			return epoch, proof
		case proof != nil:
			return epoch, err
		}
		if on == blamed && on != "" {
			return epoch, fmt.Errorf("%w: closed the connection, twice, on %s: %w", ErrUnanswered, on, err)
		}
		blamed = on
	}
	return epoch, fmt.Errorf("setnxlock: the connection to the server keeps breaking: %w", err)
}

// merges reports that the server runs transactions which are pipelined as one, or the second one's commands one by one,
// as Envoy does; or that it can't be asked. Where it has none, none is sent.
func (c *Conn) merges(key string) bool {
	one := []Cmd{{"MULTI"}, {"EXISTS", Aux(key, "check:"+NewToken())}, {"EXEC"}}
	replies, err := c.Pipe(slices.Concat(one, one)...)
	if err != nil {
		return true // it hangs up on the question, or was not asked
	}
	ran := func(reply any) bool { all, _ := reply.([]any); return len(all) == 1 }
	return ran(replies[2]) && !ran(replies[5])
}

// checksAtOnce is how many steps may check one server at a time; the others wait for what they find. A check is ten
// times as long as a step: if all that begin at once checked, or all whose connections broke in a busy moment, the
// server could be so busy with checks that none ended in time, and the next attempts would check again. Two, so
// that one which hangs does not hold up all.
const checksAtOnce = 2

// checksAtMost is how often a check may lose its connection while reads are answered. If it is the
// same commands twice in a row, those are blamed, as by package server's Try.
const checksAtMost = 4
