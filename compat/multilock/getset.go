package multilock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// GetSet locks several keys of getsetlock on one server: MSETNX makes all of them or none. Keys
// that a crash left behind are taken over under WATCH: a client that is too late changes nothing,
// and no client deletes another's lock. One round trip when all keys are free, three for a takeover
// or a refusal, two for an extension or a release. Redis 2.2 and later.
//
//	acquire   MSETNX a T b T             1: ours
//	          WATCH a b; GET a; GET b    an unexpired timestamp: UNWATCH, held
//	          MULTI; MSET a T b T; EXEC  nil: another was faster, and nothing was written
//	extend    WATCH a b; GET a; GET b    all ours? else DEL those that are
//	          MULTI; MSET a T b T; EXEC
//	release   WATCH a b; GET a; GET b    all ours? else DEL those that are
//	          MULTI; DEL a b; EXEC
//
// Options are getsetlock's: use those of the keys' single locks. Like them it needs clocks that
// agree.
type GetSet struct{ getsetlock.Options }

// Acquire makes one attempt to hold all keys of the set until now+ttl.
func (g GetSet) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	keys, l, err := stamp(g.Options, key, now, ttl)
	if err != nil {
		return l, err
	}
	err = makeAll(c, g.Fence, keys, &l, func() error {
		replies, err := c.CompareAndSet(keys, nil, func(replies []any) ([]protocol.Cmd, error) {
			l.How = protocol.Free
			all, err := values(keys, replies)
			if err == nil {
				err = dead(g.Options, all, now)
			}
			if err == nil {
				l.How = protocol.TakenOver
			}
			return write("MSET", keys, l.Value, g.Fence), err
		})
		if err != nil {
			return taken(c, key, err)
		}
		l.Fence, err = fence(c, keys, replies[1:])
		return err
	})
	return l, err
}

// Extend moves the end of l to now+ttl, on all keys.
func (g GetSet) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	keys, next, draws, err := restamp(g.Options, now, l, ttl, rotate)
	return next, protocol.Change{Key: l.Key, Value: l.Value, TakeFence: draws, Custom: func(c *protocol.Conn) ([]any, error) {
		replies, err := ifAllHold(c, keys, l.Value, write("MSET", keys, next.Value, draws)...)
		if err != nil {
			return nil, err
		}
		return fenced(c, keys, replies, draws)
	}}, err
}

// Release deletes the keys that still have our time on them. It may come late: a client that took over has changed the
// value.
func (g GetSet) Release(l protocol.Lease) protocol.Change { return release(l) }

// Inspect reads all values and their TTLs in one round trip. The keys should have no TTL.
func (g GetSet) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	return inspect(c, now, key, "TTL", g.Options)
}

// Traits make the Locker check the server.
func (g GetSet) Traits() protocol.Traits { return protocol.Traits{Rotates: true, Check: g.check} }

// check returns ErrUnsafeServer where getsetlock.Guarded's check does, or without a MSETNX that is all or nothing.
func (g GetSet) check(c *protocol.Conn, key string) error {
	if err := ability.Check(c, first(key), false, getsetlock.Guarded{}.Needs("multilock.GetSetClassic")...); err != nil {
		return err
	}
	return checkMSETNX(c, first(key))
}
