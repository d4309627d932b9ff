package rwlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Read is the readers' lock: any number hold it together. Two round trips to
// acquire, two to extend, one to release. Its leases may be as short as a
// millisecond, and 24 hours long, on every server.
type Read struct{ Options }

// Shared says that readers hold a key together.
func (Read) Shared() bool { return true }

// Acquire makes one attempt to read key until now+ttl.
func (r Read) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
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
		compat.Unwatch(c)
		if errors.Is(err, compat.ErrHeld) {
			r.waits(c, key, ttl)
		}
		return l, err
	}
	// A writer sweeps the dead. Readers sweep what has been dead for a minute, so
	// that the set does not grow where nobody writes, and need not be right about the time.
	cmds := []compat.Cmd{
		{"ZREMRANGEBYSCORE", readersOf(key), "-inf", at(v.now.Add(-r.Margin - time.Minute))},
		{"ZADD", readersOf(key), at(v.now.Add(ttl)), l.Value},
		{"EXPIRE", readersOf(key), int64(keep / time.Second)},
	}
	cmds = append(append(cmds, v.comeIn(key)...), r.draw(l)...)
	replies, err := compat.Exec(c, cmds...)
	if err != nil {
		return l, err
	}
	if replies == nil { // a writer came in since our GET
		r.waits(c, key, ttl)
		return l, &compat.HeldError{Key: key}
	}
	return r.drawn(l, replies), nil
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

// waits leaves word that a reader was refused, so that the writer that is in,
// or comes first, leaves readers a turn. Nothing but fairness depends on it:
// whether it arrives does not matter.
func (r Read) waits(c redis.Conn, key string, ttl time.Duration) {
	if r.Prefer == WritersFirst {
		return
	}
	seconds, _ := compat.WholeSeconds(ttl + time.Second)
	compat.Exec(c, compat.Cmd{"SADD", dueOf(key), "readers"}, compat.Cmd{"EXPIRE", dueOf(key), seconds}) //nolint:errcheck
}

// tries is how often an extension looks again after a writer touched the key.
const tries = 8

// Extend sets the end of a lease that is still ours to now+ttl. The set may be
// touched by whom it likes in between; only a writer could have ended our
// lease, and a writer touches the key. A writer removes every reader it finds
// dead, so a reader that is still in the set has had no writer beside it.
func (r Read) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	if err := r.valid(ttl); err != nil {
		return l, err
	}
	if !now.Before(l.Until) {
		return l, compat.ErrLost
	}
	for range tries {
		v := view{now: now}
		replies, err := r.ask(c, &v, l.Key, []any{l.Key}, compat.Cmd{"GET", l.Key}, compat.Cmd{"ZSCORE", readersOf(l.Key), l.Value})
		if err != nil {
			return l, err
		}
		if replies[0] != nil || replies[1] == nil { // a writer is in, or has been
			compat.Unwatch(c)
			return l, compat.ErrLost
		}
		cmds := []compat.Cmd{
			{"ZADD", readersOf(l.Key), at(v.now.Add(ttl)), l.Value},
			{"EXPIRE", readersOf(l.Key), int64(keep / time.Second)},
		}
		replies, err = compat.Exec(c, append(cmds, r.draw(l)...)...)
		if err != nil {
			return l, err
		}
		if replies != nil {
			l = r.drawn(l, replies)
			l.Until = compat.Until(now, ttl)
			return l, nil
		}
	}
	return l, compat.ErrAborted
}

// Release takes the reader out of the set: one round trip, and one more for the
// last reader before a writer that waits. It may come late, and twice: nobody
// else ever writes its token.
func (r Read) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	set, waiting := readersOf(l.Key), waitingOf(l.Key)
	replies, err := compat.Pipe(c, compat.Cmd{"ZREM", set, l.Value}, compat.Cmd{"ZCARD", set}, compat.Cmd{"EXISTS", waiting})
	if err != nil {
		return err
	}
	removed, err := redis.Int(replies[0], nil)
	if err != nil {
		return compat.Foreign(set, err)
	}
	if replies[1] == int64(0) && replies[2] == int64(1) {
		c.Do("EXPIRE", waiting, grace) //nolint:errcheck // fairness; without it new readers wait longer for nobody
	}
	if removed == 0 {
		return compat.ErrLost
	}
	return nil
}

// valid returns ErrInvalid for a ttl that no reader can have.
func (r Read) valid(ttl time.Duration) error {
	if ttl > keep {
		return fmt.Errorf("%w: a ttl of %v is longer than a reader's may be, %v", compat.ErrInvalid, ttl, keep)
	}
	_, err := compat.WholeMillis(ttl)
	return err
}
