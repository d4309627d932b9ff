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

// A Pool keeps a few shared connections to one server. It replaces a connection that broke, is slow, or leads
// to a server of an earlier epoch. It makes another connection when the present ones have much to do.
type Pool struct {
	Borrow func(ctx context.Context, key string) (redis.Conn, error) // borrows a connection to share (key ""), or for a Step about key
	Epoch  func() uint64                                             // returns the server's epoch; nil: there is only one
	Whole  func() bool                                               // reports whether the server keeps pipelined transactions whole
	Job    func() (done func())                                      // begins the job of closing a connection; nil: no Close waits for that
	Most   int

	messages sync.Pool // one for each Pool: a Pool in a test may have virtual time

	mu       sync.Mutex
	conns    []*Conn
	dialing  *dial // nil: no connection is being made
	closed   bool
	unshared atomic.Bool // each step borrows a connection
}

// A dial makes a connection.
type dial struct {
	done chan struct{} // closed after success or failure
	err  error         // the failure, if the other waiting callers would get the same
	stop func()        // cancels the dial; nil: its caller's context does
}

// crowded is the number of waiting callers from which on a second connection helps: with fewer, one full
// connection saves the server more system calls than a second reader gains.
const crowded = 128

// growing limits a dial without a waiting caller.
const growing = 5 * time.Second

// Get returns the least busy connection, and the rest of patience (0: it has no end).
func (p *Pool) Get(ctx context.Context, patience time.Duration) (*Conn, time.Duration, error) {
	p.mu.Lock()
	c := p.best(ctx)
	p.mu.Unlock()
	if c != nil {
		return c, patience, nil
	}
	return within(ctx, patience, p.wait)
}

// within calls get with a limit of patience, and returns the rest of patience.
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

// wait waits for a connection. It makes a connection if no other caller does.
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

// begin notes a dial before its call. p.mu is held.
func (p *Pool) begin(stop func()) *dial {
	p.dialing = &dial{done: make(chan struct{}), stop: stop}
	return p.dialing
}

// dial makes a connection. It does not pass the end of ctx on to other callers: they have more time.
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

// best returns the least busy connection, or nil. If even that connection has much to do, best makes another
// one in the background: a hanging Dial must not hold up callers with a connection. p.mu is held.
func (p *Pool) best(ctx context.Context) *Conn {
	best, load := p.idlest()
	if best != nil && load >= crowded && len(p.conns) < p.Most && p.dialing == nil {
		ctx, stop := limit.Within(context.WithoutCancel(ctx), limit.Real, growing)
		d := p.begin(stop)
		go func() {
			defer stop()
			p.dial(ctx, d) //nolint:errcheck // the present connections serve
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

// idlest returns the connection with the fewest callers. It forgets connections that take no more messages.
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

// Doubt retires all connections after a connection to the server turned out to be dead: they may be dead too.
func (p *Pool) Doubt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Retire()
	}
	p.conns = nil
}

// Close ends all connections. From then on each Step borrows a connection.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.unshared.Store(true)
	if d := p.dialing; d != nil && d.stop != nil {
		d.stop()
	}
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// do sends m over one of the connections, and returns the connection too. If over is set, m is the last message
// on over. If a chosen connection takes no more messages, do chooses another.
func (p *Pool) do(ctx context.Context, m *Message, patience time.Duration, over *Conn) (replies []any, _ *Conn, err error) {
	last := over != nil
	for {
		if !last {
			if over, patience, err = p.Get(ctx, patience); err != nil {
				m.recycle()
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
	if _, useless := answer.Among(replies, answer.CannotServe); useless {
		over.Retire()
	}
	return replies, over, err
}

func (p *Pool) message() *Message {
	if m, ok := p.messages.Get().(*Message); ok {
		return m
	}
	m := newMessage()
	m.pool = &p.messages
	return m
}
