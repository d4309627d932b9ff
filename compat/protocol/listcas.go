package protocol

import (
	"fmt"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/listcas"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// The condition kept by list commands, Redis 2.0 and later, in one round trip: package listcas
// has the commands, and the reasons for each of them.

// CanCompare returns [ErrInvalid] for a key or a value that the condition can't compare: with
// ListCAS, a key of more than 1,024 bytes, and a value that is empty or equal to the key.
func (i Condition) CanCompare(key, value string) error {
	if i != ListCAS {
		return nil
	}
	if err := listcas.Check(key, value); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// listCAS carries out a change that removes the key or puts a new value on it. It is ErrLost
// if the key holds anything else or nothing, and then changes nothing but what stands behind
// the first command; ErrInvalid, before anything is sent, if the condition can't compare; the
// server's error if it refused a command. A replaced key is left without a TTL.
//
// Before 2.6.5 a server that runs out of memory within the transaction may delete the old
// value and refuse the new one: that is ErrLost, with the refusal.
func (c *Conn) listCAS(ch *Change) ([]any, error) {
	next, cmds, err := ch.byLists()
	if err != nil {
		return nil, err
	}
	w := c.wire.Compose(wire.Arguments(cmds))
	wire.All(&w, cmds)
	replies, err := w.Removing(wire.Ran)
	if err != nil {
		return nil, err
	}
	return c.listed(ch, next, replies)
}

// byLists is what ListCAS makes of a change: the value that is to be on the key, "" for none,
// and the transaction.
func (ch *Change) byLists() (next string, cmds [][]any, err error) {
	var more [][]any
	if !ch.removes() {
		var ok bool
		if next, ok = ch.replaces(); !ok {
			return "", nil, fmt.Errorf("%w: ListCAS can't %v", ErrInvalid, ch.Do[0][0])
		}
		if err := ListCAS.CanCompare(ch.Key, next); err != nil {
			return "", nil, err
		}
		for _, m := range ch.cmds()[1:] {
			more = append(more, m)
		}
	}
	if err := ListCAS.CanCompare(ch.Key, ch.Value); err != nil {
		return "", nil, err
	}
	return next, listcas.Commands(Aux, ch.Key, ch.Value, next, more), nil
}

// allListCAS does it for many keys in one write: a transaction for each.
func (c *Conn) allListCAS(changes []Change, replies [][]any, errs []error) {
	next, n := make([]string, len(changes)), make([]int, len(changes))
	var together [][]any
	for i := range changes {
		var cmds [][]any
		next[i], cmds, errs[i] = changes[i].byLists()
		n[i], together = len(cmds), append(together, cmds...)
	}
	if len(together) == 0 {
		return
	}
	w := c.wire.Compose(wire.Arguments(together))
	wire.All(&w, together)
	all, err := w.Replies()
	for i := range changes {
		switch {
		case errs[i] != nil:
		case err != nil:
			errs[i] = err
		default:
			replies[i], errs[i] = c.listed(&changes[i], next[i], all[:n[i]:n[i]])
			all = all[n[i]:]
		}
	}
}

// listed says by the replies whether the key was removed, or next is on it.
func (c *Conn) listed(ch *Change, next string, replies []any) ([]any, error) {
	replies, err := c.wire.Transacted(replies)
	if err != nil {
		return nil, err
	}
	if replies == nil { // the connection was under a WATCH, and somebody touched the key
		return c.listCAS(ch)
	}
	err = c.emptied(ch, replies)
	if next == "" {
		return []any{int64(1)}, err
	}
	set := listcas.Set(replies)
	switch {
	case err == nil && set != int64(1):
		return nil, fmt.Errorf("%w: %q: deleted, but not replaced: %w", ErrLost, ch.Key, listcas.Refusal(replies))
	case err != nil && set == int64(1):
		// It was not there, and what keeps MSETNX from making it was refused.
		_, undone := c.listCAS(&Change{Key: ch.Key, Value: next})
		if undone != nil {
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
func (c *Conn) emptied(ch *Change, replies []any) error {
	held, list, err := listcas.Read(replies)
	if list {
		var n int
		n, err = redis.Int(c.Do("LREM", ch.Key, 0, ch.Value))
		held = n > 0
	}
	if err == nil && !held {
		return ErrLost
	}
	return err
}
