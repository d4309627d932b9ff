package getsetlock

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Classic is the lock as the SETNX page has it, for any Redis since 1.2 and for
// proxies without transactions. One round trip when the key is free, three for
// a takeover; two for a release.
//
// Two dangers are in the published protocol itself and need WATCH to be mended:
// a GETSET that lost leaves its own time on the key (getset/loser-overwrites),
// and one that was delayed can set a live lease back (getset/stale-getset-sets-back); a
// client that pauses between GET and DEL deletes its successor's lock
// (getset/paused-release). Use Guarded where WATCH exists.
type Classic struct{ Options }

// Acquire makes one attempt to hold key until now+ttl. A stale now is safe: our
// lease gets shorter, and fewer leases of others look expired.
func (g Classic) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := g.Lease(key, now, ttl)
	if err != nil {
		return l, err
	}
	for try := 0; try < 2; try++ {
		won, err := g.setnx(c, &l)
		if won || err != nil {
			return l, err
		}
		held, err := redis.String(c.Do("GET", key))
		if errors.Is(err, redis.ErrNil) {
			continue // released since the SETNX: ask again, once (getset/vanished-key)
		}
		if err != nil {
			return l, compat.Foreign(key, err)
		}
		if !g.Dialect.Dead(held, now) {
			return l, g.held(key, held)
		}
		return g.takeover(c, now, l, held)
	}
	return l, &compat.HeldError{Key: key}
}

// takeover replaces a dead value, held. From here on the key has our time on it, won
// or lost, so finding it there proves nothing: the lease is ambiguous until the
// reply is read.
func (g Classic) takeover(c redis.Conn, now time.Time, l compat.Lease, held string) (compat.Lease, error) {
	asked := l
	asked.Ambiguous = true
	old, err := g.getset(c, &l)
	if err != nil && !errors.Is(err, redis.ErrNil) {
		return asked, err
	}
	if err == nil && (!g.Dialect.Dead(old, now) || g.Dialect.Equal && old != held) {
		return asked, g.held(l.Key, old) // another was faster; it will find our time (getset/loser-overwrites)
	}
	l.How = compat.TakenOver
	return l, nil
}

// getset replaces the value and returns the old one. It leaves the key without
// a TTL.
func (g Classic) getset(c redis.Conn, l *compat.Lease) (string, error) {
	if !g.Fence {
		return redis.String(c.Do("GETSET", l.Key, l.Value))
	}
	replies, err := compat.Exec(c, compat.Cmd{"GETSET", l.Key, l.Value}, g.incr(l.Key))
	if err != nil {
		return "", err
	}
	l.Fence = replies[1].(int64)
	return redis.String(replies[0], nil)
}

// Extend moves the end of a lease that is still ours to now+ttl: two round
// trips. The GET keeps a client that has lost its lease, to another whose clock
// is fast, from writing over it.
func (g Classic) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	next, err := g.Lease(l.Key, now, ttl)
	if err != nil {
		return l, err
	}
	next.Fence, next.How = l.Fence, l.How
	if !now.Before(l.Until) {
		return l, compat.ErrLost
	}
	held, err := redis.String(c.Do("GET", l.Key))
	if errors.Is(err, redis.ErrNil) || err == nil && held != l.Value {
		return l, compat.ErrLost
	}
	if err != nil {
		return l, compat.Foreign(l.Key, err)
	}
	g.Fence = g.Fence && l.Fence == 0 // adopted, or its number was lost with the reply
	old, err := g.getset(c, &next)
	if errors.Is(err, redis.ErrNil) || err == nil && old != l.Value {
		return l, compat.ErrLost
	}
	return next, err
}

// ExtendAll extends many leases in two round trips: all GETs, then a GETSET for
// each that is still ours.
func (g Classic) ExtendAll(c redis.Conn, now time.Time, leases []compat.Lease, ttls []time.Duration) ([]compat.Lease, []error) {
	next, errs := slices.Clone(leases), make([]error, len(leases))
	get := make(compat.Cmd, 1, len(leases)+1)
	get[0] = "MGET"
	for i, l := range leases {
		if next[i], errs[i] = g.Lease(l.Key, now, ttls[i]); errs[i] == nil && !now.Before(l.Until) {
			errs[i] = compat.ErrLost
		}
		next[i].Fence, next[i].How = l.Fence, l.How
		get = append(get, l.Key)
	}
	held, err := redis.Values(c.Do(get[0].(string), get[1:]...))
	if err == nil && len(held) != len(leases) {
		err = fmt.Errorf("setnxlock: MGET answered %d values to %d keys", len(held), len(leases))
	}
	var ours []int
	var sets []compat.Cmd
	for i, l := range leases {
		switch {
		case errs[i] != nil:
		case err != nil:
			errs[i] = err
		default:
			if v, ok := held[i].([]byte); !ok || string(v) != l.Value {
				errs[i] = compat.ErrLost
			} else if g.Fence && l.Fence == 0 { // its number is drawn in a transaction of its own
				next[i], errs[i] = g.Extend(c, now, l, ttls[i])
			} else {
				ours, sets = append(ours, i), append(sets, compat.Cmd{"GETSET", l.Key, next[i].Value})
			}
		}
	}
	if len(ours) == 0 {
		return next, errs
	}
	replies, err := compat.Pipe(c, sets...)
	for n, i := range ours {
		old, e := "", err
		if e == nil {
			old, e = redis.String(replies[n], nil)
		}
		if errors.Is(e, redis.ErrNil) || e == nil && old != leases[i].Value {
			e = compat.ErrLost
		}
		errs[i] = e
	}
	return next, errs
}

// Release deletes the key if it still has our time on it and that time has not
// come: after it, another client may have taken the lock over between our GET
// and our DEL.
func (g Classic) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	if !now.Before(l.Until) {
		return compat.ErrLost
	}
	held, err := redis.String(c.Do("GET", l.Key))
	if errors.Is(err, redis.ErrNil) || err == nil && held != l.Value {
		return compat.ErrLost
	}
	if err != nil {
		return compat.Foreign(l.Key, err)
	}
	deleted, err := redis.Bool(c.Do("DEL", l.Key))
	if err == nil && !deleted {
		return compat.ErrLost
	}
	return err
}
