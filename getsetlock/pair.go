package getsetlock

import (
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// deadline returns the dialect of the second key: whole seconds, expired when the next has begun.
func (t TwoKeys) deadline() Dialect {
	return Dialect{Name: "mlanett-redis-lock", Unit: time.Second, Whole: true, Margin: t.Margin}
}

// A pair is what both keys of TwoKeys hold.
type pair struct{ owner, deadline any } // nil or []byte

func (p pair) free() bool { return p.owner == nil && p.deadline == nil }

func (p pair) is(owner string) bool {
	held, _ := redis.String(p.owner, nil)
	return p.owner != nil && held == owner
}

// readPair reads both keys, under WATCH if asked to.
func readPair(c *protocol.Conn, key string, watch bool) (pair, error) {
	owner, deadline := dialect.Pair(key)
	cmds := []protocol.Cmd{{"GET", owner}, {"GET", deadline}}
	if watch {
		cmds = append([]protocol.Cmd{{"WATCH", owner, deadline}}, cmds...)
	}
	replies, err := c.Pipe(cmds...)
	if err != nil {
		return pair{}, err
	}
	held, err := asPair(key, replies)
	if err != nil && watch {
		c.Unwatch()
	}
	return held, err
}

// asPair reads a pair from the last two replies.
func asPair(key string, replies []any) (pair, error) {
	for _, r := range replies {
		if refused, ok := r.(redis.Error); ok {
			return pair{}, protocol.Foreign(key, refused)
		}
	}
	replies = replies[len(replies)-2:]
	return pair{replies[0], replies[1]}, nil
}

// dead reports whether the pair is whole, and its deadline has expired.
func (t TwoKeys) dead(held pair, now time.Time) bool {
	until, _ := redis.String(held.deadline, nil)
	return held.owner != nil && held.deadline != nil && t.deadline().Dead(until, now)
}

func (t TwoKeys) held(key string, held pair) error {
	owner, _ := redis.String(held.owner, nil)
	text, _ := redis.String(held.deadline, nil)
	until, ok := t.deadline().Parse(text)
	return &protocol.HeldError{Key: key, Value: owner, Until: until, Foreign: !held.free() && (!ok || held.owner == nil)}
}

// change runs cmd in an EXEC, if we are still the owner then.
func (t TwoKeys) change(l protocol.Lease, cmd protocol.Cmd, draw bool) protocol.Change {
	cmds := []protocol.Cmd{cmd}
	if draw {
		cmds = append(cmds, protocol.Cmd{"INCR", protocol.Aux(l.Key, "fence")})
	}
	return protocol.Change{Key: l.Key, Value: l.Value, TakeFence: draw, Custom: func(c *protocol.Conn) ([]any, error) {
		owner, deadline := dialect.Pair(l.Key)
		gets := []protocol.Cmd{{"GET", owner}, {"GET", deadline}}
		return c.CompareAndSet([]string{owner, deadline}, gets, func(replies []any) ([]protocol.Cmd, error) {
			held, err := asPair(l.Key, replies)
			if err == nil && !held.is(l.Value) {
				owner, _ := redis.String(held.owner, nil)
				err = &protocol.LostError{Key: l.Key, Value: owner, Gone: held.owner == nil}
			}
			return cmds, err
		})
	}}
}

// Inspect reads both keys: one round trip. State.Value is the owner.
func (t TwoKeys) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	s := protocol.State{Key: key, Status: protocol.StatusFree, TTL: protocol.NoTTL}
	held, err := readPair(c, key, false)
	if err != nil || held.free() {
		return s, err
	}
	e := new(protocol.HeldError)
	errors.As(t.held(key, held), &e)
	s.Value, s.Until, s.Format, s.Clock = e.Value, e.Until, t.deadline().Name, "clients"
	switch {
	case e.Foreign:
		s.Status = protocol.StatusForeign
	case t.dead(held, now):
		s.Status = protocol.StatusDead
	default:
		s.Status = protocol.StatusHeld
	}
	return s, nil
}
