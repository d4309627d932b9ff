package setlock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// IfEq is the lock of SET for the servers of today, which compare by themselves: Redis 8.4 and later, Valkey 9.0 and later.
// Neither a script nor WATCH, so it works where either is forbidden, and costs the server least. One round trip for each
// step.
//
//	SET key token NX PX ttl               OK: ours; nil: held
//	SET key token IFEQ token PX ttl GET   the token: done; another: whose it is; nil: gone
//	DELIFEQ key token                     or DELEX key IFEQ token: 1; 0: not ours any more
//
// With a fence, SET and INCR are in one MULTI. A refused attempt skips a number, as with [Watched].
//
// Replicas and the AOF get SET … PXAT, with the end of the lease, and DEL. They get nothing if a comparison fails. So
// a replica may be older (seen on Redis 8.6.2 and Valkey 9.1.2).
//
// Valkey 8.1 has SET … IFEQ and no DELIFEQ: there a release would need a script or WATCH all the same, so [Lua] and
// [Watched] are the locks for it. A lock that is held when such a server takes over after a failover is extended and
// released in their way ([protocol.IfEq]).
type IfEq struct{ Options }

// Acquire makes one attempt to hold key until now+ttl.
func (k IfEq) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, ms, err := k.lease(now, key, ttl)
	if err != nil {
		return l, err
	}
	w, err := c.Write(key, protocol.Write{Do: []protocol.Cmd{{"SET", key, l.Value, "NX", "PX", ms}}, TakeFence: k.Fence})
	return got(l, w, err)
}

// Extend moves the end of l to now+ttl.
func (k IfEq) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	return k.extend(protocol.IfEq, now, l, ttl, rotate)
}

// Release deletes the key if it still holds our token.
func (k IfEq) Release(l protocol.Lease) protocol.Change { return release(protocol.IfEq, l) }

// Traits make the Locker check the server.
func (k IfEq) Traits() protocol.Traits { return protocol.Traits{Rotates: true, Check: k.check} }

// check returns ErrUnsafeServer if the server has no SET … NX PX, or does not compare.
func (k IfEq) check(c *protocol.Conn, key string) error {
	const use = "setlock.Lua, or setlock.Watched"
	needs := append(sets(), ability.Need{Ability: ability.SetIfEq, Use: use}, ability.Need{Ability: ability.DelIfEq, Or: ability.DelEx, Use: use})
	if k.Fence {
		needs = append(needs, ability.Need{Ability: ability.Multi, Use: "no fence"})
	}
	return ability.Check(c, key, true, needs...)
}
