package mux

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
)

// A Pool is a few shared connections to one server. A connection that broke, is slow or leads to a
// server of an earlier epoch is replaced; another one is made when those there are have much to do.
type Pool struct {
	Borrow func(ctx context.Context, key string) (redis.Conn, error) // to be shared, for the key "", or by a Step that shares none
	Epoch  func() uint64                                             // of the server; nil: there is but one
	Whole  func() bool                                               // the server keeps transactions whole that are pipelined
	Job    func() (done func())                                      // of the end of a connection; nil: nobody waits for that
	Most   int

	messages sync.Pool // not for all Pools together: one may live in a test's own time

	mu      sync.Mutex
	conns   []*Conn
	dialing *dial // nil: no connection is being made
	closed  bool
	apart   atomic.Bool // each step borrows one
}

// A dial is a connection that is being made.
type dial struct {
	done chan struct{} // closed when it has been made, or could not be
	err  error         // why not, if those that wait for it would get the same
	stop func()        // gives it up; nil: its caller's context does
}

// crowded is how many wait for replies on a connection when another one is worth making: below it one that is full saves
// the server more system calls than a second reader gains.
const crowded = 128

// growing is how long a connection for which nobody waits may take to be made.
const growing = 5 * time.Second

// Get returns the connection that has least to do, and what is left of patience (0: it has no end).
func (p *Pool) Get(ctx context.Context, patience time.Duration) (*Conn, time.Duration, error) {
	p.mu.Lock()
	c := p.best(ctx)
	p.mu.Unlock()
	if c != nil {
		return c, patience, nil
	}
	return within(ctx, patience, p.wait)
}

// within calls get, which takes no longer than patience, and returns what is left of that.
func within[T any](ctx context.Context, patience time.Duration, get func(context.Context) (T, error)) (got T, left time.Duration, err error) {
	if patience == 0 {
		got, err = get(ctx)
		return got, 0, limit.Because(ctx, err)
	}
	until := limit.Now().Add(patience)
	bounded, stop := limit.Within(ctx, limit.Real, patience)
	defer stop()
	got, err = get(bounded)
	return got, max(limit.Left(until), 1), limit.Because(bounded, err)
}

// wait waits for a connection, and makes one if nobody does.
func (p *Pool) wait(ctx context.Context) (*Conn, error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, net.ErrClosed
		}
		if c := p.best(ctx); c != nil {
			p.mu.Unlock()
			return c, nil
		}
		d := p.dialing
		if d == nil {
			d = p.begin(nil)
			p.mu.Unlock()
			return p.dial(ctx, d)
		}
		p.mu.Unlock()
		select {
		case <-d.done:
			if d.err != nil {
				return nil, d.err
			}
		case <-ctx.Done():
			return nil, limit.Cause(ctx)
		}
	}
}

// begin is before dial. p.mu is held.
func (p *Pool) begin(stop func()) *dial {
	p.dialing = &dial{done: make(chan struct{}), stop: stop}
	return p.dialing
}

// dial makes a connection. That it was given up says nothing to those who have more time.
func (p *Pool) dial(ctx context.Context, d *dial) (*Conn, error) {
	epoch := p.epoch()
	c, err := p.Borrow(ctx, "")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialing = nil
	defer close(d.done)
	if err != nil {
		if ctx.Err() == nil {
			d.err = err
		}
		return nil, err
	}
	shared := New(c)
	shared.epoch, shared.job = epoch, p.Job
	if p.closed {
		shared.Close()
		return nil, net.ErrClosed
	}
	p.conns = append(p.conns, shared)
	return shared, nil
}

// best is the connection that has least to do; nil: there is none. If even that has much to do, another
// one is made in the background: a Dial that hangs holds up nobody who has a connection. p.mu is held.
func (p *Pool) best(ctx context.Context) *Conn {
	best, load := p.idlest()
	if best != nil && load >= crowded && len(p.conns) < p.Most && p.dialing == nil {
		ctx, stop := limit.Within(context.WithoutCancel(ctx), limit.Real, growing)
		d := p.begin(stop)
		go func() {
			defer stop()
			p.dial(ctx, d) //nolint:errcheck // those that there are do
		}()
	}
	return best
}

func (p *Pool) epoch() uint64 {
	if p.Epoch == nil {
		return 0
	}
	return p.Epoch()
}

// idlest is the connection with the fewest callers; those that take no more are forgotten.
func (p *Pool) idlest() (best *Conn, load int) {
	epoch := p.epoch()
	p.conns = slices.DeleteFunc(p.conns, func(c *Conn) bool {
		n, ok := c.load()
		if ok && c.epoch != epoch {
			c.Retire()
			ok = false
		}
		if ok && (best == nil || n < load) {
			best, load = c, n
		}
		return !ok
	})
	return best, load
}

// Doubt is told that a connection to the server turned out to be dead: those that are here may be as dead.
func (p *Pool) Doubt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Retire()
	}
	p.conns = nil
}

// Close ends all connections. Each Step borrows one from then on.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.apart.Store(true)
	if d := p.dialing; d != nil && d.stop != nil {
		d.stop()
	}
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// do sends m over one of the connections, or over this one as the last, and returns it. One that took its last message
// since it was chosen is nobody's fault: another one is chosen.
func (p *Pool) do(ctx context.Context, m *Message, patience time.Duration, over *Conn) (replies []any, _ *Conn, err error) {
	last := over != nil
	for {
		if !last {
			if over, patience, err = p.Get(ctx, patience); err != nil {
				m.free()
				return nil, nil, unsent(err)
			}
		}
		if err = over.send(ctx, patience, m, last); err == nil {
			replies, err = over.wait(ctx, m)
		}
		if last || !errors.Is(err, errTakesNoMore) {
			break
		}
	}
	if _, elsewhere := answer.Among(replies, answer.Elsewhere); elsewhere {
		over.Retire()
	}
	return replies, over, err
}

func (p *Pool) message() *Message {
	if m, ok := p.messages.Get().(*Message); ok {
		return m
	}
	m := NewMessage()
	m.home = &p.messages
	return m
}
