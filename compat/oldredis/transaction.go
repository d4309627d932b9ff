package oldredis

import (
	"fmt"
	"slices"

	"github.com/gomodule/redigo/redis"
)

// A watch is one session's interest in one key.
type watch struct {
	session *session
	db      *space
	key     string
	// expired is set if the key was unreaped when WATCH saw it: its reaping then does not count as
	// a change (since 6.0.9).
	expired bool
}

// A queued is a command queued for EXEC.
type queued struct {
	cmd  *command
	args []string
}

func multi(s *Server, c *session, _ []string) any {
	if c.multi && !s.has(multiNests) {
		return s.refuseNested(c, "multi", "ERR MULTI calls can not be nested")
	}
	c.multi = true
	return replyOK
}

// refuseNested answers a command that may not stand inside MULTI.
func (s *Server) refuseNested(c *session, name, text string) any {
	if s.has(multiRefuses) {
		c.aborted, text = true, fmt.Sprintf(s.quirks.texts.nested, name)
	}
	return redis.Error(text)
}

func exec(s *Server, c *session, _ []string) any {
	if !c.multi {
		return redis.Error("ERR EXEC without MULTI")
	}
	if !s.has(expiryUnseen) {
		for _, w := range c.watches {
			c.dirty = c.dirty || !w.expired && s.dead(w.db, w.key)
		}
	}
	switch {
	case c.aborted:
		s.endMulti(c)
		return redis.Error("EXECABORT Transaction discarded because of previous errors.")
	case c.dirty:
		s.endMulti(c)
		return nilArray{}
	}
	queue := c.queue
	s.endMulti(c)
	replies := make([]any, len(queue))
	s.blocking++
	for i, q := range queue {
		replies[i] = s.call(c, q.cmd, q.args)
	}
	s.blocking--
	c.multi = false // MULTI itself may have been queued before 2.2
	return replies
}

func discard(s *Server, c *session, _ []string) any {
	if !c.multi {
		return redis.Error("ERR DISCARD without MULTI")
	}
	dirty := c.dirty
	s.endMulti(c)
	c.dirty = dirty && s.has(discardKeepsDirty)
	return replyOK
}

// endMulti leaves MULTI and drops its queue and all watches.
func (s *Server) endMulti(c *session) {
	c.multi, c.aborted, c.dirty = false, false, false
	c.queue = nil
	s.unwatch(c)
}

func watchKeys(s *Server, c *session, args []string) any {
	if c.multi {
		return s.refuseNested(c, "watch", "ERR WATCH inside MULTI is not allowed")
	}
	db := s.spaces[c.db]
	for _, key := range args[1:] {
		s.watch(c, db, key, s.dead(db, key) && !s.has(expiryUnseen))
	}
	return replyOK
}

func (s *Server) watch(c *session, db *space, key string, expired bool) {
	for _, w := range c.watches {
		if w.db == db && w.key == key {
			return // a second WATCH keeps what the first saw
		}
	}
	w := &watch{session: c, db: db, key: key, expired: expired}
	c.watches = append(c.watches, w)
	db.watchers[key] = append(db.watchers[key], w)
	s.watching++
}

func unwatchKeys(s *Server, c *session, _ []string) any {
	s.unwatch(c)
	c.dirty = false
	return replyOK
}

func (s *Server) unwatch(c *session) {
	for _, w := range c.watches {
		left := slices.DeleteFunc(w.db.watchers[w.key], func(o *watch) bool { return o == w })
		if len(left) == 0 {
			delete(w.db.watchers, w.key)
		} else {
			w.db.watchers[w.key] = left
		}
		s.watching--
	}
	c.watches = c.watches[:0]
}

// touch marks the sessions that WATCH the key: their next EXEC aborts.
func (s *Server) touch(db *space, key string) {
	if s.watching == 0 {
		return
	}
	for _, w := range db.watchers[key] {
		if w.expired && !s.exists(db, key) {
			w.expired = false // reaped: there was no key to watch, and there is none now
			continue
		}
		w.session.dirty = true
	}
}
