package compat_test

import (
	"context"
	"io"
	"sync"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// A fault is what the network does to one command.
type fault int

const (
	none        fault = iota
	lostRequest       // never arrives; the connection is gone
	lostReply         // runs, but the connection is gone before its reply
)

// A network is a Source that can lose the n-th command sent through it, whatever
// server is behind: commands are counted from 1 over all its connections.
// Commands of one pipelined write are delivered one by one, so a loss can cut
// between them.
type network struct {
	compat.Source

	mu    sync.Mutex
	sent  []string // every command that was meant to be sent
	fault func(n int, name string) fault
	after func(n int, name string) // called when command n has run
}

func (n *network) GetContext(ctx context.Context) (redis.Conn, error) {
	c, err := n.Source.GetContext(ctx)
	return &faultyConn{Conn: c, net: n}, err
}

// lose makes the next commands fail as f says, counted from here.
func (n *network) lose(f func(n int, name string) fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent, n.fault = nil, f
}

func (n *network) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.sent)
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

func (n *network) ran(i int, name string) {
	n.mu.Lock()
	after := n.after
	n.mu.Unlock()
	if after != nil {
		after(i, name)
	}
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
	c.net.ran(n, name)
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
