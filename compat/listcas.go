package compat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// The condition kept by list commands, Redis 2.0 and later, where CheckListCAS has found
// nothing against it: one transaction compares the value of a string key, and deletes or
// replaces it, in one round trip, with neither WATCH nor scripts. SORT is the one old command
// that reads a key whose name stands in another, LREM the one that compares, and RENAME of
// what is not there does nothing. s, a, t and u are names of our own, which exist within the
// EXEC alone.
//
//	RPUSH s key
//	SORT s BY nosort GET * STORE s            s = [value], or [""] if key holds no string
//	SORT s BY nosort GET # GET # STORE a      a = [value value]
//	LREM s 0 held                             s is gone if, and only if, value is held
//	RENAMENX a s                              s = [value value] if it was gone
//	SORT s BY nosort LIMIT 1 1 STORE t        t = [value] if s has a second, else [] or nothing
//	RPOPLPUSH t u                             u = [value] if t has one
//	RENAME u key                              no such key u: key is what it was
//	LREM key 0 held                           empties that list, and so deletes it; an error on a string
//	MSETNX key next a ""                      to replace: 1 if key is gone and a was renamed
//	DEL s a t u
//
// Before 2.6.5 a server may refuse some of these, over maxmemory, and run the
// rest (tx/half-queued). So nothing is concluded from a key's absence, which a
// refusal looks like: every step makes what the next one needs, and a RENAME
// whose source was not made does nothing. Whichever of them are left out, all 2048
// subsets, another's value stays on the key (TestListCASSubsets).
//
// What is shorter is not safe. LREM s, then RENAMENX key s: without the RPUSH
// it removes whatever stands on the key. LTRIM or LPOP in place of the third SORT: without
// it, a list is renamed over another's value. RENAME of t itself: before 2.4 SORT
// stores empty lists. SETNX in place of MSETNX makes a key that was not there.
// LINSERT could stand for the second SORT and RENAMENX, but came with 2.2.
//
// Limits: before 2.4.11 SORT sees no keys of more than longestKey bytes; in
// cluster mode it has no GET; before 2.2 LREM, like every write there, deletes a
// key that has a TTL; 2.0 takes a number and the same number with a zero byte and
// more behind it for equal; a foreign list on the key loses the elements that are held. On
// 1.2 an emptied list stays, so s is never gone, and nothing is ever deleted.
//
// MSETNX is sent only if there is a next, and before DEL what is to run in any case.
func (w *write) listCAS(key, held, next string, more []Cmd) {
	w.send(Cmd{"MULTI"})
	w.lists(key, held, next, more)
	w.send(Cmd{"EXEC"})
}

// lists is what stands between MULTI and EXEC.
func (w *write) lists(key, held, next string, more []Cmd) {
	// Nobody else's, and no other transaction's: should a DEL be refused, the next
	// one must not build on what it left (TestListCASLeftovers).
	own, suffix := held, "satu"
	if next != "" {
		own, suffix = next, "wbxv"
	}
	if len(own) > 12 {
		own = own[len(own)-12:] // a token's last digits, a timestamp's nonce
	}
	own = Aux(key, own) + suffix
	var k, v any = key, held // boxed once: each of these stands in several commands
	var s, a, t, u any = own[:len(own)-3], own[:len(own)-2], own[:len(own)-1], own

	w.send(Cmd{"RPUSH", s, k})
	w.send(Cmd{"SORT", s, "BY", "nosort", "GET", "*", "STORE", s})
	w.send(Cmd{"SORT", s, "BY", "nosort", "GET", "#", "GET", "#", "STORE", a})
	w.send(Cmd{"LREM", s, 0, v})
	w.send(Cmd{"RENAMENX", a, s})
	w.send(Cmd{"SORT", s, "BY", "nosort", "LIMIT", 1, 1, "STORE", t})
	w.send(Cmd{"RPOPLPUSH", t, u})
	w.send(Cmd{"RENAME", u, k})
	w.send(Cmd{"LREM", k, 0, v})
	if next != "" {
		w.send(Cmd{"MSETNX", k, next, a, ""})
	}
	w.all(more)
	w.send(Cmd{"DEL", s, a, t, u})
}

// Where the replies that tell stand, and how many commands and arguments there are
// to replace: one and four fewer to release.
const (
	casRename = 7
	casEmpty  = 8
	casNext   = 9

	casCommands  = 13
	casArguments = 46
)

// longestKey is the longest key, in bytes, that ListCAS can read on every server.
const longestKey = 1024

// CanCompare returns ErrInvalid for a key or a value that the condition can't compare: by lists,
// a key of more than 1,024 bytes, and a value that is empty or its own key.
func (i Condition) CanCompare(key, value string) error {
	if i != ListCAS {
		return nil
	}
	return listable(key, value)
}

// listCAS carries out a change that removes the key or puts a new value on it. It is ErrLost
// if the key holds anything else or nothing, and then changes nothing but what stands behind
// the first command; ErrInvalid, before anything is sent, if a value is empty or the key
// longer than longestKey; the server's error if it refused a command. A replaced key is left
// without a TTL.
//
// Before 2.6.5 a server that runs out of memory within the transaction may delete the old
// value and refuse the new one: that is ErrLost, with the refusal.
func (c *Conn) listCAS(ch *Change) ([]any, error) {
	next, more, err := ch.byLists()
	if err != nil {
		return nil, err
	}
	w := c.compose(casArguments + arguments(more))
	w.listCAS(ch.Key, ch.Value, next, more)
	replies, err := w.decided(execRan)
	if err != nil {
		return nil, err
	}
	return c.listed(ch, next, replies)
}

// byLists is what ListCAS makes of a change: the value that is to be on the key, "" for none,
// and the commands that run in any case.
func (ch *Change) byLists() (next string, more []Cmd, err error) {
	if ch.removes() {
		return "", nil, listable(ch.Key, ch.Value)
	}
	next, ok := ch.replaces()
	if !ok {
		return "", nil, fmt.Errorf("%w: ListCAS can't %v", ErrInvalid, ch.Do[0][0])
	}
	err = listable(ch.Key, next)
	return next, ch.cmds()[1:], errors.Join(err, listable(ch.Key, ch.Value))
}

// allListCAS does it for many keys in one write: a transaction for each.
func (c *Conn) allListCAS(changes []Change, replies [][]any, errs []error) {
	w := c.compose(casArguments * len(changes))
	next, more := make([]string, len(changes)), make([][]Cmd, len(changes))
	for i := range changes {
		if next[i], more[i], errs[i] = changes[i].byLists(); errs[i] == nil {
			w.listCAS(changes[i].Key, changes[i].Value, next[i], more[i])
		}
	}
	if w.n == 0 {
		return
	}
	all, err := w.replies()
	for i := range changes {
		switch n := casCommands + len(more[i]); {
		case errs[i] != nil:
		case err != nil:
			errs[i] = err
		default:
			if next[i] == "" {
				n--
			}
			replies[i], errs[i] = c.listed(&changes[i], next[i], all[:n:n])
			all = all[n:]
		}
	}
}

// listed says by the replies whether the key was removed, or next is on it.
func (c *Conn) listed(ch *Change, next string, replies []any) ([]any, error) {
	replies, err := c.transacted(replies)
	if err != nil {
		return nil, err
	}
	if replies == nil { // the connection was under a WATCH, and somebody touched the key
		return c.listCAS(ch)
	}
	return c.compared(ch, next, replies)
}

// compared is listed for the replies to what stands between MULTI and EXEC.
func (c *Conn) compared(ch *Change, next string, replies []any) ([]any, error) {
	err := c.emptied(ch, replies)
	if next == "" {
		return []any{int64(1)}, err
	}
	set := replies[casNext]
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
	replies = replies[casNext : len(replies)-1]
	return replies, first(replies, nil)
}

func listable(key, value string) error {
	switch {
	case value == "": // what SORT makes of a key that is not there
		return fmt.Errorf("%w: an empty value can't be compared by lists", ErrInvalid)
	case value == key: // the first SORT, refused, would leave it on s
		return fmt.Errorf("%w: a value that is its own key can't be compared by lists", ErrInvalid)
	case len(key) > longestKey:
		return fmt.Errorf("%w: a key of %d bytes, and by lists %d can be read", ErrInvalid, len(key), longestKey)
	}
	return nil
}

// emptied says by the replies whether the key was deleted.
func (c *Conn) emptied(ch *Change, replies []any) error {
	if replies[casRename] != "OK" {
		if err := first(replies[:casRename], nil); err != nil {
			return err
		}
		if err, ok := replies[casRename].(redis.Error); ok && !strings.Contains(string(err), "no such key") {
			return err
		}
		return ErrLost
	}
	if n, _ := replies[casEmpty].(int64); n > 0 {
		return nil
	}
	// The key is a list that holds our value, and nobody else would end it.
	n, err := redis.Int64(c.Do("LREM", ch.Key, 0, ch.Value))
	if err == nil && n == 0 {
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
	case lacks(err), errors.As(err, &e) && strings.Contains(string(e), "denied"):
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
	next, _, err := ch.byLists()
	if err != nil {
		return "", err
	}
	w := c.compose(casArguments + 5)
	w.send(Cmd{"MULTI"})
	w.send(set)
	w.lists(ch.Key, ch.Value, next, []Cmd{{"GET", k}, {"DEL", k}})
	w.send(Cmd{"EXEC"})
	replies, err := w.replies()
	if err == nil {
		replies, err = c.transacted(replies)
	}
	if err != nil {
		return "", err
	}
	if len(replies) < 5 {
		return "", countError(len(replies), casCommands, "commands in a transaction")
	}
	if err := first(replies[:1], nil); err != nil {
		return "", err
	}
	got, replies := replies[len(replies)-3], replies[1:]
	if _, err = c.compared(ch, next, replies); got != nil {
		left = fmt.Sprintf("%s", got) // an error, if it is a list
	}
	return left, err
}
