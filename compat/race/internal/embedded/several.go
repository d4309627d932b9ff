// Package embedded has what both engines ask of the embedded server: to run commands and to refuse one of them, to
// stand for several servers, and whether a client could still take the lock.
package embedded

import (
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// The one embedded server stands for several where a lock is spread over them:
// each has the keys that begin with its name, "S2:lock.report". What the lock
// sends must be complete in itself, one command or one script: the engines keep
// one connection for each client.

// Down returns a set of stopped servers, by their numbers.
func Down(entries []oldredis.Entry) (set uint8) {
	for _, e := range entries {
		if strings.HasSuffix(e.Key, plan.DownKey) {
			set |= 1 << plan.ServerOf(e.Key)
		}
	}
	return set
}

// TakeDown stops a server.
func TakeDown(s *oldredis.Server, n int) {
	c := s.Dial()
	defer c.Close()
	c.Do("SET", plan.Nth(n)+plan.DownKey, "gone") //nolint:errcheck // a server in memory
}

// TakesOver replaces the server by a replica with the same keys.
func TakesOver(c *plan.Setup, s *oldredis.Server) {
	if c.Successor != "" {
		s.Become(c.Successor) //nolint:errcheck // the Setup has looked at it
	}
	s.Restart(oldredis.Keeping)
}

// Forget removes the keys of one of several servers. Its connections are none of those that a client
// keeps, and go on.
func Forget(s *oldredis.Server, n int) {
	for _, e := range s.Snapshot().Entries(s) {
		if strings.HasPrefix(e.Key, plan.Nth(n)+":") {
			s.Evict(e.Key)
		}
	}
}

// SetForward sets the clock of one of several servers forward: its keys end that much earlier.
func SetForward(s *oldredis.Server, n int, by time.Duration) {
	c := s.Dial()
	defer c.Close()
	for _, e := range s.Snapshot().Entries(s) {
		switch left := e.Expires.Sub(s.Now()) - by; {
		case plan.ServerOf(e.Key) != n || e.Expires.IsZero():
		case left <= 0:
			s.Evict(e.Key)
		default:
			c.Do("PEXPIRE", e.Key, left.Milliseconds()) //nolint:errcheck // a server in memory
		}
	}
}

// Busy reports whether a key exists beside the leftovers of a free lock and the marks of stopped
// servers.
func Busy(c *plan.Setup, entries []oldredis.Entry) bool {
	for _, e := range entries {
		if !plan.Remains(c.Key, e.Key) && !strings.HasSuffix(e.Key, plan.DownKey) {
			return true
		}
	}
	return false
}
