package setlock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Watched is the lock of SET for servers that forbid scripts: clouds, Garnet,
// hardened servers since CVE-2024-46981 and CVE-2025-49844. One round trip to
// acquire, two to extend or release. Redis 2.6.12 and later.
//
//	SET key token NX PX ttl               OK: ours; nil: held
//	WATCH key; GET key                    ours?
//	MULTI; PEXPIRE key ttl; EXEC          nil: another was faster
//	MULTI; DEL key; EXEC                  nil: another was faster
//
// With a pinned connection, one round trip for each, if there was no extension:
//
//	SET key token NX PX ttl; WATCH key; GET key
//	MULTI; GET key; DEL key; EXEC
//
// Since Redis 5.0 a server over its maxmemory queues nothing in a MULTI: until it has room again, a
// lock can be neither extended nor released, and ends with its TTL. Such a server still runs the
// scripts: where they are allowed, use [Lua].
type Watched struct{ Options }

// Acquire makes one attempt to hold key until now+ttl.
func (k Watched) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, ms, err := k.lease(now, key, ttl)
	if err != nil {
		return l, err
	}
	w, err := c.Write(key, protocol.Write{Do: []protocol.Cmd{{"SET", key, l.Value, "NX", "PX", ms}}, TakeFence: k.Fence, Pins: true})
	return got(l, w, err)
}

// Extend moves the end of l to now+ttl.
func (k Watched) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	return k.extend(protocol.Watch, now, l, ttl, rotate)
}

// Release deletes the key if it still holds our token.
func (k Watched) Release(l protocol.Lease) protocol.Change { return release(protocol.Watch, l) }

// Traits make the Locker check the server.
func (k Watched) Traits() protocol.Traits { return protocol.Traits{Rotates: true, Check: k.check} }

// check returns ErrUnsafeServer if the server has no SET … NX PX, or if its WATCH stops no EXEC.
func (k Watched) check(c *protocol.Conn, key string) error {
	const use = "setlock.Lua"
	return ability.Check(c, key, true, append(sets(), ability.Need{Ability: ability.Multi, Use: use}, ability.Need{Ability: ability.Watch, Use: use})...)
}
