package txlock

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Renamed takes the key by giving it a name that already has a TTL: the key is
// never without one, whatever is lost. One round trip, Redis 2.4 and later: before
// that RENAMENX drops the TTL, or refuses. It is the default where it works.
//
//	SETEX tmp ttl token     a key of our own, named after the token
//	RENAMENX tmp key        1: ours, TTL and all; 0: held
//	DEL tmp                 after a refusal; else its TTL removes it
//
// A refused attempt writes 183 bytes to the AOF and the replicas, so a waiter
// must look before it tries, as the Locker does.
type Renamed struct{ Options }

// Acquire makes one attempt to hold key until now+ttl.
func (r Renamed) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: r.value(key, now), Until: compat.Until(now, ttl), How: compat.Free}
	tmp := compat.Aux(key, l.Value)
	setex, err := compat.SetEx(r.Millis, tmp, l.Value, ttl)
	if err != nil {
		return l, err
	}
	rename, del := compat.Cmd{"RENAMENX", tmp, key}, compat.Cmd{"DEL", tmp}

	cmds := []compat.Cmd{setex, rename, del}
	if r.Fence {
		cmds = []compat.Cmd{setex, {"MULTI"}, rename, {"INCR", compat.FenceKey(key)}, {"EXEC"}, del}
	}
	replies, err := compat.Pipe(c, cmds...)
	if err != nil {
		return l, err
	}
	won := replies[1]
	if r.Fence {
		won, l.Fence, err = fenced(c, replies[1:5])
		if err != nil {
			return l, err
		}
	}
	switch won {
	case int64(1):
		return l, nil
	case int64(0):
		return l, &compat.HeldError{Key: key}
	}
	if refused, ok := replies[0].(redis.Error); ok {
		return l, refused // there is no tmp; what RENAMENX said follows from it
	}
	_, err = redis.Int(won, nil) // the server's own words: tmp was gone before it was renamed
	return l, err
}

// ExtendAll extends many leases in two round trips.
func (r Renamed) ExtendAll(c redis.Conn, now time.Time, leases []compat.Lease, ttls []time.Duration) ([]compat.Lease, []error) {
	return r.extendAll(c, now, leases, ttls)
}

// fenced reads the four replies of MULTI; RENAMENX; INCR; EXEC. The write is
// one with what stands before and behind it, so it can't be compat.Exec's.
func fenced(c redis.Conn, replies []any) (won any, fence int64, err error) {
	done, err := redis.Values(replies[3], nil)
	if err != nil {
		c.Do("DISCARD") //nolint:errcheck // a refused EXEC leaves 2.0–2.4 in MULTI
		for _, r := range replies {
			if refused, ok := r.(redis.Error); ok {
				return nil, 0, refused // the first is the reason: EXEC may only say that there was one
			}
		}
		return nil, 0, err
	}
	if len(done) != 2 {
		return nil, 0, fmt.Errorf("setnxlock: EXEC answered %v to RENAMENX and INCR", done)
	}
	fence, err = redis.Int64(done[1], nil)
	return done[0], fence, err
}

// Check is Options.Check, and asks whether the TTL travels with the name.
func (r Renamed) Check(c redis.Conn, key string) error {
	if err := r.Options.Check(c, key); err != nil {
		return err
	}
	from := compat.Aux(key, "check:"+compat.NewToken())
	to := compat.Aux(key, "check:"+compat.NewToken())
	replies, err := compat.Pipe(c,
		compat.Cmd{"SETEX", from, 10, "x"}, compat.Cmd{"RENAMENX", from, to}, compat.Cmd{"TTL", to},
		compat.Cmd{"SETEX", from, 10, "y"}, compat.Cmd{"RENAMENX", from, to}, compat.Cmd{"DEL", from}, compat.Cmd{"DEL", to})
	if err != nil {
		return err
	}
	if _, refused := replies[1].(redis.Error); refused {
		return compat.Refuse(c, "it does not let us use RENAMENX", "txlock.Guarded")
	}
	if ttl, err := compat.ReadTTL(replies[2], time.Second); err != nil || ttl == compat.NoTTL {
		return compat.Refuse(c, "RENAMENX drops the TTL (it travels with the name since 2.4), so a dead holder's lock would last for ever", "txlock.Guarded")
	}
	if replies[4] != int64(0) {
		return compat.Refuse(c, "RENAMENX renames onto a key that is held", "txlock.Guarded")
	}
	return nil
}
