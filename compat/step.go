package compat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/mux"
	"github.com/setnxlock/setnxlock/compat/internal/safe"
	"github.com/setnxlock/setnxlock/compat/internal/slot"
	"github.com/setnxlock/setnxlock/compat/internal/stock"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A call joins a step to its connection. The algorithm sees only its Conn.
type call struct {
	protocol.Conn
	wire   wire.Conn
	shared mux.Step    // what the connection is if the step shares one
	own    *stock.Conn // what it is if not

	counts  bool // among the steps that are under way
	alone   bool // no other step is
	pins    bool // its lease keeps the connection
	refused bool // nobody waits for the connection to be returned
	clean   bool // it was returned as one that can be used again
}

type ofWaiter struct{}

func waiterOf(ctx context.Context) string {
	name, _ := ctx.Value(ofWaiter{}).(string)
	return name
}

// Calls are large, and needed for the length of a step.
var calls = sync.Pool{New: func() any { return new(call) }}

func (c *call) lend(borrowed redis.Conn) {
	c.wire.Conn = borrowed
	protocol.Bind(&c.Conn, &c.wire)
}

// lendOwn lends the step its own connection from below the Stock. The Stock gets it back all the same.
func (c *call) lendOwn() {
	c.lend(c.own.Conn)
	c.wire.Lender = c.own
}

func (c *call) begin(ctx context.Context) {
	c.wire.Begin(ctx)
	c.wire.Waiter = waiterOf(ctx)
}

// tries carries out one step over a connection, and over another one if a cluster only redirected it in a way that
// its Source could not follow, or if the server can't serve us. A lock's steps are loops over tries: functions that
// are passed on would be three more on the stack of each write.
type tries struct {
	s     *server
	ctx   context.Context
	key   string
	fresh bool // each connection is the pool's
	c     *call
	n     int       // connections so far
	left  int       // how many more may lead to the wrong server
	pin   stock.Pin // the connection that the lease keeps
	err   error
}

// next gets the step its next connection. It returns false when err is the step's final error.
func (t *tries) next() bool {
	for {
		if t.n == 1 {
			t.left = 1
			if answer.CannotServe(t.err) { // each idle connection may lead there
				t.left += t.s.idle()
			}
		}
		if t.n > 0 {
			if t.left == 0 || !wrongServer(t.err) {
				return false
			}
			t.left--
		}
		t.n++
		if t.c, t.err = t.s.call(t.ctx, t.key, t.fresh); t.err == nil {
			return true
		}
	}
}

// end notes the step's error over its connection, and gives the connection back.
func (t *tries) end(err error) {
	c := t.c
	t.c = nil
	t.pin, t.err = t.s.ended(t.ctx, t.key, c, err)
}

// abandon drops a connection after its step panicked, since nobody can use it any more. Callers defer it.
func (t *tries) abandon() {
	if c := t.c; c != nil {
		wire.Drop(c.wire.Conn)
		t.s.putBack(c)
	}
}

// do runs one step.
func (s *server) do(ctx context.Context, key string, step func(*call) error) error {
	return s.run(tries{s: s, ctx: ctx, key: key}, step)
}

// afresh runs one step over a connection of the pool's.
func (s *server) afresh(ctx context.Context, key string, step func(*call) error) error {
	return s.run(tries{s: s, ctx: ctx, key: key, fresh: true}, step)
}

func (s *server) run(t tries, step func(*call) error) error {
	defer t.abandon()
	for t.next() {
		t.end(step(t.c))
	}
	return t.err
}

// wrongServer reports whether a step did nothing because its connection led to the wrong server.
func wrongServer(err error) bool {
	o := protocol.OutcomeOf(err)
	return (o == protocol.NotSent || o == protocol.Refused) && (answer.Redirected(err) || answer.CannotServe(err))
}

// call gets a step its connection. It asks, before it borrows one, whether the context is done: redigo would kill a
// healthy connection for it. A step that is alone has a connection of its own; steps that are under way at once share.
func (s *server) call(ctx context.Context, key string, fresh bool) (*call, error) {
	if err := limit.Over(ctx); err != nil {
		return nil, protocol.NotSent.Mark(err)
	}
	c := calls.Get().(*call)
	c.counts = true
	c.alone = s.underWay.Add(1) == 1
	if s.shared != nil && !fresh && !c.alone && !s.source.odd.Load() {
		s.learnWhole(key)
		c.shared = s.shared.Step(key)
		c.lend(&c.shared)
	} else {
		var err error
		if c.own, err = s.borrow(ctx, key, fresh); err != nil {
			s.underWay.Add(-1)
			return nil, noConnection(ctx, err)
		}
		c.lendOwn()
	}
	c.begin(ctx)
	c.wire.Compares = &s.compares
	return c, nil
}

// ended returns a step's final error, and gives its connection back, or pins it.
func (s *server) ended(ctx context.Context, key string, c *call, err error) (pin stock.Pin, _ error) {
	err = c.verdict(key, err)
	unsent := c.own == nil && c.shared.Unsent()
	if unsent && protocol.OutcomeOf(err) == protocol.Unknown {
		err = noConnection(ctx, err)
	}
	if c.wire.Session.Useless {
		wire.Drop(c.wire.Conn)
	}
	if (c.wire.Unheard() || answer.Closed(err)) && !unsent {
		s.doubt(key)
	}
	switch live := c.Err() == nil; {
	case c.pins && live:
		pin = c.own.Pin()
		c.clean = true
		s.uncount(c)
	case c.refused && live && c.wire.Session.Watching:
		s.uncount(c)
		s.returnLater(c)
		return 0, err
	default:
		s.putBack(c)
	}
	if c.clean { // else what was to be sent may still be read
		*c = call{}
		calls.Put(c)
	}
	return pin, err
}

// uncount takes a finished step off the count of steps under way.
func (s *server) uncount(c *call) {
	if c.counts {
		c.counts = false
		s.underWay.Add(-1)
	}
}

func noConnection(ctx context.Context, err error) error {
	return protocol.NotSent.Mark(fmt.Errorf("setnxlock: no connection: %w", limit.Because(ctx, err)))
}

// borrow gets a connection, and never outlasts ctx or the step's limit. With a context that has ended it asks
// nobody: redigo's Pool panics if it is closed, and asked so.
func (s *server) borrow(ctx context.Context, key string, fresh bool) (*stock.Conn, error) {
	if err := limit.Over(ctx); err != nil {
		return nil, err
	}
	from := s.stock(key)
	if !fresh {
		if c := from.Kept(); c != nil {
			return c, nil
		}
	}
	return from.Get(ctx, func(ctx context.Context) (redis.Conn, error) { return s.connect(ctx, key) })
}

// connect gets a connection from the Source. It closes the errored one that a redis.Pool returns beside an error.
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

// stock returns the connections to key's server.
func (s *server) stock(key string) *stock.Stock {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.group(key)
	if s.stocks[g] == nil {
		st := &stock.Stock{Most: s.keeps, Bounded: s.source.Bounded, Idle: s.source.Idle, Full: s.source.full, Epoch: s.source.Epoch}
		if s.jobs != nil {
			st.Run, st.Still = s.jobs.Run, !s.jobs.Attended()
		}
		s.stocks[g] = st
	}
	return s.stocks[g]
}

// group returns the number of the keys that may share a server with key. In a cluster these are the keys of one
// slot, so a server that hangs does not hold up the others.
func (s *server) group(key string) int {
	if s.source.Slots {
		return slot.Of(key)
	}
	return 0
}

// keep lets connections be kept, pinned and shared, for the steps of a Locker with these Jobs.
func (s *server) keep(jobs *cleaning.Jobs) {
	s.jobs = jobs
	if s.source.Slots {
		return
	}
	s.keeps = s.source.Keep
	if s.keeps == 0 || s.source.Bounded || s.traits.Check == nil {
		return
	}
	most := min((s.keeps+1)/2, 4)
	s.keeps -= most
	s.shared = &mux.Pool{Most: most, Whole: func() bool { return s.pipes.Load() == whole }, Epoch: s.source.Epoch, Job: jobs.Job, Borrow: func(ctx context.Context, key string) (redis.Conn, error) {
		c, err := s.borrow(cleaning.With(ctx, jobs), key, false)
		if err != nil {
			return nil, err
		}
		return c, nil
	}}
}

// close gives the kept connections back.
func (s *server) close() {
	if s.shared != nil {
		s.shared.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.stocks {
		st.Close()
	}
}

// doubt notes a silent or closed connection for key.
func (s *server) doubt(key string) {
	s.stock(key).Doubt()
	if s.shared != nil {
		s.shared.Doubt()
	}
}

// returnLater returns a connection in the background. A refused client so does not wait for the server once more.
func (s *server) returnLater(c *call) {
	c.wire.Anew()
	s.jobs.Run(func() { s.putBack(c) })
}

func (s *server) putBack(c *call) {
	if c.Err() != nil && !c.wire.GivenUp() {
		s.checked.Store(0) // the next connection may lead to another server
		s.pipes.Store(separate)
	}
	c.clean = c.wire.Return()
	s.uncount(c)
}

// verdict adds to a step's error the fate of its connection and a cluster's answers. An algorithm's word is no
// answer where a reply never came. A server found unsafe while it was moving the slot proves nothing about its
// safety.
func (c *call) verdict(key string, err error) error {
	if o := protocol.OutcomeOf(err); c.wire.Session.Open && (o == protocol.Refused || o == protocol.NotSent) {
		return protocol.Unknown.Mark(&limit.CallerError{Err: err})
	}
	if c.wire.Session.NotNow != "" && errors.Is(err, ErrUnsafeServer) {
		err = c.wire.Session.NotNow
	}
	if e, ok := err.(redis.Error); ok && (strings.Contains(string(e), "would overflow") || strings.Contains(string(e), "not an integer")) {
		// only a fence's counter counts
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
