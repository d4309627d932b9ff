package bridge

import (
	"cmp"
	"errors"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// OneKey is the bridge between timestamp clients and token clients that lock the same key. It
// writes a time in the old fleet's dialect, and a TTL that does not end before that time. Old
// clients read when the lock ends, new ones see that the key exists, and if we die, both can take
// the lock afterwards. Two round trips for each step, a refusal included. Redis 2.2 and later.
//
//	WATCH key; GET key           nothing, or an expired time: take it
//	                             an unexpired time, a token, anything else: UNWATCH, held
//	MULTI; SETEX key ttl T; EXEC nil: another was faster, and nothing was written
//
// An extension writes both anew, and a release deletes the key, under WATCH too.
//
// The published takeover, GETSET, would remove the TTL, and SETNX would leave the key without one
// for a moment: a crash at that moment keeps token clients out for ever (compat/ttl-vs-stamp). For
// the same reason the two fleets must not run at once, bridge or not: a key that an old client
// takes over has no TTL, and an old client can't read a token, so it fails or takes the lock over
// (compat/token-read-as-expired).
//
// Options are getsetlock's: Dialect is the old fleet's. Its clocks must agree, as
// they had to before.
type OneKey struct {
	getsetlock.Options

	// Millis counts TTLs in milliseconds (Redis 2.6 and later).
	Millis bool
}

// Acquire makes one attempt to hold key until now+ttl. A stale now is safe: our
// lease gets shorter, and fewer leases of others look expired.
func (b OneKey) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, err := b.Lease(key, now, ttl)
	if err != nil {
		return l, err
	}
	held, exists, err := c.Watch(key)
	if err != nil {
		return l, err
	}
	if exists && !b.Dialect.Dead(held, now) {
		c.Unwatch()
		until, _ := b.Dialect.Parse(held)
		return l, &protocol.HeldError{Key: key, Value: held, Until: until}
	}
	if exists {
		l.How = protocol.TakenOver
	}
	w, err := c.Write(key, protocol.Write{Do: []protocol.Cmd{b.write(l, now)}, Exec: true, TakeFence: b.Fence, Pins: !l.Ambiguous})
	switch {
	case err == nil && w.Done == nil:
		return l, &protocol.HeldError{Key: key}
	case err != nil && w.Done != nil && w.Done[0] == "OK":
		l.Ambiguous = false // the fence alone is missing: the Locker gives the lock back
	}
	l.Fence = w.Fence
	return l, err
}

// write writes l on the key, with a TTL no shorter than its time. One that ended sooner would free the key under a
// holder in whose time the others still believe.
func (b OneKey) write(l protocol.Lease, now time.Time) protocol.Cmd {
	until, _ := b.Dialect.Parse(l.Value)
	return setex(b.Millis, l.Key, l.Value, until.Sub(now))
}

// setex makes key with a TTL of ttl, rounded up, a second at least where the
// server counts in seconds.
func setex(millis bool, key, value string, ttl time.Duration) protocol.Cmd {
	cmd, _ := protocol.SetEx(millis, key, value, max(ttl, unit(millis))) // never too short
	return cmd
}

// unit returns the unit of TTLs.
func unit(millis bool) time.Duration {
	if millis {
		return time.Millisecond
	}
	return time.Second
}

// Extend moves the end of our lease to now+ttl, on the key and in its TTL. If the key has expired unnoticed since the
// GET (before Redis 6.0.9), it is made again: no other client has had it, or EXEC would have failed.
func (b OneKey) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	next, err := b.Extended(now, l, ttl, rotate)
	if err != nil {
		return l, protocol.Change{}, err
	}
	ch := b.change(l, b.write(next, now))
	ch.TakeFence = b.Fence && l.Fence == 0 // adopted, or its number was lost with the reply
	return next, ch, nil
}

// Release deletes the key if it still has our time on it. It may come late: a client that took over
// has changed the value. In a dialect in which two clients can write the same time it must not come
// late: when our key has expired, another client may have written the same time again
// (getset/same-stamp). So the Locker does not release an Ambiguous lease that has ended, and leaves
// the key to expire.
func (b OneKey) Release(l protocol.Lease) protocol.Change {
	return b.change(l, protocol.Cmd{"DEL", l.Key})
}

// change returns a command to run if the key holds our time. An EXEC that was aborted is not tried again if another
// client can have made the same value since.
func (b OneKey) change(l protocol.Lease, cmd protocol.Cmd) protocol.Change {
	return protocol.Change{Key: l.Key, Value: l.Value, Do: []protocol.Cmd{cmd}, Once: l.Ambiguous}
}

// Inspect reads the value and the TTL: one round trip. A time of the dialect ends by the clients'
// clocks, a token with its TTL.
func (b OneKey) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	s, err := c.InspectToken(now, key, unit(b.Millis))
	until, timed := b.Dialect.Parse(s.Value)
	if err != nil || !timed || s.Status == protocol.StatusFree {
		return s, err
	}
	s.Ambiguous = b.Dialect.Ambiguous()
	s.Status, s.Until, s.Clock, s.Format = protocol.StatusHeld, until, "clients", cmp.Or(b.Dialect.Name, getsetlock.Float.Name)
	if b.Dialect.Dead(s.Value, now) {
		s.Status = protocol.StatusDead
	}
	return s, nil
}

// Traits make the Locker check the server, and give an end to a token without a TTL: the new fleet's client died before
// it set one (tx/crash-before-expire). A time gets none: that is its dialect's to end.
func (b OneKey) Traits() protocol.Traits {
	return protocol.Traits{
		Rotates: true,
		Check:   b.check,
		Repair:  repair(b.Millis),
	}
}

// repair returns txlock's repair of a token without a TTL.
func repair(millis bool) func(time.Time, protocol.State, time.Duration) (protocol.Change, error) {
	return txlock.Classic{Options: txlock.Options{Millis: millis}}.Repair
}

// check returns ErrUnsafeServer if there is no WATCH, or if a key with a TTL does not stand up to SETNX; ErrDrain if
// the dialect's clients take a held key.
func (b OneKey) check(c *protocol.Conn, key string) error {
	if f, err := dialect.Lookup(b.Dialect.Name); err == nil && drain(f) != nil {
		return drain(f)
	}
	return check(c, key, b.Millis)
}

// check returns ErrUnsafeServer if txlock's abilities are missing. Where tokens are not safe even with whole seconds,
// no other lock of tokens helps.
func check(c *protocol.Conn, key string, millis bool) error {
	tokens := func(millis bool) error {
		return txlock.Guarded{Options: txlock.Options{Millis: millis}}.Traits().Check(c, key)
	}
	err := tokens(millis)
	var unsafe *protocol.UnsafeServerError
	if !errors.As(err, &unsafe) || millis && tokens(false) == nil {
		return err
	}
	unsafe.Use = "the old fleet's lock (getsetlock.ListCAS or getsetlock.Classic, in its dialect), and no tokens beside it"
	return err
}
