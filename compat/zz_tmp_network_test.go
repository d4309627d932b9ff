package compat_test

import (
	"context"
	"io"
	"sync"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// A fault is what a network does to one command.
type fault int

const (
	none        fault = iota
	lostRequest       // never arrives; the connection is gone
	lostReply         // runs, but the connection is gone before its reply
)

// A network can lose the n-th command sent through it, whatever servers are
// behind. Commands are counted from 1 over all its connections. Those of one
// pipelined write are delivered one by one, so that a loss can cut between them. The
// zero value loses nothing.
type network struct {
	// Ran, if it is not nil, is called when command n has run.
	Ran func(n int, name string)

	mu     sync.Mutex
	sent   []string // every command that was meant to be sent
	writes int      // in which they were to go
	fault  func(n int, name string) fault
}

// Over returns source through the network.
func (n *network) Over(source compat.Source) compat.Source {
	get := source.Get
	source.Get = func(ctx context.Context, key string) (redis.Conn, error) {
		conn, err := get(ctx, key)
		if err != nil {
			return nil, err
		}
		return &faultyConn{Conn: conn, net: n}, nil
	}
	return source
}

// Lose makes the next commands fail as f says, counted from here. nil: none.
func (n *network) Lose(f func(n int, name string) fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent, n.writes, n.fault = nil, 0, f
}

// Sent are the names of the commands that were meant to be sent since Lose.
func (n *network) Sent() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.sent...)
}

// Count is how many there are.
func (n *network) Count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.sent)
}

// Writes is in how many writes they were to go.
func (n *network) Writes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.writes
}

func (n *network) write() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.writes++
}

func (n *network) next(name string) (int, fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent = append(n.sent, name)
	if n.fault == nil {
		return len(n.sent), none
	}
	return len(n.sent), n.fault(len(n.sent), name)
}

type faultyConn struct {
	redis.Conn
	net     *network
	pending []compat.Cmd
	dead    error
}

func (c *faultyConn) Err() error {
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
	if name == "" {
		return replies, nil
	}
	reply := replies[len(replies)-1]
	for _, r := range replies {
		if e, ok := r.(redis.Error); ok {
			return reply, e
		}
	}
	return reply, nil
}

func (c *faultyConn) deliver(m compat.Cmd) (any, error) {
	if c.dead != nil {
		return nil, c.dead
	}
	name := m[0].(string)
	n, f := c.net.next(name)
	if f == lostRequest {
		return nil, c.die()
	}
	reply, err := c.Conn.Do(name, m[1:]...)
	if c.net.Ran != nil {
		c.net.Ran(n, name)
	}
	if f == lostReply {
		return nil, c.die()
	}
	return reply, err
}

func (c *faultyConn) die() error {
	c.dead = io.ErrUnexpectedEOF
	c.Conn.Close()
	return c.dead
}

func (c *faultyConn) Flush() error { panic("algorithms use Do") }

func (c *faultyConn) Receive() (any, error) { panic("algorithms use Do") }
