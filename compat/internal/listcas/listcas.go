// Package listcas compares and sets a string key by list commands: Redis 2.0 and later, where the engine's check has
// found nothing against it. One transaction compares the value of the key, and deletes or replaces it, in one round
// trip, without WATCH or scripts. The package makes the commands and reads their replies; it sends nothing. It
// guarantees that another client's value stays on the key, whichever commands the server refuses.
//
// Three old commands make it work. SORT alone reads a key named by an element of another. LREM alone compares.
// RENAME of a missing key does nothing. s, a, t and u are our own keys, and exist only within the EXEC.
//
//	RPUSH s key
//	SORT s BY nosort GET * STORE s            s = [value], or [""] if key holds no string
//	SORT s BY nosort GET # GET # STORE a      a = [value value]
//	LREM s 0 held                             s is gone if, and only if, value is held
//	RENAMENX a s                              s = [value value] if it was gone
//	SORT s BY nosort LIMIT 1 1 STORE t        t = [value] if s has a second, else [] or nothing
//	RPOPLPUSH t u                             u = [value] if t has one
//	RENAME u key                              no such key u: key stays as it is
//	LREM key 0 held                           empties that list, and so deletes it; an error on a string
//	MSETNX key next a ""                      to replace: 1 if key is gone and a was renamed
//	DEL s a t u
//
// Before 2.6.5 a server over its maxmemory may refuse some of these commands, and run the rest
// (tx/half-queued). A missing key may be the result of a refusal, and so proves nothing. Instead every command
// makes the key that the next command needs, and a RENAME without its source does nothing. Another client's
// value stays on the key whichever commands are left out: TestListCASSubsets tries all 2048 subsets.
//
// Shorter sequences are not safe:
//
//   - LREM s, then RENAMENX key s: without the RPUSH, any value on the key is removed.
//   - LTRIM or LPOP in place of the third SORT: without it, a list is renamed over another client's value.
//   - RENAME of t itself: before 2.4 SORT stores empty lists.
//   - SETNX in place of MSETNX: it makes a key that was missing.
//
// LINSERT could replace the second SORT and RENAMENX, but came with 2.2.
//
// Limits:
//
//   - Before 2.4.11 SORT sees no keys of more than longest bytes. In cluster mode SORT has no GET.
//   - Before 2.2 LREM, like every write there, deletes a key with a TTL.
//   - Redis 2.0 takes a number, and the same number followed by a zero byte and more, for equal.
//   - A foreign list on the key loses the elements equal to the compared value.
//   - On 1.2 an emptied list stays: s is never gone, and no key is ever deleted.
package listcas

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// Read, Refusal and Set judge the replies at these places.
const (
	rename = 7
	empty  = 8
	next   = 9

	commands  = 13 // of a replacement; a release has one fewer
	arguments = 60 // of a replacement
)

// longest limits a key's length in bytes: every server can read such a key.
const longest = 1024

// Check returns an error if lists can't compare the key or the value.
func Check(key, value string) error {
	switch {
	case value == "": // SORT stores "" for a missing key
		return errors.New("an empty value can't be compared by lists")
	case value == key: // the first SORT, refused, would leave it on s
		return errors.New("a value that is its own key can't be compared by lists")
	case len(key) > longest:
		return fmt.Errorf("a key of %d bytes, and by lists %d can be read", len(key), longest)
	}
	return nil
}

// Commands returns the transaction that changes key if it holds held. The transaction replaces the value by to,
// or removes key if to is "". It runs more, before DEL, whatever key holds. aux names a key beside key.
func Commands(aux func(key, name string) string, key, held, to string, more [][]any) [][]any {
	// The names belong to this transaction alone: if its DEL is refused, no later transaction must find its keys
	// (TestListCASLeftovers).
	own, suffix := held, "satu"
	if to != "" {
		own, suffix = to, "wbxv"
	}
	if len(own) > 12 {
		own = own[len(own)-12:] // a token's last digits, a timestamp's nonce
	}
	own = aux(key, own) + suffix
	var k, v any = key, held // one conversion to any: several commands have each of these
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

// Read judges the replies to the commands between MULTI and EXEC. held: the key held the value, and is gone.
// list: the key is now a list with the value; the caller must remove it, for no other client will.
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

// Refusal returns the reason why a removed key was not replaced: the server's refusal of the removal or of MSETNX.
func Refusal(replies []any) error {
	for _, r := range replies[empty : next+1] {
		if refused, ok := r.(redis.Error); ok {
			return refused
		}
	}
	return fmt.Errorf("MSETNX answers %v", replies[next])
}

// Set returns the reply to MSETNX.
func Set(replies []any) any { return replies[next] }

// Rest returns the replies from MSETNX up to the last DEL, without the DEL's own.
func Rest(replies []any) []any { return replies[next : len(replies)-1] }
