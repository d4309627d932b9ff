package protocol

import (
	"fmt"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/listcas"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// ListCAS is the condition kept by list commands, Redis 2.0 and later, in one round trip: a transaction for each key.
// Package listcas has the commands, and the reasons for each of them.
//
// The change removes the key or puts a new value on it. It is ErrLost if the key holds anything else or nothing, and then
// changes nothing but what stands behind the first command; ErrInvalid, before anything is sent, if the condition can't
// compare; the server's error if it refused a command. A replaced key is left without a TTL.
//
// Before 2.6.5 a server that runs out of memory within the transaction may delete the old
// value and refuse the new one: that is ErrLost, with the refusal.
var ListCAS Condition = lists{}

type lists struct{}

// CanCompare returns [ErrInvalid] for a key or a value that [ListCAS] can't compare: a key of more than 1,024 bytes, and a
// value that is empty or equal to the key.
func CanCompare(key, value string) error {
	if err := listcas.Check(key, value); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

func (by lists) carryOut(c *Conn, list []*task) {
	w := c.wire.Compose(60 * len(list))
	sent := 0
	for _, s := range list {
		var cmds [][]any
		cmds, s.err = s.byLists()
		wire.All(&w, cmds)
		s.sent = len(cmds)
		sent += s.sent
	}
	if sent == 0 {
		return
	}
	replies, err := w.Replies()
	for _, s := range list {
		switch n := s.sent; {
		case n == 0:
		case err != nil:
			s.err = err
		default:
			s.replies, s.err = c.listed(s, replies[:n:n])
			replies = replies[n:]
		}
	}
}

// byLists is the transaction that carries out s.
func (s *task) byLists() ([][]any, error) {
	next, more := "", [][]any(nil)
	if !s.removes() {
		var ok bool
		if next, ok = s.replaces(); !ok {
			return nil, fmt.Errorf("%w: ListCAS can't %v", ErrInvalid, s.cmds()[0][0])
		}
		if err := CanCompare(s.Key, next); err != nil {
			return nil, err
		}
		for _, m := range s.cmds()[1:] {
			more = append(more, m)
		}
	}
	if err := CanCompare(s.Key, s.Value); err != nil {
		return nil, err
	}
	return listcas.Commands(Aux, s.Key, s.Value, next, more), nil
}

// listed says by the replies whether the key was removed, or the new value is on it.
func (c *Conn) listed(s *task, replies []any) ([]any, error) {
	replies, err := c.wire.Transacted(replies)
	if err != nil {
		return nil, err
	}
	if replies == nil { // the connection was under a WATCH, and somebody touched the key
		lists{}.carryOut(c, []*task{s})
		return s.replies, s.err
	}
	err = c.emptied(s, replies)
	if s.removes() {
		return []any{int64(1)}, err
	}
	set := listcas.Set(replies)
	switch {
	case err == nil && set != int64(1):
		return nil, fmt.Errorf("%w: %q: deleted, but not replaced: %w", ErrLost, s.Key, listcas.Refusal(replies))
	case err != nil && set == int64(1):
		// It was not there, and what keeps MSETNX from making it was refused.
		next, _ := s.replaces()
		if _, undone := c.Run(Change{If: ListCAS, Key: s.Key, Value: next}); undone != nil {
			err = fmt.Errorf("%w; %w", err, undone)
		}
		return nil, err
	case err != nil:
		return nil, err
	}
	replies = listcas.Rest(replies)
	return replies, answer.First(replies)
}

// emptied says by the replies whether the key was deleted.
func (c *Conn) emptied(s *task, replies []any) error {
	held, list, err := listcas.Read(replies)
	if list {
		var n int
		n, err = redis.Int(c.Do("LREM", s.Key, 0, s.Value))
		held = n > 0
	}
	if err == nil && !held {
		return ErrLost
	}
	return err
}
