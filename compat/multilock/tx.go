package multilock

import (
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/txlock"
)

// Tx locks several keys of txlock's on one server, in one transaction: all get
// the same token and the same TTL, or nothing is written. Two round trips for
// each step, however many keys. Redis 2.2 and later.
//
//	acquire   WATCH a b; GET a; GET b      a value: held
//	          MULTI; SETEX a ttl token; SETEX b ttl token; EXEC
//	                                       nil: another was faster
//	extend    WATCH a b; GET a; GET b      all ours?
//	          MULTI; EXPIRE a ttl; EXPIRE b ttl; EXEC
//	release   WATCH a b; GET a; GET b      all ours? else DEL those that are
//	          MULTI; DEL a b; EXEC
//
// Options are txlock's: those that the single locks of the keys use.
type Tx struct{ txlock.Options }

// Acquire makes one attempt to hold all keys of the set until now+ttl.
func (t Tx) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	keys, err := Split(key)
	if err != nil {
		return compat.Lease{Key: key}, err
	}
	l := compat.Lease{Key: key, Value: t.value(keys[0], now), Until: compat.Until(now, ttl), How: compat.Free}
	var cmds []compat.Cmd
	for _, k := range keys {
		setex, err := compat.SetEx(t.Millis, k, l.Value, ttl)
		if err != nil {
			return l, err
		}
		cmds = append(cmds, setex)
	}
	if t.Fence {
		cmds = append(cmds, draw(keys)...)
	}

	all, err := watch(c, keys)
	if err != nil {
		return l, err
	}
	for _, f := range all {
		if f.exists {
			return l, t.refused(c, now, f)
		}
	}
	replies, err := compat.Exec(c, cmds...)
	switch {
	case err != nil:
		return l, err
	case replies == nil:
		return l, &compat.HeldError{Key: key} // one of them was taken since our GET
	}
	l.Fence, err = fence(c, keys, replies[len(keys):])
	return l, err
}

// refused names the key that was in the way, and reads its end in the write that ends
// the WATCH.
func (t Tx) refused(c redis.Conn, now time.Time, f found) error {
	replies, err := compat.Pipe(c, compat.Cmd{"UNWATCH"}, compat.Cmd{t.ttl(), f.key})
	if f.foreign != nil {
		return f.foreign
	}
	held := &compat.HeldError{Key: f.key, Value: f.value}
	if err == nil {
		if left, err := compat.ReadTTL(replies[1], t.tick()); err == nil && left != compat.NoTTL {
			held.Until = now.Add(left)
		}
	}
	return held
}

// Extend sets the end of a lease that is still ours to now+ttl, on all keys.
func (t Tx) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	keys, err := Split(l.Key)
	if err != nil {
		return l, err
	}
	var cmds []compat.Cmd
	for _, k := range keys {
		expire, err := compat.Expire(t.Millis, k, ttl)
		if err != nil {
			return l, err
		}
		cmds = append(cmds, expire)
	}
	if !now.Before(l.Until) {
		return l, compat.ErrLost
	}
	drawn := t.Fence && l.Fence == 0 // adopted, or its number was lost with the reply
	if drawn {
		cmds = append(cmds, draw(keys)...)
	}
	replies, err := ifAllHold(c, keys, l.Value, cmds...)
	if err != nil {
		return l, err
	}
	for _, r := range replies[:len(keys)] {
		if r == int64(0) { // expired inside the transaction: before 6.0.9 WATCH does not notice
			if err := t.Release(c, now, l); err != nil {
				return l, err
			}
			return l, compat.ErrLost
		}
	}
	if drawn {
		if l.Fence, err = fence(c, keys, replies[len(keys):]); err != nil {
			return l, err
		}
	}
	l.Until = compat.Until(now, ttl)
	return l, nil
}

// Release deletes the keys that still hold our token.
func (t Tx) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	keys, err := Split(l.Key)
	if err != nil {
		return err
	}
	replies, err := ifAllHold(c, keys, l.Value, del(keys))
	if err == nil && replies[0] != int64(len(keys)) {
		return compat.ErrLost // one had expired
	}
	return err
}

// Inspect reads all keys and their TTLs: one round trip.
func (t Tx) Inspect(c redis.Conn, now time.Time, key string) (compat.State, error) {
	return inspect(c, now, key, t.ttl(), t.Options)
}

// Repair gives an end to those keys of the set that hold s.Value and have none.
func (t Tx) Repair(c redis.Conn, now time.Time, s compat.State, ttl time.Duration) error {
	keys, err := Split(s.Key)
	if err != nil {
		return err
	}
	for _, k := range keys {
		one := s
		one.Key = k
		err = txlock.Classic{Options: t.Options}.Repair(c, now, one, ttl)
		if !errors.Is(err, compat.ErrHeld) {
			return err
		}
	}
	return err
}

// Check is txlock's.
func (t Tx) Check(c redis.Conn, key string) error {
	return forSets(t.Options.Check(c, first(key)))
}

// value is what an acquisition at now writes, on every key. A Form that tells the
// key in it tells the first.
func (t Tx) value(key string, now time.Time) string {
	token := t.Token
	if token == nil {
		token = compat.NewToken
	}
	if t.Form == nil {
		return token()
	}
	return t.Form(key, now, token())
}

// ttl is the command that tells a TTL as Options counts it.
func (t Tx) ttl() string {
	if t.Millis {
		return "PTTL"
	}
	return "TTL"
}

func (t Tx) tick() time.Duration {
	if t.Millis {
		return time.Millisecond
	}
	return time.Second
}
