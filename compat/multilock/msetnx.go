package multilock

import (
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// stamp returns the keys of a set, and the lease for a getsetlock of o's: one time, the same on every key.
func stamp(o getsetlock.Options, key string, now time.Time, ttl time.Duration) ([]string, protocol.Lease, error) {
	keys, err := lockable(key)
	if err != nil {
		return nil, protocol.Lease{Key: key}, err
	}
	l, err := o.Lease(key, now, ttl)
	return keys, l, err
}

// restamp returns the keys and the next lease of an extension of l. draws asks for a fence, which l lacks: l was
// adopted, or its number was lost with the reply.
func restamp(o getsetlock.Options, now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (keys []string, next protocol.Lease, draws bool, err error) {
	if keys, err = lockable(l.Key); err == nil {
		next, err = o.Extended(now, l, ttl, rotate)
	}
	return keys, next, o.Fence && l.Fence == 0, err
}

// write returns the MSETNX or MSET of value on all keys, and the commands to draw their fences.
func write(name string, keys []string, value string, fenced bool) []protocol.Cmd {
	cmd := protocol.Cmd{name}
	for _, k := range keys {
		cmd = append(cmd, k, value)
	}
	if !fenced {
		return []protocol.Cmd{cmd}
	}
	return append([]protocol.Cmd{cmd}, draw(keys)...)
}

// msetnx tries to make all keys. On 1.2 and 2.0 it would delete one that has a TTL and take it,
// as SETNX does there: getsetlock's have none.
func msetnx(c *protocol.Conn, fenced bool, keys []string, l *protocol.Lease) (bool, error) {
	cmds := write("MSETNX", keys, l.Value, fenced)
	if !fenced {
		won, err := redis.Bool(c.Do(cmds[0][0].(string), cmds[0][1:]...))
		return won, crossSlot(c, err)
	}
	replies, err := c.Exec(cmds...)
	if err != nil {
		return false, crossSlot(c, err)
	}
	if replies[0] != int64(1) {
		return false, nil
	}
	l.Fence, err = fence(c, keys, replies[1:])
	return true, err
}

// makeAll makes all keys by MSETNX. Where some are there already, take takes them over if all are dead; errGone: none is there.
func makeAll(c *protocol.Conn, fenced bool, keys []string, l *protocol.Lease, take func() error) error {
	for range 2 {
		made, err := msetnx(c, fenced, keys, l)
		if made || err != nil {
			return err
		}
		if err = take(); err != errGone {
			return err
		}
		// Released since the MSETNX: ask again, once (getset/vanished-key).
	}
	return &protocol.HeldError{Key: l.Key}
}

var errGone = errors.New("none of the keys is there")

// dead returns nil if no key is alive, errGone if none is there, and otherwise ErrHeld by the key that ends last.
func dead(o getsetlock.Options, all []found, now time.Time) error {
	var states []protocol.State
	for _, f := range all {
		if f.foreign != nil {
			return f.foreign
		}
		if !f.exists {
			continue
		}
		s, err := inspectOne(o, now, f.key, f.value, int64(-1))
		if err != nil {
			return err
		}
		states = append(states, s)
	}
	switch worst := longest(states); {
	case len(states) == 0:
		return errGone
	case worst.Status == protocol.StatusDead:
		return nil
	default:
		return &protocol.HeldError{Key: worst.Key, Value: worst.Value, Until: worst.Until, Foreign: worst.Status == protocol.StatusForeign,
			Persistent: worst.Status == protocol.StatusPersistent}
	}
}

// checkMSETNX asks whether MSETNX is there, and is all or nothing, in a transaction: its keys have
// no TTL, and must not outlive the question.
func checkMSETNX(c *protocol.Conn, key string) error {
	a := protocol.Aux(key, "check:"+protocol.NewToken())
	b := protocol.Aux(key, "check:"+protocol.NewToken())
	if err := ability.Check(c, key, false, ability.Need{Ability: ability.Multi, Use: "multilock.New"}); err != nil {
		return err
	}
	replies, err := c.Exec(protocol.Cmd{"MSETNX", b, "x"}, protocol.Cmd{"MSETNX", a, "y", b, "y"}, protocol.Cmd{"GET", a}, protocol.Cmd{"DEL", a, b})
	switch {
	case err != nil:
		return c.Lacks(err, "it does not let us use MSETNX", "multilock.New")
	case replies[0] != int64(1) || replies[1] != int64(0) || replies[2] != nil:
		return c.Unsafe("MSETNX is not all or nothing", "multilock.New")
	}
	return nil
}
