package setlock

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Watched is the lock of SET for servers that forbid scripts: clouds, Garnet,
// hardened servers since CVE-2024-46981 and CVE-2025-49844. One round trip to
// acquire, two to extend or release. Redis 2.6.12 and later.
//
//	SET key token NX PX ttl               OK: ours; nil: held
//	WATCH key; GET key                    ours?
//	MULTI; PEXPIRE key ttl; EXEC          nil: somebody was faster
//	MULTI; DEL key; EXEC                  nil: somebody was faster
//
// With a connection that is kept, one round trip for each:
//
//	SET key token NX PX ttl; WATCH key; GET key
//	MULTI; PEXPIRE key ttl; EXEC; WATCH key; GET key
//	MULTI; EXISTS key; DEL key; EXEC
//
// A server over its maxmemory queues nothing in a MULTI since Redis 5.0: until
// it has room again, a lock can then neither be extended nor given back, and
// ends with its TTL. A script is let through: where there are scripts, use Lua.
type Watched struct{ Options }

// Acquire makes one attempt to hold key until now+ttl.
func (k Watched) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	return k.set(c, now, key, ttl)
}

// AcquireKept is Acquire, and goes on watching the key.
func (k Watched) AcquireKept(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, bool, error) {
	l, ms, err := k.lease(now, key, ttl)
	if err != nil {
		return l, false, err
	}
	set, s, err := compat.TakeAndWatch(c, &l, k.Fence, compat.Cmd{"SET", key, l.Value, "NX", "PX", ms})
	if err == nil && set == nil {
		return l, false, s.Refused(key)
	}
	return l, err == nil && s.Keeps(l), err
}

// Extend sets the end of a lease that is still ours to now+ttl.
func (k Watched) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	ms, err := compat.WholeMillis(ttl)
	if err != nil {
		return l, err
	}
	return compat.ExtendIfHolds(c, now, l, ttl, compat.Cmd{"PEXPIRE", l.Key, ms}, k.draws(l))
}

// ExtendAll extends many leases in two round trips.
func (k Watched) ExtendAll(c redis.Conn, now time.Time, leases []compat.Lease, ttls []time.Duration) ([]compat.Lease, []error) {
	return compat.ExtendAllIfHold(c, now, leases, ttls, func(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, []compat.Cmd, error) {
		ms, err := compat.WholeMillis(ttl)
		cmds := []compat.Cmd{{"PEXPIRE", l.Key, ms}}
		if k.draws(l) {
			cmds = append(cmds, compat.Cmd{"INCR", compat.FenceKey(l.Key)})
		}
		l.Until = compat.Until(now, ttl)
		return l, cmds, err
	})
}

// Release deletes the key if it still holds our token.
func (k Watched) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	return compat.ReleaseIfHolds(c, l)
}

// ExtendKept is Extend over a connection that watches.
func (k Watched) ExtendKept(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, bool, error) {
	ms, err := compat.WholeMillis(ttl)
	if err != nil {
		return l, false, err
	}
	return compat.ExtendIfKept(c, now, l, ttl, compat.Cmd{"PEXPIRE", l.Key, ms}, k.draws(l))
}

// ReleaseKept is Release over a connection that watches.
func (k Watched) ReleaseKept(c redis.Conn, now time.Time, l compat.Lease) error {
	return compat.ReleaseIfKept(c, l)
}

// Check returns ErrUnsafeServer if the server has no SET … NX PX, or no WATCH
// that stops an EXEC.
func (k Watched) Check(c redis.Conn, key string) error {
	l, err := k.checkSet(c, key)
	if err != nil {
		return err
	}
	const use = "setlock.Lua"
	if _, _, err = compat.Watch(c, l.Key); err == nil {
		_, err = c.Do("PEXPIRE", l.Key, 10000)
	}
	var touched []any
	if err == nil {
		touched, err = compat.Exec(c, compat.Cmd{"GET", l.Key})
	}
	switch {
	case compat.UnknownCommand(err):
		err = compat.Refuse(c, "it does not let us use WATCH and MULTI", use)
	case err == nil && touched != nil:
		err = compat.Refuse(c, "EXEC runs although a watched key was touched", use)
	case err == nil:
		return rehearse(c, k, l, "it does not let us use WATCH and MULTI", use)
	}
	drop(c, l)
	return err
}
