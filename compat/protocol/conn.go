package protocol

import (
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// A Conn is a connection that an [Algorithm] borrows for one step. It is a [redis.Conn] too. It
// applies the step's context and time limit, which the algorithm need not know. A connection that
// was left in MULTI or under WATCH never reaches the pool's next user: redigo's pool remembers only
// what was sent, not what the server made of it.
type Conn struct {
	redis.Conn
	wire *wire.Conn // over it
	key  any        // the last that was made an argument
}

// NewConn wraps c for an [Algorithm] that is run without a Locker.
func NewConn(c redis.Conn) *Conn {
	conn := new(Conn)
	Bind(conn, &wire.Conn{Conn: c})
	return conn
}

// Bind makes c what an algorithm sees of w. It is for the engine, which has the step that w is part of.
func Bind(c *Conn, w *wire.Conn) {
	c.Conn, c.wire = w.Conn, w
	w.Session.NotSent = notSent
}

func notSent(err error) bool { return OutcomeOf(err) == NotSent }

// Waiter is the name of the waiting client, if the step is part of a wait: unique to the client,
// and the same in each of its attempts and looks. "": the step is not part of a wait (TryLock,
// Inspect).
func (c *Conn) Waiter() string { return c.wire.Waiter }

// Send is redis.Conn's.
func (c *Conn) Send(name string, args ...any) error { return c.wire.Send(name, args...) }

// Do is redis.Conn's, within the step's limits.
func (c *Conn) Do(name string, args ...any) (any, error) { return c.wire.Do(name, args...) }

// Receive is redis.Conn's, within the step's context.
func (c *Conn) Receive() (any, error) { return c.wire.Receive() }

// Lacks turns err into an [*UnsafeServerError] if it is the server's answer that it does not know a
// command, and returns any other error as it is: a refusal by an ACL or a broken connection proves
// nothing about the server.
func (c *Conn) Lacks(err error, why, use string) error {
	if !answer.Lacks(err) {
		return err
	}
	unsafe := &UnsafeServerError{Why: why, Use: use}
	errors.As(err, &unsafe.Reply)
	if refusal := c.wire.Session.Refusal; refusal.Reply == unsafe.Reply {
		unsafe.Command = refusal.Command
	}
	unsafe.Version = c.version()
	return unsafe
}

// Unsafe returns the [*UnsafeServerError] for a server whose answers prove that an algorithm is
// unsafe on it. It asks INFO for the version, and leaves it "" if the server does not say.
func (c *Conn) Unsafe(why, use string) error {
	return &UnsafeServerError{Version: c.version(), Why: why, Use: use}
}

func (c *Conn) version() string {
	info, _ := redis.String(c.Do("INFO"))
	return answer.Info(info, "redis_version")
}

// InspectToken reads a key that holds a token and whose TTL is the lease: one round trip. unit is
// the unit in which it asks for the TTL: a second or, since Redis 2.6, a millisecond.
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
