package setlock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Lua is the lock that the page of SET recommends: the server compares and acts
// in one script. One round trip for each step, Redis 2.6.12 and later where
// scripts are allowed.
//
//	SET key token NX PX ttl               OK: ours; nil: held
//	EVALSHA extend 1 key token ttl        nil: not ours any more
//	EVALSHA release 1 key token           nil: not ours any more
//
// With a fence, a script acquires too, so that a refused attempt uses up no number.
type Lua struct{ Options }

// Acquire makes one attempt to hold key until now+ttl.
func (k Lua) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	if k.Fence {
		return Script(k).Acquire(c, now, key, ttl)
	}
	l, ms, err := k.lease(now, key, ttl)
	if err != nil {
		return l, err
	}
	w, err := c.Write(key, protocol.Write{Do: []protocol.Cmd{{"SET", key, l.Value, "NX", "PX", ms}}})
	return got(l, w, err)
}

// Extend moves the end of l to now+ttl.
func (k Lua) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	return k.extend(protocol.Script, now, l, ttl, rotate)
}

// Release deletes the key if it still holds our token.
func (k Lua) Release(l protocol.Lease) protocol.Change { return release(protocol.Script, l) }

// Traits make the Locker check the server.
func (k Lua) Traits() protocol.Traits { return protocol.Traits{Rotates: true, Check: k.check} }

// check returns ErrUnsafeServer if the server has no SET … NX PX, or does not let us run scripts.
func (k Lua) check(c *protocol.Conn, key string) error {
	return k.checkScripts(c, key, "setlock.Watched", sets()...)
}
