package mux

import (
	"iter"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
)

// A Message is commands that travel together.
type Message struct {
	names []string
	ends  []int // where the arguments of each end in flat
	flat  []any // a copy: its caller may be gone, and use them again, before they are written

	replies []any
	one     [1]any // room for a reply that comes alone
	err     error
	at      time.Time     // when it was put behind the others
	on      *Conn         // that it was sent over last
	late    *time.Timer   // rings when its caller's patience is at its end; nil: it was never sent
	left    bool          // its caller is gone
	done    chan struct{} // receives once
	home    *sync.Pool    // where it is kept to be used again; nil: nowhere
}

// NewMessage returns an empty message. Do takes it.
func NewMessage() *Message { return &Message{done: make(chan struct{}, 1)} }

// Add adds a command.
func (m *Message) Add(name string, args ...any) {
	m.names, m.flat = append(m.names, name), append(m.flat, args...)
	m.ends = append(m.ends, len(m.flat))
}

// commands are its commands, each with its arguments.
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

// pass hands its commands to a connection, which writes them when it is flushed.
func (m *Message) pass(c redis.Conn) error {
	for name, args := range m.commands() {
		if err := c.Send(name, args...); err != nil {
			return err
		}
	}
	return nil
}

// free is the end of a message that was answered, or never sent. If its timer rings by now, it is not used again.
func (m *Message) free() {
	if m.home == nil || m.late != nil && !m.late.Stop() {
		return
	}
	clear(m.flat)
	m.names, m.ends, m.flat, m.replies, m.one[0], m.err = m.names[:0], m.ends[:0], m.flat[:0], nil, nil, nil
	m.home.Put(m)
}

// ever is a patience without an end.
const ever = 100 * 365 * 24 * time.Hour

// waits has a timer ring when m's caller gives up: also while the caller itself writes.
func (m *Message) waits(c *Conn, patience time.Duration) {
	m.at, m.on = limit.Now(), c
	if patience == 0 {
		patience = ever
	}
	if m.late == nil {
		m.late = limit.AfterFunc(patience, m.expire)
	} else {
		m.late.Reset(patience)
	}
}

// expire is told that the timer has rung.
func (m *Message) expire() {
	c := m.on
	c.mu.Lock()
	defer c.mu.Unlock()
	if !m.left && m.err == nil && m.replies == nil {
		m.err = c.leave(m, limit.ErrTimeout)
		m.done <- struct{}{}
	}
}
