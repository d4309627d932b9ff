package race

import (
	"strings"

	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// The one embedded server stands for several where a lock is spread over them:
// each has the keys that begin with its name, "S2:lock.report". What the lock
// sends must be complete in itself, one command or one script: the engines keep
// one connection for each client.

// down is a set of the servers that are gone, by their numbers.
func down(entries []oldredis.Entry) (set uint8) {
	for _, e := range entries {
		if strings.HasSuffix(e.Key, downKey) {
			set |= 1 << serverOf(e.Key)
		}
	}
	return set
}

// takeDown makes a server one that answers no more.
func takeDown(s *oldredis.Server, n int) {
	c := s.Dial()
	defer c.Close()
	c.Do("SET", nth(n)+downKey, "gone") //nolint:errcheck // a server in memory
}

// forget removes what one of several servers holds. Its connections are none of
// those that a client keeps, and go on.
func forget(s *oldredis.Server, n int) {
	for _, e := range s.Snapshot().Entries(s) {
		if strings.HasPrefix(e.Key, nth(n)+":") {
			s.Evict(e.Key)
		}
	}
}

// busy reports whether anything is there but fences and what stands for a
// server that is down.
func busy(c *setup, entries []oldredis.Entry) bool {
	for _, e := range entries {
		if e.Key != fenceKey(c.Key) && !strings.HasSuffix(e.Key, downKey) {
			return true
		}
	}
	return false
}
