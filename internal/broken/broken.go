// Package broken has locks that break: locks with one fault each, and locks that
// articles have published. The explorer must find every fault; an explorer that
// lets one of these locks pass is broken itself.
//
// Package race imports this package, and so this package must not import race.
package broken

import (
	"errors"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// A Lock is a broken lock, with the fields that race.Lock needs.
type Lock struct {
	Name   string
	Says   string // a description of one line
	Bare   bool   // the lock makes sense only without compat.Locker
	Shared bool   // several clients may hold the lock at once: readers, or a semaphore's
	Most   int    // the number of clients of a semaphore; 0: any number
	New    func(token func() string, fence bool) protocol.Algorithm
}

// Locks returns the locks with one fault each.
func Locks() []Lock {
	return []Lock{
		{Name: "broken/del-setnx", Says: "takes over an expired timestamp by DEL and SETNX instead of GETSET",
			New: func(token func() string, fence bool) protocol.Algorithm {
				return delSetnx{getsetlock.Classic{Options: getsetlock.Options{Fence: fence, Nonce: token}}}
			}},
		{Name: "broken/get-del", Says: "releases by GET and DEL, without WATCH",
			New: guarded(func(g txlock.Guarded) protocol.Algorithm { return getDel{g} })},
		{Name: "broken/late-lease", Says: "counts its lease from the reply", Bare: true,
			New: guarded(func(g txlock.Guarded) protocol.Algorithm { return lateLease{g} })},
		{Name: "broken/no-repair", Says: "SETNX, then EXPIRE, and nobody repairs what a crash in between leaves",
			New: func(token func() string, fence bool) protocol.Algorithm {
				return txlock.Classic{Options: txlock.Options{Fence: fence, Token: token}, NoRepair: true}
			}},
		{Name: "broken/bare-del", Says: "cleans up after an unknown outcome by a DEL that compares nothing", Bare: true,
			New: guarded(func(g txlock.Guarded) protocol.Algorithm { return bareDel{g} })},
		{Name: "broken/unverified-watch", Says: "pins its connection under a WATCH without knowing whose key it watches", Bare: true,
			New: guarded(func(g txlock.Guarded) protocol.Algorithm { return unverifiedWatch{g} })},
		{Name: "broken/blind-handoff", Says: "hands its lock off as a new lease, and asks neither its clock nor the server whether it has the old one", Bare: true,
			New: guarded(func(g txlock.Guarded) protocol.Algorithm { return blindHandoff{g} })},
		{Name: "broken/keeps-the-longer-end", Says: "believes in the old end of its lease while a shorter extension is under way or unknown", Bare: true,
			New: guarded(func(g txlock.Guarded) protocol.Algorithm { return longerEnd{g} })},
		{Name: "broken/stale-handle", Says: "hands its lock off with its value, of which somebody still has a handle", Bare: true,
			New: guarded(func(g txlock.Guarded) protocol.Algorithm { return staleHandle{g} })},
		{Name: "broken/second-connection", Says: "resolves a lost reply over a second connection, and calls the lock lost if it gets none", Bare: true,
			New: guarded(func(g txlock.Guarded) protocol.Algorithm { return secondConnection{g} })},
		{Name: "broken/list-release", Says: "releases by list commands, and takes a missing list for an equal value",
			New: guarded(func(g txlock.Guarded) protocol.Algorithm { return listRelease{g} })},
		{Name: "broken/older-successor", Says: "extends by SET IFEQ, and takes a server that does not know it for one that has given the lock away",
			New: func(token func() string, fence bool) protocol.Algorithm {
				return olderSuccessor{setlock.IfEq{Options: setlock.Options{Fence: fence, Token: token}}}
			}},
		{Name: "broken/multi-setnx-expire", Says: "SETNX and EXPIRE in one MULTI, which runs the EXPIRE for the loser too",
			New: func(token func() string, fence bool) protocol.Algorithm {
				return setnxExpire{txlock.Classic{Options: txlock.Options{Fence: fence, Token: token}}, token}
			}},
	}
}

// By returns a change of l that calls do.
func By(l protocol.Lease, do func(c *protocol.Conn) error) protocol.Change {
	return protocol.Change{Key: l.Key, Value: l.Value, Custom: func(c *protocol.Conn) ([]any, error) { return []any{int64(1)}, do(c) }}
}

// guarded returns the constructor of a txlock.Guarded with one broken method.
func guarded(breaks func(txlock.Guarded) protocol.Algorithm) func(token func() string, fence bool) protocol.Algorithm {
	return func(token func() string, fence bool) protocol.Algorithm {
		return breaks(txlock.Guarded{Options: txlock.Options{Fence: fence, Token: token}})
	}
}

// blindHandoff hands a lock off without an extension and without a look at the
// end of the lease.
type blindHandoff struct{ txlock.Guarded }

// Handoff returns the successor's lease, for the explorer.
func (blindHandoff) Handoff(now time.Time, l protocol.Lease, ttl time.Duration) protocol.Lease {
	l.Until = protocol.Until(now, ttl)
	return l
}

// listRelease is the release of ListCAS in half the commands. A server that
// refuses the RPUSH, and runs the rest, deletes any value.
type listRelease struct{ txlock.Guarded }

func (listRelease) Release(l protocol.Lease) protocol.Change {
	return By(l, func(c *protocol.Conn) error {
		s := protocol.Aux(l.Key, l.Value)
		replies, err := c.Exec(protocol.Cmd{"RPUSH", s, l.Key}, protocol.Cmd{"SORT", s, "BY", "nosort", "GET", "*", "STORE", s},
			protocol.Cmd{"LREM", s, 0, l.Value}, protocol.Cmd{"RENAMENX", l.Key, s}, protocol.Cmd{"DEL", s})
		e, refused := err.(redis.Error)
		if refused && strings.Contains(string(e), "no such key") || err == nil && replies[3] != int64(1) {
			return protocol.ErrLost
		}
		return err
	})
}

// olderSuccessor is set/older-successor: after a failover to an older server, a refused SET IFEQ is taken for a loss,
// although the key still holds the value.
type olderSuccessor struct{ setlock.IfEq }

func (o olderSuccessor) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	next, _, err := o.IfEq.Extend(now, l, ttl, rotate)
	return next, By(l, func(c *protocol.Conn) error {
		done, err := c.Do("SET", l.Key, next.Value, "IFEQ", l.Value, "PX", ttl.Milliseconds())
		if _, refused := err.(redis.Error); refused || err == nil && done == nil {
			return protocol.ErrLost
		}
		return err
	}), err
}

// delSetnx is getset/double-takeover: two clients see the same expired value, and
// the second one's DEL removes the first one's lock.
type delSetnx struct{ getsetlock.Classic }

func (d delSetnx) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Until: protocol.Until(now, ttl), How: protocol.Free}
	l.Value = getsetlock.Float.Format(now.Add(ttl), d.Nonce)
	for try := 0; try < 2; try++ {
		won, err := redis.Bool(c.Do("SETNX", key, l.Value))
		if won || err != nil {
			return l, err
		}
		if try == 1 {
			break
		}
		old, err := redis.String(c.Do("GET", key))
		if errors.Is(err, redis.ErrNil) {
			continue
		}
		if err != nil {
			return l, err
		}
		if until, ok := getsetlock.Float.Parse(old); !ok || !until.Before(now) {
			break
		}
		if _, err := c.Do("DEL", key); err != nil {
			return l, err
		}
	}
	return l, &protocol.HeldError{Key: key}
}

// getDel is tx/watch-without-multi: between the GET and the DEL another client takes the key.
type getDel struct{ txlock.Guarded }

func (getDel) Release(l protocol.Lease) protocol.Change {
	return By(l, func(c *protocol.Conn) error {
		value, err := redis.String(c.Do("GET", l.Key))
		if errors.Is(err, redis.ErrNil) || err == nil && value != l.Value {
			return protocol.ErrLost
		}
		if err != nil {
			return err
		}
		deleted, err := redis.Bool(c.Do("DEL", l.Key))
		if err == nil && !deleted {
			return protocol.ErrLost
		}
		return err
	})
}

// lateLease is any/lease-counted-from-reply. It reads the connection's clock,
// since an algorithm must not read one.
type lateLease struct{ txlock.Guarded }

func (b lateLease) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, err := b.Guarded.Acquire(c, now, key, ttl)
	if k, ok := c.Conn.(interface{ Received() time.Time }); ok && err == nil {
		l.Until = protocol.Until(k.Received(), ttl)
	}
	return l, err
}

// bareDel is any/release-of-unknown.
type bareDel struct{ txlock.Guarded }

func (b bareDel) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, err := b.Guarded.Acquire(c, now, key, ttl)
	if err != nil {
		l.How = ""
	}
	return l, err
}

func (b bareDel) Release(l protocol.Lease) protocol.Change {
	return By(l, func(c *protocol.Conn) error {
		if l.How != "" {
			_, err := c.Run(b.Guarded.Release(l))
			return err
		}
		_, err := c.Do("DEL", l.Key)
		return err
	})
}

// unverifiedWatch is tx/unverified-watch: it keeps its connection and watches the key. After an
// aborted extension it watches the key anew, and takes the new value for its own without a
// comparison.
type unverifiedWatch struct{ txlock.Guarded }

func (b unverifiedWatch) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, err := b.Guarded.Acquire(c, now, key, ttl)
	if err == nil {
		_, _, err = c.Watch(key)
	}
	return l, err
}

func (b unverifiedWatch) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	if !now.Before(l.Until) {
		return l, protocol.Change{}, protocol.ErrLost
	}
	expire, err := protocol.Expire(false, l.Key, ttl)
	l.Until = protocol.Until(now, ttl)
	return l, By(l, func(c *protocol.Conn) error {
		for range 8 {
			replies, err := c.Exec(expire)
			if err != nil {
				return err
			}
			if _, exists, err := c.Watch(l.Key); err != nil || replies != nil || !exists {
				return err
			}
		}
		return protocol.ErrAborted
	}), err
}

// Release compares nothing: it relies on the WATCH.
func (unverifiedWatch) Release(l protocol.Lease) protocol.Change {
	return By(l, func(c *protocol.Conn) error {
		replies, err := c.Exec(protocol.Cmd{"DEL", l.Key})
		if err == nil && (replies == nil || replies[0] == int64(0)) {
			return protocol.ErrLost
		}
		return err
	})
}

// longerEnd keeps the old end of a lease until the reply to an extension, as our engine once did.
// After the lost reply to a shorter extension, it believes in the longer of the two leases.
type longerEnd struct{ txlock.Guarded }

// Believes returns the lease that a holder believes in while the extension of l to next is
// unknown, for the explorer.
func (longerEnd) Believes(l, next protocol.Lease) protocol.Lease {
	if next.Until.Before(l.Until) {
		return l
	}
	return next
}

// staleHandle keeps the value at a hand-off, as our engine once did. A handle of the lock before
// still works.
type staleHandle struct{ txlock.Guarded }

// Handoff returns the successor's lease, for the explorer.
func (staleHandle) Handoff(_ time.Time, l protocol.Lease, _ time.Duration) protocol.Lease { return l }

// secondConnection gets another connection before it returns the broken one. With a pool of one
// connection it waits in vain, and takes that for a loss, although the wait proves nothing.
type secondConnection struct{ txlock.Guarded }

func (b secondConnection) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	next, ch, err := b.Guarded.Extend(now, l, ttl, rotate)
	return next, By(l, func(c *protocol.Conn) error {
		_, err := c.Run(ch)
		if protocol.OutcomeOf(err) != protocol.Unknown {
			return err
		}
		pool, ok := c.Conn.(interface{ Second() (redis.Conn, error) })
		if !ok {
			return err
		}
		second, err := pool.Second()
		if err != nil {
			return protocol.ErrLost
		}
		defer second.Close()
		_, err = protocol.NewConn(second).Run(ch)
		return err
	}), err
}

// setnxExpire sends SETNX and EXPIRE in one transaction: a refused attempt moves
// the end of the holder's lease.
type setnxExpire struct {
	txlock.Classic
	token func() string
}

func (b setnxExpire) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: b.token(), Until: protocol.Until(now, ttl), How: protocol.Free}
	seconds, err := protocol.Whole(ttl, time.Second)
	if err != nil {
		return l, err
	}
	replies, err := c.Exec(protocol.Cmd{"SETNX", key, l.Value}, protocol.Cmd{"EXPIRE", key, seconds})
	if err != nil {
		return l, err
	}
	if replies[0] != int64(1) {
		return l, &protocol.HeldError{Key: key}
	}
	return l, nil
}
