package txlock

import (
	"cmp"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Classic is the lock of books and articles: SETNX, then EXPIRE. Two round trips, Redis 2.2 and
// later.
//
//	SETNX key token           1: ours; 0: held
//	EXPIRE key ttl; GET key   not ours any more: it was repaired, and ran out, in between
//	                          (if the connection is pinned: EXPIRE; WATCH; GET)
//
// A client that dies between the two leaves a key that never expires (tx/crash-before-expire; see
// NoRepair). An EXPIRE that arrives late changes the next holder's lease (tx/late-expire).
type Classic struct {
	Options

	// NoRepair leaves a key without a TTL as it is: it never expires. By default a waiter gives
	// it one, under WATCH, after it has seen the value unchanged for its own ttl. It leaves
	// timestamps alone: such a key belongs to getsetlock, whose keys have no TTL.
	NoRepair bool
}

// Acquire makes one attempt to hold key until now+ttl.
func (k Classic) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: k.value(key, now), Until: protocol.Until(now, ttl), How: protocol.Free}
	expire, err := protocol.Expire(k.Millis, key, ttl)
	if err != nil {
		return l, err
	}
	// The EXPIRE must not stand in the same MULTI: it would run for a refused attempt too and
	// move the holder's end.
	w, err := c.Write(key, protocol.Write{Do: []protocol.Cmd{{"SETNX", key, l.Value}}, TakeFence: k.Fence})
	if w.Done == nil || err != nil {
		return l, cmp.Or(err, protocol.ErrAborted) // a WATCH from before: EXEC ran nothing
	}
	if w.Done[0] != int64(1) {
		return l, &protocol.HeldError{Key: key}
	}
	l.Fence = w.Fence

	if w, err = c.Write(key, protocol.Write{Do: []protocol.Cmd{expire}, Read: true, Pins: true}); err != nil {
		return l, err // ours, without a TTL: the Locker extends it or releases it
	}
	if w.Done[0] == int64(0) || w.Reading.Gone(l.Value) {
		return l, protocol.ErrLost
	}
	_, _, err = w.Reading.Value(key)
	return l, err // not ErrLost, but ours for all we know: a cluster can refuse the GET alone
}

// Traits make the Locker check the server, and repair a key without a TTL.
func (k Classic) Traits() protocol.Traits {
	return protocol.Traits{Rotates: true, Check: k.check, Repair: k.Repair}
}

// Repair returns the change that gives a key without a TTL one, if it still holds s.Value. It returns
// [protocol.ErrHeld] for a timestamp, and if NoRepair is set.
func (k Classic) Repair(now time.Time, s protocol.State, ttl time.Duration) (protocol.Change, error) {
	if k.NoRepair || dialect.IsTime(s.Value) {
		return protocol.Change{}, protocol.ErrHeld
	}
	expire, err := protocol.Expire(k.Millis, s.Key, ttl)
	return protocol.Change{Key: s.Key, Value: s.Value, Do: []protocol.Cmd{expire}, Persistent: true, Once: true}, err
}
