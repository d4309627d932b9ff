package protocol

import (
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// aborts is how often an EXEC may be aborted before its change is given up.
const aborts = 8

// The condition kept by WATCH, Redis 2.2 and later. Two round trips:
//
//	WATCH key; GET key         not the value: UNWATCH, ErrLost
//	MULTI; commands…; EXEC     nil: somebody touched the key in between
//
// An EXEC that aborts while the key still holds the value was aborted by a renewal of ours, by
// a repair, or by a server that counts a refused SETNX as a touch
// (tx/renewal-aborts-release, tx/contender-aborts-release): it did not run, and is tried
// again, a few times. The commands must not make the key for anybody else: before Redis
// 6.0.9 a watched key may expire without EXEC noticing (tx/extend-resurrects), and then
// nobody else has had it since.
func (c *Conn) ifHolds(ch *Change) ([]any, error) {
	for range aborts {
		value, exists, err := c.Watch(ch.Key)
		if err != nil {
			return nil, err
		}
		if exists && value == ch.Value && ch.Persistent {
			var left int64
			if left, err = redis.Int64(c.Do("TTL", ch.Key)); err == nil && left != -1 {
				exists = false
			}
		}
		if err != nil || !exists || value != ch.Value {
			c.Unwatch()
			if err == nil {
				err = lostTo(ch.Key, value, exists)
			}
			return nil, err
		}
		w := c.wire.Compose(ch.arguments())
		w.Add("MULTI")
		ch.add(c, &w)
		replies, err := w.Exec()
		if err != nil || replies != nil {
			return replies, err
		}
		if ch.Once {
			break
		}
	}
	return nil, ErrAborted
}

// CompareAndSet is for a condition on several keys, or on more than their values: it sends read under a WATCH of keys, and
// runs in one EXEC what decide makes of the replies, which may be a server's errors. If decide returns an error, nothing is
// run. An EXEC that was aborted did not run: somebody touched one of the keys, which may have been an extension of our own
// (tx/renewal-aborts-release). It is asked again then, a few times; then it is [ErrAborted]. The commands must not make a
// key for anybody else: before Redis 6.0.9 a watched key may expire without EXEC noticing (tx/extend-resurrects), and then
// nobody else has had it since.
func (c *Conn) CompareAndSet(keys []string, read []Cmd, decide func(replies []any) ([]Cmd, error)) ([]any, error) {
	watch := make(Cmd, 1, len(keys)+1)
	watch[0] = "WATCH"
	for _, k := range keys {
		watch = append(watch, k)
	}
	asks := append([]Cmd{watch}, read...)
	for range aborts {
		replies, err := c.Pipe(asks...)
		if err != nil {
			return nil, err
		}
		var do []Cmd
		if err = answer.First(replies[:1]); err == nil {
			do, err = decide(replies[1:])
		}
		if err != nil {
			c.Unwatch()
			return nil, err
		}
		if done, err := c.Exec(do...); done != nil || err != nil {
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
// GET reaps a key that has expired unnoticed, which a DEL alone would count before Redis 2.8.10.
func (c *Conn) pinnedRelease(ch *Change) ([]any, error) {
	k := c.boxed(ch.Key, nil)
	w := c.wire.Compose(2)
	w.Add("MULTI")
	w.Add("GET", k)
	w.Add("DEL", k)
	replies, err := w.Exec()
	switch {
	case err != nil:
		return nil, err
	case replies == nil:
		return c.ifHolds(ch)
	}
	return replies[1:], nil
}

// allIfHold is ifHolds for many keys of one server, in two round trips for all of them. An
// EXEC that was aborted did nothing for any of them: each half is then tried by itself, so
// that one key that somebody keeps touching does not keep the others from being extended.
func (c *Conn) allIfHold(changes []Change, replies [][]any, errs []error) {
	all := make([]int, len(changes))
	for i := range all {
		all[i] = i
	}
	b := watched{c, changes, replies, errs}
	b.run(all)
}

// watched is a batch under WATCH.
type watched struct {
	c       *Conn
	changes []Change
	replies [][]any
	errs    []error
}

// run carries out the changes of these indexes.
func (b *watched) run(list []int) {
	if len(list) == 0 {
		return
	}
	if len(list) == 1 {
		i := list[0]
		b.replies[i], b.errs[i] = b.c.ifHolds(&b.changes[i])
		return
	}
	if again := b.together(list); len(again) > 0 {
		b.run(again[:len(again)/2])
		b.run(again[len(again)/2:])
	}
}

// together carries them out in one transaction. It returns those for which it did nothing.
func (b *watched) together(list []int) (again []int) {
	watch, get := make(Cmd, 1, len(list)+1), make(Cmd, 1, len(list)+1)
	watch[0], get[0] = "WATCH", "MGET"
	for _, i := range list {
		k := any(b.changes[i].Key)
		watch, get = append(watch, k), append(get, k)
	}
	replies, err := b.c.Pipe(watch, get)
	if err == nil {
		err = answer.First(replies)
	}
	var held []any
	if err == nil {
		held, err = values(len(list), replies[1], nil)
	}
	if err != nil {
		b.c.Unwatch()
		b.fail(list, err)
		return nil
	}
	var cmds []Cmd
	ours := list[:0:0]
	for n, i := range list {
		if v, ok := held[n].([]byte); !ok || string(v) != b.changes[i].Value {
			b.errs[i] = lostTo(b.changes[i].Key, string(v), ok)
			continue
		}
		ours, cmds = append(ours, i), append(cmds, b.changes[i].cmds()...)
	}
	if len(ours) == 0 {
		b.c.Unwatch()
		return nil
	}
	w := b.c.wire.Compose(wire.Arguments(cmds))
	wire.Multi(&w, cmds)
	w.Add("EXEC")
	done, err := w.Replies()
	if err == nil {
		done, err = b.c.wire.Transacted(done)
	}
	switch {
	case err != nil:
		b.fail(ours, err)
		return nil
	case done == nil:
		return ours
	}
	for _, i := range ours {
		n := len(b.changes[i].cmds())
		b.replies[i], b.errs[i] = done[:n], answer.First(done[:n])
		done = done[n:]
	}
	return nil
}

// values are the replies to an MGET of n keys.
func values(n int, reply any, err error) ([]any, error) {
	all, err := redis.Values(reply, err)
	if err == nil && len(all) != n {
		err = wire.Short(len(all), n, "keys of MGET")
	}
	return all, err
}

func (b *watched) fail(list []int, err error) {
	for _, i := range list {
		b.errs[i] = err
	}
}
