package verdict

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// A Content is the result of one look at a key.
type Content struct {
	Key   string
	Type  string        // as TYPE says it: "none", "string", "hash", …
	Value string        // of a string
	TTL   time.Duration // or protocol.NoTTL
	Lock  Lock
	Other *protocol.State // of a lock that is more than this key, as that lock sees it
	Times bool            // the server's own lock is one of times: it has neither WATCH nor scripts

	length int              // of a value of which only the beginning is here; 0: all of it is
	theirs *dialect.Finding // what a small hash or sorted set is
}

// A Server is how much of a server is used to look at keys. The zero value is for any.
type Server struct {
	Millis bool // it counts TTLs in milliseconds (2.6)
	Part   bool // read the first bytes of a value only (GETRANGE: 2.4)
	Beside bool // look beside a missing key for readers

	times *bool
}

// most is how much of a value is read under Server.Part, and judged: more than any lock's.
const most = 1024

// beginning shortens a value to its beginning, with its length in words.
func beginning(value string, length int) string {
	return strings.ToValidUTF8(value[:min(len(value), 64)], "\uFFFD") + fmt.Sprintf("… (%d bytes)", length)
}

// Read looks at keys: one round trip, and a few more for those without a string.
func (s *Server) Read(c *protocol.Conn, now time.Time, keys ...string) ([]Content, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var cmds []protocol.Cmd
	for _, k := range keys {
		get, ttl := protocol.Cmd{"GET", k}, protocol.Cmd{"TTL", k}
		if s.Part {
			get = protocol.Cmd{"GETRANGE", k, 0, most}
		}
		if s.Millis {
			ttl[0] = "PTTL"
		}
		cmds = append(cmds, get, ttl)
	}
	replies, err := c.Pipe(cmds...)
	if err != nil {
		return nil, err
	}
	all := make([]Content, len(keys))
	var others []int
	for i, k := range keys {
		all[i] = Content{Key: k, Type: "string", TTL: protocol.NoTTL}
		if other, err := s.readString(c, &all[i], replies[2*i], replies[2*i+1]); err != nil {
			return nil, err
		} else if other {
			others = append(others, i)
		}
	}
	if err := s.types(c, now, all, others); err != nil {
		return nil, err
	}
	for i := range all {
		if err := s.shorten(c, &all[i]); err != nil {
			return nil, c.Denied(all[i].Key, err)
		}
	}
	for i := range all {
		if err := s.readBeside(c, now, &all[i]); err != nil {
			return nil, c.Denied(all[i].Key, err)
		}
	}
	return all, nil
}

// readString reads the answers to GET and TTL; other: the key holds no string.
func (s *Server) readString(c *protocol.Conn, one *Content, value, ttl any) (other bool, err error) {
	one.Value, err = redis.String(value, nil)
	switch {
	case errors.Is(err, redis.ErrNil), protocol.Expired(ttl):
		one.Type = "none"
		return false, nil
	case s.Part && one.Value == "" && err == nil && ttl == int64(-1): // before 2.8 that may be none
		if n, err := redis.Int(c.Do("EXISTS", one.Key)); err != nil || n == 0 {
			one.Type = "none"
			return false, c.Denied(one.Key, err)
		}
	case err != nil && errors.Is(protocol.Foreign(one.Key, err), protocol.ErrForeign):
		other = true
	case err != nil:
		return false, c.Denied(one.Key, err)
	}
	unit := time.Second
	if s.Millis {
		unit = time.Millisecond
	}
	one.TTL, err = protocol.ReadTTL(ttl, unit)
	return other, c.Denied(one.Key, err)
}

// shorten cuts a value longer than a lock's, and asks for its length if it was not read.
func (s *Server) shorten(c *protocol.Conn, one *Content) (err error) {
	if len(one.Value) <= most {
		return nil
	}
	if one.length = len(one.Value); s.Part {
		if one.length, err = redis.Int(c.Do("STRLEN", one.Key)); err != nil {
			return err
		}
	}
	one.Value = one.Value[:most]
	return nil
}

// types asks for the types of the keys without a string, and for the contents of small hashes and sorted
// sets.
func (s *Server) types(c *protocol.Conn, now time.Time, all []Content, others []int) error {
	if len(others) == 0 {
		return nil
	}
	var cmds []protocol.Cmd
	for _, i := range others {
		cmds = append(cmds, protocol.Cmd{"TYPE", all[i].Key})
	}
	replies, err := c.Pipe(cmds...)
	if err != nil {
		return err
	}
	cmds = nil
	var sizes []int
	for n, i := range others {
		if all[i].Type, err = redis.String(replies[n], nil); err != nil {
			return c.Denied(all[i].Key, err)
		}
		switch all[i].Type {
		case "hash":
			cmds, sizes = append(cmds, protocol.Cmd{"HLEN", all[i].Key}), append(sizes, i)
		case "zset":
			cmds, sizes = append(cmds, protocol.Cmd{"ZRANGE", all[i].Key, 0, 0}), append(sizes, i)
		}
	}
	if len(sizes) == 0 {
		return nil
	}
	if replies, err = c.Pipe(cmds...); err != nil {
		return err
	}
	for n, i := range sizes {
		recogniseOther(c, now, &all[i], replies[n])
	}
	return nil
}

// recogniseOther recognises another client's lock in a small hash, or in a sorted set by its first member. A key that
// is gone meanwhile, or refused, is none.
func recogniseOther(c *protocol.Conn, now time.Time, one *Content, size any) {
	var found []dialect.Finding
	if one.Type == "hash" {
		if length, err := redis.Int(size, nil); err != nil || length > 64 {
			return
		}
		fields, err := redis.StringMap(c.Do("HGETALL", one.Key))
		if err != nil {
			return
		}
		found = dialect.RecogniseHash(one.Key, fields, one.TTL, now)
	} else {
		if first, err := redis.Strings(size, nil); err != nil || len(first) == 0 || !dialect.SetMember(one.Key, first[0]) {
			return
		}
		scores, err := redis.Strings(c.Do("ZRANGE", one.Key, 0, 64, "WITHSCORES"))
		if err != nil || len(scores)%2 != 0 {
			return
		}
		members := map[string]float64{}
		for i := 0; i < len(scores); i += 2 {
			if members[scores[i]], err = strconv.ParseFloat(scores[i+1], 64); err != nil {
				return
			}
		}
		found = dialect.RecogniseSet(one.Key, members, one.TTL, now)
	}
	if len(found) > 0 {
		one.theirs, one.Lock = &found[0], Theirs
	}
}

// readBeside reads the keys beside one of a lock of several keys.
func (s *Server) readBeside(c *protocol.Conn, now time.Time, one *Content) error {
	base, of := Beside(one.Key)
	owner, _, pair := dialect.PairOf(one.Key)
	switch {
	case one.Type == "zset" && of == "readers":
		return s.readers(c, now, one, base)
	case one.Type == "none" && s.Beside:
		_, err := c.Do("GET", protocol.Aux(one.Key, "readers")) // a user for whom ZREVRANGE is refused sees slots all the same
		if errors.Is(protocol.Foreign(one.Key, err), protocol.ErrForeign) {
			err = s.readers(c, now, one, one.Key)
		}
		if err != nil || one.Lock != Plain {
			return err
		}
		return s.slots(c, now, one, one.Key)
	case one.Type == "string" && strings.HasPrefix(one.Value, "w:"):
		return s.readers(c, now, one, one.Key)
	case one.Type == "string" && slotOf(*one) != "":
		return s.slots(c, now, one, slotOf(*one))
	case one.Type == "string" && pair && one.Key == owner && one.TTL == protocol.NoTTL:
		st, err := getsetlock.TwoKeys{}.Inspect(c, now, strings.TrimPrefix(one.Key, PairPrefix))
		switch {
		case errors.Is(err, protocol.ErrForeign): // the other key is no deadline
			return nil
		case err == nil && st.Status != protocol.StatusFree:
			one.Lock, one.Other = Pair, &st
		}
		return err
	case one.Type == "string" && passed(one.Value, now):
		one.Times = s.timed(c, one.Key)
	}
	return nil
}

// PairPrefix begins the name of the key with the owner, where the deadline is on a second.
const PairPrefix = "lock:owner:"

// readers looks at key as at a lock for readers and a writer.
func (s *Server) readers(c *protocol.Conn, now time.Time, one *Content, key string) error {
	o := rwlock.Options{Millis: s.Millis, ServerClock: s.Millis, Prefer: rwlock.ReadersFirst}
	return one.composite(c, now, key, RW, rwlock.Read{Options: o})
}

// slots looks at key as at a semaphore.
func (s *Server) slots(c *protocol.Conn, now time.Time, one *Content, key string) error {
	return one.composite(c, now, key, Slots, semaphore.Lock{Options: semaphore.Options{Millis: s.Millis}})
}

// composite reads key as a lock of several keys. A key without such a lock stays as it is.
func (one *Content) composite(c *protocol.Conn, now time.Time, key string, lock Lock, reader interface {
	Inspect(*protocol.Conn, time.Time, string) (protocol.State, error)
}) error {
	st, err := reader.Inspect(c, now, key)
	if errors.Is(err, protocol.ErrForeign) {
		return nil
	}
	if err == nil && len(st.Holders) > 0 {
		one.Key, one.Lock, one.Other = key, lock, &st
	}
	return err
}

// slotOf returns the key of the semaphore whose slot a key is, as its value says; "" for other keys.
func slotOf(one Content) string {
	n := strconv.Itoa(semaphore.Slot(one.Value))
	for at := len(one.Key) - 1; at > 0 && n != "0"; at-- {
		if isBeside(one.Key, at, n) {
			return one.Key[:at]
		}
	}
	return ""
}

// timed reports whether the server's best lock is one of times: there is neither WATCH nor EVAL.
// It is asked once.
func (s *Server) timed(c *protocol.Conn, key string) bool {
	if s.times == nil {
		_, _, err := c.Watch(key)
		c.Unwatch()
		if err != nil && c.Err() == nil {
			_, err = c.Do("EVAL", "return 1", 0)
		}
		no := err != nil && c.Err() == nil
		s.times = &no
	}
	return *s.times
}

// passed reports whether value is an expired time, in any dialect.
func passed(value string, now time.Time) bool {
	return slices.ContainsFunc(dialect.Recognise("", value, protocol.NoTTL, now), func(f dialect.Finding) bool {
		return f.Kind.Timed() && f.Until.Before(now)
	})
}

// beside lists the names of the keys that our locks keep beside a key.
var beside = []string{"fence", "readers", "waiting", "queue", "next", "mutex", "waiters", "wake", "limit"}

// Beside takes apart the name of a key beside another, by protocol.Aux: the other key, and "fence",
// "readers", …; "" for other names.
func Beside(key string) (base, name string) {
	for _, name := range beside {
		for at := 1; at < len(key); at++ {
			if isBeside(key, at, name) {
				return key[:at], name
			}
		}
	}
	return "", ""
}

// isBeside reports whether key is protocol.Aux of its first bytes, and of name. Such a key ends with the first bytes and
// three characters, or with a number of a few digits: Aux makes the others too slowly for a key of many colons.
func isBeside(key string, at int, name string) bool {
	end := len(key) - at - 1 - len(name)
	return (end < 12 || end == at+3) && strings.HasPrefix(key[at:], ":"+name) && protocol.Aux(key[:at], name) == key
}
