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
		return g.takeover(c, l)
	}
	return l, &compat.HeldError{Key: key}
}

// takeover replaces the dead value that was just read under WATCH.
func (g Guarded) takeover(c redis.Conn, l compat.Lease) (compat.Lease, error) {
	cmds := []compat.Cmd{{"GETSET", l.Key, l.Value}}
	if g.Fence {
		cmds = append(cmds, g.incr(l.Key))
	}
	replies, err := compat.Exec(c, cmds...)
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
	next, err := g.Lease(l.Key, now, ttl)
	if err != nil {
		return l, err
	}
	next.Fence, next.How = l.Fence, l.How
	if !now.Before(l.Until) {
		return l, compat.ErrLost
	}
	cmds := []compat.Cmd{{"GETSET", l.Key, next.Value}}
	if g.Fence && l.Fence == 0 { // adopted, or its number was lost with the reply
		cmds = append(cmds, g.incr(l.Key))
	}
	replies, err := compat.IfHolds(c, l, cmds...)
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
		next, err := g.Lease(l.Key, now, ttl)
		next.Fence, next.How = l.Fence, l.How
		cmds := []compat.Cmd{{"GETSET", l.Key, next.Value}}
		if g.Fence && l.Fence == 0 {
			cmds = append(cmds, g.incr(l.Key))
		}
		return next, cmds, err
	})
}

// Release deletes the key if it still has our time on it: two round trips. It
// may come late: whoever took over has changed the value.
func (g Guarded) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	replies, err := compat.IfHolds(c, l, compat.Cmd{"DEL", l.Key})
	if err == nil && replies[0] == int64(0) {
		return compat.ErrLost
	}
	return err
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
