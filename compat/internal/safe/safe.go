// Package safe reads replies where a panic is caught. It guarantees that a reply which redigo can't read ends its
// connection, and not the process.
package safe

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
)

// Over returns c, whose replies are read where a panic is caught: it breaks the connection, and is the call's error.
// For a call with a context redigo's own connections read in a goroutine of theirs, which nobody else can recover;
// this one reads in one of its own. A connection of this module's that knows contexts is returned as it is: it is made
// of safe ones.
func Over(c redis.Conn) redis.Conn {
	t := reflect.TypeOf(c)
	if t.Kind() == reflect.Pointer && strings.HasPrefix(t.Elem().PkgPath(), "github.com/setnxlock/setnxlock/") {
		if _, ok := c.(redis.ConnWithContext); ok {
			return c
		}
	}
	return &conn{Conn: c}
}

// A Dialer connects to the server at an address.
type Dialer = func(ctx context.Context, addr string) (redis.Conn, error)

// Dial returns dial with connections that are safe. It reads replies, to a password, too.
func Dial(dial Dialer) Dialer {
	return func(ctx context.Context, addr string) (c redis.Conn, err error) {
		defer Catch(&err)
		if c, err = dial(ctx, addr); err == nil {
			c = Over(c)
		}
		return c, err
	}
}

// Pass returns c, which a pool of safe connections has handed out.
func Pass(c redis.Conn) redis.Conn { return &conn{Conn: c, pass: true} }

// A conn is a connection whose replies are read safely.
type conn struct {
	redis.Conn
	pass bool // it is safe, and knows contexts

	mu   sync.Mutex
	err  error         // it was broken here
	left chan struct{} // closed when a call has ended that nobody waits for; nil: there is none
}

var (
	_ redis.ConnWithContext = (*conn)(nil)
	_ redis.ConnWithTimeout = (*conn)(nil)
)

// Catch turns a panic over a reply into an error; it is deferred.
func Catch(err *error) {
	if p := recover(); p != nil {
		*err = unreadable(p)
	}
}

func unreadable(p any) error { return fmt.Errorf("setnxlock: panic over a reply: %v", p) }

func (c *conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return c.Conn.Err()
}

// Close is redis.Conn's; a pool reads what was not.
func (c *conn) Close() error {
	if c.left != nil {
		go func() {
			<-c.left
			c.close() //nolint:errcheck // it is broken
		}()
		return nil
	}
	return c.close()
}

func (c *conn) close() (err error) {
	defer Catch(&err)
	return c.Conn.Close()
}

func (c *conn) Do(name string, args ...any) (reply any, err error) {
	defer c.catch(&reply, &err)
	return c.Conn.Do(name, args...)
}

func (c *conn) DoWithTimeout(d time.Duration, name string, args ...any) (reply any, err error) {
	defer c.catch(&reply, &err)
	return redis.DoWithTimeout(c.Conn, d, name, args...)
}

func (c *conn) DoContext(ctx context.Context, name string, args ...any) (any, error) {
	if c.pass {
		return redis.DoContext(c.Conn, ctx, name, args...)
	}
	if err := over(ctx); err != nil {
		if c.left == nil { // a pool hears what the command ends
			redis.DoContext(c.Conn, limit.Past, name, args...) //nolint:errcheck // it breaks, and sends nothing
		}
		return nil, c.kill(err)
	}
	return c.until(ctx, func() (any, error) { return c.Conn.Do(name, args...) })
}

func (c *conn) Receive() (reply any, err error) {
	defer c.catch(&reply, &err)
	return c.Conn.Receive()
}

func (c *conn) ReceiveWithTimeout(d time.Duration) (reply any, err error) {
	defer c.catch(&reply, &err)
	return redis.ReceiveWithTimeout(c.Conn, d)
}

func (c *conn) ReceiveContext(ctx context.Context) (any, error) {
	if c.pass {
		return redis.ReceiveContext(c.Conn, ctx)
	}
	if err := over(ctx); err != nil {
		return nil, c.kill(err)
	}
	return c.until(ctx, c.Conn.Receive)
}

// over is why nothing more is asked in ctx.
func over(ctx context.Context) error {
	if at, limited := ctx.Deadline(); ctx.Err() == nil && limited && !limit.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// kill breaks the connection, also under a call: redigo closes a socket at once, for a deadline that has passed.
func (c *conn) kill(why error) error {
	c.mu.Lock()
	if c.err == nil {
		c.err = why
	}
	c.mu.Unlock()
	redis.ReceiveContext(c.Conn, limit.Past) //nolint:errcheck // it is broken
	return why
}

// catch turns a panic over a reply into an error, and breaks the connection; it is deferred.
func (c *conn) catch(reply *any, err *error) {
	if p := recover(); p != nil {
		*reply, *err = nil, c.kill(unreadable(p))
	}
}

// until calls f, which reads a reply, and breaks the connection when ctx ends.
func (c *conn) until(ctx context.Context, f func() (any, error)) (any, error) {
	at, limited := limit.Early(ctx)
	read := func() (reply any, err error) {
		defer c.catch(&reply, &err)
		return f()
	}
	if ctx.Done() == nil && !limited {
		return read()
	}
	var reply any
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		reply, err = read()
	}()
	var late <-chan time.Time
	if limited {
		t := limit.Timer(limit.Left(at))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-done:
		return reply, err
	case <-ctx.Done():
		err := c.kill(ctx.Err())
		c.leave(done)
		return nil, err
	case <-late: // sooner than ctx
		err := c.kill(os.ErrDeadlineExceeded)
		c.leave(done)
		return nil, err
	}
}

// leave waits until the call that was broken has ended. One whose connection does not break is left behind.
func (c *conn) leave(done chan struct{}) {
	t := limit.Timer(100 * time.Millisecond)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		c.left = done
	}
}
