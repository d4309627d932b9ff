package getsetlock

import (
	"errors"
	"time"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// ListCAS is the timestamp lock that compares by list commands: it does in one transaction
// ([protocol.ListCAS]) what [Guarded] does under WATCH. It is for Redis 2.0, where there is no WATCH
// and nothing else compares, and works on later versions, too. One round trip when the key is free,
// for an extension and for a release; two for a refusal, three for a takeover.
//
//	SETNX key T              1: ours
//	GET key                  an unexpired timestamp: held
//	MULTI; lists; EXEC       what was read is on the key still: ours; else another was faster,
//	                         and nothing was written
//
// Among clients of ListCAS and [Guarded], no client overwrites the winner's time or deletes
// another's lock. Clients of [Classic] exclude it and are excluded by it, but the dangers of the
// published protocol remain beside them. One that comes second to a takeover leaves its own time on
// our key: we can then neither extend nor release, and the key stays until that time
// (getset/loser-overwrites). One that pauses between GET and DEL until its lease has ended deletes
// our lock (getset/paused-release).
//
// Over maxmemory, Redis 2.0–2.4 refuse transactions, and 2.6 and later refuse the commands that
// make lists: a lock can then be neither extended nor released, and lasts until its end. An
// extension or a release writes a kilobyte to the AOF and the replicas; Guarded's writes a tenth of
// that.
type ListCAS struct{ Options }

// Acquire makes one attempt to hold key until now+ttl. A stale now is safe: our lease gets
// shorter, and fewer leases of others look expired. A key of more than 1,024 bytes
// is ErrInvalid.
func (g ListCAS) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, err := g.Lease(key, now, ttl)
	if err == nil {
		err = protocol.CanCompare(key, l.Value)
	}
	if err != nil {
		return l, err
	}
	held, err := g.take(c, now, &l)
	if held == "" || err != nil {
		return l, err
	}
	return g.takeover(c, l, held)
}

// takeover replaces a dead value, held.
func (g ListCAS) takeover(c *protocol.Conn, l protocol.Lease, held string) (protocol.Lease, error) {
	replies, err := c.Run(protocol.Change{If: protocol.ListCAS, Key: l.Key, Value: held, Do: []protocol.Cmd{{"GETSET", l.Key, l.Value}}, TakeFence: g.Fence})
	switch {
	case errors.Is(err, protocol.ErrLost):
		return l, &protocol.HeldError{Key: l.Key}
	case err == nil && g.Fence:
		l.Fence, err = c.Fence(l.Key, replies[len(replies)-1])
	}
	l.Ambiguous = l.Ambiguous && (err == nil || replies == nil) // else the fence alone is missing, as took has it
	l.How = protocol.TakenOver
	return l, err
}

// Extend moves the end of l to now+ttl.
func (g ListCAS) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	return g.extend(protocol.ListCAS, now, l, ttl, rotate)
}

// Release deletes the key if it still has our time on it. It may come late: a client that
// took over has changed the value.
func (g ListCAS) Release(l protocol.Lease) protocol.Change { return release(protocol.ListCAS, l) }

// Traits make the Locker check the server.
func (g ListCAS) Traits() protocol.Traits { return protocol.Traits{Rotates: true, Check: g.check} }

// check returns ErrUnsafeServer if lists don't compare here. On 1.2, where a list that was
// emptied stays, nothing that is safe is known.
func (g ListCAS) check(c *protocol.Conn, key string) error {
	const use = "getsetlock.Guarded, or where there is no WATCH getsetlock.Classic"
	return ability.Check(c, key, false, ability.Need{Ability: ability.Multi, Use: use}, ability.Need{Ability: ability.Lists, Use: use},
		ability.Need{Ability: ability.Setnx, Use: "another server"})
}
