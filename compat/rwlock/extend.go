package rwlock

import (
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// tries is how often an extension looks again after a writer touched the key.
const tries = 8

// Extend moves the end of l to now+ttl. Others may touch the set in between. Two can have ended our
// lease: a writer, which touches the key, and whoever released it by its token, which the replies to
// ZADD and ZREM show. A writer removes every reader it finds dead, so a reader that is still in the
// set has had no writer beside it. A writer's lease becomes a reader's: see Downgrade.
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
	return next, protocol.Change{Key: l.Key, Value: l.Value, Draw: draws, By: func(c *protocol.Conn) ([]any, error) {
		for range tries {
			replies, err := by(c, now, l, next, ttl, draws)
			if replies != nil || err != nil {
				return replies, err
			}
		}
		return nil, protocol.ErrAborted
	}}, r.valid(ttl)
}

// extend looks and extends, once. It returns nothing at all if a writer touched the key in
// between.
func (r Read) extend(c *protocol.Conn, now time.Time, l, next protocol.Lease, ttl time.Duration, draws bool) ([]any, error) {
	set := readersOf(l.Key)
	v := view{now: now}
	replies, err := r.ask(c, &v, l.Key, []any{l.Key}, protocol.Cmd{"GET", l.Key}, protocol.Cmd{"ZSCORE", set, l.Value})
	if err != nil {
		return nil, err
	}
	if replies[0] != nil || replies[1] == nil { // a writer is in, or has been
		c.Unwatch()
		return nil, protocol.ErrLost
	}
	cmds := r.reads(next, v.now, ttl)
	if next.Value != l.Value {
		cmds = append(cmds, protocol.Cmd{"ZREM", set, l.Value})
	}
	w, err := c.Write(l.Key, protocol.Write{Do: cmds, Exec: true, Draw: draws})
	if err != nil || w.Done == nil {
		return nil, err
	}
	gone := w.Done[0] == int64(1) // ZADD added it
	if next.Value != l.Value {
		gone = w.Done[len(w.Done)-1] == int64(0) // ZREM found nothing
	}
	if gone { // released by its token since our look, and back by our ZADD
		if _, err := c.Do("ZREM", set, next.Value); err != nil {
			return nil, err
		}
		return nil, protocol.ErrLost
	}
	return []any{"extended", w.Fence}, nil
}

// writes reports that l is a writer's.
func writes(l protocol.Lease) bool { return strings.HasPrefix(l.Value, writer) }

// downgrade puts next among the readers in the transaction that removes the writer l. It returns
// nothing at all if somebody touched the key in between. A key that expired meanwhile, unnoticed
// before Redis 6.0.9, does no harm: nobody has written since, or EXEC would not have run.
func (r Read) downgrade(c *protocol.Conn, now time.Time, l, next protocol.Lease, ttl time.Duration, draws bool) ([]any, error) {
	v := view{now: now}
	replies, err := r.ask(c, &v, l.Key, []any{l.Key}, protocol.Cmd{"GET", l.Key})
	if err != nil {
		return nil, err
	}
	if held, err := redis.String(replies[0], nil); err != nil || held != l.Value {
		c.Unwatch()
		return nil, protocol.ErrLost
	}
	cmds := append(append(r.reads(next, v.now, ttl), protocol.Cmd{"DEL", l.Key}), r.passesTurn(l.Key)...)
	w, err := c.Write(l.Key, protocol.Write{Do: cmds, Exec: true, Draw: draws})
	if err != nil || w.Done == nil {
		return nil, err
	}
	return []any{"downgraded", w.Fence}, nil
}
