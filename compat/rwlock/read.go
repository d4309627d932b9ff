package rwlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Read is the readers' lock: any number hold it together. Two round trips to acquire, two to
// extend, one to release. Its leases may be as short as a millisecond, and 24 hours long, on
// every server.
type Read struct{ Options }

// Traits say that readers hold a key together, and that it checks the server.
func (r Read) Traits() compat.Traits {
	return compat.Traits{Shared: true, Rotates: true, Check: r.check}
}

// Acquire makes one attempt to read key until now+ttl.
func (r Read) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: r.token(reader), Until: compat.Until(now, ttl), How: compat.Free}
	if err := r.valid(ttl); err != nil {
		return l, err
	}
	done, err := r.lockInner(c, now, key)
	if err != nil {
		return l, err
	}
	defer done()

	v, err := r.look(c, now, key, false, key)
	if err != nil {
		return l, err
	}
	if err := r.refusal(v, key); err != nil {
		c.Unwatch()
		if errors.Is(err, compat.ErrHeld) {
			r.waits(c, key, ttl)
		}
		return l, err
	}
	// A writer sweeps the dead. Readers sweep what has been dead for a minute, so that the set
	// does not grow where nobody writes, and need not be right about the time.
	cmds := []compat.Cmd{{"ZREMRANGEBYSCORE", readersOf(key), "-inf", at(v.now.Add(-r.Margin - time.Minute))}}
	cmds = append(append(cmds, r.reads(l, v.now, ttl)...), v.comeIn(key)...)
	w, err := c.Write(key, compat.Write{Do: cmds, Exec: true, Draw: r.Fence})
	if err != nil {
		return l, err
	}
	if w.Done == nil { // a writer came in since our GET
		r.waits(c, key, ttl)
		return l, &compat.HeldError{Key: key}
	}
	l.Fence = w.Fence
	return l, nil
}

// reads are the commands that note l among the readers, until now+ttl.
func (r Read) reads(l compat.Lease, now time.Time, ttl time.Duration) []compat.Cmd {
	return []compat.Cmd{
		{"ZADD", readersOf(l.Key), at(now.Add(ttl)), l.Value},
		{"EXPIRE", readersOf(l.Key), int64(setTTL / time.Second)},
	}
}

// refusal is the reason why a reader may not come in, or nil.
func (r Read) refusal(v view, key string) error {
	if v.held && r.mine(writer, v.writer) {
		return ErrDowngrade
	}
	if v.held {
		return v.writes(key)
	}
	if until, yes := v.shutOut(r.Prefer); yes {
		return &compat.HeldError{Key: key, Until: until}
	}
	return nil
}

// waits notes that a reader was refused, so that the writer that is in, or comes first, leaves
// readers a turn. Nothing but fairness depends on it: whether it arrives does not matter.
func (r Read) waits(c *compat.Conn, key string, ttl time.Duration) {
	if r.Prefer == WritersFirst {
		return
	}
	seconds, _ := compat.Whole(ttl+time.Second, time.Second)
	c.Exec(compat.Cmd{"SADD", dueOf(key), "readers"}, compat.Cmd{"EXPIRE", dueOf(key), seconds}) //nolint:errcheck
}

// tries is how often an extension looks again after a writer touched the key.
const tries = 8

// Extend moves the end of l to now+ttl. Others may touch the set in between; only a writer could
// have ended our lease, and a writer touches the key. A writer removes every reader it finds
// dead, so a reader that is still in the set has had no writer beside it.
func (r Read) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	next := l
	if l.Rotate {
		next.Value = r.token(reader)
	}
	next.Until = compat.Until(now, ttl)
	draws := r.draws(l)
	return next, compat.Change{Key: l.Key, Value: l.Value, Draw: draws, By: func(c *compat.Conn) ([]any, error) {
		return r.extend(c, now, l, next, ttl, draws)
	}}, r.valid(ttl)
}

func (r Read) extend(c *compat.Conn, now time.Time, l, next compat.Lease, ttl time.Duration, draws bool) ([]any, error) {
	set := readersOf(l.Key)
	for range tries {
		v := view{now: now}
		replies, err := r.ask(c, &v, l.Key, []any{l.Key}, compat.Cmd{"GET", l.Key}, compat.Cmd{"ZSCORE", set, l.Value})
		if err != nil {
			return nil, err
		}
		if replies[0] != nil || replies[1] == nil { // a writer is in, or has been
			c.Unwatch()
			return nil, compat.ErrLost
		}
		cmds := r.reads(next, v.now, ttl)
		if next.Value != l.Value {
			cmds = append(cmds, compat.Cmd{"ZREM", set, l.Value})
		}
		w, err := c.Write(l.Key, compat.Write{Do: cmds, Exec: true, Draw: draws})
		switch {
		case err != nil:
			return nil, err
		case w.Done == nil:
			continue
		case next.Value != l.Value && w.Done[len(w.Done)-1] == int64(0): // released by its token since our look
			if _, err := c.Do("ZREM", set, next.Value); err != nil {
				return nil, err
			}
			return nil, compat.ErrLost
		}
		return []any{"extended", w.Fence}, nil
	}
	return nil, compat.ErrAborted
}

// Release takes the reader out of the set: one round trip, and one more for the last reader
// before a writer that waits. It may come late, and twice: no other client ever writes its token.
func (r Read) Release(l compat.Lease) compat.Change {
	return compat.Change{Key: l.Key, Value: l.Value, By: func(c *compat.Conn) ([]any, error) {
		set, waiting := readersOf(l.Key), waitingOf(l.Key)
		replies, err := c.Pipe(compat.Cmd{"ZREM", set, l.Value}, compat.Cmd{"ZCARD", set}, compat.Cmd{"EXISTS", waiting})
		if err != nil {
			return nil, err
		}
		if _, err := redis.Int(replies[0], nil); err != nil {
			return nil, c.Foreign(set, err)
		}
		if replies[1] == int64(0) && replies[2] == int64(1) {
			c.Do("EXPIRE", waiting, grace) //nolint:errcheck // fairness; without it new readers wait longer for nobody
		}
		return replies[:1], nil
	}}
}

// valid returns ErrInvalid for a ttl that no reader can have.
func (r Read) valid(ttl time.Duration) error {
	if ttl > setTTL {
		return fmt.Errorf("%w: a ttl of %v is longer than a reader's may be, %v", compat.ErrInvalid, ttl, setTTL)
	}
	_, err := compat.Whole(ttl, time.Millisecond)
	return err
}
