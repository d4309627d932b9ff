package mux

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// A Step gives one caller a Pool as a redis.Conn: each write is a message. A write with a WATCH or a blocking
// command needs an unshared connection: the Step borrows a connection, and uses it for all later writes. An
// unknown command may depend on the writes before it, as WAIT does. It goes over the same connection as these
// writes, and the connection is shared no more.
type Step struct {
	pool *Pool
	key  string

	conn    redis.Conn // borrowed; nil: not needed so far
	on      *Conn      // the shared connection of the last write that can change a key; nil: none
	m       *Message
	replies []any
	err     error
	wrote   bool // a command may have been written
}

var (
	_ redis.ConnWithContext = (*Step)(nil)
	_ redis.ConnWithTimeout = (*Step)(nil)
)

// shareable reports whether a command neither depends on the state of its connection nor changes that state,
// and whether it can change a key.
func shareable(name string) (changes, yes bool) {
	switch name {
	case "", "ECHO", "EXISTS", "GET", "HGET", "HGETALL", "INFO", "LINDEX", "LLEN", "LRANGE", "MGET", "PING", "PTTL",
		"SISMEMBER", "STRLEN", "TIME", "TTL", "TYPE", "ZCARD", "ZRANGE", "ZRANGEBYSCORE", "ZREVRANGE", "ZSCORE":
		return false, true
	case "DECR", "DEL", "DELEX", "DELIFEQ", "EVAL", "EVALSHA", "EXPIRE", "EXPIREAT", "GETSET", "HDEL", "HINCRBY",
		"HSET", "INCR", "INCRBY", "LPOP", "LPUSH", "LREM", "LSET", "LTRIM", "MSET", "MSETNX", "PERSIST", "PEXPIRE",
		"PEXPIREAT", "PSETEX", "RENAME", "RENAMENX", "RPOP", "RPOPLPUSH", "RPUSH", "SADD", "SET", "SETEX", "SETNX", "SORT",
		"SREM", "UNLINK", "ZADD", "ZREM", "ZREMRANGEBYSCORE":
		return true, true
	}
	return false, false
}

// A need says which connections can run a command.
type need int

const (
	nothing need = iota // any connection
	writes              // any connection; the command may change a key
	own                 // an unshared connection, from here on
	same                // the connection of the writes before
)

// needs returns the need of a command. in reads and updates whether MULTI is open.
func needs(name string, in *bool) need {
	changes, known := shareable(name)
	if !known {
		name = strings.ToUpper(name)
		changes, known = shareable(name)
	}
	switch {
	case changes:
		return writes
	case known:
		return nothing
	}
	switch name {
	case "MULTI":
		*in = true
		return nothing
	case "EXEC":
		if *in {
			*in = false
			return nothing
		}
		return own
	case "WATCH", "UNWATCH", "DISCARD":
		return own
	}
	return same
}

// needs returns the need of the message and name behind it.
func (s *Step) needs(name string) need {
	in, transacts, most := false, false, nothing
	if s.m != nil {
		for _, n := range s.m.names {
			most = max(most, needs(n, &in))
			transacts = transacts || in
		}
	}
	if most = max(most, needs(name, &in)); in || transacts && !s.pool.Whole() {
		most = max(most, own)
	}
	return most
}

// Step returns a Step for key.
func (p *Pool) Step(key string) Step { return Step{pool: p, key: key} }

// Unsent reports whether the Step has written nothing.
func (s *Step) Unsent() bool { return !s.wrote }

func (s *Step) Err() error {
	if s.conn != nil {
		return s.conn.Err()
	}
	return s.err
}

// Close returns the borrowed connection.
func (s *Step) Close() error {
	if s.conn != nil {
		return s.conn.Close()
	}
	return nil
}

func (s *Step) Send(name string, args ...any) error {
	if s.conn != nil {
		s.writesAnew(name)
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
	if s.err != nil {
		return nil, s.err
	}
	if s.m == nil && s.conn == nil && (strings.EqualFold(name, "DISCARD") || strings.EqualFold(name, "UNWATCH")) {
		return "OK", nil // nothing of ours is open on a shared connection
	}
	need := s.needs(name)
	switch {
	case need == same && s.on != nil:
		s.pool.unshared.Store(true) // later steps borrow a connection from the start
		return s.share(ctx, limit, need, name, args)
	case s.conn == nil && need < own && !s.pool.unshared.Load():
		return s.share(ctx, limit, need, name, args)
	case s.conn == nil:
		var err error
		if limit, err = s.borrow(ctx, limit); err != nil {
			return nil, err
		}
	}
	s.writesAnew(name)
	switch {
	case ctx.Done() != nil:
		return redis.DoContext(s.conn, ctx, name, args...)
	case limit > 0:
		return redis.DoWithTimeout(s.conn, limit, name, args...)
	}
	return s.conn.Do(name, args...)
}

// writesAnew notes a command over the borrowed connection. After a write there, a command like WAIT must go
// there too.
func (s *Step) writesAnew(name string) {
	if in := true; s.on != nil && (needs(name, &in) == writes || !in) {
		s.on = nil
	}
}

// borrow borrows a connection for the rest of the Step, and returns the rest of the limit.
func (s *Step) borrow(ctx context.Context, limit time.Duration) (left time.Duration, err error) {
	conn, left, err := within(ctx, limit, func(ctx context.Context) (redis.Conn, error) { return s.pool.Borrow(ctx, s.key) })
	if err != nil {
		s.err = unsent(err)
		return 0, s.err
	}
	s.conn, s.wrote = conn, true // a Send of many commands writes before the last one
	if m := s.m; m != nil {
		s.m = nil
		defer m.recycle()
		for name, args := range m.commands() {
			if err := conn.Send(name, slices.Clone(args)...); err != nil {
				return 0, err
			}
		}
	}
	return left, nil
}

// share sends the message over a shared connection.
func (s *Step) share(ctx context.Context, limit time.Duration, need need, name string, args []any) (any, error) {
	m := s.m
	if s.m = nil; m == nil {
		m = s.pool.message()
	}
	if name != "" {
		m.Add(name, args...)
	}
	if len(m.names) == 0 {
		m.recycle()
		return []any{}, nil
	}
	var over *Conn
	if need == same {
		over = s.on
	}
	replies, over, err := s.pool.do(ctx, m, limit, over)
	if need == writes {
		s.on = over
	}
	if err != nil {
		s.wrote = s.wrote || !errors.Is(err, ErrNotSent)
		s.err = err
		return nil, err
	}
	s.wrote = true
	if name == "" && len(replies) == 1 { // out of the message's room, which is used again
		replies = []any{replies[0]}
	}
	reply, err := answer.Do(name, replies)
	m.recycle()
	return reply, err
}

// Receive returns the next reply to the commands of Send.
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
