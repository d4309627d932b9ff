// Package listcas is compare-and-set by list commands, Redis 2.0 and later where the engine's check has found
// nothing against it: one transaction compares the value of a string key, and deletes or
// replaces it, in one round trip, with neither WATCH nor scripts. It says what to send and what
// the replies prove; it sends nothing by itself, and guarantees that whichever of the commands
// a server refuses, another's value stays on the key.
//
// SORT is the one old command that reads a key whose name stands in another, LREM the one that
// compares, and RENAME of what is not there does nothing. s, a, t and u are names of our own,
// which exist within the EXEC alone.
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
// Limits: before 2.4.11 SORT sees no keys of more than Longest bytes; in
// cluster mode it has no GET; before 2.2 LREM, like every write there, deletes a
// key that has a TTL; 2.0 takes a number and the same number with a zero byte and
// more behind it for equal; a foreign list on the key loses the elements that are held. On
// 1.2 an emptied list stays, so s is never gone, and nothing is ever deleted.
package listcas

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// Where the replies that tell stand, and how many arguments there are at most to replace.
const (
	rename = 7
	empty  = 8
	next   = 9

	commands  = 13 // to replace; one fewer to release
	arguments = 60
)

// Longest is the longest key, in bytes, that can be read on every server.
const Longest = 1024

// Check returns why a key or a value can't be compared; nil: it can.
func Check(key, value string) error {
	switch {
	case value == "": // what SORT makes of a key that is not there
		return errors.New("an empty value can't be compared by lists")
	case value == key: // the first SORT, refused, would leave it on s
		return errors.New("a value that is its own key can't be compared by lists")
	case len(key) > Longest:
		return fmt.Errorf("a key of %d bytes, and by lists %d can be read", len(key), Longest)
	}
	return nil
}

// Commands is the transaction that removes key if it holds held, or puts to on it if that is
// not "". MSETNX is sent only then, and before DEL what is to run in any case. aux names a key
// beside key.
func Commands(aux func(key, name string) string, key, held, to string, more [][]any) [][]any {
	// Nobody else's, and no other transaction's: should a DEL be refused, the next
	// one must not build on what it left (TestListCASLeftovers).
	own, suffix := held, "satu"
	if to != "" {
		own, suffix = to, "wbxv"
	}
	if len(own) > 12 {
		own = own[len(own)-12:] // a token's last digits, a timestamp's nonce
	}
	own = aux(key, own) + suffix
	var k, v any = key, held // boxed once: each of these stands in several commands
	var s, a, t, u any = own[:len(own)-3], own[:len(own)-2], own[:len(own)-1], own

	room := make([]any, 0, arguments)
	cmds := make([][]any, 0, commands+len(more))
	add := func(args ...any) {
		from := len(room)
		room = append(room, args...)
		cmds = append(cmds, room[from:])
	}
	add("MULTI")
	add("RPUSH", s, k)
	add("SORT", s, "BY", "nosort", "GET", "*", "STORE", s)
	add("SORT", s, "BY", "nosort", "GET", "#", "GET", "#", "STORE", a)
	add("LREM", s, 0, v)
	add("RENAMENX", a, s)
	add("SORT", s, "BY", "nosort", "LIMIT", 1, 1, "STORE", t)
	add("RPOPLPUSH", t, u)
	add("RENAME", u, k)
	add("LREM", k, 0, v)
	if to != "" {
		add("MSETNX", k, to, a, "")
	}
	cmds = append(cmds, more...)
	add("DEL", s, a, t, u)
	add("EXEC")
	return cmds
}

// Read says by the replies to the commands between MULTI and EXEC whether the key held the
// value, and is gone. list: it is a list that holds the value, and nobody else would end it.
func Read(replies []any) (held, list bool, err error) {
	if replies[rename] != "OK" {
		for _, r := range replies[:rename] {
			if refused, ok := r.(redis.Error); ok {
				return false, false, refused
			}
		}
		if refused, ok := replies[rename].(redis.Error); ok && !strings.Contains(string(refused), "no such key") {
			return false, false, refused
		}
		return false, false, nil
	}
	n, _ := replies[empty].(int64)
	return n > 0, n <= 0, nil
}

// Refusal is why a key that is gone was not replaced: what the server refused of the removal and what
// follows it.
func Refusal(replies []any) error {
	for _, r := range replies[empty : next+1] {
		if refused, ok := r.(redis.Error); ok {
			return refused
		}
	}
	return fmt.Errorf("MSETNX answers %v", replies[next])
}

// Set is MSETNX's reply, and Rest those from there up to the last DEL.
func Set(replies []any) any    { return replies[next] }
func Rest(replies []any) []any { return replies[next : len(replies)-1] }
