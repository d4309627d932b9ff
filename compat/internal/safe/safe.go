// Package safe catches panics over replies. It guarantees that a reply that redigo can't read ends its
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

// Over wraps c: a panic over a reply breaks the connection, and becomes the call's error. For a call with a
// context redigo's own connections read in a goroutine of redigo, where no other code can recover; the wrapper
// reads in its own goroutine. Over returns this module's connections with context unchanged: they consist of
// safe connections.
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

// Dial makes the connections of dial safe, and the dialing itself: it reads replies too, to AUTH for example.
func Dial(dial Dialer) Dialer {
	return func(ctx context.Context, addr string) (c redis.Conn, err error) {
		defer Catch(&err)
		if c, err = dial(ctx, addr); err == nil {
			c = Over(c)
		}
		return c, err
	}
}

// Pass wraps c from a pool of safe connections.
func Pass(c redis.Conn) redis.Conn { return &conn{Conn: c, pass: true} }

// A conn reads replies safely.
type conn struct {
	redis.Conn
	pass bool // redis.Conn is safe, and accepts contexts

	mu        sync.Mutex
	err       error         // kill has broken the connection
	abandoned chan struct{} // closed when the abandoned call has ended; nil: no call was abandoned
}

var (
	_ redis.ConnWithContext = (*conn)(nil)
	_ redis.ConnWithTimeout = (*conn)(nil)
)

// Catch, deferred, turns a panic over a reply into an error.
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

// Close waits for an abandoned call, in the background: a pool reads the missing replies at Close.
func (c *conn) Close() error {
	if c.abandoned != nil {
		go func() {
			<-c.abandoned
			c.close() //nolint:errcheck // the connection is broken
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
		if c.abandoned == nil { // tell redigo's pool: UNWATCH and DISCARD end a state
			redis.DoContext(c.Conn, limit.Past, name, args...) //nolint:errcheck // the call breaks the connection, and sends nothing
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

// over returns an error if ctx or its deadline has ended: a call must send nothing then.
func over(ctx context.Context) error {
	if at, limited := ctx.Deadline(); ctx.Err() == nil && limited && !limit.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// kill breaks the connection, also under a call: redigo closes a socket at once for a deadline in the past.
func (c *conn) kill(why error) error {
	c.mu.Lock()
	if c.err == nil {
		c.err = why
	}
	c.mu.Unlock()
	redis.ReceiveContext(c.Conn, limit.Past) //nolint:errcheck // the connection is broken
	return why
}

// catch, deferred, turns a panic over a reply into an error, and breaks the connection.
func (c *conn) catch(reply *any, err *error) {
	if p := recover(); p != nil {
		*reply, *err = nil, c.kill(unreadable(p))
	}
}

// until reads a reply by f, and breaks the connection when ctx ends.
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
		c.abandon(done)
		return nil, err
	case <-late: // before the end of ctx
		err := c.kill(os.ErrDeadlineExceeded)
		c.abandon(done)
		return nil, err
	}
}

// abandon waits for the end of a broken call. It leaves the call behind if the connection does not break.
func (c *conn) abandon(done chan struct{}) {
	t := limit.Timer(100 * time.Millisecond)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		c.abandoned = done
	}
}
