package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/safe"
	"github.com/setnxlock/setnxlock/compat/internal/stock"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A session asks one question after the other, over one connection for as long
// as it lasts.
type session struct {
	ctx     context.Context
	source  compat.Source
	timeout time.Duration
	key     string         // what a plain GET asks for
	tidy    []protocol.Cmd // what is sent along with it, so that what ran before a breakage does not tell

	stock stock.Stock
	c     redis.Conn // nil: none borrowed
	sure  bool       // c has answered before
	broke error      // why the last of them did
	err   error      // once set, nothing more is asked

	observe func(cmds []protocol.Cmd, replies []any) // if set, called with what was asked and answered
}

func newSession(ctx context.Context, source compat.Source, timeout time.Duration, key string) *session {
	return &session{ctx: ctx, source: source, timeout: timeout, key: key}
}

// Closed stands for the reply of a server that gave none, and closed the connection.
const Closed redis.Error = "closed the connection"

// silent stands for the reply of one that gave none in time.
const silent redis.Error = "no answer in time"

// lost reports whether replies stand for none.
func lost(replies []any) bool { return replies[0] == Closed || replies[0] == silent }

// ask sends cmds in one write and returns one reply to each; the server's errors are redis.Errors among them. The
// replies are lost if this write breaks two connections in a row (see try). Any other breakage ends the session: err is
// set and all replies are nil.
func (s *session) ask(cmds ...protocol.Cmd) []any {
	replies := make([]any, len(cmds))
	var broke *UnansweredError
	err := s.try("", 2, func(c *protocol.Conn) error {
		r, err := c.Pipe(cmds...)
		copy(replies, r)
		return err
	})
	if errors.As(err, &broke) {
		for i := range replies {
			replies[i] = broke.Reply
		}
	}
	return replies
}

// connect borrows a connection and has a plain GET answered over it. A pool
// may first hand out some that were closed while they lay idle.
func (s *session) connect() bool {
	var err, unread error
	for range 3 {
		if s.err != nil {
			return false
		}
		if err = s.borrow(); err != nil {
			continue
		}
		if _, err = s.pipe(append([]protocol.Cmd{{"GET", s.key}}, s.tidy...)); err == nil {
			s.sure = true
			return true
		}
		s.broke = err
		s.drop()
		fault := net.Error(nil)
		if !answer.Closed(err) && !errors.As(err, &fault) && !errors.Is(err, limit.ErrTimeout) {
			unread = err // it did answer
		}
	}
	if unread != nil && s.err == nil && s.ctx.Err() == nil && s.pongs() {
		s.err = refuse(Report{}, fmt.Sprintf("it answers PING, but its answer to GET can't be read: %v", unread), another)
	}
	s.fail(err)
	return false
}

// pongs reports whether a PING is answered, over a connection of its own.
func (s *session) pongs() bool {
	defer s.drop()
	if s.borrow() != nil {
		return false
	}
	r, err := s.pipe([]protocol.Cmd{{"PING"}})
	return err == nil && text(r[0]) == "PONG"
}

// borrow gets a connection. A pool that has no more may hang, whatever its context says: it is not waited for longer
// than for an answer, and what it brings then goes back.
func (s *session) borrow() error {
	if s.c != nil {
		return nil
	}
	if s.ctx.Err() != nil { // redigo would kill a healthy connection for it
		s.fail(nil)
		return s.err
	}
	ctx, cancel := limit.Within(s.ctx, clock.New(), s.timeout)
	defer cancel()
	c, err := s.stock.Get(ctx, func(ctx context.Context) (c redis.Conn, err error) {
		defer safe.Catch(&err)
		if c, err = s.source.Get(ctx, s.key); err == nil {
			c = safe.Over(c)
		}
		return c, err
	})
	if err != nil {
		return fmt.Errorf("no connection: %w", err)
	}
	s.c = c
	return nil
}

func (s *session) pipe(cmds []protocol.Cmd) ([]any, error) {
	if s.ctx.Err() != nil {
		return nil, s.ctx.Err()
	}
	ctx, cancel := limit.Within(s.ctx, clock.New(), s.timeout)
	defer cancel()
	var c protocol.Conn
	w := wire.Conn{Conn: s.c}
	w.Begin(ctx)
	protocol.Bind(&c, &w)
	return c.Pipe(cmds...)
}

// fail ends the session. The context's end outweighs what it brought about.
func (s *session) fail(err error) {
	if s.err != nil {
		return
	}
	if s.ctx.Err() != nil {
		err = context.Cause(s.ctx)
	}
	s.err = fmt.Errorf("setnxlock: probing the server: %w", err)
}

// close returns the connection.
func (s *session) close() {
	if s.c != nil {
		wire.Close(s.c)
	}
	s.c, s.sure = nil, false
}

// drop makes the connection unusable, to keep it out of every pool, and returns it: it may be in MULTI, under WATCH or
// owe replies.
func (s *session) drop() {
	if s.c == nil {
		return
	}
	wire.Drop(s.c)
	s.close()
}
