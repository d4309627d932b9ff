// Package adapter makes a redigo connection, as the locks need, from any other client's connection:
// from one function that sends commands and returns their replies. The modules below it do that for
// go-redis and rueidis; take them as examples for another client.
//
// It must be a single connection, reserved for its user until it is closed, because WATCH, MULTI
// and EXEC belong to a connection. A client that sends commands over shared connections, or repeats
// them after an error, can't carry a lock.
package adapter

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/oneline"
	"github.com/setnxlock/setnxlock/compat/internal/safe"
	"github.com/setnxlock/setnxlock/compat/internal/session"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// An Exchange sends commands in one write over one connection and returns a reply for each, in
// their order: nil, an int64, a []byte, a []any of these, a string for a status ("OK", "QUEUED"),
// or a [redis.Error], which is not a failure of the Exchange. An error, or a panic, means that the connection
// can't be used any more; unless [protocol.NotSent] marks it, any of the commands may have run. An
// Exchange must end when ctx's deadline passes; it need not notice a cancellation.
type Exchange func(ctx context.Context, cmds []protocol.Cmd) ([]any, error)

// New returns a connection over exchange. end is called once, when the connection is closed and the
// last exchange has ended; broken says that the client's connection must not be used again, because
// replies may still arrive on it.
//
// Its Flush waits for the replies, without a limit but the Exchange's own. So an Algorithm of yours sends by Do or
// [protocol.Conn.Pipe], which keep to Options.Timeout, as all locks of this module do.
func New(exchange Exchange, end func(broken bool)) redis.Conn {
	caught := func(ctx context.Context, cmds []protocol.Cmd) (replies []any, err error) {
		defer safe.Catch(&err)
		return exchange(ctx, cmds)
	}
	return &conn{exchange: caught, end: end}
}

// conn is used by one goroutine at a time, or as [compat.Options].Shared does it, which redigo allows
// too: one sends and flushes, another receives, and a ReceiveContext with a context that has ended kills
// it under both.
type conn struct {
	exchange Exchange
	end      func(broken bool)

	mu      sync.Mutex
	pending []protocol.Cmd
	replies []any // flushed, and not yet received
	spoke   bool  // an exchange has succeeded
	session session.Session
	err     error // it can't be used any more
	closed  bool
	cut     context.CancelFunc // ends the wait of a Flush; nil: none is under way
	late    chan struct{}      // closed when an exchange has ended that nobody waits for; nil: there is none
}

var errClosed = errors.New("setnxlock: the connection was returned")

func (c *conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close returns the connection. What was sent but not flushed is not sent any more. A connection
// that the server may still have in MULTI or under a WATCH is broken to its client.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	broken := c.err != nil || c.session.Multi || c.session.Watching
	c.closed = true
	if c.err == nil {
		c.err = errClosed
	}
	if c.late == nil {
		c.end(broken)
		return nil
	}
	go func() {
		<-c.late
		c.end(broken)
	}()
	return nil
}

func (c *conn) Send(name string, args ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.pending = append(c.pending, append(protocol.Cmd{name}, args...))
	return nil
}

func (c *conn) Do(name string, args ...any) (any, error) {
	return c.DoContext(context.Background(), name, args...)
}

// DoWithTimeout runs a command, as Do, within d; 0: without a limit of its own.
func (c *conn) DoWithTimeout(d time.Duration, name string, args ...any) (any, error) {
	if d <= 0 {
		return c.Do(name, args...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	reply, err := c.do(ctx, c.exchange, name, args...)
	if err != nil && c.Err() != nil && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)) { // as redigo says it: a limit, and nobody's context
		err = oneline.Join(os.ErrDeadlineExceeded, marked(err))
	}
	return reply, err
}

// marked keeps an error's known outcome, and drops all likeness to a caller's deadline.
func marked(err error) error {
	if protocol.OutcomeOf(err) == protocol.NotSent {
		return protocol.NotSent.Mark(errors.New(err.Error()))
	}
	return errors.New(err.Error())
}

// DoContext runs a command, as Do, until ctx ends. It then breaks the connection, also if ctx had ended before: the
// engine relies on that to keep a connection in an unknown state from its next user.
func (c *conn) DoContext(ctx context.Context, name string, args ...any) (any, error) {
	return c.do(ctx, c.cancellable, name, args...)
}

func (c *conn) do(ctx context.Context, exchange Exchange, name string, args ...any) (any, error) {
	c.mu.Lock()
	cmds, replies, err := c.pending, c.replies, c.err
	c.pending, c.replies = nil, nil
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if name != "" {
		cmds = append(cmds, append(protocol.Cmd{name}, args...))
	}
	more, err := c.send(ctx, exchange, cmds)
	if err != nil {
		return nil, err
	}
	return answer.Do(name, append(replies, more...))
}

func (c *conn) send(ctx context.Context, exchange Exchange, cmds []protocol.Cmd) ([]any, error) {
	if ctx.Err() != nil {
		return nil, c.kill(protocol.NotSent.Mark(ctx.Err()))
	}
	if len(cmds) == 0 {
		return nil, nil
	}
	replies, err := exchange(ctx, cmds)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
	case err == nil && len(replies) != len(cmds):
		c.err = io.ErrUnexpectedEOF
	case err != nil && !c.spoke && dialed(err):
		c.err = protocol.NotSent.Mark(err)
	case err != nil:
		c.err = err
	}
	if c.err != nil {
		return nil, c.err
	}
	c.spoke = true
	for i, cmd := range cmds {
		c.session.Done(cmd[0].(string), replies[i], nil)
	}
	return replies, nil
}

// kill breaks the connection, and returns why.
func (c *conn) kill(why error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = why
	}
	if c.cut != nil {
		c.cut()
	}
	return why
}

// dialed reports whether connecting failed.
func dialed(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// cancellable exchanges commands, and leaves the exchange behind when ctx ends.
func (c *conn) cancellable(ctx context.Context, cmds []protocol.Cmd) ([]any, error) {
	if ctx.Done() == nil {
		return c.exchange(ctx, cmds)
	}
	var replies []any
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		replies, err = c.exchange(ctx, cmds)
	}()
	select {
	case <-ended:
		return replies, err
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		c.late = ended
		return nil, ctx.Err()
	}
}

// Flush sends all commands, and waits for their replies: Receive has them then.
func (c *conn) Flush() error {
	ctx, cut := context.WithCancel(context.Background())
	defer cut()
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return c.err
	}
	cmds := c.pending
	c.pending, c.cut = nil, cut
	c.mu.Unlock()
	replies, err := c.send(ctx, c.cancellable, cmds)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut, c.replies = nil, append(c.replies, replies...)
	return err
}

func (c *conn) Receive() (any, error) {
	if reply, ok, err := c.received(); ok || err != nil {
		return reply, err
	}
	if err := c.Flush(); err != nil {
		return nil, err
	}
	reply, ok, err := c.received()
	if !ok && err == nil {
		err = errors.New("setnxlock: Receive, but nothing was sent")
	}
	return reply, err
}

// received takes the first of the replies; ok: there was one.
func (c *conn) received() (reply any, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || len(c.replies) == 0 {
		return nil, false, c.err
	}
	first := c.replies[0]
	c.replies = c.replies[1:]
	reply, err = answer.Receive(first)
	return reply, true, err
}

// ReceiveContext returns the next reply, as Receive does. A ctx that has ended breaks the connection.
func (c *conn) ReceiveContext(ctx context.Context) (any, error) {
	if ctx.Err() != nil {
		return nil, c.kill(ctx.Err())
	}
	return c.Receive()
}

func (c *conn) ReceiveWithTimeout(time.Duration) (any, error) { return c.Receive() }

// Text makes a reply from s if the client does not say whether it was a status or a value. The
// locks compare a status as a string and read a value as bytes. A value with the text of a status
// is taken for a status, and read all the same.
func Text(s string) any {
	switch s {
	case "OK", "QUEUED", "PONG":
		return s
	}
	return []byte(s)
}
