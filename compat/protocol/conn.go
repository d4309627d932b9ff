package protocol

import (
	"errors"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// A Conn lends a connection to an [Algorithm] for one step. It is a [redis.Conn] too. It applies the step's
// context and time limit: the algorithm need not know them. A connection left in MULTI or under WATCH never
// reaches the pool's next user. (redigo's pool alone would not see to that: it remembers the commands sent, not
// the server's answers.)
type Conn struct {
	redis.Conn
	wire *wire.Conn // runs the commands over redis.Conn
	key  any        // the last key passed as an argument

	extra   []Cmd // run in each Write too
	replies []any // to extra, in the last Write
}

// With returns a Conn over the same connection. Each Write of that Conn runs cmds too, behind its own commands
// and in one transaction with them. A lock made of another lock notes something so when the other one is taken.
// Alongside returns the replies.
func (c *Conn) With(cmds ...Cmd) *Conn {
	with := *c
	with.extra, with.replies = cmds, nil
	return &with
}

// Alongside returns the replies to With's commands in the last Write. It returns nil if there was no Write, or
// its EXEC was aborted.
func (c *Conn) Alongside() []any { return c.replies }

// NewConn wraps c to run an [Algorithm] without a Locker.
func NewConn(c redis.Conn) *Conn {
	conn := new(Conn)
	Bind(conn, &wire.Conn{Conn: c})
	return conn
}

// Bind lets c run commands over w. Only the engine calls it: w belongs to a step of the engine.
func Bind(c *Conn, w *wire.Conn) {
	c.Conn, c.wire = w.Conn, w
	w.Session.NotSent = notSent
}

func notSent(err error) bool { return OutcomeOf(err) == NotSent }

// Waiter returns the name of the waiting client: unique to the client, and the same in each of its attempts and
// looks. It returns "" if the step is not part of a wait (TryLock, Inspect).
func (c *Conn) Waiter() string { return c.wire.Waiter }

// Send queues a command, as [redis.Conn] does.
func (c *Conn) Send(name string, args ...any) error { return c.wire.Send(name, args...) }

// Do runs a command, as [redis.Conn] does, within the step's context and time limit.
func (c *Conn) Do(name string, args ...any) (any, error) { return c.wire.Do(name, args...) }

// Receive returns the next reply, as [redis.Conn] does, within the step's context.
func (c *Conn) Receive() (any, error) { return c.wire.Receive() }

// Lacks returns an [*UnsafeServerError] if err is the server's answer to an unknown command. It returns any
// other error unchanged: a refusal by an ACL or a broken connection proves nothing about the server.
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

// Unsafe returns the [*UnsafeServerError] for a server after its answers have proved an algorithm unsafe. It asks
// INFO for the version, and leaves Version "" if the server does not answer.
func (c *Conn) Unsafe(why, use string) error {
	return &UnsafeServerError{Version: c.version(), Why: why, Use: use}
}

func (c *Conn) version() string {
	info, _ := redis.String(c.Do("INFO"))
	return answer.Info(info, "redis_version")
}

// Denied turns a server's refusal into a [*DeniedError] if permission, memory or the server's state (a replica,
// loading) is the reason. It returns any other error unchanged. key is the lock's.
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
	if c.wire != nil && c.wire.Session.Refusal.Reply == e { // nil: a refusal outside of any step, of AUTH for example
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
