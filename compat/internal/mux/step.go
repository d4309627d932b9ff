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

// A Step is one caller's view of a Pool, as a redis.Conn: each write is a message. A write that
// needs a connection which nobody shares, for a WATCH or to block, borrows one, and all that follows
// goes over it. What is not known to need nothing of its connection may ask about the writes before it,
// as WAIT does: it goes over the one that they went over, which is shared no more.
type Step struct {
	pool *Pool
	key  string // that it is about

	conn    redis.Conn // borrowed; nil: it needs none yet
	on      *Conn      // that the last of its writes went over which changed something; nil: none is shared
	m       *Message
	replies []any
	err     error
	wrote   bool // something may have been written
}

var (
	_ redis.ConnWithContext = (*Step)(nil)
	_ redis.ConnWithTimeout = (*Step)(nil)
)

// shareable reports whether a command needs nothing of its connection and leaves nothing on it, and whether it can change
// a key.
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

// A need is what commands need of a connection.
type need int

const (
	nothing need = iota // nothing
	writes              // nothing, and they may change a key
	own                 // nobody else, from here on
	same                // that of the writes before them
)

// needs is what name needs; in says, and is told, whether MULTI is open.
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

// needs is what the message needs with name behind it.
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
		s.pool.apart.Store(true) // steps like it have one of their own from the start
		return s.together(ctx, limit, need, name, args)
	case s.conn == nil && need < own && !s.pool.apart.Load():
		return s.together(ctx, limit, need, name, args)
	case s.conn == nil:
		var err error
		if limit, err = s.depart(ctx, limit); err != nil {
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

// writesAnew notes that name goes over the borrowed connection: who asks about writes asks there, if it is one.
func (s *Step) writesAnew(name string) {
	if in := true; s.on != nil && (needs(name, &in) == writes || !in) {
		s.on = nil
	}
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
func (s *Step) together(ctx context.Context, limit time.Duration, need need, name string, args []any) (any, error) {
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
