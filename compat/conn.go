package compat

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
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
	until time.Time       // when that ends

	within  time.Duration // how long the step may take, by either; 0: not known
	pins    bool          // the last write is to end with WATCH
	seen    reading       // what that WATCH saw
	pinned  bool          // a lease holds on to the connection when the step has ended
	refused bool          // nobody waits for the connection to be returned
	asked   bool          // something was sent in this step
	clean   bool          // its connection was returned alive

	wake *wakeup // goes with the release

	sent     []string // commands whose replies are still to come
	room     [8]string
	args     [16]any // room for the arguments of one write
	multi    bool    // the server may be in MULTI
	watching bool    // the server may hold a WATCH

	refusal struct { // the last, and the first command that met with it
		command string
		reply   redis.Error
	}

	brokeOn string // the commands of the write on which the connection broke

	notNow redis.Error // a cluster's refusal to run one of the commands
	ran    bool        // one that can change something ran, or may have
}

// NewConn is c for an Algorithm that is run without a Locker.
func NewConn(c redis.Conn) *Conn { return &Conn{Conn: c} }

// begin begins a step.
func (c *Conn) begin(ctx context.Context) {
	c.ctx, c.limit, c.within = nil, 0, 0
	if l, ok := ctx.Value(ofLimited{}).(*limited); ok {
		c.within = l.limit
	}
	if cancels(ctx) {
		c.ctx = ctx
	} else if c.limit = c.within; c.limit > 0 {
		c.until = time.Now().Add(c.limit)
	}
	c.pins, c.seen, c.pinned, c.refused, c.asked, c.ran, c.notNow, c.wake = false, reading{}, false, false, false, false, "", nil
	c.refusal.command, c.refusal.reply, c.brokeOn = "", "", ""
}

// Send is redis.Conn's.
func (c *Conn) Send(name string, args ...any) error {
	c.asked = true
	if c.sent == nil {
		c.sent = c.room[:0]
	}
	c.sent = append(c.sent, name)
	return c.why(c.Conn.Send(name, args...)) // a limit may have closed it in the command before
}

// Do is redis.Conn's, within the step's limits.
func (c *Conn) Do(name string, args ...any) (any, error) {
	c.asked = true
	reply, err := c.exchange(name, args...)
	c.note(name, reply, err)
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
		left := max(time.Until(c.until), time.Millisecond) // of a step of several round trips
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
	if _, answer := err.(redis.Error); err == nil || answer {
		return err
	}
	if c.ctx != nil && c.ctx.Err() != nil {
		return cause(c.ctx)
	}
	return slow(err)
}

// slow is ErrTimeout for a read or write that a time limit ended.
func slow(err error) error {
	var n net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, ErrTimeout) || errors.As(err, &n) && n.Timeout() &&
		!errors.Is(err, ErrTimeout) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return err
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
	if len(c.sent) > 0 {
		c.track(c.sent[0], reply, err)
		c.sent = c.sent[1:]
	}
	return reply, err
}

// note follows the replies that one Do brought in: its own, and before it those of the
// commands that were sent.
func (c *Conn) note(name string, reply any, err error) {
	sent := c.sent
	if err != nil {
		if _, refused := err.(redis.Error); !refused {
			c.brokeOn = strings.TrimSpace(strings.Join(sent, " ") + " " + name)
		}
	}
	c.sent = c.sent[:0]
	if name == "" {
		replies, _ := reply.([]any)
		for i, s := range sent {
			var r any = err
			if i < len(replies) {
				r = replies[i]
			}
			c.track(s, r, err)
		}
		return
	}
	for _, s := range sent {
		c.track(s, nil, redis.Error("not seen")) // Do returns the last reply only
	}
	c.track(name, reply, err)
}

func (c *Conn) track(name string, reply any, err error) {
	e, refused := reply.(redis.Error)
	ok := err == nil && !refused
	if err == nil && refused {
		err = e
	}
	if e, no := err.(redis.Error); no && e != c.refusal.reply && (c.refusal.reply == "" || !strings.HasPrefix(string(e), "EXECABORT")) {
		c.refusal.command, c.refusal.reply = name, e
	}
	c.judge(name, reply, err)
	switch strings.ToUpper(name) {
	case "WATCH":
		c.watching = true
	case "UNWATCH":
		c.watching = c.watching && !ok
	case "MULTI":
		c.multi = true
	case "EXEC":
		// Refused, it may have left the server in MULTI (2.0–2.4 over maxmemory).
		c.multi = c.multi && !ok
		c.watching = c.watching && !ok
	case "DISCARD":
		// "DISCARD without MULTI" is as good an answer as OK.
		if ok || strings.Contains(err.Error(), "without MULTI") {
			c.multi = false
			c.watching = c.watching && !ok
		}
	}
}

// judge notes whether the command can have changed anything: a step of which a cluster
// refused every command that writes did not run.
func (c *Conn) judge(name string, reply any, err error) {
	if e, refused := notNow(err); refused {
		c.notNow = e
		return
	}
	switch strings.ToUpper(name) {
	case "WATCH", "UNWATCH", "MULTI", "DISCARD", "GET", "TTL", "PTTL", "EXISTS":
		return
	case "EXEC":
		e, _ := err.(redis.Error)
		if err == nil && reply == nil || strings.HasPrefix(string(e), "EXECABORT") {
			return
		}
	}
	if !c.multi || reply != "QUEUED" {
		c.ran = true
	}
}

// giveBack returns the connection to where it was borrowed, clean or dead.
func (c *Conn) giveBack() {
	if c.Err() == nil && c.multi {
		c.Do("DISCARD") //nolint:errcheck // looked at below, through track
	}
	if c.Err() == nil && c.watching {
		c.Do("UNWATCH") //nolint:errcheck
	}
	if c.Err() == nil && (c.multi || c.watching) {
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
	if !lacks(err) {
		return err
	}
	unsafe := &UnsafeServerError{Version: version(c), Why: why, Use: use}
	errors.As(err, &unsafe.Reply)
	return unsafe
}

// Unsafe returns the *UnsafeServerError of a server on which an algorithm is unsafe, as an
// answer of it has proven. It asks INFO for the version; a server that does not say goes
// without.
func (c *Conn) Unsafe(why, use string) error {
	return &UnsafeServerError{Version: version(c), Why: why, Use: use}
}

func version(c redis.Conn) string {
	info, err := redis.String(c.Do("INFO"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
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
