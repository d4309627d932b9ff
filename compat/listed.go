package compat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// listed is the list release: it compares the value of a string key, and
// deletes or replaces it, in one round trip, with neither WATCH nor scripts. SORT
// is the one old command that reads a key whose name stands in another, LREM
// the one that compares, and RENAME of what is not there does nothing. s, a, t
// and u are names of our own, which exist within the EXEC alone.
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
// subsets, another's value stays on the key (TestListedSubsets).
//
// What is shorter is not safe. LREM s, then RENAMENX key s: without the RPUSH
// it removes whatever stands on the key. LTRIM or LPOP in place of the third SORT: without
// it, a list is renamed over another's value. RENAME of t itself: before 2.4 SORT
// stores empty lists. SETNX in place of MSETNX makes a key that was not there.
// LINSERT could stand for the second SORT and RENAMENX, but came with 2.2.
//
// Limits: before 2.4.11 SORT sees no keys of more than MaxListedKey bytes; in
// cluster mode it has no GET; before 2.2 LREM, like every write there, deletes a
// key that has a TTL; 2.0 takes a number and the same number with a zero byte and
// more behind it for equal; a foreign list on the key loses the elements that are held. On
// 1.2 an emptied list stays, so s is never gone, and nothing is ever deleted.
//
// MSETNX is sent only if there is a next, and before DEL what is to run in any case.
func (w *write) listed(key, held, next string, more []Cmd) {
	// Nobody else's, and no other transaction's: should a DEL be refused, the next
	// one must not build on what it left (TestListedLeftovers).
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

	w.send(Cmd{"MULTI"})
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
	w.send(Cmd{"EXEC"})
}

// Where the replies that tell stand, and how many commands and arguments there are
// to replace: one and four fewer to release.
const (
	listedRename = 7
	listedEmpty  = 8
	listedNext   = 9

	listedCommands  = 13
	listedArguments = 46
)

// MaxListedKey is the longest key, in bytes, that the list release can read on
// every server.
const MaxListedKey = 1024

// ReleaseListed deletes l.Key if it holds l.Value, by lists: one round trip,
// Redis 2.0 and later, where CheckListed has found nothing against it. It
// returns ErrLost if the key holds anything else or nothing, and then changes
// nothing; ErrInvalid, before anything is sent, if the value is empty or the
// key longer than MaxListedKey; the server's error if it refused a command.
func ReleaseListed(c redis.Conn, l Lease) error {
	if err := listable(l.Key, l.Value); err != nil {
		return err
	}
	w := begin(c, listedArguments)
	w.listed(l.Key, l.Value, "", nil)
	replies, err := w.replies()
	if err == nil {
		replies, err = transacted(c, replies)
	}
	if err != nil {
		return err
	}
	return deletedListed(c, l, replies)
}

// ReplaceListed puts value on l.Key if it holds l.Value, and runs more in the
// same transaction whether it does or not: one round trip. The key is left
// without a TTL. It returns the replies to more; errors are ReleaseListed's.
//
// Before 2.6.5 a server that runs out of memory within the transaction may
// delete the old value and refuse the new one: that is ErrLost, with the refusal.
func ReplaceListed(c redis.Conn, l Lease, value string, more ...Cmd) ([]any, error) {
	if err := errors.Join(listable(l.Key, l.Value), listable(l.Key, value)); err != nil {
		return nil, err
	}
	w := begin(c, listedArguments+arguments(more))
	w.listed(l.Key, l.Value, value, more)
	replies, err := w.replies()
	if err != nil {
		return nil, err
	}
	return replacedListed(c, l, value, replies)
}

// ReplaceAllListed is ReplaceListed of many keys in one write: a transaction for
// each of leases, which becomes the value of the same index. Each has an outcome
// of its own.
func ReplaceAllListed(c redis.Conn, leases []Lease, values []string, more [][]Cmd) (replies [][]any, errs []error) {
	replies, errs = make([][]any, len(leases)), make([]error, len(leases))
	w := begin(c, listedArguments*len(leases))
	for i, l := range leases {
		if errs[i] = errors.Join(listable(l.Key, l.Value), listable(l.Key, values[i])); errs[i] == nil {
			w.listed(l.Key, l.Value, values[i], more[i])
		}
	}
	all, err := w.replies()
	for i, l := range leases {
		switch n := listedCommands + len(more[i]); {
		case errs[i] != nil:
		case err != nil:
			errs[i] = err
		default:
			replies[i], errs[i] = replacedListed(c, l, values[i], all[:n:n])
			all = all[n:]
		}
	}
	return replies, errs
}

// replacedListed tells by the replies whether value is on the key.
func replacedListed(c redis.Conn, l Lease, value string, replies []any) ([]any, error) {
	replies, err := transacted(c, replies)
	if err != nil {
		return nil, err
	}
	err = deletedListed(c, l, replies)
	set := replies[listedNext]
	switch {
	case err == nil && set != int64(1):
		return nil, fmt.Errorf("%w: %q: deleted, but not replaced: %v", ErrLost, l.Key, set)
	case err != nil && set == int64(1):
		// It was not there, and what keeps MSETNX from making it was refused.
		gone := l
		gone.Value = value
		return nil, errors.Join(err, ReleaseListed(c, gone))
	case err != nil:
		return nil, err
	}
	replies = replies[listedNext+1 : len(replies)-1]
	return replies, first(replies, nil)
}

func listable(key, value string) error {
	switch {
	case value == "": // what SORT makes of a key that is not there
		return fmt.Errorf("%w: an empty value can't be compared by lists", ErrInvalid)
	case value == key: // the first SORT, refused, would leave it on s
		return fmt.Errorf("%w: a value that is its own key can't be compared by lists", ErrInvalid)
	}
	return Listable(key)
}

// Listable returns ErrInvalid if key is longer than MaxListedKey.
func Listable(key string) error {
	if len(key) > MaxListedKey {
		return fmt.Errorf("%w: a key of %d bytes, and by lists %d can be read", ErrInvalid, len(key), MaxListedKey)
	}
	return nil
}

// deletedListed tells by the replies whether the key was deleted.
func deletedListed(c redis.Conn, l Lease, replies []any) error {
	if replies[listedRename] != "OK" {
		if err := first(replies[:listedRename], nil); err != nil {
			return err
		}
		if err, ok := replies[listedRename].(redis.Error); ok && !strings.Contains(string(err), "no such key") {
			return err
		}
		return ErrLost
	}
	if n, _ := replies[listedEmpty].(int64); n > 0 {
		return nil
	}
	// The key is a list that holds our value, and nobody else would end it.
	n, err := redis.Int64(c.Do("LREM", l.Key, 0, l.Value))
	if err == nil && n == 0 {
		return ErrLost
	}
	return err
}

// CheckListed returns ErrUnsafeServer, with use as what to use, if this server
// does not compare by lists: it tries each outcome on scratch, a key that nobody
// has, looks at what it leaves, and removes it.
func CheckListed(c redis.Conn, scratch, use string) error {
	wrong, err := tryListed(c, Lease{Key: scratch, Value: "held"})
	if err != nil || wrong != "" {
		c.Do("DEL", scratch) //nolint:errcheck // the reason is told
	}
	switch e, refused := err.(redis.Error); {
	case UnknownCommand(err), refused && strings.Contains(string(e), "denied"):
		return Refuse(c, "it does not run every command that a release by lists is made of ("+string(e)+")", use)
	case wrong != "":
		return Refuse(c, "lists don't compare there: "+wrong, use)
	}
	return err
}

// tryListed tries what there is on l's key, and says what went wrong.
func tryListed(c redis.Conn, l Lease) (wrong string, err error) {
	release := func() error { return ReleaseListed(c, l) }
	replace := func() error { _, err := ReplaceListed(c, l, "next"); return err }
	for _, try := range []struct {
		holds string
		does  func() error
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
		set := Cmd{"SET", l.Key, try.holds}
		if try.holds == "" {
			set = Cmd{"DEL", l.Key}
		}
		if _, err := c.Do(set[0].(string), set[1:]...); err != nil {
			return "", err
		}
		if err := try.does(); !errors.Is(err, try.want) {
			if _, known := Settled(err); known || err == nil {
				return try.wrong, nil
			}
			return "", err
		}
		left, err := redis.String(c.Do("GET", l.Key))
		if err != nil && err != redis.ErrNil {
			return "", err
		}
		if left != try.left {
			return try.wrong, nil
		}
		if _, err := c.Do("DEL", l.Key); err != nil {
			return "", err
		}
	}
	return "", nil
}
