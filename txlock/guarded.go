package txlock

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Guarded sets the key and its TTL in one command, under a WATCH that makes
// sure nobody else did: the key is never without a TTL. Two round trips, one for
// a refusal, which writes nothing. Redis 2.2 and later.
//
//	WATCH key; GET key            a value: held (the read reaps an expired key)
//	MULTI; SETEX key ttl token; EXEC
//	                              nil: another was faster
//	WATCH key; GET key            in the same write, if the connection is kept
type Guarded struct{ Options }

// Acquire makes one attempt to hold key until now+ttl.
func (g Guarded) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, _, err := g.acquire(c, now, key, ttl, false)
	return l, err
}

// AcquireKept is Acquire, and goes on watching the key.
func (g Guarded) AcquireKept(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, bool, error) {
	l, s, err := g.acquire(c, now, key, ttl, true)
	return l, s.Keeps(l), err
}

func (g Guarded) acquire(c redis.Conn, now time.Time, key string, ttl time.Duration, kept bool) (l compat.Lease, s compat.Sight, err error) {
	l = compat.Lease{Key: key, Value: g.value(key, now), Until: compat.Until(now, ttl), How: compat.Free}
	setex, err := compat.SetEx(g.Millis, key, l.Value, ttl)
	if err != nil {
		return l, s, err
	}
	cmds := append(make([]compat.Cmd, 0, 2), setex)
	if g.Fence {
		cmds = append(cmds, compat.Cmd{"INCR", compat.FenceKey(key)})
	}

	held, exists, err := compat.Watch(c, key)
	if err != nil {
		return l, s, err
	}
	if exists {
		compat.Unwatch(c)
		return l, s, &compat.HeldError{Key: key, Value: held}
	}
	var replies []any
	if kept {
		replies, s, err = compat.ExecAndWatch(c, key, cmds...)
	} else {
		replies, err = compat.Exec(c, cmds...)
	}
	switch {
	case err != nil:
		return l, s, err
	case replies == nil:
		return l, s, &compat.HeldError{Key: key} // taken since our GET
	case g.Fence:
		l.Fence = replies[1].(int64)
	}
	return l, s, nil
}

// ExtendAll extends many leases in two round trips.
func (g Guarded) ExtendAll(c redis.Conn, now time.Time, leases []compat.Lease, ttls []time.Duration) ([]compat.Lease, []error) {
	return g.extendAll(c, now, leases, ttls)
}
