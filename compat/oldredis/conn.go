package oldredis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Conn is a connection to a Server without a network. It follows redigo's conventions: Send
// buffers, Flush delivers, Receive returns the next reply, and Do does all three. The commands of
// one pipelined write run one after the other, and a fault can cut the connection between them.
//
// One goroutine may Send and Flush while another calls Receive.
type Conn struct {
	s       *Server
	session *session
	buffer  [][]string // sent and not flushed
	pending int        // replies that Do must still read
	err     error      // once set, the connection is unusable
}

var (
	_ redis.ConnWithContext = (*Conn)(nil)
	_ redis.ConnWithTimeout = (*Conn)(nil)
)

var (
	errConnClosed = errors.New("oldredis: connection closed")
	errNothing    = errors.New("oldredis: Receive with no reply pending: nothing was sent, or it was not flushed")
)

// Number returns the connection's number since the server started, from 0.
func (c *Conn) Number() int { return c.session.number }

// Close closes the connection.
func (c *Conn) Close() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.err = errConnClosed
	c.s.hangUp(c.session, errConnClosed)
	return nil
}

// Err returns the error by which the connection became unusable, or nil.
func (c *Conn) Err() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.err
}

// fatal ends the connection from the client's side.
func (c *Conn) fatal(err error) error {
	if c.err == nil {
		c.err = err
		c.s.hangUp(c.session, err)
	}
	return err
}

// Do sends a command after everything buffered by Send, and returns its reply with the first error
// among all replies.
func (c *Conn) Do(cmd string, args ...any) (any, error) {
	return c.DoWithTimeout(0, cmd, args...)
}

// DoWithTimeout runs a command, as Do does, with a limit, by the server's clock, to how long it may block.
func (c *Conn) DoWithTimeout(timeout time.Duration, cmd string, args ...any) (any, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.do(context.Background(), timeout, cmd, args)
}

// DoContext runs a command, as Do does, until ctx is done. As with redigo, a ctx that is done before the call ends the
// connection; the command has then run if ctx was cancelled, and has not if its deadline had passed.
func (c *Conn) DoContext(ctx context.Context, cmd string, args ...any) (any, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	switch err := ctx.Err(); {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, c.fatal(err)
	case err != nil:
		c.do(ctx, 0, cmd, args) //nolint:errcheck // it ran, and nobody waited for the reply
		return nil, c.fatal(err)
	}
	return c.do(ctx, 0, cmd, args)
}

func (c *Conn) do(ctx context.Context, timeout time.Duration, cmd string, args []any) (any, error) {
	pending := c.pending
	c.pending = 0
	if cmd == "" && pending == 0 {
		return nil, nil
	}
	if c.err != nil {
		return nil, c.err
	}
	if cmd != "" {
		c.buffer = append(c.buffer, Arguments(cmd, args))
	}
	c.deliver()
	if cmd == "" {
		replies := make([]any, pending)
		for i := range replies {
			reply, err := c.take(ctx, timeout)
			if err != nil {
				return nil, c.fatal(err)
			}
			replies[i] = reply
		}
		return replies, nil
	}
	var first error
	for {
		reply, err := c.take(ctx, timeout)
		if err != nil {
			return nil, c.fatal(err)
		}
		if e, ok := reply.(redis.Error); ok && first == nil {
			first = e
		}
		if pending == 0 {
			return reply, first
		}
		pending--
	}
}

// Send buffers a command.
func (c *Conn) Send(cmd string, args ...any) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.pending++
	if c.err != nil {
		return c.err
	}
	c.buffer = append(c.buffer, Arguments(cmd, args))
	return nil
}

// Flush delivers the sent commands.
func (c *Conn) Flush() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.deliver()
	return nil
}

// deliver makes the server run the buffered commands.
func (c *Conn) deliver() {
	for i, args := range c.buffer {
		c.s.receive(c.session, args)
		c.buffer[i] = nil
	}
	c.buffer = c.buffer[:0]
}

// Receive returns the next reply. It waits if a command blocks or the connection has subscribed to
// a channel, and fails if no reply is pending.
func (c *Conn) Receive() (any, error) { return c.receive(context.Background(), 0) }

// ReceiveWithTimeout receives a reply, as Receive does, with a limit, by the server's clock, to how long it waits.
func (c *Conn) ReceiveWithTimeout(timeout time.Duration) (any, error) {
	return c.receive(context.Background(), timeout)
}

// ReceiveContext receives a reply, as Receive does, until ctx is done, which also ends the connection.
func (c *Conn) ReceiveContext(ctx context.Context) (any, error) {
	return c.receive(ctx, 0)
}

func (c *Conn) receive(ctx context.Context, timeout time.Duration) (any, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	if err := ctx.Err(); err != nil {
		return nil, c.fatal(err)
	}
	reply, err := c.take(ctx, timeout)
	if err != nil {
		return nil, c.fatal(err)
	}
	if c.pending > 0 {
		c.pending--
	}
	if e, ok := reply.(redis.Error); ok {
		return nil, e
	}
	return reply, nil
}

// take returns the next reply, waiting for it if need be.
func (c *Conn) take(ctx context.Context, timeout time.Duration) (any, error) {
	s := c.session
	if len(s.out) == 0 && s.dead == nil {
		if err := c.await(ctx, timeout); err != nil {
			return nil, err
		}
	}
	if len(s.out) > 0 {
		reply := s.out[0]
		if s.out[0] = nil; len(s.out) == 1 {
			s.out = s.out[:0]
		} else {
			s.out = s.out[1:]
		}
		return forClient(reply), nil
	}
	return nil, s.dead
}

// await waits until there is a reply or the connection has ended.
func (c *Conn) await(ctx context.Context, timeout time.Duration) error {
	late := false
	wake := func() {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		c.session.wake()
	}
	defer context.AfterFunc(ctx, wake)()
	if timeout > 0 {
		t := c.s.after(timeout, func() { late = true; c.session.wake() })
		defer c.s.stop(t)
	}
	for len(c.session.out) == 0 && c.session.dead == nil {
		switch {
		case c.session.waiting == nil && !c.session.subscribed():
			return errNothing
		case ctx.Err() != nil:
			return ctx.Err()
		case late:
			return os.ErrDeadlineExceeded
		}
		c.s.wait(c.session)
	}
	return nil
}

// Arguments encodes a command as redigo writes it: its name, and every argument
// as text.
func Arguments(cmd string, args []any) []string {
	list := make([]string, 1, 1+len(args))
	list[0] = cmd
	for _, a := range args {
		list = append(list, argument(a, true))
	}
	return list
}

func argument(a any, mayConvert bool) string {
	switch a := a.(type) {
	case string:
		return a
	case []byte:
		return string(a)
	case int:
		return strconv.Itoa(a)
	case int64:
		return strconv.FormatInt(a, 10)
	case float64:
		return strconv.FormatFloat(a, 'g', -1, 64)
	case bool:
		if a {
			return "1"
		}
		return "0"
	case nil:
		return ""
	case redis.Argument:
		if mayConvert {
			return argument(a.RedisArg(), false)
		}
	}
	return fmt.Sprint(a)
}
