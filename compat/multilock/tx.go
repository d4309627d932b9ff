package multilock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/txlock"
)

// Tx locks several keys of txlock on one server, in one transaction: all get the same token and the
// same TTL, or nothing is written. Two round trips for each step, however many keys. Redis 2.2 and
// later.
//
//	acquire   WATCH a b; GET a; GET b      a value: held
//	          MULTI; SETEX a ttl token; SETEX b ttl token; EXEC
//	                                       nil: another was faster
//	extend    WATCH a b; GET a; GET b      all ours?
//	          MULTI; EXPIRE a ttl; EXPIRE b ttl; EXEC
//	release   WATCH a b; GET a; GET b      all ours? else DEL those that are
//	          MULTI; DEL a b; EXEC
//
// Options are txlock's: use those of the keys' single locks.
type Tx struct{ txlock.Options }

// Acquire makes one attempt to hold all keys of the set until now+ttl.
func (t Tx) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	keys, err := lockable(key)
	if err != nil {
		return protocol.Lease{Key: key}, err
	}
	l := protocol.Lease{Key: key, Value: t.value(keys[0], now), Until: protocol.Until(now, ttl), How: protocol.Free}
	cmds, err := t.setex(keys, l.Value, ttl)
	if err != nil {
		return l, err
	}
	if t.Fence {
		cmds = append(cmds, draw(keys)...)
	}

	replies, err := c.CompareAndSet(keys, nil, func(replies []any) ([]protocol.Cmd, error) {
		all, err := values(keys, replies)
		for _, f := range all {
			if f.exists {
				return nil, t.refused(c, now, f)
			}
		}
		return cmds, err
	})
	if err != nil {
		return l, taken(c, key, err)
	}
	l.Fence, err = fence(c, keys, replies[len(keys):])
	return l, err
}

// Extend moves the end of l to now+ttl, on all keys: by EXPIRE, or by SETEX if the token must be a
// new one.
func (t Tx) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	old := l
	keys, err := Split(l.Key)
	if err != nil {
		return old, protocol.Change{}, err
	}
	var cmds []protocol.Cmd
	if rotate {
		l.Value = t.value(keys[0], now)
		cmds, err = t.setex(keys, l.Value, ttl)
	} else {
		cmds, err = each(keys, func(k string) (protocol.Cmd, error) { return protocol.Expire(t.Millis, k, ttl) })
	}
	draws := t.Fence && l.Fence == 0 // adopted, or its number was lost with the reply
	if draws {
		cmds = append(cmds, draw(keys)...)
	}
	l.Until = protocol.Until(now, ttl)
	return l, protocol.Change{Key: l.Key, Value: old.Value, TakeFence: draws, Custom: func(c *protocol.Conn) ([]any, error) {
		replies, err := ifAllHold(c, keys, old.Value, cmds...)
		if err != nil {
			return nil, err
		}
		for _, r := range replies[:len(keys)] {
			if r == int64(0) { // expired inside the transaction: before 6.0.9 WATCH does not notice
				return nil, t.lost(c, old)
			}
		}
		return fenced(c, keys, replies, draws)
	}}, err
}

// Release deletes the keys with our token.
func (t Tx) Release(l protocol.Lease) protocol.Change { return release(l) }

// Inspect reads all keys and their TTLs: one round trip.
func (t Tx) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	return inspect(c, now, key, t.ttl(), t.Options)
}

// Traits make the Locker check the server, and repair keys without a TTL.
func (t Tx) Traits() protocol.Traits {
	return protocol.Traits{Rotates: true, Check: t.check, Repair: t.Repair}
}

// check returns ErrUnsafeServer where txlock's check does.
func (t Tx) check(c *protocol.Conn, key string) error {
	return ability.Check(c, first(key), t.Millis, t.Needs("multilock.GetSetClassic")...)
}
