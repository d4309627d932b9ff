package txlock

import (
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
//	WATCH key               if the connection is kept
//	GET key                 whose it is, after a refusal; ours, if it is kept
//
// A refused attempt writes 183 bytes to the AOF and the replicas, so a waiter
// must look before it tries, as the Locker does.
type Renamed struct{ Options }

// Acquire makes one attempt to hold key until now+ttl.
func (r Renamed) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, _, err := r.acquire(c, now, key, ttl, false)
	return l, err
}

// AcquireKept is Acquire, and goes on watching the key.
func (r Renamed) AcquireKept(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, bool, error) {
	l, s, err := r.acquire(c, now, key, ttl, true)
	return l, s.Keeps(l), err
}

func (r Renamed) acquire(c redis.Conn, now time.Time, key string, ttl time.Duration, kept bool) (l compat.Lease, s compat.Sight, err error) {
	value, aux := r.named(key, now)
	l = compat.Lease{Key: key, Value: value, Until: compat.Until(now, ttl), How: compat.Free}
	var name, tmp any = key, aux
	setex, err := compat.SetEx(r.Millis, tmp, l.Value, ttl)
	if err != nil {
		return l, s, err
	}
	rename, del, get := compat.Cmd{"RENAMENX", tmp, name}, compat.Cmd{"DEL", tmp}, compat.Cmd{"GET", name}
	var replies []any
	switch {
	case r.Fence && kept:
		replies, err = compat.Pipe(c, setex, compat.Cmd{"MULTI"}, rename, compat.Cmd{"INCR", compat.FenceKey(key)}, compat.Cmd{"EXEC"}, del, compat.Cmd{"WATCH", name}, get)
	case r.Fence:
		replies, err = compat.Pipe(c, setex, compat.Cmd{"MULTI"}, rename, compat.Cmd{"INCR", compat.FenceKey(key)}, compat.Cmd{"EXEC"}, del, get)
	case kept:
		replies, err = compat.Pipe(c, setex, rename, del, compat.Cmd{"WATCH", name}, get)
	default:
		replies, err = compat.Pipe(c, setex, rename, del, get)
	}
	if err != nil {
		return l, s, err
	}
	s = compat.Seen(replies)
	won := replies[1]
	if r.Fence {
		var done []any
		if done, err = compat.Executed(c, replies[1:5]); err == nil && done != nil {
			won, l.Fence = done[0], done[1].(int64)
		}
	}
	refused, ok := replies[0].(redis.Error)
	switch {
	case ok:
		return l, s, refused // there is no tmp; what RENAMENX said follows from it
	case err != nil:
		return l, s, err
	case won == int64(1):
		return l, s, nil
	case won == int64(0):
		return l, s, s.Refused(key)
	}
	_, err = redis.Int(won, nil) // the server's own words: tmp was gone before it was renamed
	return l, s, err
}

// named is the value of an acquisition, and the key of our own named after it.
func (r Renamed) named(key string, now time.Time) (value, tmp string) {
	if r.Token == nil && r.Form == nil {
		return compat.NewTokenAndAux(key)
	}
	value = r.value(key, now)
	return value, compat.Aux(key, value)
}

// ExtendAll extends many leases in two round trips.
func (r Renamed) ExtendAll(c redis.Conn, now time.Time, leases []compat.Lease, ttls []time.Duration) ([]compat.Lease, []error) {
	return r.extendAll(c, now, leases, ttls)
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
