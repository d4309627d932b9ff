package mux

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// A Step is one caller's view of a Pool, as a redis.Conn: each write is a message. A write that
// needs a connection which nobody shares, for a WATCH or to block, borrows one, and all that follows
// goes over it.
type Step struct {
	pool *Pool
	key  string // that it is about

	conn    redis.Conn // borrowed; nil: it needs none yet
	m       *Message
	replies []any
	err     error
	wrote   bool // something may have been written
}

var (
	_ redis.ConnWithContext = (*Step)(nil)
	_ redis.ConnWithTimeout = (*Step)(nil)
)

// Step is a Step that is about key.
func (p *Pool) Step(key string) Step { return Step{pool: p, key: key} }

// Unsent reports that nothing of it was written.
func (s *Step) Unsent() bool { return !s.wrote }

func (s *Step) Err() error {
	if s.conn != nil {
		return s.conn.Err()
	}
	return s.err
}

// Close returns the connection that it has borrowed.
func (s *Step) Close() error {
	if s.conn != nil {
		return s.conn.Close()
	}
	return nil
}

func (s *Step) Send(name string, args ...any) error {
	if s.conn != nil {
		return s.conn.Send(name, args...)
	}
	if s.err != nil {
		return s.err
	}
	if s.m == nil {
		s.m = s.pool.message()
	}
	s.m.Add(name, args...)
	return nil
}

func (s *Step) Flush() error { return s.Err() }

func (s *Step) Do(name string, args ...any) (any, error) {
	return s.do(context.Background(), 0, name, args)
}

func (s *Step) DoContext(ctx context.Context, name string, args ...any) (any, error) {
	return s.do(ctx, 0, name, args)
}

func (s *Step) DoWithTimeout(limit time.Duration, name string, args ...any) (any, error) {
	return s.do(context.Background(), limit, name, args)
}

func (s *Step) do(ctx context.Context, limit time.Duration, name string, args []any) (any, error) {
	if s.conn == nil {
		switch {
		case s.err != nil:
			return nil, s.err
		case s.m == nil && (name == "DISCARD" || name == "UNWATCH"):
			return "OK", nil // nothing of ours is open on a shared connection
		case !s.alone(name) && !s.pool.closed.Load():
			return s.together(ctx, limit, name, args)
		}
		var err error
		if limit, err = s.depart(ctx, limit); err != nil {
			return nil, err
		}
	}
	switch {
	case ctx.Done() != nil:
		return redis.DoContext(s.conn, ctx, name, args...)
	case limit > 0:
		return redis.DoWithTimeout(s.conn, limit, name, args...)
	}
	return s.conn.Do(name, args...)
}

// alone reports whether what was sent, with name behind it, needs a connection which nobody shares.
func (s *Step) alone(name string) bool {
	open := false
	see := func(name string) bool {
		switch name {
		case "WATCH", "UNWATCH", "DISCARD", "SELECT", "AUTH", "BLPOP", "BRPOP", "BRPOPLPUSH", "SUBSCRIBE", "PSUBSCRIBE", "MONITOR", "WAIT":
			return true
		case "MULTI":
			open = true
		case "EXEC":
			if !open {
				return true
			}
			open = false
		}
		return false
	}
	if s.m != nil && slices.ContainsFunc(s.m.names, see) {
		return true
	}
	return see(name) || open
}

// depart goes on over a borrowed connection, and returns what is left of the limit then.
func (s *Step) depart(ctx context.Context, limit time.Duration) (left time.Duration, err error) {
	conn, left, err := within(ctx, limit, func(ctx context.Context) (redis.Conn, error) { return s.pool.Borrow(ctx, s.key) })
	if err != nil {
		s.err = unsent(err)
		return 0, s.err
	}
	s.conn = conn
	if m := s.m; m != nil {
		s.m = nil
		defer m.free()
		for name, args := range m.commands() {
			if err := conn.Send(name, slices.Clone(args)...); err != nil {
				return 0, err
			}
		}
	}
	s.wrote = true
	return left, nil
}

// together sends the message over a shared connection.
func (s *Step) together(ctx context.Context, limit time.Duration, name string, args []any) (any, error) {
	m := s.m
	if s.m = nil; m == nil {
		m = s.pool.message()
	}
	if name != "" {
		m.Add(name, args...)
	}
	if len(m.names) == 0 {
		m.free()
		return []any{}, nil
	}
	replies, err := s.pool.do(ctx, m, limit)
	if err != nil {
		s.wrote = s.wrote || !errors.Is(err, ErrNotSent)
		s.err = err
		return nil, err
	}
	s.wrote = true
	if name == "" && len(replies) == 1 { // in the message's own room, and wanted longer
		replies = []any{replies[0]}
	}
	reply, err := answer.Do(name, replies)
	m.free()
	return reply, err
}

// Receive is for commands that were sent before: each of them is a message.
func (s *Step) Receive() (any, error) { return s.ReceiveWithTimeout(0) }

func (s *Step) ReceiveContext(ctx context.Context) (any, error) { return s.receive(ctx, 0) }

func (s *Step) ReceiveWithTimeout(limit time.Duration) (any, error) {
	return s.receive(context.Background(), limit)
}

func (s *Step) receive(ctx context.Context, limit time.Duration) (any, error) {
	if s.conn != nil {
		if ctx.Done() != nil {
			return redis.ReceiveContext(s.conn, ctx)
		}
		return redis.ReceiveWithTimeout(s.conn, limit)
	}
	if len(s.replies) == 0 {
		replies, err := redis.Values(s.do(ctx, limit, "", nil))
		if err != nil {
			return nil, err
		}
		s.replies = replies
	}
	if len(s.replies) == 0 {
		return nil, errors.New("nothing to receive")
	}
	r := s.replies[0]
	s.replies = s.replies[1:]
	return answer.Receive(r)
}
