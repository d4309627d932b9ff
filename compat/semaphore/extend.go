package semaphore

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Extend moves the end of l to now+ttl, on its slot, and limit's with it. A lease that is not proven yet, because its
// reply was lost or it is adopted, counts only if limit is ours: Extend reads limit under WATCH. For any other lease
// limit is ours, since no client changes it while a slot is held.
func (k Lock) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	if err := k.valid(ttl); err != nil {
		return l, protocol.Change{}, err
	}
	n := max(Slot(l.Value), 1)
	own := l
	own.Key = slotOf(l.Key, n)
	next, ch, err := k.of(n, k.token).Extend(now, own, ttl, rotate)
	if err != nil {
		return l, ch, err
	}
	next.Key = l.Key
	ch.TakeFence = k.Fence && l.Fence == 0 // adopted, or its number was lost with the reply
	ch.Do = append(ch.Do, keeps(l.Key))
	if Slot(l.Value) == 0 {
		return next, nobodys(l), nil
	}
	if l.How == "" {
		k.proves(l.Key, &ch)
	}
	return next, ch, nil
}

// proves adds a condition to ch: limit must be ours.
func (k Lock) proves(key string, ch *protocol.Change) {
	do, slot, value := ch.Commands(), ch.Key, ch.Value
	ch.Final = true // by WATCH, and whatever of its holder's may still come finds another value
	ch.Custom = func(c *protocol.Conn) ([]any, error) {
		return c.CompareAndSet([]string{slot, limitOf(key)}, nil, func(replies []any) ([]protocol.Cmd, error) {
			held, err := redis.String(replies[0], nil)
			if err != nil && err != redis.ErrNil {
				return nil, protocol.Foreign(slot, err)
			}
			if held != value {
				return nil, &protocol.LostError{Key: slot, Value: held, Gone: err == redis.ErrNil}
			}
			limit, err := readLimit(key, replies[1])
			if err == nil && limit != k.N {
				err = &LimitError{Held: &protocol.HeldError{Key: key, Value: held}, Limit: limit, Asked: k.N}
			}
			return do, err
		})
	}
}

// Release gives the slot back as its lock does.
func (k Lock) Release(l protocol.Lease) protocol.Change {
	n := Slot(l.Value)
	if n == 0 {
		return nobodys(l)
	}
	own := l
	own.Key = slotOf(l.Key, n)
	return k.of(n, k.token).Release(own)
}

// nobodys returns the change of a lease without a slot in its value: nothing is ours.
func nobodys(l protocol.Lease) protocol.Change {
	return protocol.Change{Key: l.Key, Value: l.Value, Custom: func(*protocol.Conn) ([]any, error) {
		return nil, &protocol.LostError{Key: l.Key}
	}}
}
