package compat

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/listcas"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// The condition kept by list commands, Redis 2.0 and later, in one round trip: package listcas
// has the commands, and the reasons for each of them.

// CanCompare returns ErrInvalid for a key or a value that the condition can't compare: by lists,
// a key of more than 1,024 bytes, and a value that is empty or its own key.
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
// and the transaction, with more before its last command.
func (ch *Change) byLists(more ...[]any) (next string, cmds []Cmd, err error) {
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
	all := listcas.Commands(Aux, ch.Key, ch.Value, next, more)
	cmds = make([]Cmd, len(all))
	for i, m := range all {
		cmds[i] = m
	}
	return next, cmds, nil
}

// allListCAS does it for many keys in one write: a transaction for each.
func (c *Conn) allListCAS(changes []Change, replies [][]any, errs []error) {
	next, n := make([]string, len(changes)), make([]int, len(changes))
	var together []Cmd
	for i := range changes {
		var cmds []Cmd
		next[i], cmds, errs[i] = changes[i].byLists()
		n[i], together = len(cmds), append(together, cmds...)
	}
	if len(together) == 0 {
		return
	}
	all, err := c.Pipe(together...)
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
	return c.compared(ch, next, replies)
}

// compared is listed for the replies of a transaction that ran.
func (c *Conn) compared(ch *Change, next string, replies []any) ([]any, error) {
	err := c.emptied(ch, replies)
	if next == "" {
		return []any{int64(1)}, err
	}
	set := listcas.Set(replies)
	switch {
	case err == nil && set != int64(1):
		return nil, fmt.Errorf("%w: %q: deleted, but not replaced: %v", ErrLost, ch.Key, set)
	case err != nil && set == int64(1):
		// It was not there, and what keeps MSETNX from making it was refused.
		_, undone := c.listCAS(&Change{Key: ch.Key, Value: next})
		return nil, errors.Join(err, undone)
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

// CheckListCAS returns ErrUnsafeServer, with use as what to use, if this server does not
// compare by lists: it tries each outcome on scratch, a key that nobody has, looks at what
// it leaves, and removes it.
func (c *Conn) CheckListCAS(scratch, use string) error {
	wrong, err := c.tryListCAS(scratch)
	if err != nil || wrong != "" {
		c.Do("DEL", scratch) //nolint:errcheck // the reason is reported
	}
	var e redis.Error
	switch {
	case answer.Lacks(err), errors.As(err, &e) && strings.Contains(string(e), "denied"):
		return c.Unsafe("it does not run every command that ListCAS is made of ("+err.Error()+")", use)
	case wrong != "":
		return c.Unsafe("lists don't compare there: "+wrong, use)
	}
	return err
}

// tryListCAS tries every outcome on key, and says what went wrong. Each is tried in one transaction,
// which makes the key and removes it: nobody ever sees it.
func (c *Conn) tryListCAS(key string) (wrong string, err error) {
	if _, err := c.Exec(Cmd{"GET", key}); err != nil {
		return "", err // where MULTI is refused, what follows it would run one by one
	}
	release := Change{If: ListCAS, Key: key, Value: "held"}
	replace := Change{If: ListCAS, Key: key, Value: "held", Do: []Cmd{{"SET", key, "next"}}}
	for _, try := range []struct {
		holds string
		does  Change
		want  error
		left  string
		wrong string
	}{
		{"other", release, ErrLost, "other", "another's value is deleted"},
		{"held", release, nil, "", "an equal value is not deleted, as on 1.2, where an emptied list stays"},
		{"other", replace, ErrLost, "other", "another's value is replaced"},
		{"held", replace, nil, "next", "an equal value is not replaced"},
		{"", replace, ErrLost, "", "a value is put on a key that was not there"},
	} {
		left, err := c.triedByLists(try.holds, &try.does)
		if !errors.Is(err, try.want) {
			if OutcomeOf(err) != Unknown {
				return try.wrong, nil
			}
			return "", err
		}
		if left != try.left {
			return try.wrong, nil
		}
	}
	return "", nil
}

// triedByLists carries ch out in a transaction at whose beginning the key is made to hold a value,
// and returns what it held before it was removed at the end.
func (c *Conn) triedByLists(holds string, ch *Change) (left string, err error) {
	k := any(ch.Key)
	set := Cmd{"SET", k, holds}
	if holds == "" {
		set = Cmd{"DEL", k}
	}
	next, cmds, err := ch.byLists(Cmd{"GET", k}, Cmd{"DEL", k})
	if err != nil {
		return "", err
	}
	replies, err := c.Pipe(slices.Insert(cmds, 1, set)...)
	if err == nil {
		replies, err = c.wire.Transacted(replies)
	}
	if err != nil {
		return "", err
	}
	if len(replies) < 5 {
		return "", wire.Short(len(replies), len(cmds)-1, "commands in a transaction")
	}
	if err := answer.First(replies[:1]); err != nil {
		return "", err
	}
	got, replies := replies[len(replies)-3], replies[1:]
	if _, err = c.compared(ch, next, replies); got != nil {
		left = fmt.Sprintf("%s", got) // an error, if it is a list
	}
	return left, err
}
