package client

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	answers "github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// A wire is the connection that a client's code is given. Every command that
// it carries is a request to the world; nothing on it waits.
type wire struct {
	a      *Agent
	buffer [][]string
	err    error
	gone   bool // closed
}

var (
	_ redis.ConnWithContext = (*wire)(nil)
	_ redis.ConnWithTimeout = (*wire)(nil)
)

var errClosed = errors.New("race: connection closed")

// source gives the client connections.
func (a *Agent) source() compat.Source {
	return compat.Source{Get: a.dial, Bounded: true, Keep: a.Setup.Entry(a.ID).Pinned}
}

// dial gives the client a new connection. From a pool of one that is out it waits in vain,
// as if a message of its operation were lost.
func (a *Agent) dial(ctx context.Context, _ string) (redis.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if a.Setup.OneConn && a.Open > 0 {
		a.Lossy = true
		return nil, compat.ErrTimeout
	}
	return a.wire(), nil
}

func (a *Agent) wire() *wire {
	a.Open++
	return &wire{a: a}
}

// uses records the connection of the client's next request. The engines keep one for each client:
// another that is open still (a pinned one) breaks when the client takes a second.
func (a *Agent) uses(w *wire) {
	if was := a.current; was != nil && was != w && !was.gone {
		was.err = io.EOF
		was.Close()
	}
	a.current = w
}

func (w *wire) Err() error { return w.err }

func (w *wire) Close() error {
	if w.err == nil {
		w.err = errClosed
	}
	if !w.gone {
		w.gone = true
		w.a.Open--
	}
	w.a.Closed = true
	return nil
}

func (w *wire) Send(cmd string, args ...any) error {
	if w.err != nil {
		return w.err
	}
	w.buffer = append(w.buffer, oldredis.Arguments(cmd, args))
	return nil
}

// Do keeps to redigo's conventions: "" returns all replies, a command its own with the first error
// among all.
func (w *wire) Do(cmd string, args ...any) (any, error) {
	if w.err != nil {
		return nil, w.err
	}
	write := w.buffer
	w.buffer = nil
	if cmd != "" {
		write = append(write, oldredis.Arguments(cmd, args))
	}
	if len(write) == 0 {
		return nil, nil
	}
	replies, err := w.deliver(write)
	if err != nil {
		return nil, err
	}
	return answers.Do(cmd, replies)
}

func (w *wire) deliver(write [][]string) ([]any, error) {
	var replies []any
	w.a.uses(w)
	for _, r := range groups(write) {
		got := w.a.request(r)
		if got.Lost {
			w.err = io.ErrUnexpectedEOF
			if r.Server > 0 {
				w.err = errNoAnswer
			}
			return nil, w.err
		}
		replies = append(replies, got.Replies...)
	}
	return replies, nil
}

func (w *wire) DoContext(ctx context.Context, cmd string, args ...any) (any, error) {
	if err := ctx.Err(); err != nil {
		if w.err == nil {
			w.err = err // as redigo does it to a healthy connection
		}
		return nil, err
	}
	return w.Do(cmd, args...)
}

func (w *wire) DoWithTimeout(_ time.Duration, cmd string, args ...any) (any, error) {
	return w.Do(cmd, args...)
}

var errNoReceive = errors.New("race: Flush and Receive are not explored: use Do")

func (w *wire) Flush() error                                  { return errNoReceive }
func (w *wire) Receive() (any, error)                         { return nil, errNoReceive }
func (w *wire) ReceiveContext(context.Context) (any, error)   { return nil, errNoReceive }
func (w *wire) ReceiveWithTimeout(time.Duration) (any, error) { return nil, errNoReceive }

// Now reads the client's clock, for algorithms with a reading in the midst of an attempt.
func (w *wire) Now() time.Time {
	now := w.a.now()
	if m := &w.a.Memory; m.Op != OpNone {
		m.Now.Number(uint64(now.UnixNano()))
	}
	return now
}

// Received reads Now when the lock's reply is there: time passes before it only for a late client.
func (w *wire) Received() time.Time {
	w.a.Got = true
	return w.a.now()
}

// Redial makes another connection behind its user's back when one has broken.
func (w *wire) Redial() redis.Conn {
	w.Close()
	return w.a.wire()
}

// Second makes another connection of the client's pool; an error if it has one only (Config.OneConn).
func (w *wire) Second() (redis.Conn, error) { return w.a.dial(context.Background(), "") }
