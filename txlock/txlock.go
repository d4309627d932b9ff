// Package txlock is the lock whose key holds a random token and whose TTL is
// the lease, released under WATCH. It needs Redis 2.2 or later.
//
//	acquire   three ways, each on its own page:
//	          Classic   SETNX, then EXPIRE: as published
//	          Guarded   SETEX under WATCH: crash-safe
//	          Renamed   SETEX to another name, RENAMENX: crash-safe, one round trip, 2.4
//	          (Fleet is Guarded in the form of another language's client: see Named)
//	extend    WATCH key; GET key        ours?
//	          MULTI; EXPIRE key; EXEC   nil: another was faster
//	release   WATCH key; GET key        ours?
//	          MULTI; DEL key; EXEC      nil: another was faster
//	          or, with Options.ListCAS, in one round trip by lists (protocol.ListCAS)
//
// Over a pinned connection a release is one round trip (nil: compare, as above).
//
//	release   MULTI; GET key; DEL key; EXEC
//
// All three write the same bytes on the same key, so they exclude each other and every client that
// takes a token lock with SETNX and EXPIRE or with SET NX PX. Clocks need not agree: only the
// server's decides.
//
// Before Redis 2.2 a SETNX on a key with a TTL deletes the key and succeeds
// (old/setnx-on-volatile). This lock would exclude nobody there, so it refuses such a server. Like
// every lock with a lease, it can't stop a holder that pauses past the end of its lease and then
// writes (any/paused-holder): the fence is for that.
//
// Sources: Redis in Action, 6.2 (acquire_lock_with_timeout, release_lock);
// redis-py 2.10 Lock; the pages of WATCH and RENAMENX.
package txlock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Options are the same for each variant. The zero value works on every server
// since 2.2.
type Options struct {
	// Millis counts TTLs in milliseconds (PSETEX, PEXPIRE, PTTL: Redis 2.6 and
	// later) instead of whole seconds.
	Millis bool

	// Fence draws a fence by INCR in the transaction that takes the key. It grows with every
	// acquisition; a refused attempt may use up a number.
	Fence bool

	// ListCAS releases in one round trip instead of two, by a transaction of list commands that
	// compares ([protocol.ListCAS]). It costs the server twelve commands, some 20 µs, so it pays
	// where a round trip takes longer than that, and writes a kilobyte to the AOF and the replicas
	// instead of 60 bytes. The lock checks the server for it. A key of more than 1,024 bytes, or a
	// value that is empty or equal to its key, is released as without ListCAS.
	ListCAS bool

	// Token returns the value of the next acquisition, unique to it. nil: [protocol.NewToken].
	Token func() string

	// Form makes the value from the token, the key and the time of the acquisition, for clients
	// that read more than a token in it (see [Named]). nil: the value is the token.
	Form func(key string, now time.Time, token string) string
}

// Extend moves the end of l to now+ttl: by EXPIRE, or by SETEX if the token must be a new one.
func (o Options) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	draws := o.Fence && l.Fence == 0 // adopted, or its number was lost with the reply
	ch := protocol.Change{Key: l.Key, Value: l.Value, TTL: ttl, Whole: !o.Millis, TakeFence: draws}
	_, err := protocol.Whole(ttl, o.unit())
	if rotate {
		l.Value = o.value(l.Key, now)
	}
	ch.Next, l.Until = l.Value, protocol.Until(now, ttl)
	return l, ch, err
}

// Release deletes the key if it still holds our token: two round trips, or one on a pinned
// connection or with ListCAS.
func (o Options) Release(l protocol.Lease) protocol.Change {
	ch := protocol.Change{Key: l.Key, Value: l.Value}
	if o.ListCAS && protocol.CanCompare(l.Key, l.Value) == nil {
		ch.If = protocol.ListCAS
	}
	return ch
}

// Inspect reads the token and the TTL: one round trip.
func (o Options) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	return c.InspectToken(now, key, o.unit())
}

// unit returns the unit of the TTLs.
func (o Options) unit() time.Duration {
	if o.Millis {
		return time.Millisecond
	}
	return time.Second
}

// check returns ErrUnsafeServer if a key with a TTL does not stand up to SETNX here, or can't be
// extended or released safely.
func (o Options) check(c *protocol.Conn, key string) error {
	return ability.Check(c, key, o.Millis, o.Needs(instead)...)
}

const instead = "getsetlock.ListCAS, or where that is refused too getsetlock.Classic"

// Needs lists the abilities that a server must have. A refusal names use, or other options, as the remedy.
func (o Options) Needs(use string) []ability.Need {
	ttl := ability.Need{Ability: ability.Setex, Use: use}
	if o.Millis {
		ttl = ability.Need{Ability: ability.Milliseconds, Use: "whole seconds: Options.Millis false"}
	}
	needs := []ability.Need{{Ability: ability.Multi, Use: use}, {Ability: ability.Watch, Use: use}, ttl,
		{Ability: ability.SetnxOnTTL, Use: use}, {Ability: ability.ExpireAgain, Use: use}}
	if o.ListCAS {
		needs = append(needs, ability.Need{Ability: ability.Lists, Use: "Options.ListCAS false"})
	}
	return needs
}

// value returns a new value for an acquisition of key at now.
func (o Options) value(key string, now time.Time) string {
	token := ""
	if o.Token != nil {
		token = o.Token()
	} else {
		token = protocol.NewToken()
	}
	if o.Form != nil {
		return o.Form(key, now, token)
	}
	return token
}
