// Package mux is one connection that many goroutines share. What they send while another write is
// under way goes out together, in one system call; one goroutine reads, and hands each its replies.
// A hundred small steps then cost a few writes and reads, where a connection for each costs a
// hundred of both.
//
// It is for messages that need nothing of the connection: no WATCH, no SELECT, no blocking
// command, and MULTI only with its EXEC. Each is sent without another's commands in between.
//
// A message has one of three outcomes: its replies; ErrNotSent, if nothing of it was written; any
// other error, if it may have run. A caller that gives up leaves its replies to be thrown away. A
// connection that breaks, or does not answer for as long as its caller waits, harms what was on it:
// the next message gets another connection.
package mux

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// ErrNotSent means that nothing was written.
var ErrNotSent = errors.New("mux: not sent")

// ErrSlow means that the replies did not come in time.
var ErrSlow = errors.New("mux: no reply in time")

// A Message is commands that travel together.
type Message struct {
	names []string
	args  [][]any

	replies []any
	err     error
	left    bool          // its caller is gone
	done    chan struct{} // receives once
}

var messages = sync.Pool{New: func() any { return &Message{done: make(chan struct{}, 1)} }}

// NewMessage returns an empty message. It is Do's, from then on.
func NewMessage() *Message { return messages.Get().(*Message) }

// Add adds a command. args must not change any more.
func (m *Message) Add(name string, args []any) {
	m.names, m.args = append(m.names, name), append(m.args, args)
}

// Len is how many commands it has.
func (m *Message) Len() int { return len(m.names) }

func (m *Message) free() {
	clear(m.args)
	m.names, m.args, m.replies, m.err, m.left = m.names[:0], m.args[:0], nil, nil, false
	messages.Put(m)
}

type command struct {
	name string
	args []any
}

// A Conn is a connection that is shared.
type Conn struct {
	c redis.Conn

	mu      sync.Mutex
	wake    sync.Cond  // of the reader: there is something to read, or it is over
	pending []*Message // nothing of them is written
	batch   []*Message // being written
	sent    []*Message // written, and not answered yet
	out     []command  // being written: a message whose caller has gone may be used again
	writing bool       // somebody writes, and will look at pending again
	err     error      // it is over
}

// New shares c, which nobody else may use any more. It starts a goroutine, which ends with Close or
// with the connection.
func New(c redis.Conn) *Conn {
	m := &Conn{c: c}
	m.wake.L = &m.mu
	go m.read()
	return m
}

// Err says why the connection can't be used any more; nil if it can.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection. Messages under way have an unknown outcome.
func (c *Conn) Close() { c.fail(net.ErrClosed) }

// Busy is how many messages are under way.
func (c *Conn) Busy() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) + len(c.batch) + len(c.sent)
}

// Do sends a message and waits for its replies, until ctx is done or patience (0: for ever) ends. A
// redis.Error among the replies stands in its place. The message is gone afterwards.
func (c *Conn) Do(ctx context.Context, patience time.Duration, m *Message) ([]any, error) {
	if err := ctx.Err(); err != nil {
		m.free()
		return nil, errors.Join(ErrNotSent, err)
	}
	if err := c.send(m); err != nil {
		m.free()
		return nil, err
	}
	var over <-chan time.Time
	if patience > 0 {
		t := timers.Get().(*time.Timer)
		t.Reset(patience)
		defer func() { t.Stop(); timers.Put(t) }()
		over = t.C
	}
	select {
	case <-m.done:
		replies, err := m.replies, m.err
		m.free()
		return replies, err
	case <-ctx.Done():
		return nil, c.leave(m, ctx.Err())
	case <-over:
		err := c.leave(m, ErrSlow)
		c.fail(ErrSlow) // whoever is on it waits no longer than this one did
		return nil, err
	}
}

var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

// send puts a message behind the others. Who finds nobody writing writes: its own message at once,
// if it is alone.
func (c *Conn) send(m *Message) error {
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return errors.Join(ErrNotSent, c.err)
	}
	c.pending = append(c.pending, m)
	if c.writing {
		c.mu.Unlock()
		return nil
	}
	c.writing = true
	if len(c.sent) > 0 { // others are at work: who is about to send travels with us
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	more := c.write()
	c.mu.Unlock()
	if more {
		go c.writeRest()
	}
	return nil
}

// write writes what is pending. c.mu is held, but not while it writes. more: there is something
// again, and the one that writes has to see to it.
func (c *Conn) write() (more bool) {
	for _, m := range c.pending {
		for i, name := range m.names {
			c.out = append(c.out, command{name, m.args[i]})
		}
	}
	c.batch, c.pending = c.pending, c.batch[:0]
	c.mu.Unlock()
	var err error
	for _, cmd := range c.out {
		if err = c.c.Send(cmd.name, cmd.args...); err != nil {
			break
		}
	}
	if err == nil {
		err = c.c.Flush()
	}
	clear(c.out)
	c.out = c.out[:0]
	c.mu.Lock()
	if err != nil {
		c.failed(err)
	} else if c.err == nil {
		c.sent = append(c.sent, c.batch...)
		c.wake.Signal()
	}
	clear(c.batch)
	c.batch = c.batch[:0]
	c.writing = len(c.pending) > 0
	return c.writing
}

// writeRest writes until nothing is pending.
func (c *Conn) writeRest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.write() {
	}
}

// leave is the end of the wait for m.
func (c *Conn) leave(m *Message, why error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-m.done: // at the same moment
		m.free()
		return why
	default:
	}
	if i := slices.Index(c.pending, m); i >= 0 {
		c.pending = slices.Delete(c.pending, i, i+1)
		m.free()
		return errors.Join(ErrNotSent, why)
	}
	m.left = true // its replies are thrown away, and it with them
	return why
}

// read hands each message its replies.
func (c *Conn) read() {
	for {
		c.mu.Lock()
		for len(c.sent) == 0 && c.err == nil {
			c.wake.Wait()
		}
		if c.err != nil {
			c.mu.Unlock()
			return
		}
		m := c.sent[0]
		c.mu.Unlock()
		replies := make([]any, 0, len(m.names))
		for range m.names {
			reply, err := c.c.Receive()
			if e, ok := err.(redis.Error); ok {
				reply = e
			} else if err != nil {
				c.fail(err)
				return
			}
			replies = append(replies, reply)
		}
		c.mu.Lock()
		if c.err != nil {
			c.mu.Unlock()
			return
		}
		c.sent[0] = nil
		if c.sent = c.sent[1:]; len(c.sent) == 0 {
			c.sent = nil
		}
		c.answer(m, replies, nil)
		c.mu.Unlock()
	}
}

// answer ends m. c.mu is held.
func (c *Conn) answer(m *Message, replies []any, err error) {
	if m.left {
		m.free()
		return
	}
	m.replies, m.err = replies, err
	m.done <- struct{}{}
}

func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed(err)
}

// failed ends the connection. c.mu is held.
func (c *Conn) failed(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	for _, m := range slices.Concat(c.sent, c.batch) {
		c.answer(m, nil, err)
	}
	for _, m := range c.pending {
		c.answer(m, nil, errors.Join(ErrNotSent, err))
	}
	c.sent, c.batch, c.pending = nil, nil, nil
	c.c.Close()
	c.wake.Signal()
}
