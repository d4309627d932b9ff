package txlock

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Renamed makes another key that has a TTL, and renames it to the lock's: so the lock's key is
// never without a TTL, whatever is lost. One round trip, Redis 2.4 and later: before that RENAMENX
// drops the TTL, or refuses.
//
//	SETEX tmp ttl token     a key of our own, named after the token
//	RENAMENX tmp key        1: ours, TTL and all; 0: held
//	DEL tmp                 after a refusal; else its TTL removes it
//	GET key                 whose it is, after a refusal; ours, under WATCH, if the connection is pinned
//
// A refused attempt writes 183 bytes to the AOF and the replicas, so a waiter should read the key
// before it tries, as the Locker does.
type Renamed struct{ Options }

// Acquire makes one attempt to hold key until now+ttl.
func (r Renamed) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	value, aux := r.named(key, now)
	l := protocol.Lease{Key: key, Value: value, Until: protocol.Until(now, ttl), How: protocol.Free}
	var name, tmp any = key, aux
	setex, err := protocol.SetEx(r.Millis, tmp, l.Value, ttl)
	if err != nil {
		return l, err
	}
	w, err := c.Write(key, protocol.Write{
		Before:    []protocol.Cmd{setex},
		Do:        []protocol.Cmd{{"RENAMENX", tmp, name}},
		TakeFence: r.Fence,
		After:     []protocol.Cmd{{"DEL", tmp}},
		Read:      true,
		Pins:      true,
	})
	if w.Before != nil {
		if refused, ok := w.Before[0].(redis.Error); ok {
			return l, refused // there is no tmp; what RENAMENX said follows from it
		}
	}
	switch {
	case err != nil:
		return l, err
	case w.Done == nil: // nothing was watched; but if EXEC says so, it did not run
		return l, protocol.ErrAborted
	case w.Done[0] == int64(0):
		return l, w.Reading.Refused(key)
	}
	l.Fence = w.Fence
	return l, nil
}

// named returns a new value, and the key of our own named after it.
func (r Renamed) named(key string, now time.Time) (value, tmp string) {
	value = r.value(key, now)
	return value, protocol.Aux(key, value)
}

// Traits make the Locker check the server.
func (r Renamed) Traits() protocol.Traits { return protocol.Traits{Rotates: true, Check: r.check} }

// check returns ErrUnsafeServer where Options' check does, or if a TTL does not travel with its key's name.
func (r Renamed) check(c *protocol.Conn, key string) error {
	return ability.Check(c, key, r.Millis, append(r.Needs(instead), ability.Need{Ability: ability.Renamenx, Use: "txlock.Guarded"})...)
}
