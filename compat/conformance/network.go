package conformance

import (
	"context"
	"io"
	"sync"
	"syscall"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// A Fault is what a [Network] does to one command.
type Fault int

const (
	None        Fault = iota
	LostRequest       // never arrives; the connection is gone
	LostReply         // runs, but the connection is gone before its reply
	Cut               // so too, and no connection can be had until the next Lose
)

// A Network can lose the n-th command that is sent through it, to whatever server. Commands are
// counted from 1 over all its connections. Those of one write are delivered one by one, so that a
// loss can come between them. The zero value loses nothing.
type Network struct {
	// Ran, if it is not nil, is called when command n has run.
	Ran func(n int, name string)

	mu     sync.Mutex
	sent   []string // every command that was meant to be sent
	writes int      // in which they were to go
	fault  func(n int, name string) Fault
	cut    bool
}

// Over returns source through the network.
func (n *Network) Over(source compat.Source) compat.Source {
	get := source.Get
	source.Get = func(ctx context.Context, key string) (redis.Conn, error) {
		if n.isCut() {
			return nil, syscall.ECONNREFUSED
		}
		conn, err := get(ctx, key)
		if err != nil {
			return nil, err
		}
		return &faultyConn{Conn: conn, net: n}, nil
	}
	return source
}

// Lose makes the next commands fail as f says; n counts from this call. nil: none fails.
func (n *Network) Lose(f func(n int, name string) Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent, n.writes, n.fault, n.cut = nil, 0, f, false
}

// Sent returns the names of the commands that were sent, or lost, since [Network.Lose].
func (n *Network) Sent() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.sent...)
}

// Count returns how many commands were sent since [Network.Lose].
func (n *Network) Count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.sent)
}

// Writes returns in how many writes they were sent.
func (n *Network) Writes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.writes
}

func (n *Network) write() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.writes++
}

func (n *Network) isCut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut
}

func (n *Network) next(name string) (int, Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent = append(n.sent, name)
	f := None
	switch {
	case n.cut:
		f = LostRequest
	case n.fault != nil:
		f = n.fault(len(n.sent), name)
	}
	n.cut = n.cut || f == Cut
	return len(n.sent), f
}

type faultyConn struct {
	redis.Conn
	net     *Network
	pending []compat.Cmd
	dead    error

	mu      sync.Mutex // one goroutine sends and flushes, another receives, where connections are shared
	replies []any
}

func (c *faultyConn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return c.dead
	}
	return c.Conn.Err()
}

func (c *faultyConn) Send(name string, args ...any) error {
	if c.dead != nil {
		return c.dead
	}
	c.pending = append(c.pending, append(compat.Cmd{name}, args...))
	return nil
}

func (c *faultyConn) Do(name string, args ...any) (any, error) {
	if name != "" {
		c.pending = append(c.pending, append(compat.Cmd{name}, args...))
	}
	cmds := c.pending
	c.pending = nil
	if len(cmds) > 0 {
		c.net.write()
	}
	var replies []any
	for _, m := range cmds {
		reply, err := c.deliver(m)
		if c.dead != nil || c.Conn.Err() != nil {
			return nil, err
		}
		if err != nil {
			reply = err
		}
		replies = append(replies, reply)
	}
	return answer.Do(name, replies)
}

func (c *faultyConn) deliver(m compat.Cmd) (any, error) {
	if c.dead != nil {
		return nil, c.dead
	}
	name := m[0].(string)
	n, f := c.net.next(name)
	if f == LostRequest {
		return nil, c.die()
	}
	reply, err := c.Conn.Do(name, m[1:]...)
	if c.net.Ran != nil {
		c.net.Ran(n, name)
	}
	if f == LostReply || f == Cut {
		return nil, c.die()
	}
	return reply, err
}

// die breaks the connection. What is behind it may be a pool's, which hands it out again: on 2.2 with
// what a WATCH has seen, if the pool ends a MULTI.
func (c *faultyConn) die() error {
	c.dead = io.ErrUnexpectedEOF
	c.Conn.Do("DISCARD") //nolint:errcheck // it may be in none
	c.Conn.Do("UNWATCH") //nolint:errcheck // nor is there WATCH everywhere
	c.Conn.Close()
	return c.dead
}

// Flush delivers what was sent. What becomes of it, Receive tells.
func (c *faultyConn) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	cmds := c.pending
	c.pending = nil
	if len(cmds) > 0 {
		c.net.write()
	}
	for _, m := range cmds {
		reply, err := c.deliver(m)
		if err == nil {
			err = c.Conn.Err()
		}
		if c.dead != nil || c.Conn.Err() != nil {
			c.replies = append(c.replies, err)
			return nil
		}
		if err != nil {
			reply = err
		}
		c.replies = append(c.replies, reply)
	}
	return nil
}

func (c *faultyConn) Receive() (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.replies) == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	r := c.replies[0]
	c.replies = c.replies[1:]
	if err, failed := r.(error); failed {
		return nil, err
	}
	return r, nil
}
