// Package mux shares one connection between many goroutines. Messages that come while a write is under way
// go out together afterwards, in one system call. One goroutine reads, and hands each message its replies. A
// hundred small steps then cost a few writes and reads; a connection for each would cost a hundred of both.
//
// A message must not depend on the state of its connection: no WATCH, no SELECT, no blocking command, and MULTI
// only with its EXEC. The commands of a message are sent without other commands in between.
//
// A message has one of three outcomes: its replies; ErrNotSent, if nothing of it was written; any other error,
// if it may have run. The replies of a caller that gave up are thrown away. A connection that breaks, or
// does not answer in its caller's time, harms only the messages on it: later messages get another connection.
package mux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/session"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// ErrNotSent means that nothing was written.
var ErrNotSent = errors.New("not sent")

// errTakesNoMore refuses a message after the connection's last one.
var errTakesNoMore = fmt.Errorf("%w: the connection takes no more", ErrNotSent)

// unsent adds why to ErrNotSent.
func unsent(why error) error { return fmt.Errorf("%w: %w", ErrNotSent, why) }

// A Conn shares a connection.
type Conn struct {
	c     redis.Conn
	epoch uint64
	job   func() (done func()) // begins the job of closing; nil: no Close waits for that
	done  func()

	mu       sync.Mutex
	pending  []*Message // no part of them is written
	batch    []*Message // being written
	sent     []*Message // written, and not answered yet
	waiting  int        // the number of callers that wait for a reply, as long as the connection has not ended
	alone    *Message   // is being written by its caller
	writing  bool       // a goroutine writes, and will look at pending again
	reading  bool
	retired  bool // the connection gets no new messages
	aged     bool // it retired for its age only: its pool gets it back
	shutting bool
	err      error // the connection has ended

	writes func()      // writeAll, made once
	aging  *time.Timer // fires when the connection's age comes
}

// age limits the time for which a connection is shared. Its pool then tests and replaces it like any other. So a
// connection whose server has fallen silent gets no new messages after age at the latest.
const age = time.Second

// New shares c. The caller must not use c any more. A goroutine reads while there are replies to come; an idle
// connection has no goroutine.
func New(c redis.Conn) *Conn {
	shared := &Conn{c: c}
	shared.writes = shared.writeAll
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.aging = limit.AfterFunc(age, func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		shared.retireAged()
		shared.endIfIdle()
	})
	return shared
}

// Close ends the connection. Messages under way have an unknown outcome.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retireAged()
	c.failed(net.ErrClosed)
}

// retireAged retires the connection for its age: its pool gets it back, unless it was retired before. c.mu is held.
func (c *Conn) retireAged() {
	c.aged = c.aged || !c.retired
	c.retired = true
}

// Retire refuses new messages. The connection ends when no caller waits for a reply any more, and no pool gets
// it back.
func (c *Conn) Retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spoil()
	c.endIfIdle()
}

// spoil refuses new messages, and keeps the connection from its pool. c.mu is held.
func (c *Conn) spoil() { c.retired, c.aged = true, false }

// endIfIdle ends a retired connection without waiting callers. c.mu is held.
func (c *Conn) endIfIdle() {
	if c.retired && c.waiting == 0 {
		c.failed(net.ErrClosed)
	}
}

// load returns the number of callers that wait for a reply; ok reports whether the connection takes messages.
func (c *Conn) load() (n int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting, c.err == nil && !c.retired
}

// wait waits for the replies to m after send, until ctx ends or m's patience does: limit.ErrTimeout. Later
// replies are thrown away: the connection gets no new messages, and ends when its last message is answered or
// abandoned. A server's error stands among the replies, as a redis.Error. The replies belong to m, and m is not
// used again after an error.
func (c *Conn) wait(ctx context.Context, m *Message) ([]any, error) {
	if ctx.Done() == nil {
		<-m.done
		return m.replies, m.err
	}
	select {
	case <-m.done:
		return m.replies, m.err // after an error a goroutine may still write m: m is not used again
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		m.timer.Stop()
		return nil, c.abandon(m, limit.Cause(ctx))
	}
}

// send puts a message behind the others. A goroutine writes them: a server that reads nothing would hold up a writing
// caller beyond the end of its wait. A lone message is written at once, by its caller: the end of that caller's wait
// ends the connection, on which nothing else was sent. With last, send retires the connection, and works on a retired
// one too: the caller has sent earlier messages over it. Without last, send returns errTakesNoMore for a retired
// connection. It always does for an ended one. patience limits the wait for the replies; 0: no limit.
func (c *Conn) send(ctx context.Context, patience time.Duration, m *Message, last bool) error {
	if ctx.Err() != nil {
		m.recycle()
		return unsent(limit.Cause(ctx))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.retired && !last {
		return errTakesNoMore
	}
	m.startTimer(c, patience)
	c.retired = c.retired || last
	c.waiting++
	c.pending = append(c.pending, m)
	if c.writing {
		return nil
	}
	c.writing = true
	if c.waiting > 1 {
		go c.writes()
		return nil
	}
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.alone == m {
				c.expire(m, limit.Cause(ctx))
			}
		})()
	}
	c.alone = m
	if more := c.write(); more {
		go c.writes()
	}
	c.alone = nil
	return nil
}

// gather lets more messages join the next write, as long as there are replies to come and messages still arrive. It
// stops at half of the waiting callers: the server has work with one half while the other half's next messages are
// made. c.mu is held, but not during the wait.
func (c *Conn) gather() {
	for n := 0; len(c.sent) > 0 && n < len(c.pending) && 2*len(c.pending) < c.waiting; {
		n = len(c.pending)
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
}

// write gathers messages, and writes them. c.mu is held, but not during the write. more reports new pending messages.
func (c *Conn) write() (more bool) {
	c.gather()
	batch := c.pending
	c.batch, c.pending = batch, c.batch[:0]
	c.mu.Unlock()
	var err error
	for _, m := range batch {
		if err == nil {
			err = m.pass(c.c)
		}
	}
	if err == nil {
		err = c.c.Flush()
	}
	c.mu.Lock()
	if err != nil {
		c.failed(err)
	} else if c.err == nil {
		c.sent = append(c.sent, batch...)
		if !c.reading && len(c.sent) > 0 { // all of batch may have been abandoned
			c.reading = true
			go c.read(c.sent[0])
		}
	}
	clear(batch)
	c.batch = batch[:0]
	if c.writing = len(c.pending) > 0; !c.writing {
		c.shut()
	}
	return c.writing
}

// writeAll writes until nothing is pending.
func (c *Conn) writeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.write() {
	}
}

// abandon ends the wait for m, and returns its error. c.mu is held.
func (c *Conn) abandon(m *Message, why error) error {
	if m.err != nil || m.replies != nil { // m was answered at the same moment
		return why
	}
	c.waiting--
	defer c.endIfIdle()
	m.abandoned = true // the replies are thrown away
	if i := slices.Index(c.pending, m); i >= 0 {
		c.pending = slices.Delete(c.pending, i, i+1)
		return unsent(why)
	}
	c.spoil() // the connection may be silent for the other callers too
	return why
}

// expire ends m for its caller. c.mu is held.
func (c *Conn) expire(m *Message, why error) {
	if !m.abandoned && m.err == nil && m.replies == nil {
		m.err = c.abandon(m, why)
		m.done <- struct{}{}
	}
	if c.alone == m { // nothing else ends its caller's write
		c.failed(net.ErrClosed)
	}
}

// read hands m and the messages behind it their replies, as long as there are replies to come. It wakes a caller
// without c.mu, which that caller soon needs.
func (c *Conn) read(m *Message) {
	for m != nil {
		replies, err := c.replies(m)
		answered, next := c.take(m, replies, err)
		if answered {
			m.done <- struct{}{}
		}
		m = next
	}
}

// take notes the replies to m, the oldest message, and returns the message whose replies come next, or nil.
func (c *Conn) take(m *Message, replies []any, err error) (answered bool, next *Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failed(err)
	}
	if c.err == nil {
		broken := cmp.Or(stuck(m.names, replies), session.Strange(m.names, replies))
		c.sent[0] = nil
		if c.sent = c.sent[1:]; len(c.sent) == 0 {
			c.sent = nil
		}
		if answered = !m.abandoned; answered {
			m.replies = replies
			c.waiting--
		}
		if broken != nil { // the messages behind m would get wrong replies
			c.failed(broken)
		}
		c.endIfIdle()
	}
	if c.err == nil && len(c.sent) > 0 {
		return answered, c.sent[0]
	}
	c.reading = false
	c.shut()
	return answered, nil
}

// replies reads the replies to m.
func (c *Conn) replies(m *Message) ([]any, error) {
	replies := m.one[:]
	if n := len(m.names); n != 1 {
		replies = make([]any, n)
	}
	for i := range replies {
		reply, err := c.c.Receive()
		if answer.Refused(err) {
			reply, err = err, nil
		}
		if err != nil {
			return nil, err
		}
		replies[i] = reply
	}
	return replies, nil
}

// stuck returns the refusal of an EXEC if it may have left the connection in MULTI, where the commands of other
// messages would be queued: Redis 2.0 to 2.4 do so when their memory is full. The refusal answers its own message
// only, and so is no answer in this error: a message behind may have run with a later EXEC.
func stuck(names []string, replies []any) error {
	for i, name := range names {
		if e, refused := replies[i].(redis.Error); refused && strings.EqualFold(name, "EXEC") && !answer.ExecAborted(e) {
			return fmt.Errorf("setnxlock: another caller's EXEC was refused, and the connection may still be in MULTI: %s", string(e))
		}
	}
	return nil
}

// failed ends the connection. c.mu is held.
func (c *Conn) failed(err error) {
	if c.err != nil {
		return
	}
	if c.err = err; c.job != nil {
		c.done = c.job()
	}
	c.aging.Stop()
	for _, m := range slices.Concat(c.sent, c.batch) {
		m.unanswered(err)
	}
	for _, m := range c.pending {
		m.unanswered(unsent(err))
	}
	c.aged = c.aged && err == net.ErrClosed && len(c.sent)+len(c.batch) == 0
	c.sent, c.batch, c.pending = nil, nil, nil
	c.shut()
}

// shut closes a connection that has ended. A pool's connection must not be closed during a read or write: shut
// only kills it then, which ends both, and the last of them calls shut again. c.mu is held.
func (c *Conn) shut() {
	if c.err == nil || c.shutting {
		return
	}
	if c.reading || c.writing {
		if c.aged { // no replies are to come
			return
		}
		redis.ReceiveContext(c.c, limit.Past) //nolint:errcheck // redigo closes the socket at once, for a deadline that has passed; a Do would write a pool's own state beside them
		return
	}
	c.shutting = true
	whole, done := c.aged, c.done
	go func() { // Close may wait for the server
		if !whole {
			wire.Drop(c.c)
		}
		c.c.Close()
		if done != nil {
			done()
		}
	}()
}
