package mux

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Pool is a few shared connections to one server. A connection that broke, is slow or leads to a
// server of an earlier epoch is replaced; another one is made when those there are have much to do.
type Pool struct {
	Borrow func(ctx context.Context, key string) (redis.Conn, error) // to be shared, for the key "", or by a Step that shares none
	Epoch  func() uint64                                             // of the server; nil: there is but one
	Most   int

	messages sync.Pool // not for all Pools together: one may live in a test's own time

	mu      sync.Mutex
	conns   []*Conn
	dialing chan struct{} // closed when a connection has been made, or could not be; nil: none is being made
	closed  atomic.Bool
}

// crowded is how many wait for replies on a connection when another one is worth making.
const crowded = 32

// Get returns the connection that has least to do. limit bounds how long it takes to make one; 0: ctx
// alone does.
func (p *Pool) Get(ctx context.Context, limit time.Duration) (*Conn, error) {
	for {
		p.mu.Lock()
		if p.closed.Load() {
			p.mu.Unlock()
			return nil, net.ErrClosed
		}
		best, load := p.best()
		if best != nil && (load < crowded || len(p.conns) >= p.Most || p.dialing != nil) {
			p.mu.Unlock()
			return best, nil
		}
		if wait := p.dialing; wait != nil {
			p.mu.Unlock()
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		done := make(chan struct{})
		p.dialing = done
		epoch := p.epoch()
		p.mu.Unlock()
		c, err := p.dial(ctx, limit)
		p.mu.Lock()
		p.dialing = nil
		close(done)
		if err != nil {
			p.mu.Unlock()
			if best != nil {
				return best, nil
			}
			return nil, err
		}
		shared := New(c)
		shared.epoch = epoch
		if p.closed.Load() {
			p.mu.Unlock()
			shared.Close()
			return nil, net.ErrClosed
		}
		p.conns = append(p.conns, shared)
		p.mu.Unlock()
		return shared, nil
	}
}

func (p *Pool) dial(ctx context.Context, limit time.Duration) (redis.Conn, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return p.Borrow(ctx, "")
}

func (p *Pool) epoch() uint64 {
	if p.Epoch == nil {
		return 0
	}
	return p.Epoch()
}

// best is the connection with the fewest callers; those that take no more are forgotten.
func (p *Pool) best() (best *Conn, load int) {
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

// Close ends all connections. Each Step borrows one from then on.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed.Store(true)
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// do sends m over one of the connections.
func (p *Pool) do(ctx context.Context, m *Message, patience time.Duration) ([]any, error) {
	c, err := p.Get(ctx, patience)
	if err != nil {
		m.free()
		return nil, unsent(err)
	}
	return c.Do(ctx, patience, m)
}

func (p *Pool) message() *Message {
	if m, ok := p.messages.Get().(*Message); ok {
		return m
	}
	m := NewMessage()
	m.home = &p.messages
	return m
}
