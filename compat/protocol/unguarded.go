package protocol

import (
	"errors"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// The condition as the first locks kept it: they looked, and then acted. Any Redis, and any
// proxy. Two round trips:
//
//	GET key                not the value: ErrLost
//	commands…              on whatever the key holds by now
//
// In between the lease may end and another client take the key: that client's lock is then
// extended or deleted (getset/paused-release, set/compare-then-del). A GETSET at least tells
// what it has written over. Use it where nothing else runs.
func (c *Conn) unguarded(ch *Change) ([]any, error) {
	held, err := redis.String(c.Do("GET", c.boxed(ch.Key, nil)))
	if errors.Is(err, redis.ErrNil) || err == nil && held != ch.Value {
		return nil, lostTo(ch.Key, held, err == nil)
	}
	if err != nil {
		return nil, Foreign(ch.Key, err)
	}
	if ch.Draw {
		replies, err := c.Exec(ch.cmds()...)
		if err != nil {
			return nil, err
		}
		return overwrote(ch, replies)
	}
	w := c.wire.Compose(ch.arguments())
	ch.add(c, &w)
	replies, err := w.Removing(func(replies []any) bool {
		_, refused := replies[0].(redis.Error)
		return !refused
	})
	if err == nil {
		err = answer.First(replies)
	}
	if err != nil {
		return nil, err
	}
	return overwrote(ch, replies)
}

// overwrote is ErrLost if a GETSET has written over another value than the one it was to.
func overwrote(ch *Change, replies []any) ([]any, error) {
	if ch.removes() || !named(ch.Do[0], "GETSET") || len(replies) == 0 {
		return replies, nil
	}
	old, err := redis.String(replies[0], nil)
	if errors.Is(err, redis.ErrNil) || err == nil && old != ch.Value {
		return nil, lostTo(ch.Key, old, err == nil)
	}
	return replies, err
}

// allUnguarded does it for many: all GETs, then all that are still ours. Those that draw do
// it one by one, in a transaction of their own.
func (c *Conn) allUnguarded(changes []Change, replies [][]any, errs []error) {
	keys := make([]any, len(changes))
	for i := range changes {
		keys[i] = changes[i].Key
	}
	reply, err := c.Do("MGET", keys...)
	held, err := values(len(changes), reply, err)
	var ours []int
	var cmds []Cmd
	for i := range changes {
		if err != nil {
			errs[i] = err
			continue
		}
		switch v, ok := held[i].([]byte); {
		case !ok || string(v) != changes[i].Value:
			errs[i] = lostTo(changes[i].Key, string(v), ok)
		case changes[i].Draw:
			replies[i], errs[i] = c.unguarded(&changes[i])
		default:
			ours, cmds = append(ours, i), append(cmds, changes[i].cmds()...)
		}
	}
	if len(ours) == 0 {
		return
	}
	done, err := c.Pipe(cmds...)
	for _, i := range ours {
		if errs[i] = err; err != nil {
			continue
		}
		n := len(changes[i].cmds())
		if errs[i] = answer.First(done[:n]); errs[i] == nil {
			replies[i], errs[i] = overwrote(&changes[i], done[:n])
		}
		done = done[n:]
	}
}
