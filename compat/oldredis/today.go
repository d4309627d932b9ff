package oldredis

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// today are the servers of today that New knows: Redis, and Valkey, which parted from it after 7.2.
var today = []string{"8.2", "8.6", "valkey-8.1", "valkey-9.1"}

// Today returns the servers of today that New knows: "8.2" and "8.6" are Redis, "valkey-8.1" and "valkey-9.1" are Valkey.
// SET IFEQ came with Redis 8.4 and Valkey 8.1, DELEX with 8.4, DELIFEQ with Valkey 9.0.
func Today() []string { return slices.Clone(today) }

// A comparison is what a key's value has to be, or must not be, for a command to change it.
type comparison struct {
	with string
	// equal is set for IFEQ, and unset for IFNE, which a missing key fulfils too.
	equal bool
}

// comparisonOf parses a condition's word.
func comparisonOf(word, value string) *comparison {
	switch strings.ToUpper(word) {
	case "IFEQ":
		return &comparison{value, true}
	case "IFNE":
		return &comparison{value, false}
	}
	return nil
}

// setCompares takes the condition args[i], before its value, into f. It reports whether this version has it there.
func (s *Server) setCompares(f *setFlags, args []string, i int) bool {
	if !s.has(setCompares) || i+1 >= len(args) || f.nx || f.xx {
		return false
	}
	c := comparisonOf(args[i], args[i+1])
	switch {
	case c == nil:
		return false
	case s.has(setComparesMore): // the last of several counts
		if f.compare != nil && f.compare.equal != c.equal {
			return false
		}
	case !c.equal || f.compare != nil:
		return false
	}
	f.compare = c
	return true
}

// unequal reports whether the key, reaped if it had expired, fails the comparison. wrong is the answer to one of
// another type.
func (s *Server) unequal(db *space, key string, c *comparison) (fails bool, wrong any) {
	if c == nil {
		return false, nil
	}
	held, isString := s.stringOrNil(db, key).([]byte)
	switch {
	case isString:
		return (string(held) == c.with) != c.equal, nil
	case s.exists(db, key):
		return true, redis.Error(s.quirks.texts.wrongType)
	}
	return c.equal, nil
}

// delifeq runs Valkey's DELIFEQ.
func delifeq(s *Server, c *session, args []string) any {
	db, key := s.spaces[c.db], args[1]
	s.reap(db, key)
	if fails, wrong := s.unequal(db, key, comparisonOf("IFEQ", args[2])); wrong != nil {
		return wrong
	} else if fails {
		return int64(0)
	}
	return del(s, c, args[:2])
}

// delex runs Redis's DELEX. Without a condition it is DEL.
func delex(s *Server, c *session, args []string) any {
	switch len(args) {
	case 2:
		return del(s, c, args)
	case 4:
	default:
		return redis.Error("ERR wrong number of arguments for 'delex' command")
	}
	db, key := s.spaces[c.db], args[1]
	s.reap(db, key)
	if !s.exists(db, key) {
		return int64(0)
	}
	compare := comparisonOf(args[2], args[3])
	fails, wrong := s.unequal(db, key, cmp.Or(compare, new(comparison)))
	switch {
	case wrong != nil:
		return redis.Error("ERR Key should be of string type if conditions are specified")
	case compare == nil:
		return redis.Error("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")
	case fails:
		return int64(0)
	}
	return del(s, c, args[:2])
}
