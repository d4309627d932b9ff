// Package wire lends a connection to one step: each command keeps the step's limits, and the commands of one
// write travel together. The package guarantees three things. No wait for a reply outlasts the step's limit.
// The end of our limit is never reported as the caller's own end. A connection that may still be in MULTI or
// under a WATCH is not returned as healthy.
package wire

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/session"
)

// A Conn lends a connection to one step. The zero Conn has no limits; Begin sets them.
type Conn struct {
	redis.Conn
	Lender  redis.Conn // is closed at the end in place of redis.Conn; nil: redis.Conn is closed
	Session session.Session
	Asked   bool // the step has sent a command
	Silent  bool // the step's time ran out

	Waiter string       // the client whose wait the step is part of; "": no wait
	Pinned bool         // the connection has watched the key since it held the value that the step compares with
	Pins   bool         // the algorithm's last write must end with a WATCH
	Saw    WatchReplies // the key under that WATCH

	Compares *Compares // the server's own compare-and-set; nil: not known

	Heard func() // is called for each reply; may be nil

	ctx    context.Context // nil: the step can't be cancelled
	limit  time.Duration   // of the step, when ctx is nil; 0: the connection's own
	until  time.Time       // the end of limit; zero: nothing was sent yet
	began  time.Time
	within time.Duration // the time that the step may take, by ctx or limit; 0: not known

	args   [16]any // room for the arguments of one write
	single [4]any  // room for single replies in this step
	used   int     // the used part of single
}

// WatchReplies holds the replies to WATCH and GET at the end of a write.
type WatchReplies struct{ Watch, Get any }

// Watches reports whether the connection has watched the key since it held value: a GET after the WATCH
// returned value. A WATCH without that proof may have begun too late (tx/unverified-watch).
func (s WatchReplies) Watches(value string) bool { return s.Watch == "OK" && s.Holds(value) }

// Holds reports whether the key held value.
func (s WatchReplies) Holds(value string) bool {
	switch v := s.Get.(type) {
	case []byte:
		return string(v) == value
	case string:
		return v == value
	}
	return false
}

// Begin begins a step over c.
func (c *Conn) Begin(ctx context.Context) {
	c.Asked, c.Silent, c.Heard, c.used = false, false, nil, 0
	c.Pins, c.Saw = false, WatchReplies{}
	c.within = limit.Of(ctx)
	c.Anew()
	c.until, c.began = limit.Until(ctx), limit.Now()
	if limit.Cancels(ctx) {
		c.ctx, c.limit = ctx, 0
	}
	c.Session.Begin()
}

// Anew gives the following commands as much time as the whole step had, even after the end of its context.
func (c *Conn) Anew() { c.ctx, c.limit, c.until = nil, c.within, time.Time{} }

// Hurry leaves half of the step's time for another connection: a connection kept from an earlier step may
// have died unnoticed.
func (c *Conn) Hurry() {
	if c.within > 0 {
		c.until = c.began.Add(c.until.Sub(c.began) / 2)
	}
	if c.ctx != nil && c.within > 0 {
		c.ctx = limit.Sooner(c.ctx, c.until)
	}
}

// Send queues a command, as redis.Conn does.
func (c *Conn) Send(name string, args ...any) error {
	c.Asked = true
	c.Session.Sent(name)
	err := c.Conn.Err() // see Do
	if err == nil {
		err = c.Conn.Send(name, args...)
	}
	err = c.why(err)
	c.Session.Failed(err)
	return err
}

// Do runs a command within the step's limits. It sends nothing over a dead connection: a goroutine of redigo
// may still be writing a command there after the step's limit has ended it (see Drop).
func (c *Conn) Do(name string, args ...any) (reply any, err error) {
	c.Asked = true
	err = c.Conn.Err()
	switch {
	case err != nil:
	case c.ctx != nil:
		reply, err = redis.DoContext(c.Conn, c.ctx, name, args...)
		if unsupported(err) {
			reply, err = c.Conn.Do(name, args...)
		}
	case c.limit > 0:
		reply, err = redis.DoWithTimeout(c.Conn, c.left(), name, args...)
		if unsupported(err) {
			reply, err = c.Conn.Do(name, args...)
		}
	default:
		reply, err = c.Conn.Do(name, args...)
	}
	if c.Heard != nil && (err == nil || answer.Refused(err)) {
		c.Heard()
	}
	err = c.why(err)
	c.Session.Done(name, reply, err)
	return c.believed(reply, err)
}

// believed ends the connection if a reply does not fit its command: later replies may belong to other commands.
func (c *Conn) believed(reply any, err error) (any, error) {
	if c.Session.Strange == nil || err != nil {
		return reply, err
	}
	c.Session.Open, c.Session.Ran = true, true
	Drop(c.Conn)
	return nil, c.Session.Strange
}

// GivenUp reports whether the caller's context ended the step. Such an end says nothing about the connection.
func (c *Conn) GivenUp() bool { return c.ctx != nil && c.ctx.Err() != nil && !limit.RanOut(c.ctx) }

// left returns the rest of the step's limit.
func (c *Conn) left() time.Duration {
	if c.until.IsZero() {
		c.until = limit.Now().Add(c.limit)
	}
	return max(limit.Left(c.until), time.Millisecond)
}

// why turns err into the error for the caller: an end by our limit is not reported as the caller's
// cancellation. A server's answer stays unchanged.
func (c *Conn) why(err error) error {
	switch {
	case err == nil || answer.Refused(err):
		return err
	case c.ctx != nil && c.ctx.Err() != nil:
		c.Silent = true
		return limit.Cause(c.ctx)
	}
	err = limit.Slow(err)
	c.Silent = errors.Is(err, limit.ErrTimeout)
	return err
}

// long is the time without an answer after which a connection counts as silent.
const long = 100 * time.Millisecond

// Unheard reports whether the step ended without an answer, after a wait of at least long.
func (c *Conn) Unheard() bool { return c.Silent && limit.Since(c.began) >= long }

// Receive returns the next reply, within the step's limits.
func (c *Conn) Receive() (any, error) {
	var reply any
	err := c.Conn.Err() // see Do
	switch {
	case err != nil:
	case c.ctx != nil:
		reply, err = redis.ReceiveContext(c.Conn, c.ctx)
	case c.limit > 0:
		reply, err = redis.ReceiveWithTimeout(c.Conn, c.left())
	default:
		reply, err = c.Conn.Receive()
	}
	if unsupported(err) {
		reply, err = c.Conn.Receive()
	}
	err = c.why(err)
	c.Session.Received(reply, err)
	return c.believed(reply, err)
}

// Return gives the connection back, clean or dead. alive reports a clean connection: no goroutine may still read the
// arguments of a write.
func (c *Conn) Return() (alive bool) {
	left := &c.Session
	if c.Err() == nil && left.Multi {
		c.Do("DISCARD") //nolint:errcheck // the Session notes its reply
	}
	if c.Err() == nil && left.Watching {
		c.Do("UNWATCH") //nolint:errcheck
	}
	if c.Err() == nil && (left.Multi || left.Watching) {
		Drop(c.Conn)
	}
	alive = c.Err() == nil
	if !alive {
		Drop(c.Conn)
	}
	if c.Lender != nil {
		c.Lender.Close()
	} else {
		c.Conn.Close()
	}
	return alive
}

// Close returns a connection to its pool. The pool sends nothing over a dead connection.
func Close(c redis.Conn) {
	if c.Err() != nil {
		Drop(c)
	}
	c.Close()
}

// Drop makes a connection unusable: its pool drops it and sends nothing more. When a context ends in the middle
// of redigo's DoContext, the goroutine of that call may still be writing. A pool that believes in an open WATCH
// or MULTI would send UNWATCH or DISCARD at the same time: a data race. A deadline in the past kills the
// connection before anything is sent, and DISCARD ends the pool's belief.
func Drop(c redis.Conn) {
	redis.DoContext(c, limit.Past, "DISCARD") //nolint:errcheck
}

// unsupported reports whether a connection lacks the method: it is not redigo's own. Nothing was sent then.
func unsupported(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "redis: connection does not support ConnWith")
}
