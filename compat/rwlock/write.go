package rwlock

import (
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Write is the writer's lock: it excludes readers and other writers. Two round trips to acquire,
// extend or release; refusing a waiter costs two more. Its leases are in whole seconds, or in
// milliseconds with Options.Millis.
type Write struct{ Options }

// Traits make the Locker check the server, and remove the ticket of a writer that gives up.
func (w Write) Traits() protocol.Traits {
	return protocol.Traits{Check: w.check, Leave: func(key, waiter string) []protocol.Cmd { return leave(waiter, waitingOf(key)) }}
}

// Acquire makes one attempt to hold key alone until now+ttl. A refused waiter
// ([compat.Locker.Lock]) keeps new readers out for a second, unless the preference is
// [ReadersFirst]; a refused TryLock leaves nothing.
func (w Write) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: w.token(writer), Until: protocol.Until(now, ttl), How: protocol.Free}
	setex, err := protocol.SetEx(w.Millis, key, l.Value, ttl)
	if err != nil {
		return l, err
	}
	unlock, err := w.lockInner(c, now, key)
	if err != nil {
		return l, err
	}
	defer unlock()

	v, err := w.look(c, now, key, waitingOf(key), false, key, readersOf(key))
	if err != nil {
		return l, err
	}
	if err := w.refusal(v, key); err != nil {
		c.Unwatch()
		return l, w.refused(c, v, key, err)
	}
	// All readers that are left are dead, and none of them has been extended since they were
	// read: EXEC would not run.
	cmds := append([]protocol.Cmd{setex, {"DEL", readersOf(key)}}, v.removeTickets(waitingOf(key))...)
	written, err := c.Write(key, protocol.Write{Do: cmds, Exec: true, TakeFence: w.Fence})
	if err != nil {
		return l, err
	}
	if written.Done == nil { // somebody came in since our look
		return l, w.refused(c, v, key, &protocol.HeldError{Key: key})
	}
	if len(v.readers) > 0 {
		l.How = protocol.TakenOver
	}
	l.Fence = written.Fence
	return l, nil
}

// refusal returns the reason why a writer may not come in, or nil.
func (w Write) refusal(v view, key string) error {
	for _, e := range v.readers {
		if v.live(e) && w.mine(reader, e.name) {
			return ErrUpgrade
		}
	}
	if v.held {
		return v.writes(key)
	}
	if r, yes := v.reading(); yes {
		return &protocol.HeldError{Key: key, Value: r.name, Until: v.ours(r.until)}
	}
	if until, yes := v.theirTurn(w.Prefer); yes {
		return &protocol.HeldError{Key: key, Until: until}
	}
	return nil
}

// refused notes a refused writer among the waiters, unless readers go first.
func (w Write) refused(c *protocol.Conn, v view, key string, err error) error {
	if w.Prefer != ReadersFirst && err != ErrUpgrade {
		v.leaveTicket(c, waitingOf(key))
	}
	return err
}

// Extend moves the end of l to now+ttl. It keeps the token, whatever rotate says: before Redis
// 6.0.9 the key may expire unnoticed under the WATCH. A SETEX would then make it again, beside
// readers that came in meanwhile and did not touch it (tx/extend-resurrects). A reader's lease does
// not become a writer's.
func (w Write) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	if strings.HasPrefix(l.Value, reader) {
		return l, protocol.Change{}, ErrUpgrade
	}
	ch := protocol.Change{Key: l.Key, Value: l.Value, Next: l.Value, TTL: ttl, Whole: !w.Millis, TakeFence: w.draws(l)}
	_, err := protocol.Whole(ttl, w.unit())
	l.Until = protocol.Until(now, ttl)
	return l, ch, err
}

// Release deletes the key if it still holds our token. Readers that wait have their turn then,
// unless writers go first.
func (w Write) Release(l protocol.Lease) protocol.Change {
	return protocol.Change{Key: l.Key, Value: l.Value, Do: append([]protocol.Cmd{{"DEL", l.Key}}, w.passesTurn(l.Key)...)}
}
