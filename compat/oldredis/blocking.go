package oldredis

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A waiter is a client that blocks until one of its lists has an element.
type waiter struct {
	session *session
	db      *space
	keys    []string
	pop     string // LPOP or RPOP
	to      string // BRPOPLPUSH: where the element goes
	moves   bool
	timer   *timer
}

// popping handles BLPOP and BRPOP, by the command that does the same without waiting.
func popping(pop string) handler {
	return func(s *Server, c *session, args []string) any {
		w := &waiter{session: c, db: s.spaces[c.db], keys: args[1 : len(args)-1], pop: pop}
		return s.block(w, args[len(args)-1])
	}
}

func brpoplpush(s *Server, c *session, args []string) any {
	w := &waiter{session: c, db: s.spaces[c.db], keys: args[1:2], pop: "RPOP", to: args[2], moves: true}
	return s.block(w, args[3])
}

// block serves the client at once or makes it wait. Inside EXEC it never waits.
func (s *Server) block(w *waiter, arg string) any {
	limit, answer := s.blockTimeout(arg)
	if answer != nil {
		return answer
	}
	if reply, served := s.try(w); served {
		return reply
	}
	if s.blocking > 0 {
		return w.nothing()
	}
	w.session.waiting = w
	s.waiters = append(s.waiters, w)
	if limit > 0 {
		w.timer = s.after(limit, func() {
			c := w.session
			s.stopWaiting(c)
			s.push(c, w.nothing())
			s.resume(c)
		})
	}
	return noReply{}
}

func (w *waiter) nothing() any {
	if w.moves {
		return nil
	}
	return nilArray{}
}

// blockTimeout parses a blocking command's timeout: in seconds, 0 means none, with a fraction since
// 6.0.
func (s *Server) blockTimeout(arg string) (time.Duration, any) {
	seconds, err := strconv.ParseFloat(arg, 64)
	if _, whole := s.number(arg); err != nil || s.has(plainSet) && !whole || math.IsNaN(seconds) {
		return 0, redis.Error("ERR timeout is not an integer or out of range")
	}
	if seconds < 0 {
		return 0, redis.Error("ERR timeout is negative")
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// try serves a client if one of its lists has an element.
func (s *Server) try(w *waiter) (reply any, served bool) {
	for _, key := range w.keys {
		if !s.lookupRead(w.db, key) || w.db.empty[key] != "" {
			continue
		}
		cmd := s.commands[strings.ToLower(w.pop)]
		args := []string{w.pop, key}
		if w.moves {
			cmd, args = s.commands["rpoplpush"], []string{"RPOPLPUSH", key, w.to}
		}
		reply := s.forward(w.session, cmd, args)
		if _, wrong := reply.(redis.Error); wrong || w.moves {
			return reply, true
		}
		return []any{bulk(key), reply}, true
	}
	return nil, false
}

// serve gives pushed elements to the blocked clients, longest wait first.
func (s *Server) serve() {
	for again := true; again; {
		again = false
		for _, w := range slices.Clone(s.waiters) {
			if !s.ready(w) {
				continue
			}
			reply, served := s.try(w)
			if !served {
				continue
			}
			s.stopWaiting(w.session)
			s.push(w.session, reply)
			s.resume(w.session)
			again = true
			break // the resumed client may have changed s.waiters
		}
	}
}

// ready reports whether one of the waiter's keys holds a list.
func (s *Server) ready(w *waiter) bool {
	return slices.ContainsFunc(w.keys, func(key string) bool {
		return w.db.data.Type(key) == "list" && !s.dead(w.db, key)
	})
}

func (s *Server) stopWaiting(c *session) {
	if c.waiting == nil {
		return
	}
	if c.waiting.timer != nil {
		s.stop(c.waiting.timer)
	}
	s.waiters = slices.DeleteFunc(s.waiters, func(w *waiter) bool { return w == c.waiting })
	c.waiting = nil
}

// resume runs the client's commands from while it was blocked.
func (s *Server) resume(c *session) {
	for len(c.backlog) > 0 && c.waiting == nil {
		args := c.backlog[0]
		c.backlog = c.backlog[1:]
		s.receive(c, args)
	}
}
