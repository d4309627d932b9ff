// Package txlock is the lock whose key holds a random token and whose TTL is
// the lease, released under WATCH. It needs Redis 2.2 or later.
//
//	acquire   three ways, each on its own page:
//	          Classic   SETNX, then EXPIRE: as published
//	          Guarded   SETEX under WATCH: crash-safe
//	          Renamed   SETEX to another name, RENAMENX: crash-safe, one round trip, 2.4
//	          (Fleet is Guarded in the words of another language's client: see Named)
//	extend    WATCH key; GET key        ours?
//	          MULTI; EXPIRE key; EXEC   nil: somebody was faster
//	release   WATCH key; GET key        ours?
//	          MULTI; DEL key; EXEC      nil: somebody was faster
//	          or, with Options.Listed, in one round trip by lists (compat.ReleaseListed)
//
// On the connection that acquired, if it went on watching (compat.Keeper), each
// is one round trip; nil: compare, as above.
//
//	extend    MULTI; EXPIRE key; EXEC; WATCH key; GET key
//	release   MULTI; EXISTS key; DEL key; EXEC
//
// All three write the same bytes on the same key, so they exclude each other,
// SETNX+EXPIRE clients and SET NX PX clients. Clocks need not agree: only the
// server's decides.
//
// Before 2.2 a SETNX on a key with a TTL deletes the key and succeeds
// (old/setnx-on-volatile): there this lock excludes nobody, and refuses. Like
// every lock with a lease it can't stop a holder that pauses past the end of it
// and writes on (any/paused-holder): that is what the fence is for.
//
// Sources: Redis in Action, 6.2 (acquire_lock_with_timeout, release_lock);
// redis-py 2.10 Lock; the pages of WATCH and RENAMENX.
package txlock

import (
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Options are the same for each variant. The zero value works on every server
// since 2.2.
type Options struct {
	// Millis counts TTLs in milliseconds (PSETEX, PEXPIRE, PTTL: Redis 2.6 and
	// later) instead of whole seconds.
	Millis bool

	// Fence draws a number from INCR in the transaction that takes the key.
	// It grows with every acquisition; a refused attempt may burn one.
	Fence bool

	// Listed releases in one round trip instead of two, by a transaction of list
	// commands that compares (compat.ReleaseListed). It costs the server the time of
	// twelve commands, some 20 µs, so it is for servers that are farther away than that,
	// and a kilobyte in the AOF and the replicas instead of 60 bytes. Check tries it. Keys of more than
	// compat.MaxListedKey bytes, and values that are empty or their own key, are
	// released as ever.
	Listed bool

	// Token returns the value of the next acquisition, different each time and
	// for each client. nil: compat.NewToken.
	Token func() string

	// Form makes the value of an acquisition of key at now from its token, for
	// clients that read more in it than that it is not theirs (see Named). nil:
	// the token itself.
	Form func(key string, now time.Time, token string) string
}

// Extend sets the end of a lease that is still ours to now+ttl: two round trips.
func (o Options) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	expire, err := compat.Expire(o.Millis, l.Key, ttl)
	if err != nil {
		return l, err
	}
	draw := o.Fence && l.Fence == 0 // adopted, or its number was lost with the reply
	return compat.ExtendIfHolds(c, now, l, ttl, expire, draw)
}

// extendAll is each variant's ExtendAll: many leases in two round trips. It is not
// Options' own, or a lock of another shape that has Options in it would have it too.
func (o Options) extendAll(c redis.Conn, now time.Time, leases []compat.Lease, ttls []time.Duration) ([]compat.Lease, []error) {
	return compat.ExtendAllIfHold(c, now, leases, ttls, func(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, []compat.Cmd, error) {
		expire, err := compat.Expire(o.Millis, l.Key, ttl)
		cmds := []compat.Cmd{expire}
		if o.Fence && l.Fence == 0 {
			cmds = append(cmds, compat.Cmd{"INCR", compat.FenceKey(l.Key)})
		}
		l.Until = compat.Until(now, ttl)
		return l, cmds, err
	})
}

// Release deletes the key if it still holds our token: two round trips, or one.
func (o Options) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	if o.Listed {
		if err := compat.ReleaseListed(c, l); !errors.Is(err, compat.ErrInvalid) {
			return err
		}
	}
	return compat.ReleaseIfHolds(c, l)
}

// ExtendKept is Extend over a connection that watches: one round trip.
func (o Options) ExtendKept(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, bool, error) {
	expire, err := compat.Expire(o.Millis, l.Key, ttl)
	if err != nil {
		return l, false, err
	}
	return compat.ExtendIfKept(c, now, l, ttl, expire, o.Fence && l.Fence == 0)
}

// ReleaseKept is Release over a connection that watches: one round trip.
func (o Options) ReleaseKept(c redis.Conn, now time.Time, l compat.Lease) error {
	return compat.ReleaseIfKept(c, l)
}

// Inspect reads the token and the TTL: one round trip.
func (o Options) Inspect(c redis.Conn, now time.Time, key string) (compat.State, error) {
	if o.Millis {
		return compat.InspectToken(c, now, key, time.Millisecond)
	}
	return compat.InspectToken(c, now, key, time.Second)
}

// Check returns ErrUnsafeServer if a key with a TTL does not stand up to SETNX
// here, or can't be extended or released safely. It runs what the lock runs on
// a scratch key.
func (o Options) Check(c redis.Conn, key string) error {
	const use = "getsetlock.Listed, or where that is refused too getsetlock.Classic"
	scratch := compat.Aux(key, "check:"+compat.NewToken())
	if _, _, err := compat.Watch(c, scratch); compat.UnknownCommand(err) {
		return compat.Refuse(c, "it has no WATCH (it came with 2.2), so nothing can be released safely", use)
	} else if err != nil {
		return err
	}
	compat.Unwatch(c)

	setex, _ := compat.SetEx(o.Millis, scratch, "held", 10*time.Second)
	expire, _ := compat.Expire(o.Millis, scratch, 10*time.Second)
	replies, err := compat.Exec(c, setex, compat.Cmd{"SETNX", scratch, "taken"}, expire, compat.Cmd{"DEL", scratch})
	switch {
	case compat.UnknownCommand(err) && o.Millis:
		return compat.Refuse(c, "it counts in whole seconds (milliseconds came with 2.6)", "whole seconds: Options.Millis false")
	case compat.UnknownCommand(err):
		return compat.Refuse(c, "it does not let us use MULTI, SETEX or EXPIRE", use)
	case err != nil:
		return err
	case replies == nil || replies[1] != int64(0):
		return compat.Refuse(c, "SETNX deletes a key that has a TTL and takes it (mended in 2.2)", use)
	case replies[2] != int64(1):
		return compat.Refuse(c, "EXPIRE does not move the end of a key that has one (mended in 2.2), so no lease can be extended", use)
	case o.Listed:
		return compat.CheckListed(c, scratch, "Options.Listed false")
	}
	return nil
}

// value is what an acquisition of key at now writes.
func (o Options) value(key string, now time.Time) string {
	token := ""
	if o.Token != nil {
		token = o.Token()
	} else {
		token = compat.NewToken()
	}
	if o.Form != nil {
		return o.Form(key, now, token)
	}
	return token
}
