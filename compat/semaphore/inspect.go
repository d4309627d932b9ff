package semaphore

import (
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Inspect reads the holders of key's slots and their ends: one round trip, or two if limit is more than N. All holders
// are in State.Holders, also by another limit; Value and Until are those of the one whose slot is free first, or, by
// another limit, of the one that keeps us out longest. An N of 0 goes by the limit that is found. Where that is gone
// (evicted, deleted), Inspect reads the slots from the first on, until 16 in a row are free: a round trip for each 16.
func (k Lock) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	s := protocol.State{Key: key, Status: protocol.StatusFree, TTL: protocol.NoTTL}
	replies, err := c.Pipe(append([]protocol.Cmd{{"GET", key}, k.ttl(key), {"GET", limitOf(key)}}, k.looksAt(key, 1, k.N)...)...)
	if err != nil {
		return s, err
	}
	if held, err := redis.String(replies[0], nil); err != redis.ErrNil && !protocol.Expired(replies[1]) {
		return k.foreign(s, now, held, replies[1], protocol.Foreign(key, err))
	}
	limit, err := readLimit(key, replies[2])
	if err != nil {
		return s, err
	}
	switch {
	case limit == 0 && k.N == 0:
		err := k.withoutLimit(c, now, key, &s)
		return s, err
	case limit == 0:
		limit = k.N
	}
	slots := replies[3:]
	if limit > k.N {
		more, err := c.Pipe(k.looksAt(key, k.N+1, limit)...)
		if err != nil {
			return s, err
		}
		slots = append(slots, more...)
	}
	v := view{now: now, unit: k.unit(), limit: limit, differs: k.N != 0 && k.N != limit}
	return s, v.read(&s, slots)
}

// withoutLimit reads the slots of a key without a limit into s.
func (k Lock) withoutLimit(c *protocol.Conn, now time.Time, key string, s *protocol.State) error {
	const row = 16
	var slots []any
	for from, held := 1, true; held && from <= Most; from += row {
		more, err := c.Pipe(append(k.looksAt(key, from, min(from+row-1, Most)), protocol.Cmd{"GET", limitOf(key)})...)
		if err != nil {
			return err
		}
		last := len(more) - 1
		if more[last] != nil { // the first holder came since the look at the limit
			*s, err = k.Inspect(c, now, key)
			return err
		}
		more, held = more[:last], false
		for i := 0; i < len(more); i += 2 {
			held = held || more[i] != nil
		}
		slots = append(slots, more...)
	}
	v := view{now: now, unit: k.unit(), limit: Most}
	err := v.read(s, slots)
	if len(s.Holders) > 0 {
		s.Format = fmt.Sprintf("%d held, no limit", len(s.Holders))
	}
	return err
}

// ttl names the command to read a key's TTL.
func (o Options) ttl(key string) protocol.Cmd {
	if o.Millis {
		return protocol.Cmd{"PTTL", key}
	}
	return protocol.Cmd{"TTL", key}
}

// looksAt returns the commands to read a range of slots.
func (o Options) looksAt(key string, from, to int) (cmds []protocol.Cmd) {
	for n := from; n <= to; n++ {
		cmds = append(cmds, protocol.Cmd{"GET", slotOf(key, n)}, o.ttl(slotOf(key, n)))
	}
	return cmds
}

// foreign returns the state of a key with another value, a plain lock perhaps.
func (o Options) foreign(s protocol.State, now time.Time, held string, ttl any, err error) (protocol.State, error) {
	if err != nil {
		return s, err
	}
	s.Status, s.Value, s.Format, s.Clock = protocol.StatusForeign, held, "no semaphore", "server"
	if s.TTL, err = protocol.ReadTTL(ttl, o.unit()); err == nil && s.TTL != protocol.NoTTL {
		s.Until = now.Add(s.TTL)
	}
	return s, err
}

// A view is by what the slots of a key are read.
type view struct {
	now     time.Time
	unit    time.Duration
	limit   int
	differs bool // it is another client's limit, and not ours
}

// read reads the slots, a value and a TTL of each, into s.
func (v view) read(s *protocol.State, slots []any) error {
	within := 0 // of the holders, those whose slots count
	for n := 1; 2*n <= len(slots); n++ {
		value, err := redis.String(slots[2*n-2], nil)
		switch {
		case err == redis.ErrNil, protocol.Expired(slots[2*n-1]):
			continue
		case errors.Is(protocol.Foreign(s.Key, err), protocol.ErrForeign):
			value = "" // a list, say: nobody can take the slot
		case err != nil:
			return err
		}
		ttl, err := protocol.ReadTTL(slots[2*n-1], v.unit)
		if err != nil {
			return err
		}
		h := protocol.Holder{Value: value}
		if ttl != protocol.NoTTL {
			h.Until = v.now.Add(ttl)
		}
		s.Holders = append(s.Holders, h)
		if n > v.limit {
			continue
		}
		if within++; within == 1 || v.sooner(h.Until, s.Until) {
			s.Value, s.Until, s.TTL = h.Value, h.Until, ttl
		}
	}
	if len(s.Holders) == 0 {
		return nil
	}
	s.Status, s.Clock, s.Format = protocol.StatusHeld, "server", fmt.Sprintf("%d of %d slots", within, v.limit)
	switch s.Open = within == 0 || within < v.limit && !v.differs; {
	case within == 0:
		s.Value, s.Until = s.Holders[0].Value, s.Holders[0].Until
	case s.Until.IsZero() && !s.Open:
		s.Status = protocol.StatusPersistent
	}
	return nil
}

// sooner reports whether a is the end to show, and not b: the first, or the last if all slots must be free. A slot
// without an end is free last.
func (v view) sooner(a, b time.Time) bool {
	if a.IsZero() || b.IsZero() {
		return b.IsZero() && !a.IsZero() != v.differs
	}
	return a.Before(b) != v.differs
}
