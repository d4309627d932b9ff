package faulty

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// A Carrier brings the commands of one write to their server, and returns their replies. An error reply is a
// [redis.Error] among the replies; an error beside them ends the connection. The context ends with the client's
// patience, and with the connection: [Cause] tells them apart.
type Carrier func(ctx context.Context, write [][]any) (replies []any, err error)

// Carried returns a connection that hands its writes to carry. The connection calls end when it breaks, and when its
// client closes it, once each.
func Carried(carry Carrier, end func(broke bool)) *Conn {
	c := &Conn{carry: carry, ended: end}
	c.life, c.cut = context.WithCancelCause(context.Background())
	return c
}

// A Conn is a [redis.ConnWithContext] and a [redis.ConnWithTimeout] whose writes a [Carrier] carries.
type Conn struct {
	// ReadTimeout limits calls without a timeout of their own; 0 is no limit.
	ReadTimeout time.Duration

	carry   Carrier
	ended   func(broke bool)
	pending [][]any // used by the sending goroutine alone
	replies []any   // used by the receiving goroutine alone

	mu     sync.Mutex
	writes [][][]any // flushed; carried when the receiver waits for a reply
	dead   error
	closed bool
	life   context.Context
	cut    context.CancelCauseFunc
}

var (
	_ redis.ConnWithContext = (*Conn)(nil)
	_ redis.ConnWithTimeout = (*Conn)(nil)

	errClosed  = errors.New("faulty: connection closed")
	errNothing = errors.New("faulty: nothing was sent to which a reply is due")
)

// A connEnd is the cause of a context that ended with its connection, or by a read timeout.
type connEnd struct{ error }

// Cause returns the reason for the end of a [Carrier]'s context: the error of the caller's context,
// [os.ErrDeadlineExceeded] for a read timeout, or the error of the connection.
func Cause(ctx context.Context) error {
	if why, ok := context.Cause(ctx).(connEnd); ok {
		return why.error
	}
	return ctx.Err()
}

func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

func (c *Conn) Close() error {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	c.mu.Unlock()
	if !again {
		c.die(errClosed)
		c.ended(false)
	}
	return nil
}

// Break breaks the connection, and interrupts the call under way.
func (c *Conn) Break(why error) {
	if c.die(why) {
		c.ended(true)
	}
}

func (c *Conn) fail(why error) error {
	c.Break(why)
	return why
}

// die makes the connection unusable, and reports whether it was usable before.
func (c *Conn) die(why error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return false
	}
	c.dead = why
	c.cut(connEnd{why})
	return true
}

func (c *Conn) Send(name string, args ...any) error {
	if err := c.Err(); err != nil {
		return err
	}
	c.pending = append(c.pending, append([]any{name}, args...))
	return nil
}

func (c *Conn) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead == nil && len(c.pending) > 0 {
		c.writes, c.pending = append(c.writes, c.pending), nil
	}
	return c.dead
}

func (c *Conn) Do(name string, args ...any) (any, error) {
	return c.do(context.Background(), 0, name, args)
}

func (c *Conn) DoContext(ctx context.Context, name string, args ...any) (any, error) {
	return c.do(ctx, 0, name, args)
}

func (c *Conn) DoWithTimeout(limit time.Duration, name string, args ...any) (any, error) {
	return c.do(context.Background(), limit, name, args)
}

func (c *Conn) do(ctx context.Context, limit time.Duration, name string, args []any) (any, error) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, c.fail(ctx.Err())
	}
	done := ctx.Err() // as redigo: a cancelled call sends, and waits for no reply
	if name != "" {
		c.pending = append(c.pending, append([]any{name}, args...))
	}
	if err := c.Flush(); err != nil {
		return nil, err
	}
	for carried := true; carried; {
		var err error
		if carried, err = c.next(ctx, limit); err != nil {
			return nil, err
		}
	}
	if done != nil {
		return nil, c.fail(done)
	}
	replies := c.replies
	c.replies = nil
	return answer.Do(name, replies)
}

func (c *Conn) Receive() (any, error) { return c.receive(context.Background(), 0) }

func (c *Conn) ReceiveContext(ctx context.Context) (any, error) { return c.receive(ctx, 0) }

func (c *Conn) ReceiveWithTimeout(limit time.Duration) (any, error) {
	return c.receive(context.Background(), limit)
}

func (c *Conn) receive(ctx context.Context, limit time.Duration) (any, error) {
	if ctx.Err() != nil {
		return nil, c.fail(ctx.Err())
	}
	if len(c.replies) == 0 {
		if carried, err := c.next(ctx, limit); err != nil {
			return nil, err
		} else if !carried {
			return nil, errNothing
		}
	}
	r := c.replies[0]
	c.replies = c.replies[1:]
	return answer.Receive(r)
}

// next carries the next write, and reports whether there was one.
func (c *Conn) next(ctx context.Context, limit time.Duration) (bool, error) {
	c.mu.Lock()
	dead, writes := c.dead, c.writes
	if dead == nil && len(writes) > 0 {
		c.writes = writes[1:]
	}
	c.mu.Unlock()
	if dead != nil || len(writes) == 0 {
		return false, dead
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(c.life, func() { end(context.Cause(c.life)) })()
	if limit == 0 {
		limit = c.ReadTimeout
	}
	if limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, limit, connEnd{os.ErrDeadlineExceeded})
		defer stop()
	}
	replies, err := c.carry(ctx, writes[0])
	if err != nil {
		return false, c.fail(err)
	}
	c.replies = append(c.replies, replies...)
	return true, nil
}
