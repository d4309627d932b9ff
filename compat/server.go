package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/internal/lease"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/lobby"
	"github.com/setnxlock/setnxlock/compat/internal/mux"
	"github.com/setnxlock/setnxlock/compat/internal/safe"
	"github.com/setnxlock/setnxlock/compat/internal/slot"
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
	reaps   atomic.Uint64 // 1 + the epoch in which it said that its DEL reaps; 0: none, or …

	trip atomic.Int64 // how long an answer took when it was last checked, in nanoseconds

	mu      sync.Mutex
	exams   map[int]*exam        // checks under way, by group
	lobbies map[int]*lobby.Lobby // by group

	shared *mux.Pool   // of steps that need no connection of their own; nil: each has one
	apart  atomic.Bool // the server does not keep transactions apart that are pipelined: no connection is shared

	owned atomic.Bool  // by a Locker
	pins  bool         // leases may pin their connections
	free  atomic.Int64 // how many more may
	crew  *cleaning.Crew

	silent atomic.Int64  // until when releases wake nobody, in nanoseconds of Unix
	lists  atomic.Uint64 // what volatile found, and in which epoch
}

// NewBackend returns the [Backend] that runs a on the servers of source, each key on the server
// that has it: for [NewLocker], and as a part of a lock that is made of several.
func NewBackend(source Source, a protocol.Algorithm) Backend {
	return &server{source: source, algo: a, traits: a.Traits(), exams: make(map[int]*exam), lobbies: make(map[int]*lobby.Lobby)}
}

// group is what one server may serve with key: those of one slot, in a cluster, where the one that hangs must not hold
// up the others.
func (s *server) group(key string) int {
	if s.source.Slots {
		return slot.Of(key)
	}
	return 0
}

func (s *server) Abilities() Abilities {
	return Abilities{Shared: s.traits.Shared, Rotates: s.traits.Rotates, Epoch: s.source.Epoch, Valid: s.valid, Ready: s.ready, server: s}
}

// do runs one step over a connection that is borrowed for it; over another one if all that happened was that a cluster
// redirected it in a way that its Source could not follow, or that this one leads to a server that can't serve us.
func (s *server) do(ctx context.Context, key string, step func(*call) error) error {
	c := conns.Get().(*call)
	err := s.over(ctx, key, c, step)
	if c.alive { // else what was to be sent may still be read
		*c = call{}
		conns.Put(c)
	}
	return err
}

// alone is do over a connection that the step does not share.
func (s *server) alone(ctx context.Context, key string, step func(*call) error) error {
	return s.over(ctx, key, &call{alone: true}, step)
}

// A call is a step with the connection that it borrows; its Conn is what the algorithm sees of that.
type call struct {
	protocol.Conn
	wire wire.Conn
	step mux.Step // what the connection is if the step shares one

	pins    bool // the step may leave its connection to a lease
	pinned  bool // a lease holds on to the connection when the step has ended
	refused bool // nobody waits for the connection to be returned
	alive   bool // it was returned as one that can be used again
	alone   bool // the step shares no connection
}

func (c *call) lend(borrowed redis.Conn) {
	c.wire.Conn = borrowed
	protocol.Bind(&c.Conn, &c.wire)
}

// begin begins the step.
func (c *call) begin(ctx context.Context) {
	c.wire.Begin(ctx)
	c.wire.Pins, c.wire.Waiter = c.pins, waiterOf(ctx)
	c.pinned, c.refused = false, false
}

// Calls are large, and needed for the length of a step.
var conns = sync.Pool{New: func() any { return new(call) }}

// over is do with a Conn that may outlive the step.
func (s *server) over(ctx context.Context, key string, c *call, step func(*call) error) error {
	err := s.once(ctx, key, c, step)
	left := 1
	if answer.Elsewhere(err) { // each idle connection may lead there
		left += s.idle()
	}
	for ; left > 0 && elsewhere(err); left-- {
		*c = call{alone: c.alone}
		err = s.once(ctx, key, c, step)
	}
	return err
}

// elsewhere reports that a step did nothing because its connection led to the wrong server.
func elsewhere(err error) bool {
	o := protocol.OutcomeOf(err)
	return (o == protocol.NotSent || o == protocol.Refused) && (answer.Redirected(err) || answer.Elsewhere(err))
}

// once asks, before it borrows a connection, whether the context is done: redigo would kill a
// healthy connection for it.
func (s *server) once(ctx context.Context, key string, c *call, step func(*call) error) error {
	if err := limit.Over(ctx); err != nil {
		return protocol.NotSent.Mark(err)
	}
	var together *mux.Step
	if s.shared != nil && !c.alone && !s.apart.Load() {
		c.step = s.shared.Step(key)
		together = &c.step
		c.lend(together)
	} else {
		borrowed, err := s.borrow(ctx, key)
		if err != nil {
			return noConnection(ctx, err)
		}
		c.lend(borrowed)
	}
	c.begin(ctx)
	var err error
	onPanic(func() { err = c.verdict(key, step(c)) }, func() {
		wire.Drop(c.wire.Conn)
		s.putBack(c)
	})
	if together != nil && together.Unsent() && protocol.OutcomeOf(err) == protocol.Unknown {
		err = noConnection(ctx, err)
	}
	if c.wire.Session.Useless {
		wire.Drop(c.wire.Conn)
	}
	if (c.wire.Unheard() || answer.Closed(err)) && (together == nil || !together.Unsent()) {
		s.doubt(key)
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
	return protocol.NotSent.Mark(fmt.Errorf("setnxlock: no connection: %w", limit.Because(ctx, err)))
}

// share has steps share so many connections. Those of a cluster lead to servers of their own.
func (s *server) share(most int) {
	if most > 0 && !s.source.Slots {
		s.shared = &mux.Pool{Most: most, Epoch: s.source.Epoch, Job: s.crew.Job, Borrow: func(ctx context.Context, key string) (redis.Conn, error) {
			return s.borrow(cleaning.With(ctx, s.crew), key)
		}}
	}
}

// borrow gets a connection, and never outlasts ctx or the step's limit. With a context that has
// ended it asks nobody: redigo's Pool panics if it is closed, and asked so.
func (s *server) borrow(ctx context.Context, key string) (redis.Conn, error) {
	if err := limit.Over(ctx); err != nil {
		return nil, err
	}
	if s.source.Prompt {
		return s.connect(ctx, key)
	}
	return s.lobby(key).Enter(ctx, func(ctx context.Context) (redis.Conn, error) { return s.connect(ctx, key) })
}

// lobby is where the steps for key wait for their connections.
func (s *server) lobby(key string) *lobby.Lobby {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.group(key)
	if s.lobbies[g] == nil {
		s.lobbies[g] = &lobby.Lobby{Idle: s.source.Idle}
		if s.crew != nil {
			s.lobbies[g].Run = s.crew.Run
		}
	}
	return s.lobbies[g]
}

// doubt is told that a connection for key did not answer, or was closed.
func (s *server) doubt(key string) {
	if !s.source.Prompt {
		s.lobby(key).Doubt()
	}
	if s.shared != nil {
		s.shared.Doubt()
	}
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
func (s *server) returnLater(c *call) {
	c.wire.Anew()
	s.crew.Run(func() { s.putBack(c) })
}

func (s *server) putBack(c *call) {
	if c.Err() != nil && !c.wire.GivenUp() {
		s.checked.Store(0) // the next connection may lead to another server
		s.reaps.Store(0)
	}
	c.alive = c.wire.Return()
}

// verdict is a step's error after what happened to the connection and what a cluster answered in it. An algorithm's
// word is no answer where a reply never came. That a server was found unsafe while it was moving the slot says
// nothing about it.
func (c *call) verdict(key string, err error) error {
	if o := protocol.OutcomeOf(err); c.wire.Session.Open && (o == protocol.Refused || o == protocol.NotSent) {
		return protocol.Unknown.Mark(&limit.CallerError{Err: err})
	}
	if c.wire.Session.NotNow != "" && errors.Is(err, ErrUnsafeServer) {
		err = c.wire.Session.NotNow
	}
	if e, ok := err.(redis.Error); ok && strings.Contains(string(e), "would overflow") { // only a fence's counter counts
		_, err := c.Fence(key, e)
		return err
	}
	_, notNow := answer.NotNow(err)
	switch denied := c.Denied(key, err); {
	case c.wire.Session.Ran || answer.Known(err) == nil:
		return denied
	case notNow:
		return protocol.NotSent.Mark(err)
	default:
		return protocol.Refused.Mark(denied)
	}
}

func (s *server) Acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (Grant, error) {
	l := Grant{Lease: Lease{Key: key}}
	safe, err := s.check(ctx, key)
	if err != nil {
		return l, protocol.NotSent.Mark(err)
	}
	attempt := func(c *call) (err error) {
		epoch, err := s.still(safe)
		if err != nil {
			return err
		}
		l.Lease, err = s.algo.Acquire(&c.Conn, now(), key, ttl)
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
	defer func() {
		if l.pin == nil {
			s.free.Add(1)
		}
	}()
	err = s.over(ctx, key, &p.call, func(c *call) error {
		err := attempt(c)
		p.epoch, c.pinned, c.refused = l.epoch, err == nil && c.wire.Saw.Watches(l.Value), errors.Is(err, ErrHeld)
		return err
	})
	if p.pinned {
		p.value, l.pin = l.Value, p
	}
	return s.placed(ctx, now, l, err), err
}

// placed is l, which was written without an error, in the epoch of the server that has it. One that
// was replaced in the meantime may have sent what was written on to its successor: then a release that is not
// answered found the lock there, and it was not lost (any/failover).
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

// still returns the epoch, or an error if it is not the one in which the server was found safe.
func (s *server) still(safe uint64) (uint64, error) {
	epoch := s.epoch()
	if s.traits.Check != nil && epoch != safe {
		return epoch, protocol.NotSent.Mark(errReplaced) // the new one may be of another version
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
func (s *server) change(now time.Time, l Grant, ttl time.Duration) (Grant, protocol.Change, error) {
	if lease.Past(now, l.Until) {
		return l, protocol.Change{}, ErrLost
	}
	le, ch, err := s.algo.Extend(now, l.Lease, ttl, l.Rotate)
	if err != nil {
		return l, ch, err
	}
	next := Grant{Lease: le, epoch: l.epoch}
	next.Final = ch.Final && ch.By != nil || le.Value != l.Value || ch.By == nil && ch.If == protocol.Watch
	next.drew = ch.Draw || ch.After != nil // reading the key can't tell what else was to be done
	return next, ch, nil
}

// extended is the lease that an extension's replies come to.
func (c *call) extended(l, next Grant, ch *protocol.Change, replies []any, err error) (Grant, error) {
	if err == nil && ch.Draw {
		next.Fence, err = c.Fence(ch.Key, replies[len(replies)-1])
	}
	if o := protocol.OutcomeOf(err); o == protocol.Refused || o == protocol.NotSent {
		return l, err
	}
	return next, err
}

func (s *server) Extend(ctx context.Context, now func() time.Time, l Grant, ttl time.Duration) (Grant, error) {
	next := l
	step := func(c *call) error {
		epoch := s.epoch()
		var ch protocol.Change
		var err error
		if next, ch, err = s.change(now(), l, ttl); err != nil {
			return err
		}
		next.epoch = epoch
		replies, err := c.Run(ch)
		next, err = c.extended(l, next, &ch, replies, c.verdict(l.Key, err))
		return err
	}
	err, ran := s.overPinned(ctx, l, &next, step)
	if !ran {
		err = s.do(ctx, l.Key, step)
	}
	if protocol.OutcomeOf(err) == protocol.NotSent {
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
func (s *server) batches(leases []Grant) [][]int {
	return slot.Batches(len(leases), batchAtMost, func(i int) (key string, alone bool) {
		if l := &leases[i]; s.source.Slots {
			return l.Key, l.pin != nil
		}
		return "", leases[i].pin != nil
	})
}

// extendAll is Extend of many leases over one connection. Each has its own outcome: one that
// was lost does not keep the others from being extended.
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
		replies, failed := c.RunAll(changes)
		for n, i := range asked {
			next[i], errs[i] = c.extended(leases[i], next[i], &changes[n], replies[n], c.verdict(leases[i].Key, failed[n]))
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

func (s *server) Release(ctx context.Context, now func() time.Time, l Grant) error {
	return s.release(ctx, now, l, nil)
}

// release is Release, with a wake-up if there is one. A value that proves nothing is not removed
// when its time has run out: what is on the key then may be another client's.
func (s *server) release(ctx context.Context, now func() time.Time, l Grant, k *wire.Wakeup) error {
	ch := s.algo.Release(l.Lease)
	if (l.Ambiguous || ch.By == nil && ch.If == protocol.Unguarded) && lease.Past(now(), l.Until) {
		s.unpin(l)
		return ranOut(l.Key)
	}
	gone := l
	step := func(c *call) error {
		c.wire.Wake = k
		_, err := c.Run(ch)
		if err == nil && c.wire.Wake != nil && c.wire.Wake.Err == nil { // it did not go with the release
			k.Woken, k.Err = c.wakeOne(k.Cmds)
		}
		return err
	}
	err, ran := s.overPinned(ctx, l, &gone, step)
	if !ran {
		s.unpin(l)
		err = s.do(ctx, l.Key, step)
	}
	return err
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

// valid is ErrInvalid for a ttl that the algorithm can't keep: it says so when it is asked to
// extend, which sends nothing.
func (s *server) valid(key string, ttl time.Duration) error {
	if _, _, err := s.algo.Extend(time.Unix(0, 0), Lease{Key: key, Value: "v"}, ttl, false); errors.Is(err, ErrInvalid) {
		return err
	}
	return nil
}

// find is Find for a lock of which one read tells everything.
func find(ctx context.Context, b Backend, now func() time.Time, key, value string) (Grant, error) {
	st, err := b.Inspect(ctx, now, key)
	if err != nil {
		return Grant{}, err
	}
	if value == "" || !st.Holds(value) {
		return Grant{}, &LostError{Key: key, Value: st.Value, Gone: st.Status == StatusFree}
	}
	return Grant{Lease: Lease{Key: key, Value: value, Until: st.End(value)}}, nil
}

// check asks the algorithm, once in each epoch, whether it is safe on this server, and returns
// the epoch. A check is ten times as long as a step: it goes on beside the steps that wait for it, and what it finds is
// remembered.
func (s *server) check(ctx context.Context, key string) (epoch uint64, err error) {
	switch epoch, known := s.known(); {
	case known:
		return epoch, nil
	case limit.Of(ctx) == 0:
		return s.examine(ctx, key, nil)
	}
	return s.await(ctx, key, 0)
}

// known reports that the server was found safe in this epoch.
func (s *server) known() (epoch uint64, known bool) {
	epoch = s.epoch()
	return epoch, s.traits.Check == nil && s.shared == nil || s.checked.Load() == epoch+1
}

// ready is Abilities.Ready.
func (s *server) ready(ctx context.Context, key string, trip time.Duration) (took time.Duration, err error) {
	if _, known := s.known(); known {
		return time.Duration(s.trip.Load()), nil
	}
	if trip > 0 {
		_, err = s.await(ctx, key, trip)
		return time.Duration(s.trip.Load()), err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.exams[s.group(key)]; e != nil && !e.givenUp && e.silent() < 2*time.Duration(max(e.trip.Load(), s.trip.Load())) {
		return 0, ErrTimeout
	}
	return 0, ErrUnanswered
}

// await waits for a check, as long as ctx and its limit let it; with a trip only as long as no answer takes longer than
// that: else one that others have given up is begun anew.
func (s *server) await(ctx context.Context, key string, trip time.Duration) (epoch uint64, err error) {
	anew := trip == 0
	for {
		e := s.exam(ctx, key)
		err := e.wait(ctx, trip)
		s.mu.Lock()
		e.waiting--
		if err != nil { // as long as an answer may take, or the step has taken
			step := limit.Of(ctx)
			s.goOn(e, min(cmp.Or(trip, step), time.Since(limit.Until(ctx).Add(-step))))
		}
		s.mu.Unlock()
		switch {
		case err != nil:
			return s.epoch(), err
		case e.panicked != nil:
			panic(e.panicked)
		case !e.givenUp || !anew:
			return e.epoch, e.err
		}
	}
}

// An exam is the checks of one server that are under way. They are few: if all steps that begin at once checked, or all
// whose connections broke in a busy moment, the server could be too busy with checks to end one in time. Two, so that one
// which hangs does not hold up all.
type exam struct {
	heard  atomic.Int64 // when the server last answered, in nanoseconds of Unix
	trip   atomic.Int64 // the longest that an answer has taken, in nanoseconds
	ctx    context.Context
	cancel func()

	// The server's mu guards these until done is closed.
	under    int
	waiting  int           // steps
	done     chan struct{} // closed when one has found the server safe, or none is under way
	ended    bool
	givenUp  bool
	epoch    uint64
	err      error
	panicked any
}

// hears notes that the server has answered.
func (e *exam) hears() {
	now := time.Now().UnixNano()
	e.trip.Store(max(e.trip.Load(), now-e.heard.Swap(now)))
}

// silent is for how long it has not.
func (e *exam) silent() time.Duration { return time.Since(time.Unix(0, e.heard.Load())) }

// wait waits until it is done.
func (e *exam) wait(ctx context.Context, trip time.Duration) error {
	rings, stop := limit.Alarm(ctx)
	defer stop()
	for {
		var slow <-chan time.Time
		if trip > 0 {
			slow = time.After(trip - e.silent())
		}
		select {
		case <-e.done:
			return nil
		case <-ctx.Done():
			return limit.Cause(ctx)
		case <-rings:
			return ErrTimeout
		case <-slow:
		}
		if e.silent() >= trip {
			return ErrTimeout
		}
	}
}

// goOn has checks go on for which no step waits, as long as no answer takes longer than trip. s.mu is held.
func (s *server) goOn(e *exam, trip time.Duration) {
	left := trip - e.silent()
	switch {
	case e.waiting > 0 || e.ctx.Err() != nil:
	case left <= 0:
		e.givenUp = true
		e.cancel()
	default:
		time.AfterFunc(left, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.goOn(e, trip)
		})
	}
}

// exam is that of key's server, which a step joins.
func (s *server) exam(ctx context.Context, key string) *exam {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.group(key)
	e := s.exams[g]
	if e == nil || e.givenUp {
		e = &exam{done: make(chan struct{})}
		e.ctx, e.cancel = cleaning.Of(ctx, cleaning.Alone).Keep(ctx, max(limit.Of(ctx), longestCheck))
		e.heard.Store(time.Now().UnixNano())
		s.exams[g] = e
	}
	e.waiting++
	if e.under == 2 {
		return e
	}
	e.under++
	go func() {
		epoch, err := uint64(0), errors.New("setnxlock: a check has panicked")
		defer func() {
			panicked := recover()
			s.mu.Lock()
			defer s.mu.Unlock()
			e.under--
			if over := err == nil || panicked != nil || e.under == 0; !over || e.ended {
				return
			}
			e.ended, e.epoch, e.err, e.panicked = true, epoch, err, panicked
			s.trip.Store(e.trip.Load())
			if s.exams[g] == e {
				delete(s.exams, g)
			}
			close(e.done)
			e.cancel() // the other
		}()
		epoch, err = s.examine(e.ctx, key, e.hears)
	}()
	return e
}

// longestCheck is how long a check may take: many times what one does whose server is 200 ms away.
const longestCheck = 10 * time.Second

// examine is one check. A proxy answers what it does not know by closing the connection, and so does a
// broken network: that is no proof, and said as it was seen. Neither the check nor what is asked then shares a
// connection: where no new one is to be had, one that lives would prove nothing.
func (s *server) examine(ctx context.Context, key string, heard func()) (epoch uint64, err error) {
	blamed := ""
	for range checksAtMost {
		on := ""
		err = s.alone(ctx, key, func(c *call) (err error) {
			epoch = s.epoch()
			if c.wire.Heard = heard; heard != nil {
				heard() // it has connected
			}
			if s.traits.Check != nil {
				err = s.traits.Check(&c.Conn, key)
			}
			on = c.wire.Session.BrokeOn
			if err == nil && s.pins && c.reaps() {
				s.reaps.Store(epoch + 1)
			}
			if err == nil && s.shared != nil {
				merges := c.merges(key)
				if err = limit.Over(ctx); err == nil { // else nobody was asked
					s.apart.Store(merges)
				}
			}
			return err
		})
		if err == nil {
			s.checked.Store(epoch + 1)
			return epoch, nil
		}
		var e redis.Error
		if ctx.Err() != nil || protocol.OutcomeOf(err) != protocol.Unknown || errors.As(err, &e) || !answer.Closed(err) || errors.Is(err, net.ErrClosed) {
			return epoch, err
		}
		proof := s.again(ctx, key, s.alone, func(c *call) error {
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

// reaps reports that the server's DEL counts no key that has expired.
func (c *call) reaps() bool {
	info, err := redis.String(c.Do("INFO"))
	return err == nil && answer.ReapsBeforeDEL(answer.Info(info, "redis_version"))
}

// merges reports that the server runs transactions which are pipelined as one, or the second one's commands one by one,
// as Envoy does; or that it can't be asked. Where it has none, none is sent.
func (c *call) merges(key string) bool {
	one := []protocol.Cmd{{"MULTI"}, {"EXISTS", protocol.Aux(key, "check:"+protocol.NewToken())}, {"EXEC"}}
	replies, err := c.Pipe(slices.Concat(one, one)...)
	if err != nil {
		return true // it hangs up on the question, or was not asked
	}
	ran := func(reply any) bool { all, _ := reply.([]any); return len(all) == 1 }
	return ran(replies[2]) && !ran(replies[5])
}

// checksAtMost is how often a check may lose its connection while reads are answered. If it is the
// same commands twice in a row, those are blamed, as by package probe's Check.
const checksAtMost = 4
