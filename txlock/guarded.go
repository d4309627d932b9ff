package txlock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Guarded sets the key and its TTL in one command, under a WATCH, so that it does nothing if
// another client was faster: the key is never without a TTL. Two round trips, a refusal included,
// which writes nothing. Redis 2.2 and later.
//
//	WATCH key; GET key            a value: held (the read reaps an expired key)
//	MULTI; SETEX key ttl token; EXEC
//	                              nil: another was faster
//	WATCH key; GET key            in the same write, if the connection is pinned
type Guarded struct{ Options }

// Acquire makes one attempt to hold key until now+ttl.
func (g Guarded) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: g.value(key, now), Until: protocol.Until(now, ttl), How: protocol.Free}
	setex, err := protocol.SetEx(g.Millis, key, l.Value, ttl)
	if err != nil {
		return l, err
	}
	held, exists, err := c.Watch(key)
	if err != nil {
		return l, err
	}
	if exists {
		c.Unwatch()
		return l, &protocol.HeldError{Key: key, Value: held}
	}
	w, err := c.Write(key, protocol.Write{Do: []protocol.Cmd{setex}, Exec: true, TakeFence: g.Fence, Pins: true})
	switch {
	case err != nil:
		return l, err
	case w.Done == nil:
		return l, &protocol.HeldError{Key: key} // taken since our GET
	}
	l.Fence = w.Fence
	return l, nil
}

// Traits make the Locker check the server.
func (g Guarded) Traits() protocol.Traits { return protocol.Traits{Rotates: true, Check: g.check} }
