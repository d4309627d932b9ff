package protocol

import (
	"errors"

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

	along     []Cmd // what each Write runs too
	alongside []any // the replies to them
}

// With returns a Conn over the same connection whose Writes run cmds too: in a transaction with what they do, behind that. It is
// for a lock that is made of another one, and that has something to note when that one is taken; Alongside has the replies.
func (c *Conn) With(cmds ...Cmd) *Conn {
	with := *c
	with.along, with.alongside = cmds, nil
	return &with
}

// Alongside returns the replies to With's commands in the last Write; nil if there was none, or its EXEC was aborted.
func (c *Conn) Alongside() []any { return c.alongside }

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

// Denied turns a server's refusal into a [*DeniedError] if it is about permission, memory or the
// server's state (a replica, loading), and returns any other error as it is. key is the lock's.
func (c *Conn) Denied(key string, err error) error {
	m, isMarked := err.(marked)
	e, ok := err.(redis.Error)
	if isMarked {
		e, ok = m.error.(redis.Error)
	}
	if !ok {
		return err
	}
	d := &DeniedError{Reply: e, Passes: answer.Passes(e), About: string(answer.Of(e))}
	command := ""
	if c.wire != nil && c.wire.Session.Refusal.Reply == e { // nil: an answer that no step has had, to AUTH say
		command = c.wire.Session.Refusal.Command
	}
	switch d.Command, d.Key, d.Remedy = answer.Denied(e, command, key); {
	case d.Remedy == "":
		return err
	case isMarked:
		return m.o.Mark(d)
	default:
		return d
	}
}
