package session

import (
	"fmt"

	"github.com/gomodule/redigo/redis"
)

// kinds says what a server answers to the commands of locks. A command that it lacks may be answered with anything.
var kinds = map[string]func(reply any) bool{
	"SETNX": yesOrNo, "RENAMENX": yesOrNo, "MSETNX": yesOrNo, "EXPIRE": yesOrNo, "PEXPIRE": yesOrNo, "EXPIREAT": yesOrNo, "PERSIST": yesOrNo,
	"DEL": number, "DELIFEQ": number, "DELEX": number, "INCR": number, "INCRBY": number, "TTL": number, "PTTL": number, "EXISTS": number,
	"ZADD": number, "ZREM": number, "ZCARD": number, "ZREMRANGEBYSCORE": number, "ZUNIONSTORE": number, "LREM": number, "WAIT": number,
	"WATCH": done, "UNWATCH": done, "MULTI": done, "SETEX": done, "PSETEX": done, "MSET": done, "RENAME": done,
	"SET": func(reply any) bool { return done(reply) || value(reply) },
	"GET": value, "GETSET": value,
	"EXEC": func(reply any) bool { return reply == nil || list(reply) }, "MGET": list,
}

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

// Fits returns an error for a reply that no server gives to the command. It may belong to another command: the
// connection is out of step.
func Fits(name string, reply any) error {
	if _, refused := reply.(redis.Error); refused {
		return nil
	}
	if fits := kinds[name]; fits != nil && !fits(reply) {
		return fmt.Errorf("setnxlock: %s is answered %.40q, which is no answer to it", name, fmt.Sprint(reply))
	}
	return nil
}

// fit judges a reply, and in that to EXEC those to the commands that were queued.
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
