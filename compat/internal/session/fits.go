package session

import (
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
)

func yesOrNo(reply any) bool { return reply == int64(0) || reply == int64(1) }

func number(reply any) bool { _, ok := reply.(int64); return ok }

func done(reply any) bool { return text(reply) == "OK" }

func value(reply any) bool { return reply == nil || text(reply) != nil }

func list(reply any) bool { _, ok := reply.([]any); return ok }

// text returns a string in a reply, or nil.
func text(reply any) any {
	switch r := reply.(type) {
	case []byte:
		return string(r)
	case string:
		return r
	}
	return nil
}

// fits reports whether a server can give the reply to a command of the locks. Any reply fits other commands.
func fits(name string, reply any) bool {
	switch name {
	case "SETNX", "RENAMENX", "MSETNX", "EXPIRE", "PEXPIRE", "EXPIREAT", "PERSIST", "DELIFEQ", "DELEX":
		return yesOrNo(reply)
	case "DEL", "INCR", "INCRBY", "TTL", "PTTL", "EXISTS", "ZADD", "ZREM", "ZCARD", "ZREMRANGEBYSCORE",
		"ZUNIONSTORE", "LREM", "WAIT":
		return number(reply)
	case "WATCH", "UNWATCH", "MULTI", "SETEX", "PSETEX", "MSET", "RENAME":
		return done(reply)
	case "SET":
		return done(reply) || value(reply)
	case "GET", "GETSET":
		return value(reply)
	case "EXEC":
		return reply == nil || list(reply)
	case "MGET":
		return list(reply)
	}
	return true
}

// Fits returns an error if no server gives the reply to the command. The reply may belong to another command: the
// connection is out of step.
func Fits(name string, reply any) error {
	if _, refused := reply.(redis.Error); refused || fits(name, reply) {
		return nil
	}
	return Unfit(name, reply)
}

// Unfit returns the error of a reply that no server gives to the command.
func Unfit(name string, reply any) error {
	return fmt.Errorf("setnxlock: %s is answered %.40q, which is no answer to it", name, fmt.Sprint(reply))
}

// Strange returns an error if no server gives the replies to the commands, sent together.
func Strange(names []string, replies []any) error {
	var s Session
	for i, name := range names {
		if _, refused := replies[i].(redis.Error); !refused {
			s.fit(strings.ToUpper(name), replies[i])
		}
	}
	return s.Strange
}

// fit judges a reply. The reply to EXEC holds the replies to the queued commands.
func (s *Session) fit(name string, reply any) {
	queues := s.queues && name != "EXEC" && name != "DISCARD"
	switch all, ran := reply.([]any); {
	case s.Strange != nil:
	case queues && text(reply) == "QUEUED":
		s.queued = append(s.queued, name)
	default: // in MULTI, too: there are servers that run each command at once
		s.Strange = Fits(name, reply)
		for i := 0; ran && name == "EXEC" && len(all) == len(s.queued) && i < len(all) && s.Strange == nil; i++ {
			s.Strange = Fits(s.queued[i], all[i])
		}
	}
	if s.queues = queues || name == "MULTI"; !s.queues {
		s.queued = s.queued[:0]
	}
}
