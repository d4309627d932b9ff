package compat

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

// A Conn is a borrowed connection for the length of one step: what an Algorithm sends with.
// It is a redis.Conn too. It brings the step's context and time limit to an algorithm that
// knows of neither, and keeps a connection that was left in MULTI or under WATCH away from
// the pool's next user: redigo's own pool only remembers what was sent, not what the server
// made of it.
type Conn struct {
	redis.Conn
	ctx   context.Context // nil: the step can't be cancelled
	limit time.Duration   // for the step, when ctx is nil; 0: the connection's own
	until time.Time       // when that ends; zero: nothing was sent yet

	within  time.Duration // how long the step may take, by either; 0: not known
	pins    bool          // the last write is to end with WATCH
	seen    reading       // what that WATCH saw
	pinned  bool          // a lease holds on to the connection when the step has ended
	refused bool          // nobody waits for the connection to be returned
	asked   bool          // something was sent in this step
	clean   bool          // its connection was returned alive

	wake   *wakeup // goes with the release
	waiter string  // whose wait the step is part of

	key    any    // the last that was made an argument
	single [4]any // room for replies that come alone, in this step
	few    int    // how many came

	reaps bool // DEL counts no key that has expired

	args    [16]any // room for the arguments of one write
	session session.Session
}

// NewConn is c for an Algorithm that is run without a Locker.
func NewConn(c redis.Conn) *Conn { return &Conn{Conn: c} }

// begin begins a step.
func (c *Conn) begin(ctx context.Context) {
	c.ctx, c.limit, c.within = nil, 0, limit.Of(ctx)
	if limit.Cancels(ctx) {
		c.ctx = ctx
	} else {
		c.limit = c.within
	}
	c.until = time.Time{}
	c.pins, c.seen, c.pinned, c.refused, c.asked, c.wake, c.few = false, reading{}, false, false, false, nil, 0
	c.waiter = waiterOf(ctx)
	c.session.Begin()
}

// Waiter names the client that waits, if the step is part of a wait: the same name in each of
// its attempts and looks, and nobody else's. "": it asks once (TryLock, Inspect).
func (c *Conn) Waiter() string { return c.waiter }

// Send is redis.Conn's.
func (c *Conn) Send(name string, args ...any) error {
	c.asked = true
	c.session.Sent(name)
	return c.why(c.Conn.Send(name, args...)) // a limit may have closed it in the command before
}

// Do is redis.Conn's, within the step's limits.
func (c *Conn) Do(name string, args ...any) (any, error) {
	c.asked = true
	reply, err := c.exchange(name, args...)
	c.session.Done(name, reply, err)
	return reply, err
}

// exec sends EXEC, with the transaction that was sent before. The error is the first that any of
// the commands, or EXEC, was answered with; the reply is EXEC's own.
func (c *Conn) exec() (any, error) {
	c.asked = true
	reply, err := c.exchange("EXEC")
	c.session.Executed(reply, err)
	return reply, err
}

// exchange sends one command, and what was sent before.
func (c *Conn) exchange(name string, args ...any) (reply any, err error) {
	switch {
	case c.ctx != nil:
		reply, err = redis.DoContext(c.Conn, c.ctx, name, args...)
		if unsupported(err) {
			reply, err = c.Conn.Do(name, args...)
		}
	case c.limit > 0:
		left := c.limit
		if c.until.IsZero() {
			c.until = time.Now().Add(left)
		} else { // a step of several round trips
			left = max(time.Until(c.until), time.Millisecond)
		}
		reply, err = redis.DoWithTimeout(c.Conn, left, name, args...)
		if unsupported(err) {
			reply, err = c.Conn.Do(name, args...)
		}
	default:
		reply, err = c.Conn.Do(name, args...)
	}
	return reply, c.why(err)
}

// why is err as the caller is told of it: that a limit of ours ended the step is not said as
// the caller's own cancellation. An answer of the server stays what it is.
func (c *Conn) why(err error) error {
	switch {
	case err == nil || answer.Refused(err):
		return err
	case c.ctx != nil && c.ctx.Err() != nil:
		return limit.Cause(c.ctx)
	}
	return limit.Slow(err)
}

// Receive is redis.Conn's, within the step's context.
func (c *Conn) Receive() (any, error) {
	var reply any
	var err error
	if c.ctx != nil {
		reply, err = redis.ReceiveContext(c.Conn, c.ctx)
	}
	if c.ctx == nil || unsupported(err) {
		reply, err = c.Conn.Receive()
	}
	err = c.why(err)
	c.session.Received(reply, err)
	return reply, err
}

// putBack returns the connection to where it was borrowed, clean or dead.
func (c *Conn) putBack() {
	left := &c.session
	if c.Err() == nil && left.Multi {
		c.Do("DISCARD") //nolint:errcheck // its reply is looked at below
	}
	if c.Err() == nil && left.Watching {
		c.Do("UNWATCH") //nolint:errcheck
	}
	if c.Err() == nil && (left.Multi || left.Watching) {
		kill(c.Conn)
	}
	c.clean = c.Err() == nil
	c.Close()
}

// kill makes a connection unusable, so that a pool drops it. A context that is done before
// the call does that to a healthy redigo connection, which is the reason why a step asks
// the context before it borrows one.
func kill(c redis.Conn) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	redis.DoContext(c, done, "PING") //nolint:errcheck
}

// unsupported reports that a connection has no way to do what was asked: it is not redigo's
// own. Nothing was sent then.
func unsupported(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "redis: connection does not support ConnWith")
}

// Lacks makes *UnsafeServerError of err if it is the server's answer that it does not have a
// command, and returns any other error as it is: a refusal by an ACL or a broken connection
// proves nothing about the server.
func (c *Conn) Lacks(err error, why, use string) error {
	if !answer.Lacks(err) {
		return err
	}
	unsafe := &UnsafeServerError{Version: c.version(), Why: why, Use: use}
	errors.As(err, &unsafe.Reply)
	return unsafe
}

// Unsafe returns the *UnsafeServerError of a server on which an algorithm is unsafe, as an
// answer of it has proven. It asks INFO for the version; a server that does not say goes
// without.
func (c *Conn) Unsafe(why, use string) error {
	return &UnsafeServerError{Version: c.version(), Why: why, Use: use}
}

func (c *Conn) version() string {
	info, _ := redis.String(c.Do("INFO"))
	return answer.Version(info)
}

// InspectToken reads a key that holds a token and has its lease for a TTL: one round trip.
// unit is what the TTL is asked for in, a second or, since Redis 2.6, a millisecond.
func (c *Conn) InspectToken(now time.Time, key string, unit time.Duration) (State, error) {
	s := State{Key: key, Status: StatusFree, TTL: NoTTL}
	ttl := "TTL"
	if unit == time.Millisecond {
		ttl = "PTTL"
	}
	replies, err := c.Pipe(Cmd{"GET", key}, Cmd{ttl, key})
	if err != nil {
		return s, err
	}
	s.Value, err = redis.String(replies[0], nil)
	if errors.Is(err, redis.ErrNil) {
		return s, nil
	}
	if err != nil {
		return s, foreign(key, err)
	}
	s.TTL, err = c.ReadTTL(replies[1], unit)
	s.Status, s.Format, s.Clock = StatusHeld, "token", "server"
	switch {
	case err != nil:
		return s, err
	case s.TTL == NoTTL:
		s.Status = StatusPersistent
	default:
		s.Until = now.Add(s.TTL)
	}
	return s, nil
}
