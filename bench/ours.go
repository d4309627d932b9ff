package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/workload"
)

// ttl is every lock's, ours and theirs: long enough that none runs out here.
const ttl = 30 * time.Second

// locker is a subject that is a Locker of ours.
func locker(name, address string, a compat.Algorithm, o compat.Options) workload.Subject {
	return workload.Subject{Name: name, Open: func(m *workload.Meter) (*workload.Client, error) {
		pool := workload.Pool(m, address)
		beside := pool
		if o.Shared > 0 { // PINGs have a connection for each goroutine, which are not the lock's
			beside = workload.Pool(m.Beside(), address)
		}
		c := workload.Locks(compat.New(pool, a, o), compat.Pooled(beside), ttl)
		c.Close = func() error { return errors.Join(pool.Close(), beside.Close()) }
		return c, nil
	}}
}

// renewing is one whose locks are renewed: every third of their ttl.
func renewing(name, address string, a compat.Algorithm, ttl time.Duration) workload.Subject {
	return workload.Subject{Name: name, Open: func(m *workload.Meter) (*workload.Client, error) {
		pool := workload.Pool(m, address)
		var renewals atomic.Int64
		c := workload.Locks(compat.New(pool, a, compat.Options{Renew: true, Observer: compat.Observer(func(e compat.Event) {
			if e.Kind == compat.EventExtended {
				renewals.Add(1)
			}
		})}), compat.Pooled(pool), ttl)
		c.Renewals, c.Close = renewals.Load, pool.Close
		return c, nil
	}}
}

// cancellable is s where every lock is waited for under a context that can be cancelled, as
// that of a request can.
func cancellable(s workload.Subject) workload.Subject {
	open := s.Open
	return workload.Subject{Name: s.Name + ", cancellable", Open: func(m *workload.Meter) (*workload.Client, error) {
		c, err := open(m)
		if err != nil {
			return nil, err
		}
		lock := c.Lock
		c.Lock = func(ctx context.Context, key string) (workload.Held, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			return lock(ctx, key)
		}
		return c, nil
	}}
}

// An entry is a lock of ours as it is on one server.
type entry struct {
	name string
	compat.Algorithm
}

// entries are our plain locks for use, the best last. Those that a server can't
// have are told with its reason.
func entries(s *server) []entry {
	var list []entry
	for _, l := range locks.All() {
		if l.New == nil || l.Instead != "" || l.Family() == "rw" {
			continue
		}
		a := l.New(locks.Options{Millis: s.atLeast("2.6")})
		list = append(list, entry{strings.Replace(l.Name, "/", ", ", 1), a})
	}
	slices.Reverse(list)
	return list
}

// pinned ends the name of a lock whose connection is pinned.
const pinned = ", pinned"

// shared ends the name of a lock whose steps share four connections.
const shared = ", shared"

// single are all of ours: each step with a connection of its own; where the lock can use it, with a
// pinned connection for each held lock; where it needs none of its own, over shared connections.
func single(s *server) []workload.Subject {
	var list []workload.Subject
	for _, e := range entries(s) {
		list = append(list, locker(e.name, s.Address, e.Algorithm, compat.Options{}))
		if ch := e.Release(compat.Lease{Key: "k", Value: "v"}); ch.By == nil && ch.If == compat.Watch {
			list = append(list, locker(e.name+pinned, s.Address, e.Algorithm, compat.Options{MaxPinned: 4096}))
		} else if ch.By == nil && ch.If != compat.Unguarded {
			list = append(list, locker(e.name+shared, s.Address, e.Algorithm, compat.Options{Shared: 4}))
		}
	}
	return list
}

// What our waiting is made of.
const (
	handSignal = "ours: hand-off, signal"
	handPoll   = "ours: hand-off"
	soloSignal = "ours: signal"
	soloPoll   = "ours: neither"
)

// waiting are the ways in which a Locker waits, with the best lock of the server.
func waiting(s *server) []workload.Subject {
	return []workload.Subject{
		locker(handSignal, s.Address, s.best, compat.Options{Signal: true, MaxPinned: 4096}),
		locker(handPoll, s.Address, s.best, compat.Options{MaxPinned: 4096}),
		locker(soloSignal, s.Address, s.best, compat.Options{Signal: true, MaxHandoffs: -1, MaxPinned: 4096}),
		locker(soloPoll, s.Address, s.best, compat.Options{MaxHandoffs: -1, MaxPinned: 4096}),
	}
}
