package compat

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/mux"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// A Conn is a borrowed connection for the length of one step: what an Algorithm sends with.
// It is a redis.Conn too. It brings the step's context and time limit to an algorithm that
// knows of neither, and keeps a connection that was left in MULTI or under WATCH away from
// the pool's next user: redigo's own pool only remembers what was sent, not what the server
// made of it.
type Conn struct {
	redis.Conn
	wire wire.Conn // over it
	step mux.Step  // what it is if the step shares a connection

	pins    bool    // the last write is to end with WATCH
	seen    reading // what that WATCH saw
	pinned  bool    // a lease holds on to the connection when the step has ended
	refused bool    // nobody waits for the connection to be returned
	alive   bool    // it was returned as one that can be used again
	reaps   bool    // DEL counts no key that has expired

	waiter string // whose wait the step is part of
	key    any    // the last that was made an argument
}

// NewConn is c for an Algorithm that is run without a Locker.
func NewConn(c redis.Conn) *Conn {
	conn := new(Conn)
	conn.lend(c)
	return conn
}

func (c *Conn) lend(borrowed redis.Conn) { c.Conn, c.wire.Conn = borrowed, borrowed }

// begin begins a step.
func (c *Conn) begin(ctx context.Context) {
	c.wire.Begin(ctx)
	c.pins, c.seen, c.pinned, c.refused = false, reading{}, false, false
	c.waiter = waiterOf(ctx)
}

// Waiter names the client that waits, if the step is part of a wait: the same name in each of
// its attempts and looks, and nobody else's. "": it asks once (TryLock, Inspect).
func (c *Conn) Waiter() string { return c.waiter }

// Send is redis.Conn's.
func (c *Conn) Send(name string, args ...any) error { return c.wire.Send(name, args...) }

// Do is redis.Conn's, within the step's limits.
func (c *Conn) Do(name string, args ...any) (any, error) { return c.wire.Do(name, args...) }

// Receive is redis.Conn's, within the step's context.
func (c *Conn) Receive() (any, error) { return c.wire.Receive() }

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
