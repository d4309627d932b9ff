package multilock

import (
	"cmp"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// GetSetClassic is GetSet for Redis 1.2 and 2.0, which have no WATCH: the protocol of the SETNX page, on many keys. One
// round trip when all keys are free, three for a takeover, two for a refusal, an extension or a release.
//
//	acquire   MSETNX a T b T                       1: ours
//	          GET a; GET b                         an unexpired timestamp: held
//	          MULTI; GETSET a T; GETSET b T; EXEC  all expired: ours; else another was faster:
//	                                               DEL the rest
//	extend    GET a; GET b                         all ours? else DEL those that are
//	          MULTI; GETSET a T; GETSET b T; EXEC
//	release   GET a; GET b                         DEL those that are ours
//	          DEL a b
//
// Each key has the dangers of [getsetlock.Classic]: a GETSET that comes second leaves its own time on the winner's key
// (getset/loser-overwrites), and a client that pauses between GET and DEL deletes its successor's lock (getset/paused-release).
type GetSetClassic struct{ getsetlock.Options }

// Acquire makes one attempt to hold all keys of the set until now+ttl.
func (g GetSetClassic) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	keys, l, err := stamp(g.Options, key, now, ttl)
	if err == nil {
		err = makeAll(c, g.Fence, keys, &l, func() error { return g.takeover(c, now, keys, &l) })
	}
	return l, err
}

// takeover replaces dead values. From then on the keys have our time on them, won or lost, so
// finding it there proves nothing: the lease is ambiguous until the reply is read.
func (g GetSetClassic) takeover(c *protocol.Conn, now time.Time, keys []string, l *protocol.Lease) error {
	all, err := read(c, keys)
	if err == nil {
		err = dead(g.Options, all, now)
	}
	if err != nil {
		return err
	}
	was := l.Ambiguous
	l.Ambiguous = true
	old, drawn, err := getset(c, keys, l.Value, g.Fence)
	if err != nil {
		return err
	}
	var won []string
	var held error // by a client that was faster; it will find our time there (getset/loser-overwrites)
	for _, f := range old {
		if err := dead(g.Options, []found{f}, now); err != nil && err != errGone {
			held = err
		} else {
			won = append(won, f.key)
		}
	}
	if held != nil {
		_, err = remove(c, won)
		return cmp.Or(err, held)
	}
	l.How, l.Ambiguous = protocol.TakenOver, was
	l.Fence, err = fence(c, keys, drawn)
	return err
}

// Extend moves the end of l to now+ttl, on all keys. Its GETs are for a client that has lost a key
// to another whose clock is fast: it must not overwrite that client's time.
func (g GetSetClassic) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	keys, next, draws, err := restamp(g.Options, now, l, ttl, rotate)
	return next, protocol.Change{Key: l.Key, Value: l.Value, TakeFence: draws, Custom: func(c *protocol.Conn) ([]any, error) {
		all, err := read(c, keys)
		if err == nil {
			err = giveUp(c, all, l.Value)
		}
		if err != nil {
			return nil, err
		}
		old, drawn, err := getset(c, keys, next.Value, draws)
		if err == nil {
			err = giveUp(c, old, l.Value) // another came in between
		}
		if err != nil {
			return nil, err
		}
		return fenced(c, keys, append([]any{"extended"}, drawn...), draws)
	}}, err
}

// Release reads the keys and deletes ours. In between another client may take one (getset/paused-release).
func (g GetSetClassic) Release(l protocol.Lease) protocol.Change {
	return protocol.Change{Key: l.Key, Value: l.Value, Custom: func(c *protocol.Conn) ([]any, error) {
		keys, err := Split(l.Key)
		if err != nil {
			return nil, err
		}
		all, err := read(c, keys)
		if err != nil {
			return nil, err
		}
		deleted, err := remove(c, holding(all, l.Value))
		if err == nil && deleted < len(keys) {
			err = protocol.ErrLost
		}
		return []any{int64(deleted)}, err
	}}
}

// Inspect reads all values and their TTLs in one round trip. The keys should have no TTL.
func (g GetSetClassic) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	return inspect(c, now, key, "TTL", g.Options)
}

// Traits make the Locker check the server.
func (g GetSetClassic) Traits() protocol.Traits {
	return protocol.Traits{Rotates: true, Check: g.check}
}
