package protocol

import "github.com/gomodule/redigo/redis"

// Unguarded compares as the first locks did: they looked, and then acted. Any Redis, and any proxy. Two round
// trips, for one key or many:
//
//	GET key; …             another value: ErrLost
//	commands…              without a comparison; in MULTI and EXEC if the change takes a fence
//
// Between the two, the lease may end and another client take the key: the commands then extend or delete the
// other client's lock (getset/paused-release, set/compare-then-del). A GETSET at least returns the overwritten
// value. Use Unguarded where no other Condition runs.
var Unguarded Condition = unguarded{}

type unguarded struct{}

func (unguarded) carryOut(c *Conn, list []*task) {
	held, err := c.values(list)
	if err != nil {
		fail(list, err)
		return
	}
	ours := holding(list, held)
	if len(ours) == 0 {
		return
	}
	w := c.wire.Compose(4 * len(ours))
	for _, s := range ours {
		if s.TakeFence {
			w.Add("MULTI")
		}
		if s.add(c, &w); s.TakeFence {
			w.Add("EXEC")
		}
	}
	replies, err := w.Replies()
	if err != nil {
		fail(ours, err)
		return
	}
	for _, s := range ours {
		n := s.commands()
		if s.TakeFence {
			n += 2
			s.replies, s.err = c.wire.Executed(replies[:n:n])
		} else {
			s.answered(replies)
		}
		if replies = replies[n:]; s.err == nil {
			s.overwrote()
		}
	}
}

// overwrote ends s with ErrLost if its GETSET has overwritten another client's value.
func (s *task) overwrote() {
	if len(s.Do) == 0 || !named(s.Do[0], "GETSET") || len(s.replies) == 0 {
		return
	}
	old, err := redis.String(s.replies[0], nil)
	if s.err = err; err == redis.ErrNil || err == nil && old != s.Value {
		s.err = lostTo(s.Key, old, err == nil)
	}
}
