package protocol

import (
	"fmt"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/listcas"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// ListCAS compares by list commands: Redis 2.0 and later. One round trip, with a transaction for each key.
// Package listcas has the commands, and the reason for each of them.
//
// The change removes the key or puts a new value on it, and leaves a replaced key without a TTL. It ends with
//
//   - [ErrLost] if the key holds another value or none: only the commands behind the change's first one have run;
//   - [ErrInvalid], before anything is sent, if lists can't compare ([CanCompare]) or can't make the change;
//   - the server's error if the server refused a command.
//
// Before Redis 2.6.5 a server that runs out of memory within the transaction may delete the old value and
// refuse the new one: the change ends with ErrLost, and the refusal.
var ListCAS Condition = lists{}

type lists struct{}

// CanCompare returns [ErrInvalid] if [ListCAS] can't compare: for a key of more than 1,024 bytes, an empty
// value, or a value equal to the key.
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

// byLists returns the transaction for s.
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

// listed judges the replies to a transaction of byLists: was the key removed, or is the new value on it?
func (c *Conn) listed(s *task, replies []any) ([]any, error) {
	replies, err := c.wire.Transacted(replies)
	if err != nil {
		return nil, err
	}
	if replies == nil { // the connection was under a WATCH, and another client touched the key
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
		// The key did not exist, and the server refused the command that keeps MSETNX from making it.
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

// emptied returns nil if the replies prove the old value removed.
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
