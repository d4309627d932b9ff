package multilock

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// GetSetClassic is GetSet for Redis 1.2 and 2.0, which have no WATCH: the
// protocol of the SETNX page, on many keys. One round trip when all keys are free,
// three for a takeover, two for a refusal, an extension or a release.
//
//	acquire   MSETNX a T b T                       1: ours
//	          GET a; GET b                         one has a time to come: held
//	          MULTI; GETSET a T; GETSET b T; EXEC  all times gone by: ours; else another
//	                                               was faster: DEL the rest
//	extend    GET a; GET b                         all ours? else DEL those that are
//	          MULTI; GETSET a T; GETSET b T; EXEC
//	release   GET a; GET b                         DEL those that are ours
//	          DEL a b
//
// It has the dangers of getsetlock.Classic, on each key: a GETSET that lost
// leaves its own time on the winner's key (getset/loser-overwrites), and a client that
// pauses between GET and DEL deletes its successor's (getset/paused-release).
type GetSetClassic struct{ getsetlock.Options }

// Acquire makes one attempt to hold all keys of the set until now+ttl.
func (g GetSetClassic) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	keys, l, err := stamp(g.Options, key, now, ttl)
	if err != nil {
		return l, err
	}
	for try := 0; try < 2; try++ {
		won, err := msetnx(c, g.Fence, keys, &l)
		if won || err != nil {
			return l, err
		}
		all, err := read(c, keys)
		if err != nil {
			return l, err
		}
		exists, err := dead(g.Options, all, now)
		switch {
		case err != nil:
			return l, err
		case exists:
			return g.takeover(c, now, keys, l)
		}
		// Released since the MSETNX: ask again, once (getset/vanished-key).
	}
	return l, &compat.HeldError{Key: key}
}

// takeover replaces dead values. From here on the keys have our time on them,
// won or lost, so finding it there proves nothing: the lease is ambiguous until
// the reply is read.
func (g GetSetClassic) takeover(c redis.Conn, now time.Time, keys []string, l compat.Lease) (compat.Lease, error) {
	asked := l
	asked.Ambiguous = true
	old, drawn, err := getset(c, keys, l.Value, g.Fence)
	if err != nil {
		return asked, err
	}
	var won []string
	var held error // by who was faster; it will find our time there (getset/loser-overwrites)
	for _, f := range old {
		if _, err := dead(g.Options, []found{f}, now); err != nil {
			held = err
		} else {
			won = append(won, f.key)
		}
	}
	if held != nil {
		if _, err := remove(c, won); err != nil {
			return asked, err
		}
		return asked, held
	}
	l.How = compat.TakenOver
	l.Fence, err = fence(c, keys, drawn)
	return l, err
}

// Extend moves the end of a lease that is still ours to now+ttl, on all keys.
// The GETs keep a client that has lost a key, to another whose clock is fast, from
// writing over it.
func (g GetSetClassic) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	keys, next, err := stamp(g.Options, l.Key, now, ttl)
	if err != nil {
		return l, err
	}
	next.Fence, next.How = l.Fence, l.How
	if !now.Before(l.Until) {
		return l, compat.ErrLost
	}
	all, err := read(c, keys)
	if err != nil {
		return l, err
	}
	if ours := holding(all, l.Value); len(ours) < len(keys) {
		return l, lost(c, ours)
	}
	draws := g.Fence && l.Fence == 0 // adopted, or its number was lost with the reply
	old, drawn, err := getset(c, keys, next.Value, draws)
	if err != nil {
		return next, err
	}
	if ours := holding(old, l.Value); len(ours) < len(keys) {
		return next, lost(c, ours)
	}
	if draws {
		next.Fence, err = fence(c, keys, drawn)
	}
	return next, err
}

// Release deletes the keys that still have our time on them, as long as that
// time has not come: after it, another client may have taken one over between
// our GET and our DEL.
func (g GetSetClassic) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	keys, err := Split(l.Key)
	if err != nil {
		return err
	}
	if !now.Before(l.Until) {
		return compat.ErrLost
	}
	all, err := read(c, keys)
	if err != nil {
		return err
	}
	deleted, err := remove(c, holding(all, l.Value))
	if err == nil && deleted < len(keys) {
		return compat.ErrLost
	}
	return err
}

// Inspect reads all values, and the TTLs that should not be there: one round trip.
func (g GetSetClassic) Inspect(c redis.Conn, now time.Time, key string) (compat.State, error) {
	return inspect(c, now, key, "TTL", g.Options)
}

// Check asks for MSETNX and MULTI.
func (g GetSetClassic) Check(c redis.Conn, key string) error {
	_, err := compat.Exec(c, compat.Cmd{"EXISTS", first(key)})
	if compat.UnknownCommand(err) {
		return compat.Refuse(c, "it has no MULTI, so several keys can't be taken over at once", "multilock.New over getsetlock.Classic")
	}
	if err != nil {
		return err
	}
	return checkMSETNX(c, first(key))
}

// read reads keys in one write.
func read(c redis.Conn, keys []string) ([]found, error) {
	replies, err := compat.Pipe(c, gets(keys)...)
	if err != nil {
		return nil, err
	}
	return values(keys, replies)
}

// getset writes value on all keys at once, and returns what they held and the
// numbers that were drawn.
func getset(c redis.Conn, keys []string, value string, fenced bool) (old []found, drawn []any, err error) {
	var cmds []compat.Cmd
	for _, k := range keys {
		cmds = append(cmds, compat.Cmd{"GETSET", k, value})
	}
	if fenced {
		cmds = append(cmds, draw(keys)...)
	}
	replies, err := compat.Exec(c, cmds...)
	if err != nil {
		return nil, nil, err
	}
	old, err = values(keys, replies[:len(keys)])
	return old, replies[len(keys):], err
}

// remove deletes keys and returns how many there were.
func remove(c redis.Conn, keys []string) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	cmd := del(keys)
	return redis.Int(c.Do(cmd[0].(string), cmd[1:]...))
}

// lost gives back what is left of a set of which a key is lost.
func lost(c redis.Conn, ours []string) error {
	if _, err := remove(c, ours); err != nil {
		return err
	}
	return compat.ErrLost
}
