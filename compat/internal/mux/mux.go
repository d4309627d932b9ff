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
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// ErrNotSent means that nothing was written.
var ErrNotSent = errors.New("not sent")

// errTakesNoMore is of a message that came when the connection had got its last one.
var errTakesNoMore = fmt.Errorf("%w: the connection takes no more", ErrNotSent)

// unsent is ErrNotSent, and why.
func unsent(why error) error { return fmt.Errorf("%w: %w", ErrNotSent, why) }

// A Conn is a connection that is shared.
type Conn struct {
	c     redis.Conn
	epoch uint64
	job   func() (done func()) // of its end; nil: nobody waits for that
	done  func()

	mu       sync.Mutex
	pending  []*Message // nothing of them is written
	batch    []*Message // being written
	sent     []*Message // written, and not answered yet
	waiting  int        // callers that wait for a reply
	writing  bool       // somebody writes, and will look at pending again
	reading  bool
	retired  bool // it gets no new messages
	aged     bool // for its age alone: its pool gets it back
	shutting bool
	err      error // it is over

	aging *time.Timer // rings when it has its age
}

// age is for how long a connection is shared. Then its pool gets it back, and tests and replaces it as it does the
// others.
const age = time.Second

// New shares c, which nobody else may use any more. A goroutine reads while replies are owed; an idle
// connection has none.
func New(c redis.Conn) *Conn {
	shared := &Conn{c: c}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.aging = limit.AfterFunc(age, func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		shared.ages()
		shared.last()
	})
	return shared
}

// Close ends the connection. Messages under way have an unknown outcome.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ages()
	c.failed(net.ErrClosed)
}

// ages says that it goes back to its pool, if nothing is wrong with it. c.mu is held.
func (c *Conn) ages() {
	c.aged = c.aged || !c.retired
	c.retired = true
}

// Retire lets no new messages in: the connection ends when nobody waits for a reply any more, and no pool gets it back.
func (c *Conn) Retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spoil()
	c.last()
}

// spoil says that it takes no new messages, and that no pool gets it back. c.mu is held.
func (c *Conn) spoil() { c.retired, c.aged = true, false }

// last ends a retired connection for which nobody waits. c.mu is held.
func (c *Conn) last() {
	if c.retired && c.waiting == 0 {
		c.failed(net.ErrClosed)
	}
}

// silence is for how long a connection may owe a reply before it gets no new messages: the caller
// that waited for it may have given up long before, and the next would wait in vain.
const silence = time.Second

// load is how many callers wait for a reply; ok: it takes messages.
func (c *Conn) load() (n int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sent) > 0 && limit.Since(c.sent[0].at) >= silence {
		c.spoil()
	}
	return c.waiting, c.err == nil && !c.retired
}

// Do sends a message and waits for its replies, until ctx is done or patience (0: for ever) ends, which
// is limit.ErrTimeout. Replies that come later are thrown away: the connection gets no new messages, and
// ends when the last on it is answered or gives up. A redis.Error among the replies stands in its place.
// They are the message's, which is gone after an error; but for errTakesNoMore.
func (c *Conn) Do(ctx context.Context, patience time.Duration, m *Message) ([]any, error) {
	if err := c.send(ctx, patience, m, false); err != nil {
		return nil, err
	}
	return c.wait(ctx, m)
}

// wait waits for the replies to m, which was sent.
func (c *Conn) wait(ctx context.Context, m *Message) ([]any, error) {
	if ctx.Done() == nil {
		<-m.done
		return m.replies, m.err
	}
	select {
	case <-m.done:
		return m.replies, m.err // after an error somebody may still be about to write it: it is not used again
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		m.late.Stop()
		return nil, c.leave(m, limit.Cause(ctx))
	}
}

// send puts a message behind the others. A caller that finds nobody writing writes: its own message
// at once, if it is alone. The connection may take no more (errTakesNoMore), or only the last of one who has sent
// something before; then it takes nothing new.
func (c *Conn) send(ctx context.Context, patience time.Duration, m *Message, last bool) error {
	if ctx.Err() != nil {
		m.free()
		return unsent(limit.Cause(ctx))
	}
	c.mu.Lock()
	if c.err != nil || c.retired && !last {
		c.mu.Unlock()
		return errTakesNoMore
	}
	m.waits(c, patience)
	c.retired = c.retired || last
	c.waiting++
	c.pending = append(c.pending, m)
	if c.writing {
		c.mu.Unlock()
		return nil
	}
	c.writing = true
	c.gather()
	more := c.write()
	c.mu.Unlock()
	if more {
		go c.writeRest()
	}
	return nil
}

// gather waits for messages that are about to come, as long as others are at work and some do. c.mu is held, but not while
// it waits.
func (c *Conn) gather() {
	for n := 0; len(c.sent) > 0 && n < len(c.pending); {
		n = len(c.pending)
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
}

// write writes what is pending. c.mu is held, but not while it writes. more: there is something
// again, and the one that writes has to see to it.
func (c *Conn) write() (more bool) {
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
		if !c.reading {
			c.reading = true
			go c.read()
		}
	}
	clear(batch)
	c.batch = batch[:0]
	if c.writing = len(c.pending) > 0; !c.writing {
		c.shut()
	}
	return c.writing
}

// writeRest writes until nothing is pending.
func (c *Conn) writeRest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.write() {
	}
}

// leave is the end of the wait for m. c.mu is held.
func (c *Conn) leave(m *Message, why error) error {
	if m.err != nil || m.replies != nil { // it was answered at the same moment
		return why
	}
	c.waiting--
	defer c.last()
	m.left = true // its replies are thrown away
	if i := slices.Index(c.pending, m); i >= 0 {
		c.pending = slices.Delete(c.pending, i, i+1)
		return unsent(why)
	}
	c.spoil() // it may be silent, whoever asks
	return why
}

// read hands each message its replies, as long as any are owed.
func (c *Conn) read() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && len(c.sent) > 0 {
		c.readOne(c.sent[0])
	}
	c.reading = false
	c.shut()
}

// readOne hands m, the oldest, its replies. c.mu is held, but not while it reads.
func (c *Conn) readOne(m *Message) {
	c.mu.Unlock()
	replies, err := c.replies(m)
	c.mu.Lock()
	if err != nil {
		c.failed(err)
	}
	if c.err != nil {
		return
	}
	left := stuck(m.names, replies)
	c.sent[0] = nil
	if c.sent = c.sent[1:]; len(c.sent) == 0 {
		c.sent = nil
	}
	c.answer(m, replies, nil)
	if left != nil {
		c.failed(left)
	}
	c.last()
}

// replies are m's.
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

// stuck is the refusal of an EXEC that may have left the connection in MULTI, where others' commands
// would be queued: Redis 2.0 to 2.4 do that when their memory is full.
func stuck(names []string, replies []any) error {
	for i, name := range names {
		if e, refused := replies[i].(redis.Error); refused && strings.EqualFold(name, "EXEC") && !answer.ExecAborted(e) {
			return e
		}
	}
	return nil
}

// answer ends m. c.mu is held.
func (c *Conn) answer(m *Message, replies []any, err error) {
	if m.left {
		return
	}
	m.replies, m.err = replies, err
	m.done <- struct{}{}
	c.waiting--
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
		c.answer(m, nil, err)
	}
	for _, m := range c.pending {
		c.answer(m, nil, unsent(err))
	}
	c.aged = c.aged && err == net.ErrClosed && len(c.sent)+len(c.batch) == 0
	c.sent, c.batch, c.pending = nil, nil, nil
	c.shut()
}

// shut closes what is over, when nobody reads or writes any more: a pool's connection must not be
// closed under them. Until then it is killed, which ends their reading and writing. c.mu is held.
func (c *Conn) shut() {
	if c.err == nil || c.shutting {
		return
	}
	if c.reading || c.writing {
		if c.aged { // nothing is owed
			return
		}
		redis.ReceiveContext(c.c, limit.Past) //nolint:errcheck // redigo closes the socket at once, for a deadline that has passed; a Do would write a pool's own state beside them
		return
	}
	c.shutting = true
	whole, done := c.aged, c.done
	go func() { // it may wait for the server
		if !whole {
			wire.Drop(c.c)
		}
		c.c.Close()
		if done != nil {
			done()
		}
	}()
}
