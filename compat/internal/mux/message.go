package mux

import (
	"iter"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
)

// A Message holds commands that travel together.
type Message struct {
	names []string
	ends  []int // where the arguments of each end in flat
	flat  []any // all arguments, copied: a caller that gave up may reuse its own before the write

	replies   []any
	one       [1]any // room for a reply that comes alone
	err       error
	on        *Conn         // the connection of the last send
	timer     *time.Timer   // fires when the caller's patience ends; nil: the message was never sent
	abandoned bool          // the caller has given up
	done      chan struct{} // receives once
	pool      *sync.Pool    // keeps the message for its next use; nil: no pool does
}

// newMessage returns an empty message.
func newMessage() *Message { return &Message{done: make(chan struct{}, 1)} }

// Add adds a command.
func (m *Message) Add(name string, args ...any) {
	m.names, m.flat = append(m.names, name), append(m.flat, args...)
	m.ends = append(m.ends, len(m.flat))
}

// commands yields the commands of m, each with its arguments.
func (m *Message) commands() iter.Seq2[string, []any] {
	return func(yield func(name string, args []any) bool) {
		from := 0
		for i, name := range m.names {
			if !yield(name, m.flat[from:m.ends[i]]) {
				return
			}
			from = m.ends[i]
		}
	}
}

// pass queues the commands of m on a connection. The next Flush writes them.
func (m *Message) pass(c redis.Conn) error {
	for name, args := range m.commands() {
		if err := c.Send(name, args...); err != nil {
			return err
		}
	}
	return nil
}

// recycle keeps a message for its next use, after its replies or before it was sent. It drops a message whose
// timer may be firing.
func (m *Message) recycle() {
	if m.pool == nil || m.timer != nil && !m.timer.Stop() {
		return
	}
	clear(m.flat)
	m.names, m.ends, m.flat, m.replies, m.one[0], m.err = m.names[:0], m.ends[:0], m.flat[:0], nil, nil, nil
	m.pool.Put(m)
}

// ever stands for a patience without an end.
const ever = 100 * 365 * 24 * time.Hour

// startTimer sets the timer for the end of the caller's patience.
func (m *Message) startTimer(c *Conn, patience time.Duration) {
	m.on = c
	if patience == 0 {
		patience = ever
	}
	if m.timer == nil {
		m.timer = limit.AfterFunc(patience, m.ring)
	} else {
		m.timer.Reset(patience)
	}
}

// ring ends m when its timer fires.
func (m *Message) ring() {
	m.on.mu.Lock()
	defer m.on.mu.Unlock()
	m.on.expire(m, limit.ErrTimeout)
}

// unanswered ends m without replies. The mutex of its connection is held.
func (m *Message) unanswered(err error) {
	if m.abandoned {
		return
	}
	m.timer.Stop() // nobody recycles m
	m.err = err
	m.done <- struct{}{}
}
