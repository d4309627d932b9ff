package getsetlock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Guarded is the timestamp lock under WATCH: a client that is too late changes nothing, and no
// client deletes another's lock. To clients of [Classic] it looks the same. Redis 2.2 and later.
// One round trip when the key is free, three for a takeover or a refusal, two for an extension or a
// release.
//
//	SETNX key T              1: ours
//	WATCH key; GET key       an unexpired timestamp: UNWATCH, held
//	MULTI; GETSET key T; EXEC
//	                         nil: another was faster, and nothing was written
//
// With a pinned connection: two round trips for a takeover, and one for a release without an extension before it:
//
//	SETNX key T; WATCH key; GET key                   0, and an expired timestamp: as above
//	MULTI; GETSET key T; EXEC; WATCH key; GET key     taken over
//	MULTI; GET key; DEL key; EXEC                     released
type Guarded struct{ Options }

// Acquire makes one attempt to hold key until now+ttl. A stale now is safe: our lease gets
// shorter, and fewer leases of others look expired.
func (g Guarded) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, err := g.Lease(key, now, ttl)
	if err != nil {
		return l, err
	}
	pins := !l.Ambiguous // a WATCH proves nothing if another client can write our value
	for try := 0; try < 2; try++ {
		w, won, err := g.setnx(c, &l, pins)
		if won || err != nil {
			return l, err
		}
		seen := w.Reading
		held, exists, err := seen.Value(key)
		if !seen.Watches() && err == nil {
			held, exists, err = c.Watch(key)
		}
		if err != nil {
			return l, err
		}
		if !exists {
			c.Unwatch()
			continue // released since the SETNX: ask again, once (getset/vanished-key)
		}
		if !g.Dialect.Dead(held, now) {
			if !seen.Watches() {
				c.Unwatch()
			}
			return l, g.held(key, held)
		}
		w, err = c.Write(key, protocol.Write{Do: []protocol.Cmd{{"GETSET", key, l.Value}}, Exec: true, TakeFence: g.Fence, Pins: pins})
		if w.Done == nil && err == nil {
			return l, &protocol.HeldError{Key: key}
		}
		l.How = protocol.TakenOver
		return l, took(&l, &w, err)
	}
	return l, &protocol.HeldError{Key: key}
}

// Extend moves the end of l to now+ttl.
func (g Guarded) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	return g.extend(protocol.Watch, now, l, ttl, rotate)
}

// Release deletes the key if it still has our time on it. It may come late: a client that
// took over has changed the value.
func (g Guarded) Release(l protocol.Lease) protocol.Change { return release(protocol.Watch, l) }

// Traits make the Locker check the server.
func (g Guarded) Traits() protocol.Traits { return protocol.Traits{Rotates: true, Check: g.check} }

// check returns ErrUnsafeServer if SETNX, GETSET, MULTI or WATCH is missing, or does not do its part here.
func (g Guarded) check(c *protocol.Conn, key string) error {
	return ability.Check(c, key, false, g.Needs("getsetlock.ListCAS, or where that is refused too getsetlock.Classic")...)
}

// Needs lists the abilities that a server must have. A refusal names use, or another server, as the remedy.
func (Guarded) Needs(use string) []ability.Need {
	return []ability.Need{{Ability: ability.Multi, Use: use}, {Ability: ability.Watch, Use: use},
		{Ability: ability.Setnx, Use: "another server"}, {Ability: ability.Getset, Use: "another server"}}
}
