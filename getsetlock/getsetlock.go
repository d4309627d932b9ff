// Package getsetlock is the lock of the SETNX page: the key's value is the time until which the
// lock is held. A client that reads an expired timestamp takes the lock over with GETSET, and the
// old value that GETSET returns shows whether the client was first. The key has no TTL.
//
//	SETNX key T     1: ours
//	GET key         an unexpired timestamp: held; no key any more: ask again
//	GETSET key T    an expired one, or nothing: ours; else another was faster
//
// Four variants write the same bytes. [Classic] is the published lock, for any Redis since 1.2 and
// for proxies without transactions. [Guarded] takes over and releases under WATCH (Redis 2.2), so
// that a client that is too late changes nothing. [ListCAS] does the same with lists (2.0), in one
// round trip less. [Patient] (2.2) takes over a key that it has seen unchanged for a lease,
// whatever time it shows. [TwoKeys] (2.2) is another protocol: the owner on one key, the deadline
// on a second.
//
// The clients' clocks must agree: a client whose clock is fast by more than the time left takes a
// lock that is held (getset/skewed-takeover). There are three ways out: with Dialect.Margin a
// client waits that much longer; with probe.Clock as its clock a Locker goes by the server's time;
// [Patient] works although the clocks disagree.
//
// Clients in other languages write the time in their own dialects: [Named] has those of the clients
// in the field, and package compat/dialect describes each of them.
//
// A value that can't be read completely in the dialect counts as held: it never expires and is
// never overwritten.
//
// Sources: the SETNX page of the Redis documentation ("Handling deadlocks");
// redis-py 2.2.4–2.9.1 Lock (float seconds, extended by nobody).
package getsetlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Options are the same for all four variants. The zero value writes float seconds and draws no
// fence.
type Options struct {
	// Dialect is how the fleet writes its timestamps. The zero value is Float.
	Dialect Dialect

	// Fence draws a fence by INCR in the transaction that takes the key (MULTI: any Redis since
	// 1.2, no proxies). It grows with every acquisition; a refused attempt may use up a number.
	Fence bool

	// Nonce returns the 12 digits that make a value unique, different at each call, where the
	// Dialect has room for them. nil: random digits.
	Nonce func() string
}

// Lease returns the lease for an attempt at now: the value to write, and its end. Locks made of this one call it. It
// sends nothing. The error is [protocol.ErrInvalid] if ttl is shorter than the dialect's unit.
func (o Options) Lease(key string, now time.Time, ttl time.Duration) (protocol.Lease, error) {
	d := o.Dialect.orFloat()
	if ttl < d.unit() {
		return protocol.Lease{Key: key}, fmt.Errorf("%w: a ttl of %v is shorter than the %v that %s count in",
			protocol.ErrInvalid, ttl, d.unit(), d.Name)
	}
	nonce := o.Nonce
	if nonce == nil {
		nonce = randomDigits
	}
	return protocol.Lease{
		Key:       key,
		Value:     d.Format(now.Add(ttl), nonce),
		Until:     protocol.Until(now, ttl),
		How:       protocol.Free,
		Ambiguous: d.Ambiguous(),
	}, nil
}

// Extended returns the lease that an extension at now makes of l. Locks made of this one call it. With rotate the value
// is a new one, also in a dialect without an owner and within one of its units: the time on the key is then a unit
// later, and a further extension does not take that unit back. Else a second client could adopt the lock by the value
// that an earlier one came with. The units may add up to a quarter of ttl.
func (o Options) Extended(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, error) {
	next, err := o.Lease(l.Key, now, ttl)
	d := o.Dialect.orFloat()
	was, _ := d.Parse(l.Value)
	until, _ := d.Parse(next.Value)
	if ahead := was.Sub(until); err == nil && next.Ambiguous && ahead >= 0 && ahead <= max(d.Unit, ttl/4) {
		if rotate {
			ahead += d.Unit
		}
		next.Value = d.Format(now.Add(ttl+ahead), o.Nonce)
	}
	next.Fence, next.How = l.Fence, l.How
	return next, err
}

// take tries to make the key, and reads it if it is held: dead is an expired time, to be taken
// over; "" if the key is ours. The error says who holds it.
func (o Options) take(c *protocol.Conn, now time.Time, l *protocol.Lease) (dead string, err error) {
	for try := 0; try < 2; try++ {
		_, won, err := o.setnx(c, l, false)
		if won || err != nil {
			return "", err
		}
		held, err := redis.String(c.Do("GET", l.Key))
		switch {
		case errors.Is(err, redis.ErrNil):
			continue // released since the SETNX: ask again, once (getset/vanished-key)
		case err != nil:
			return "", protocol.Foreign(l.Key, err)
		case !o.Dialect.Dead(held, now):
			return "", o.held(l.Key, held)
		}
		return held, nil
	}
	return "", &protocol.HeldError{Key: l.Key}
}

// setnx tries to make the key. The number of an attempt that was refused is older than that of the client that is next:
// only a winner keeps it, and only a winner needs one.
func (o Options) setnx(c *protocol.Conn, l *protocol.Lease, pins bool) (w protocol.Written, won bool, err error) {
	w, err = c.Write(l.Key, protocol.Write{Do: []protocol.Cmd{{"SETNX", l.Key, l.Value}}, TakeFence: o.Fence, Pins: pins})
	if len(w.Done) > 0 && w.Done[0] == int64(0) {
		return w, false, nil
	}
	if w.Done == nil && err == nil { // a WATCH from before: EXEC ran nothing
		err = protocol.ErrAborted
	}
	return w, err == nil, took(l, &w, err)
}

// took adds the fence of a write to l. If the write put l's value on the key, its error is the fence's alone: l is then
// unambiguous in every dialect, and the Locker gives the lock back.
func took(l *protocol.Lease, w *protocol.Written, err error) error {
	l.Fence = w.Fence
	if len(w.Done) > 0 && err != nil {
		_, refused := w.Done[0].(redis.Error)
		l.Ambiguous = l.Ambiguous && refused
	}
	return err
}

// extend returns the longer lease, and the change that writes its time. A lease without a fence draws one: it was
// adopted, or its number was lost with the reply.
func (o Options) extend(by protocol.Condition, now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	next, err := o.Extended(now, l, ttl, rotate)
	return next, protocol.Change{If: by, Key: l.Key, Value: l.Value, Do: []protocol.Cmd{{"GETSET", l.Key, next.Value}}, TakeFence: o.Fence && l.Fence == 0}, err
}

// release returns the change that removes the key.
func release(by protocol.Condition, l protocol.Lease) protocol.Change {
	return protocol.Change{If: by, Key: l.Key, Value: l.Value}
}

// held returns the refusal by a value of another client.
func (o Options) held(key, value string) error {
	until, ok := o.Dialect.orFloat().Parse(value)
	return &protocol.HeldError{Key: key, Value: value, Until: until, Foreign: !ok}
}

// Inspect reads the value and the TTL in one round trip. The key should have no TTL.
func (o Options) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	s, err := c.InspectToken(now, key, time.Second)
	s.Ambiguous = o.Dialect.Ambiguous()
	if err != nil || s.Status == protocol.StatusFree {
		return s, err
	}
	d := o.Dialect.orFloat()
	until, ok := d.Parse(s.Value)
	s.Status, s.Format, s.Until, s.Clock = protocol.StatusHeld, d.Name, until, "clients"
	switch {
	case !ok:
		s.Status, s.Format, s.Clock = protocol.StatusForeign, "not "+d.Name, ""
	case d.past(until, now):
		s.Status = protocol.StatusDead
	}
	return s, nil
}
