package getsetlock

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Guarded is the timestamp lock under WATCH: a client that is too late changes
// nothing, and nobody deletes what is not theirs. Clients of Classic can't tell
// the difference. Redis 2.2 and later. One round trip when the key is free,
// three for a takeover, two for a refusal, an extension or a release.
//
//	SETNX key T              1: ours
//	WATCH key; GET key       a time to come: UNWATCH, held
//	MULTI; GETSET key T; EXEC
//	                         nil: another was faster, and nothing was written
//
// With a connection that is kept, one round trip for each step, two for a takeover:
//
//	SETNX key T; WATCH key; GET key                   0, and a time gone by: as above
//	MULTI; GETSET key T; EXEC; WATCH key; GET key     extended, or taken over
//	MULTI; EXISTS key; DEL key; EXEC                  released
type Guarded struct{ Options }

// Acquire makes one attempt to hold key until now+ttl. A stale now is safe: our
// lease gets shorter, and fewer leases of others look expired.
func (g Guarded) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := g.Lease(key, now, ttl)
	if err != nil {
		return l, err
	}
	for try := 0; try < 2; try++ {
		won, err := g.setnx(c, &l)
		if won || err != nil {
			return l, err
		}
		held, exists, err := compat.Watch(c, key)
		if err != nil {
			return l, err
		}
		if !exists {
			compat.Unwatch(c)
			continue // released since the SETNX: ask again, once (getset/vanished-key)
		}
		if !g.Dialect.Dead(held, now) {
			compat.Unwatch(c)
			return l, g.held(key, held)
		}
		replies, err := compat.Exec(c, g.getset(l, g.Fence)...)
		return g.takenOver(l, replies, err)
	}
	return l, &compat.HeldError{Key: key}
}

// AcquireKept is Acquire, and goes on watching the key, unless another client
// can write our value.
func (g Guarded) AcquireKept(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, bool, error) {
	l, err := g.Lease(key, now, ttl)
	if err != nil || l.Ambiguous {
		l, err = g.Acquire(c, now, key, ttl)
		return l, false, err
	}
	won, s, err := compat.TakeAndWatch(c, &l, g.Fence, compat.Cmd{"SETNX", key, l.Value})
	if err != nil || won == int64(1) {
		return l, err == nil && s.Keeps(l), err
	}
	switch held, exists, err := s.Value(key); {
	case err != nil:
		return l, false, err
	case !exists:
		compat.Unwatch(c)
		l, err = g.Acquire(c, now, key, ttl) // released since the SETNX
		return l, false, err
	case !g.Dialect.Dead(held, now):
		return l, false, g.held(key, held)
	}
	replies, s, err := compat.ExecAndWatch(c, key, g.getset(l, g.Fence)...)
	l, err = g.takenOver(l, replies, err)
	return l, err == nil && s.Keeps(l), err
}

// getset are the commands that replace what was just read under WATCH.
func (g Guarded) getset(l compat.Lease, draw bool) []compat.Cmd {
	cmds := []compat.Cmd{{"GETSET", l.Key, l.Value}}
	if draw {
		cmds = append(cmds, g.incr(l.Key))
	}
	return cmds
}

// takenOver is l after a takeover's EXEC.
func (g Guarded) takenOver(l compat.Lease, replies []any, err error) (compat.Lease, error) {
	switch {
	case err != nil:
		return l, err
	case replies == nil:
		return l, &compat.HeldError{Key: l.Key}
	case g.Fence:
		l.Fence = replies[1].(int64)
	}
	l.How = compat.TakenOver
	return l, nil
}

// Extend moves the end of a lease that is still ours to now+ttl.
func (g Guarded) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	next, draw, err := g.next(now, l, ttl)
	if err != nil {
		return l, err
	}
	replies, err := compat.IfHolds(c, l, g.getset(next, draw)...)
	return g.extended(l, next, replies, err)
}

// ExtendKept is Extend over a connection that watches.
func (g Guarded) ExtendKept(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, bool, error) {
	next, draw, err := g.next(now, l, ttl)
	if err != nil {
		return l, false, err
	}
	replies, kept, err := compat.IfKept(c, l, next, g.getset(next, draw)...)
	next, err = g.extended(l, next, replies, err)
	return next, kept, err
}

// next is the lease that an extension asks for, and whether it draws a number:
// l was adopted, or its own was lost with the reply.
func (o Options) next(now time.Time, l compat.Lease, ttl time.Duration) (next compat.Lease, draw bool, err error) {
	if next, err = o.Lease(l.Key, now, ttl); err == nil && !now.Before(l.Until) {
		err = compat.ErrLost
	}
	next.Fence, next.How = l.Fence, l.How
	return next, o.Fence && l.Fence == 0, err
}

func (g Guarded) extended(l, next compat.Lease, replies []any, err error) (compat.Lease, error) {
	if err == compat.ErrLost {
		return l, err
	}
	if err == nil && len(replies) > 1 {
		next.Fence = replies[1].(int64)
	}
	return next, err
}

// ExtendAll extends many leases in two round trips.
func (g Guarded) ExtendAll(c redis.Conn, now time.Time, leases []compat.Lease, ttls []time.Duration) ([]compat.Lease, []error) {
	return compat.ExtendAllIfHold(c, now, leases, ttls, func(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, []compat.Cmd, error) {
		next, draw, err := g.next(now, l, ttl)
		return next, g.getset(next, draw), err
	})
}

// Release deletes the key if it still has our time on it: two round trips. It
// may come late: whoever took over has changed the value.
func (g Guarded) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	return compat.ReleaseIfHolds(c, l)
}

// ReleaseKept is Release over a connection that watches.
func (g Guarded) ReleaseKept(c redis.Conn, now time.Time, l compat.Lease) error {
	return compat.ReleaseIfKept(c, l)
}

// Check returns ErrUnsafeServer if there is no WATCH, or no MULTI.
func (g Guarded) Check(c redis.Conn, key string) error {
	_, _, err := compat.Watch(c, compat.Aux(key, "check:"+compat.NewToken()))
	if err == nil {
		_, err = compat.Exec(c, compat.Cmd{"EXISTS", key})
	}
	if compat.UnknownCommand(err) {
		return compat.Refuse(c, "it has no WATCH, or no MULTI (WATCH came with 2.2)", "getsetlock.Listed, or where that is refused too getsetlock.Classic")
	}
	return err
}
