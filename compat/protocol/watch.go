package protocol

import (
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// aborts is how often an EXEC may be aborted before its change is given up.
const aborts = 8

// Watch is the condition kept by WATCH, Redis 2.2 and later. Two round trips, for one key or many:
//
//	WATCH k…; GET k; …         not the value: ErrLost; none of them: UNWATCH
//	MULTI; commands…; EXEC     nil: somebody touched a key in between
//
// An EXEC that aborts while the key still holds the value was aborted by a renewal of ours, by
// a repair, or by a server that counts a refused SETNX as a touch
// (tx/renewal-aborts-release, tx/contender-aborts-release): it did not run, and is tried
// again, a few times. Of many keys each half is tried by itself, so that one that somebody keeps
// touching does not keep the others from being extended. The commands must not make the key for
// anybody else: before Redis 6.0.9 a watched key may expire without EXEC noticing
// (tx/extend-resurrects), and then nobody else has had it since.
var Watch Condition = watch{}

type watch struct{}

func (by watch) carryOut(c *Conn, list []*task) {
	first := list[0]
	tries := aborts
	if len(list) > 1 || first.Once {
		tries = 1
	}
	keys := make([]string, 0, 4)
	for _, s := range list {
		keys = append(keys, s.Key)
	}
	ours := list
	done, err := c.underWatch(tries, keys, nil, func(replies []any) (wire.Write, error) {
		if ours = holding(list, replies); len(ours) == 0 {
			return wire.Write{}, ErrLost
		}
		if first.Persistent {
			left, err := redis.Int64(c.Do("TTL", first.Key))
			if err == nil && left != -1 {
				err = ErrLost
			}
			if err != nil {
				return wire.Write{}, err
			}
		}
		w := c.wire.Compose(4 * len(ours))
		w.Add("MULTI")
		for _, s := range ours {
			s.add(c, &w)
		}
		return w, nil
	})
	switch {
	case err == nil:
		for _, s := range ours {
			done = s.answered(done)
		}
	case err == ErrAborted && len(list) > 1:
		half := (len(ours) + 1) / 2
		by.carryOut(c, ours[:half])
		if half < len(ours) {
			by.carryOut(c, ours[half:])
		}
	default:
		fail(ours, err)
	}
}

// CompareAndSet is for a condition on several keys, or on more than their values: it sends read (nil: a GET of each key)
// under a WATCH of keys, and runs in one EXEC what decide makes of the replies, which may be a server's errors. If decide
// returns an error, nothing is run. An EXEC that was aborted did not run: somebody touched one of the keys, which may have
// been an extension of our own (tx/renewal-aborts-release). It is asked again then, a few times; then it is [ErrAborted].
// The commands must not make a key for anybody else: before Redis 6.0.9 a watched key may expire without EXEC noticing
// (tx/extend-resurrects), and then nobody else has had it since.
func (c *Conn) CompareAndSet(keys []string, read []Cmd, decide func(replies []any) ([]Cmd, error)) ([]any, error) {
	done, err := c.underWatch(aborts, keys, read, func(replies []any) (w wire.Write, err error) {
		cmds, err := decide(replies)
		if err == nil {
			w = c.wire.Compose(wire.Arguments(cmds))
			wire.Multi(&w, cmds)
		}
		return w, err
	})
	if err == nil {
		err = answer.First(done)
	}
	return done, err
}

// underWatch carries out in one EXEC what decide composes of the replies to read under a WATCH of keys. Its replies may be
// a server's errors; the error is EXEC's own, decide's, or the connection's.
func (c *Conn) underWatch(tries int, keys []string, read []Cmd, decide func(replies []any) (wire.Write, error)) ([]any, error) {
	for range tries {
		w := c.wire.Compose(2*len(keys) + wire.Arguments(read))
		watched := w.Args
		for _, k := range keys {
			watched = append(watched, c.boxed(k, nil))
		}
		w.Put("WATCH", watched)
		wire.All(&w, read)
		if read == nil {
			for _, k := range watched {
				w.Add("GET", k)
			}
		}
		replies, err := w.Replies()
		if err != nil {
			return nil, err
		}
		if err = answer.First(replies[:1]); err == nil {
			w, err = decide(replies[1:])
		}
		if err != nil {
			c.Unwatch()
			return nil, err
		}
		if done, err := w.Exec(); done != nil || err != nil {
			return done, err
		}
	}
	return nil, ErrAborted
}

// pinnedRelease is the release of a key over a connection that has watched it since it held the value: there is nothing
// left to compare. One round trip, and no WATCH is left.
//
//	MULTI; GET key; DEL key; EXEC      nil: touched, and perhaps ours for all that: it is compared
//
// GET reaps a key that has expired unnoticed, which a DEL alone would count before Redis 2.8.10. It reports whether s is
// one, and the EXEC was not aborted.
func (c *Conn) pinnedRelease(s *task) bool {
	if !c.wire.Pinned || !s.Watches() || !s.removes() || s.single() {
		return false
	}
	w := c.wire.Compose(2)
	w.Add("MULTI")
	w.Add("GET", c.boxed(s.Key, nil))
	s.add(c, &w)
	w.Add("EXEC")
	done, err := w.Replies()
	if err == nil {
		done, err = c.wire.Transacted(done)
	}
	switch {
	case err != nil:
		s.err = err
	case done == nil:
		return false
	default:
		s.replies, s.err = done[1:], answer.First(done)
	}
	return true
}
