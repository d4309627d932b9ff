package protocol

import (
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// aborts limits how often the EXEC of one change may abort.
const aborts = 8

// Watch compares under WATCH: Redis 2.2 and later. Two round trips, for one key or many:
//
//	WATCH k…; GET k; …         another value: ErrLost; no key with its value: UNWATCH
//	MULTI; commands…; EXEC     nil: another client touched a key in between
//
// An EXEC may abort although the key still holds the value: after a renewal of ours or a repair, or on a server
// that counts a refused SETNX as a touch (tx/renewal-aborts-release, tx/contender-aborts-release). An aborted
// EXEC did not run, and Watch tries again, a few times. Of many keys, Watch tries each half separately: a key
// that is touched again and again must not keep the others from their extension.
//
// The commands may make the key for its holder, and for no other client: before Redis 6.0.9 a watched key may
// expire unnoticed by EXEC (tx/extend-resurrects). No other client has had the key since.
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

// CompareAndSet changes keys under a condition on several keys, or on more than their values. It sends read
// (nil: a GET of each key) under a WATCH of keys, passes the replies to decide, and runs the commands of decide
// in one EXEC. The replies may be a server's errors. If decide returns an error, nothing runs.
//
// An aborted EXEC did not run: a client touched one of the keys, perhaps by an extension of our own
// (tx/renewal-aborts-release). CompareAndSet then asks decide again, a few times, and at last returns
// [ErrAborted].
//
// The commands may make a key for its holder, and for no other client: before Redis 6.0.9 a watched key may
// expire unnoticed by EXEC (tx/extend-resurrects). No other client has had the key since.
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

// underWatch sends read under a WATCH of keys, and runs the Write that decide composes in one EXEC. The replies
// may be a server's errors. The returned error is EXEC's own, decide's, or the connection's.
func (c *Conn) underWatch(tries int, keys []string, read []Cmd, decide func(replies []any) (wire.Write, error)) ([]any, error) {
	for range tries {
		w := c.wire.Compose(2*len(keys) + wire.Arguments(read))
		watched := w.Args
		for _, k := range keys {
			watched = append(watched, c.keyArg(k, nil))
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
		switch err = answer.First(replies[:1]); {
		case err == nil:
			w, err = decide(replies[1:])
		case answer.Proves(err): // a proxy's own words say nothing of the server
			err = Refused.Mark(err)
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

// pinnedRelease releases a key over the pinned connection, which has watched the key since it held the value:
// nothing is left to compare. One round trip, and no WATCH is left.
//
//	MULTI; GET key; DEL key; EXEC      nil: touched, and perhaps still ours: Watch compares
//
// GET reaps a key that has expired unnoticed: before Redis 2.8.10 a DEL alone would count it. pinnedRelease
// reports false if s is no such release, or its EXEC was aborted.
func (c *Conn) pinnedRelease(s *task) bool {
	if !c.wire.Pinned || !s.Watches() || !s.removes() || s.single() {
		return false
	}
	w := c.wire.Compose(2)
	w.Add("MULTI")
	w.Add("GET", c.keyArg(s.Key, nil))
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
