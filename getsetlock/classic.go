package getsetlock

import (
	"cmp"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Classic is the lock of the SETNX page, for any Redis since 1.2 and for proxies without
// transactions. One round trip when the key is free, three for a takeover; two for an extension or
// a release, which look and then act ([protocol.Unguarded]).
//
// The published protocol has dangers that only WATCH can mend. A GETSET that comes second leaves
// its own time on the key (getset/loser-overwrites); one that was delayed can shorten a live lease
// (getset/stale-getset-sets-back). A client that pauses between GET and DEL deletes its successor's
// lock (getset/paused-release). Use [Guarded] where WATCH exists.
type Classic struct{ Options }

// Acquire makes one attempt to hold key until now+ttl. A stale now is safe: our lease gets
// shorter, and fewer leases of others look expired.
func (g Classic) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, err := g.Lease(key, now, ttl)
	if err != nil {
		return l, err
	}
	held, err := g.take(c, now, &l)
	if held == "" || err != nil {
		return l, err
	}
	return g.takeover(c, now, l, held)
}

// takeover replaces a dead value, held. From here on the key has our time on it, won or lost,
// so finding it there proves nothing: the lease is ambiguous until the reply is read.
func (g Classic) takeover(c *protocol.Conn, now time.Time, l protocol.Lease, held string) (protocol.Lease, error) {
	asked := l
	asked.Ambiguous = true
	w, err := c.Write(l.Key, protocol.Write{Do: []protocol.Cmd{{"GETSET", l.Key, l.Value}}, TakeFence: g.Fence})
	if w.Done == nil {
		return asked, cmp.Or(err, protocol.ErrAborted)
	}
	switch old, unread := redis.String(w.Done[0], nil); {
	case unread != nil && !errors.Is(unread, redis.ErrNil):
		return asked, unread
	case unread == nil && (!g.Dialect.Dead(old, now) || g.Dialect.Equal && old != held):
		return asked, g.held(l.Key, old) // another was faster; it will find our time (getset/loser-overwrites)
	}
	l.How = protocol.TakenOver
	return l, took(&l, &w, err)
}

// Extend moves the end of l to now+ttl. Its GET is for a client that has lost its lease to another
// whose clock is fast: it then writes nothing.
func (g Classic) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	return g.extend(protocol.Unguarded, now, l, ttl, rotate)
}

// Release reads the key and deletes it if it is ours. If another client takes the lock in between,
// its lock is deleted (getset/paused-release).
func (g Classic) Release(l protocol.Lease) protocol.Change { return release(protocol.Unguarded, l) }

// Traits make the Locker check the server before it draws a fence there.
func (g Classic) Traits() protocol.Traits { return protocol.Traits{Rotates: true, Check: g.check} }

// check returns ErrUnsafeServer if the fence can't be drawn here.
func (g Classic) check(c *protocol.Conn, key string) error {
	if !g.Fence {
		return nil
	}
	err := ability.Check(c, key, false, ability.Need{Ability: ability.Multi, Use: "no fence"})
	var unsafe *protocol.UnsafeServerError
	if errors.As(err, &unsafe) {
		unsafe.Why += ", so the fence and the lock can't be had together"
	}
	return err
}
