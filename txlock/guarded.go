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
type Guarded struct{ Options }

// Acquire makes one attempt to hold key until now+ttl.
func (g Guarded) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: g.value(key, now), Until: compat.Until(now, ttl), How: compat.Free}
	setex, err := compat.SetEx(g.Millis, key, l.Value, ttl)
	if err != nil {
		return l, err
	}
	cmds := []compat.Cmd{setex}
	if g.Fence {
		cmds = append(cmds, compat.Cmd{"INCR", compat.FenceKey(key)})
	}

	held, exists, err := compat.Watch(c, key)
	if err != nil {
		return l, err
	}
	if exists {
		compat.Unwatch(c)
		return l, &compat.HeldError{Key: key, Value: held}
	}
	replies, err := compat.Exec(c, cmds...)
	switch {
	case err != nil:
		return l, err
	case replies == nil:
		return l, &compat.HeldError{Key: key} // taken since our GET
	case g.Fence:
		l.Fence = replies[1].(int64)
	}
	return l, nil
}

// ExtendAll extends many leases in two round trips.
func (g Guarded) ExtendAll(c redis.Conn, now time.Time, leases []compat.Lease, ttls []time.Duration) ([]compat.Lease, []error) {
	return g.extendAll(c, now, leases, ttls)
}
