// Package wire is what one step makes of a connection: what it sends goes within the step's limits,
// and the commands of one write go together. It guarantees that no reply is waited for longer than
// the step may take, that the end of a limit of ours is never told as the caller's own, and that a
// connection which the server may still have in MULTI or under a WATCH is not returned as a healthy
// one.
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

// A Conn is a connection for the length of a step. The zero Conn has no limits; Begin sets them.
type Conn struct {
	redis.Conn
	Lender  redis.Conn // gets it back, and is closed in its place; nil: it is closed itself
	Session session.Session
	Asked   bool // something was sent in this step
	Silent  bool // its time ran out

	Waiter string // whose wait the step is part of; "": it is part of none
	Pinned bool   // the connection has watched the key since it held the value with which the step compares
	Pins   bool   // the algorithm's last write is to end with a WATCH
	Saw    Seen   // what that WATCH saw

	Compares *Compares // what is known of the server's own compare-and-set; nil: nothing

	Heard func() // told of each reply; nil: nobody

	ctx    context.Context // nil: the step can't be cancelled
	limit  time.Duration   // for the step, when ctx is nil; 0: the connection's own
	until  time.Time       // when that ends; zero: nothing was sent yet
	began  time.Time
	within time.Duration // how long the step may take, by either; 0: not known

	args   [16]any // room for the arguments of one write
	single [4]any  // room for replies that come alone, in this step
	few    int     // how many came
}

// Seen is what a write that ended with WATCH and GET saw.
type Seen struct{ Watch, Get any }

// Watches reports whether the connection watches the key since it held value: the WATCH was begun before a GET
// found it there. A WATCH that nothing proves guards nobody knows what (tx/unverified-watch).
func (s Seen) Watches(value string) bool { return s.Watch == "OK" && s.Holds(value) }

// Holds reports whether the key held value.
func (s Seen) Holds(value string) bool {
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
	c.Asked, c.Silent, c.Heard, c.few = false, false, nil, 0
	c.Pins, c.Saw = false, Seen{}
	c.within = limit.Of(ctx)
	c.Anew()
	c.until, c.began = limit.Until(ctx), limit.Now()
	if limit.Cancels(ctx) {
		c.ctx, c.limit = ctx, 0
	}
	c.Session.Begin()
}

// Anew gives what follows as much time as the whole step had, whatever has become of its context.
func (c *Conn) Anew() { c.ctx, c.limit, c.until = nil, c.within, time.Time{} }

// Hurry leaves half of the step's time for another connection: one that was kept may have died
// without a word.
func (c *Conn) Hurry() {
	if c.within > 0 {
		c.until = c.began.Add(c.until.Sub(c.began) / 2)
	}
	if c.ctx != nil && c.within > 0 {
		c.ctx = limit.Sooner(c.ctx, c.until)
	}
}

// Send is redis.Conn's.
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

// Do is redis.Conn's, within the step's limits. It sends nothing over a connection that is dead: redigo may still be
// writing there what the step's limit ended, in a goroutine of its own (see Drop).
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
	return reply, err
}

// GivenUp reports that the caller's end ended the step, which says nothing of the connection.
func (c *Conn) GivenUp() bool { return c.ctx != nil && c.ctx.Err() != nil && !limit.RanOut(c.ctx) }

// left is what is left of a step's limit.
func (c *Conn) left() time.Duration {
	if c.until.IsZero() {
		c.until = limit.Now().Add(c.limit)
	}
	return max(limit.Left(c.until), time.Millisecond)
}

// why is err as the caller is told of it: that a limit of ours ended the step is not said as
// the caller's own cancellation. An answer of the server stays what it is.
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

// long is for how long a connection must not have answered to be called silent.
const long = 100 * time.Millisecond

// Unheard reports that the step ended because no answer came, which took long enough to say so.
func (c *Conn) Unheard() bool { return c.Silent && limit.Since(c.began) >= long }

// Receive is redis.Conn's, within the step's context.
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
	return reply, err
}

// Return returns the connection to where it was borrowed, clean or dead. alive: it is clean, and
// nothing that was to be sent may still be read.
func (c *Conn) Return() (alive bool) {
	left := &c.Session
	if c.Err() == nil && left.Multi {
		c.Do("DISCARD") //nolint:errcheck // its reply is looked at below
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

// Close returns a connection to its pool; the pool sends nothing over one that is dead.
func Close(c redis.Conn) {
	if c.Err() != nil {
		Drop(c)
	}
	c.Close()
}

// Drop makes a connection unusable, so that a pool drops it and sends nothing more. When a context
// ends in the middle of redigo's DoContext, the goroutine that it started may still be writing. A pool
// that believes in an open WATCH or MULTI would send UNWATCH or DISCARD beside it, a data race. A deadline
// that has passed kills a connection before anything is sent, and DISCARD ends that belief.
func Drop(c redis.Conn) {
	redis.DoContext(c, limit.Past, "DISCARD") //nolint:errcheck
}

// unsupported reports that a connection has no way to do what was asked: it is not redigo's
// own. Nothing was sent then.
func unsupported(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "redis: connection does not support ConnWith")
}
