package oldredis

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"
)

// number parses an argument or a value as this version does.
func (s *Server) number(text string) (n int64, ok bool) {
	style := s.quirks.numbers
	switch style {
	case numbersLoose:
		return leadingNumber(text), true
	case numbersStrict:
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil && strconv.FormatInt(n, 10) == text
	}
	text, _, _ = strings.Cut(text, "\x00")
	if style == numbersSpaced {
		text = strings.TrimLeft(text, spaces)
	}
	if text == "" {
		return 0, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// spaces are C's white space.
const spaces = " \t\n\v\f\r"

// leadingNumber parses a number as C's strtol does.
func leadingNumber(s string) int64 {
	s = strings.TrimLeft(s, spaces)
	end := 0
	for end < len(s) && (s[end] >= '0' && s[end] <= '9' || end == 0 && (s[0] == '-' || s[0] == '+')) {
		end++
	}
	n, _ := strconv.ParseInt(s[:end], 10, 64) // the nearest, if out of range
	return n
}

func get(s *Server, c *session, args []string) any {
	db := s.spaces[c.db]
	s.reap(db, args[1])
	return s.stringOrNil(db, args[1])
}

// stringOrNil returns the string under key as a reply.
func (s *Server) stringOrNil(db *space, key string) any {
	v, err := s.getString(db, key)
	switch {
	case err == nil:
		return bulk(v)
	case errors.Is(err, miniredis.ErrKeyNotFound):
		return nil
	}
	return redis.Error(s.quirks.texts.wrongType)
}

// store sets key to a string without TTL.
func (s *Server) store(db *space, key, value string) {
	s.putString(db, key, value)
	delete(db.deadlines, key)
	s.touch(db, key)
}

func setnx(s *Server, c *session, args []string) any {
	db, key := s.spaces[c.db], args[1]
	held := s.has(setnxSeesUnreaped) && s.exists(db, key) || s.lookupWrite(db, key)
	if held {
		return int64(0)
	}
	s.store(db, key, args[2])
	return int64(1)
}

func getset(s *Server, c *session, args []string) any {
	db, key := s.spaces[c.db], args[1]
	s.reap(db, key)
	old := s.stringOrNil(db, key)
	if _, refused := old.(redis.Error); refused {
		return old
	}
	s.store(db, key, args[2])
	return old
}

func (s *Server) setExpiring(c *session, args []string, unit timeUnit) any {
	when, answer := s.ttlArgument(args[0], args[2], unit)
	if answer != nil {
		return answer
	}
	db, key := s.spaces[c.db], args[1]
	s.reap(db, key)
	s.store(db, key, args[3])
	db.deadlines[key] = when
	return replyOK
}

// ttlArgument parses the TTL of a SET of any kind.
func (s *Server) ttlArgument(name, arg string, unit timeUnit) (when int64, answer any) {
	n, ok := s.number(arg)
	if !ok {
		return 0, redis.Error(s.quirks.texts.notInt)
	}
	when, ok = s.deadline(n, unit)
	if n <= 0 || !ok {
		text := s.quirks.texts.badTTL
		if strings.Contains(text, "%s") {
			text = fmt.Sprintf(text, strings.ToLower(name))
		}
		return 0, redis.Error(text)
	}
	return when, nil
}

// setFlags are the options of SET.
type setFlags struct {
	nx, xx, get, keepTTL bool
	compare              *comparison // nil: none
	ttl                  string
	unit                 timeUnit
}

var errSyntax = redis.Error("ERR syntax error")

func set(s *Server, c *session, args []string) any {
	f, answer := s.setOptions(args)
	if answer != nil {
		return answer
	}
	var when int64
	if f.unit.ms != 0 {
		if when, answer = s.ttlArgument(args[0], f.ttl, f.unit); answer != nil {
			return answer
		}
	}
	db, key := s.spaces[c.db], args[1]
	s.reap(db, key)
	reply := replyOK
	if f.get {
		if reply = s.stringOrNil(db, key); reply != nil {
			if _, refused := reply.(redis.Error); refused {
				return reply
			}
		}
	}
	there := s.exists(db, key)
	fails := f.nx && there || f.xx && !there
	if !fails {
		var wrong any
		if fails, wrong = s.unequal(db, key, f.compare); wrong != nil {
			return wrong
		}
	}
	if fails {
		if f.get {
			return reply
		}
		return nil
	}
	kept, volatile := db.deadlines[key]
	s.store(db, key, args[2])
	switch {
	case f.unit.ms != 0:
		db.deadlines[key] = when
	case f.keepTTL && volatile:
		db.deadlines[key] = kept
	}
	return reply
}

// setOptions parses this version's options of SET.
func (s *Server) setOptions(args []string) (f setFlags, answer any) {
	units := map[string]timeUnit{"EX": inSeconds, "PX": inMillis}
	if !s.has(plainSet) {
		units["EXAT"], units["PXAT"] = atSecond, atMilli
	}
	strict, alone := !s.has(bothExpiries), func() bool { return f.compare == nil || s.has(setComparesMore) }
	for i := 3; i < len(args); i++ {
		name := strings.ToUpper(args[i])
		unit, timed := units[name]
		switch {
		case name == "NX" && !(strict && f.xx) && alone():
			f.nx = true
		case name == "XX" && !(strict && f.nx) && alone():
			f.xx = true
		case s.setCompares(&f, args, i):
			i++
		case name == "GET" && !s.has(plainSet):
			f.get = true
		case name == "KEEPTTL" && !s.has(plainSet) && f.unit.ms == 0:
			f.keepTTL = true
		case timed && i+1 < len(args) && !f.keepTTL && !(strict && f.ttl != "" && f.unit != unit):
			i++
			f.unit, f.ttl = unit, args[i]
		default:
			return f, errSyntax
		}
	}
	return f, nil
}

func mget(s *Server, c *session, args []string) any {
	db := s.spaces[c.db]
	list := make([]any, len(args)-1)
	for i, key := range args[1:] {
		s.reap(db, key)
		if v, err := s.getString(db, key); err == nil {
			list[i] = bulk(v)
		}
	}
	return list
}

func mset(s *Server, c *session, args []string) any {
	if len(args)%2 == 0 {
		return errPairs
	}
	s.storePairs(s.spaces[c.db], args)
	return replyOK
}

func msetnx(s *Server, c *session, args []string) any {
	if len(args)%2 == 0 {
		return errPairs
	}
	db, busy := s.spaces[c.db], false
	for i := 1; i < len(args); i += 2 {
		busy = s.lookupWrite(db, args[i]) || busy
	}
	if busy {
		return int64(0)
	}
	s.storePairs(db, args)
	return int64(1)
}

const errPairs = redis.Error("ERR wrong number of arguments for MSET")

func (s *Server) storePairs(db *space, args []string) {
	for i := 1; i < len(args); i += 2 {
		s.reap(db, args[i])
		s.store(db, args[i], args[i+1])
	}
}

// adding handles INCR and INCRBY, with -1 DECR and DECRBY.
func adding(sign int64) handler {
	return func(s *Server, c *session, args []string) any {
		n, ok := int64(1), true
		if len(args) > 2 {
			n, ok = s.number(args[2])
		}
		if !ok {
			return redis.Error(s.quirks.texts.notInt)
		}
		return s.add(c, args[1], sign*n)
	}
}

// add adds to the number under key, and keeps its TTL.
func (s *Server) add(c *session, key string, delta int64) any {
	db := s.spaces[c.db]
	var n int64
	if s.lookupWrite(db, key) {
		v, err := s.getString(db, key)
		if err != nil && !s.has(incrReplaces) {
			return redis.Error(s.quirks.texts.wrongType)
		}
		if err == nil {
			var ok bool
			if n, ok = s.number(v); !ok {
				return redis.Error(s.quirks.texts.notInt)
			}
		}
	}
	if delta > 0 && n > math.MaxInt64-delta || delta < 0 && n < math.MinInt64-delta {
		return redis.Error("ERR increment or decrement would overflow")
	}
	n += delta
	s.putString(db, key, strconv.FormatInt(n, 10))
	s.touch(db, key)
	return n
}

func appendTo(s *Server, c *session, args []string) any {
	db, key := s.spaces[c.db], args[1]
	var v string
	if s.lookupWrite(db, key) {
		var err error
		if v, err = s.getString(db, key); err != nil {
			return redis.Error(s.quirks.texts.wrongType)
		}
	}
	v += args[2]
	s.putString(db, key, v)
	s.touch(db, key)
	return int64(len(v))
}

// substr runs GETRANGE under its older name.
func substr(s *Server, c *session, args []string) any {
	reply := s.forward(c, &command{name: "getrange", keys: keySpec{first: 1, last: 1, step: 1}},
		[]string{"GETRANGE", args[1], args[2], args[3]})
	if b, ok := reply.([]byte); ok && len(b) == 0 && s.has(substrNil) {
		return nil
	}
	return reply
}
