package protocol

import (
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/script"
	"github.com/setnxlock/setnxlock/compat/internal/session"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// Script compares in a Lua script: Redis 2.6 and later, where scripts are allowed. One round trip:
//
//	EVALSHA sha 1 key value arguments…     [nil value]: lost, and the key's value; nil: gone meanwhile
//
// Package script makes the script of the change's commands. A server that does not know the script yet, or has
// forgotten it (a restart, a failover, SCRIPT FLUSH), answers NOSCRIPT and runs nothing. It then gets the
// source.
var Script Condition = scripted{}

type scripted struct{}

// carryOut sends scripts by their hashes, and unknown ones with their sources.
func (scripted) carryOut(c *Conn, list []*task) {
	for _, name := range []string{"EVALSHA", "EVAL"} {
		w := c.wire.Compose(6 * len(list))
		for _, s := range list {
			cmds := s.cmds()
			w.Put(name, script.Append(w.Args, script.For(s.Key, cmds), name == "EVAL", s.Key, s.Value, cmds))
		}
		all, err := w.Replies()
		if err != nil {
			fail(list, err)
			return
		}
		var unknown []*task
		for i, s := range list {
			if s.scripted(all[i : i+1]); answer.NoScript(s.err) {
				unknown = append(unknown, s)
			}
		}
		if list = unknown; len(list) == 0 {
			return
		}
	}
}

// scripted judges the result of a script: the replies to its commands, one or a list.
func (s *task) scripted(returned []any) {
	s.replies, s.err = nil, nil
	switch r := returned[0].(type) {
	case nil:
		s.err = ErrLost
		return
	case redis.Error:
		s.err = Foreign(s.Key, r)
		return
	case []any:
		if len(r) == 2 && r[0] == nil {
			held, exists := r[1].([]byte)
			s.err = lostTo(s.Key, string(held), exists)
			return
		}
		returned = r
	}
	if n := s.commands(); len(returned) != n {
		s.err = wire.Short(len(returned), n, "commands of a script")
		return
	}
	cmds := s.cmds()
	script.Numbers(cmds, returned)
	for i, m := range cmds {
		if s.err = session.Fits(m[0].(string), returned[i]); s.err != nil {
			return
		}
	}
	s.replies, s.err = returned, answer.First(returned)
}
