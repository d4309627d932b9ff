package rwlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Read is the readers' lock: any number of clients hold it together. Two round trips to acquire,
// two to extend, one to release; refusing a waiter costs one more. Its leases last from a
// millisecond to 24 hours, on every server.
type Read struct{ Options }

// Traits make readers hold a key together, and the Locker check the server.
func (r Read) Traits() protocol.Traits {
	t := protocol.Traits{Shared: true, Rotates: true, Check: r.check}
	if r.Prefer != WritersFirst {
		t.Leave = func(key, waiter string) []protocol.Cmd { return leave(waiter, queueOf(key), nextOf(key)) }
	}
	return t
}

// Acquire makes one attempt to read key until now+ttl.
func (r Read) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: r.token(reader), Until: protocol.Until(now, ttl), How: protocol.Free}
	if err := r.valid(ttl); err != nil {
		return l, err
	}
	done, err := r.lockInner(c, now, key)
	if err != nil {
		return l, err
	}
	defer done()

	v, err := r.look(c, now, key, queueOf(key), false, key)
	if err != nil {
		return l, err
	}
	if err := r.refusal(v, key); err != nil {
		c.Unwatch()
		if errors.Is(err, protocol.ErrHeld) {
			r.leaveTicket(c, v, key)
		}
		return l, err
	}
	// A writer sweeps the dead. Readers sweep what has been dead for a minute, so that the set
	// does not grow where nobody writes, and need not be right about the time.
	cmds := []protocol.Cmd{{"ZREMRANGEBYSCORE", readersOf(key), "-inf", at(v.now.Add(-r.Margin - time.Minute))}}
	cmds = append(append(cmds, r.reads(l, v.now, ttl)...), v.removeTickets(queueOf(key), nextOf(key))...)
	w, err := c.Write(key, protocol.Write{Do: cmds, Exec: true, TakeFence: r.Fence})
	if err != nil {
		return l, err
	}
	if w.Done == nil { // a writer came in since our GET
		r.leaveTicket(c, v, key)
		return l, &protocol.HeldError{Key: key}
	}
	l.Fence = w.Fence
	return l, nil
}

// reads returns the commands to note l among the readers, until now+ttl.
func (r Read) reads(l protocol.Lease, now time.Time, ttl time.Duration) []protocol.Cmd {
	return []protocol.Cmd{
		{"ZADD", readersOf(l.Key), at(now.Add(ttl)), l.Value},
		{"EXPIRE", readersOf(l.Key), int64(setTTL / time.Second)},
	}
}

// refusal returns the reason why a reader may not come in, or nil.
func (r Read) refusal(v view, key string) error {
	if v.held && r.mine(writer, v.writer) {
		return ErrDowngrade
	}
	if v.held {
		return v.writes(key)
	}
	if until, yes := v.shutOut(r.Prefer); yes {
		return &protocol.HeldError{Key: key, Until: until}
	}
	return nil
}

// waits notes a refused reader among the waiters, unless readers have no turn.
func (r Read) leaveTicket(c *protocol.Conn, v view, key string) {
	if r.Prefer != WritersFirst {
		v.leaveTicket(c, queueOf(key))
	}
}

// Release takes the reader out of the set: one round trip. It may come late, and twice: no other
// client ever writes its token.
func (r Read) Release(l protocol.Lease) protocol.Change {
	if writes(l) { // what a downgrade left
		return Write(r).Release(l)
	}
	return protocol.Change{Key: l.Key, Value: l.Value, Custom: func(c *protocol.Conn) ([]any, error) {
		removed, err := redis.Int64(c.Do("ZREM", readersOf(l.Key), l.Value))
		if _, refused := err.(redis.Error); refused {
			err = protocol.Foreign(readersOf(l.Key), err)
		}
		return []any{removed}, err
	}}
}

// valid returns ErrInvalid for a ttl of no reader.
func (r Read) valid(ttl time.Duration) error {
	if ttl > setTTL {
		return fmt.Errorf("%w: a ttl of %v is longer than a reader's may be, %v", protocol.ErrInvalid, ttl, setTTL)
	}
	_, err := protocol.Whole(ttl, time.Millisecond)
	return err
}
