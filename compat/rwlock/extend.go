package rwlock

import (
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Extend moves the end of l to now+ttl. Other clients may touch the set in between. Two can have
// ended our lease: a writer, which touches the key, and a client that released it by its token,
// which the replies to ZADD and ZREM show. A writer removes every reader that it finds dead, so a
// reader that is still in the set had no writer beside it. A writer's lease becomes a reader's: see
// Downgrade.
func (r Read) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	next, by := l, r.extend
	draws := r.draws(l)
	if rotate {
		next.Value = r.token(reader)
	}
	if writes(l) {
		next.Value, by = r.token(reader), r.downgrade
	}
	next.Until = protocol.Until(now, ttl)
	return next, protocol.Change{Key: l.Key, Value: l.Value, TakeFence: draws, Custom: func(c *protocol.Conn) ([]any, error) {
		return by(c, now, l, next, ttl, draws)
	}}, r.valid(ttl)
}

// extend looks and extends.
func (r Read) extend(c *protocol.Conn, now time.Time, l, next protocol.Lease, ttl time.Duration, draws bool) ([]any, error) {
	set := readersOf(l.Key)
	look := []protocol.Cmd{{"GET", l.Key}, {"ZSCORE", set, l.Value}}
	replies, err := r.ifUntouched(c, now, l.Key, look, draws, func(replies []any, now time.Time) ([]protocol.Cmd, error) {
		if replies[0] != nil || replies[1] == nil { // a writer is in, or has been
			return nil, protocol.ErrLost
		}
		cmds := r.reads(next, now, ttl)
		if next.Value != l.Value {
			cmds = append(cmds, protocol.Cmd{"ZREM", set, l.Value})
		}
		return cmds, nil
	})
	if err != nil {
		return nil, err
	}
	gone := replies[0] == int64(1) // ZADD added it
	if next.Value != l.Value {
		last := len(replies) - 1
		if draws {
			last--
		}
		gone = replies[last] == int64(0) // ZREM found nothing
	}
	if gone { // released by its token since our look, and back by our ZADD
		if _, err := c.Do("ZREM", set, next.Value); err != nil {
			return nil, err
		}
		return nil, protocol.ErrLost
	}
	return []any{"extended", replies[len(replies)-1]}, nil
}

// ifUntouched runs decide's commands for the replies to cmds, and draws a fence with them, if nobody touches key in
// between. decide is told the time that counts.
func (r Read) ifUntouched(c *protocol.Conn, now time.Time, key string, cmds []protocol.Cmd, draws bool,
	decide func(replies []any, now time.Time) ([]protocol.Cmd, error)) ([]any, error) {
	return c.CompareAndSet([]string{key}, r.asks(cmds), func(replies []any) ([]protocol.Cmd, error) {
		v := view{now: now}
		replies, err := r.answers(&v, key, replies)
		if err != nil {
			return nil, err
		}
		do, err := decide(replies, v.now)
		if draws {
			do = append(do, protocol.Cmd{"INCR", protocol.Aux(key, "fence")})
		}
		return do, err
	})
}

// writes reports whether l is a writer's.
func writes(l protocol.Lease) bool { return strings.HasPrefix(l.Value, writer) }

// downgrade puts next among the readers in one transaction with the removal of the writer l. A key that expired
// meanwhile, unnoticed before Redis 6.0.9, does no harm: nobody has written since, or EXEC would not have run.
func (r Read) downgrade(c *protocol.Conn, now time.Time, l, next protocol.Lease, ttl time.Duration, draws bool) ([]any, error) {
	look := []protocol.Cmd{{"GET", l.Key}}
	replies, err := r.ifUntouched(c, now, l.Key, look, draws, func(replies []any, now time.Time) ([]protocol.Cmd, error) {
		if held, err := redis.String(replies[0], nil); err != nil || held != l.Value {
			return nil, protocol.ErrLost
		}
		return append(append(r.reads(next, now, ttl), protocol.Cmd{"DEL", l.Key}), r.passesTurn(l.Key)...), nil
	})
	if err != nil {
		return nil, err
	}
	return []any{"downgraded", replies[len(replies)-1]}, nil
}
