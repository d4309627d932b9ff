package compat

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Batcher is an Algorithm that extends many leases in as few writes as one.
// ExtendAll is Extend of each of leases by the ttl of the same index, over one
// connection. Each has its own outcome: one that was lost does not keep the
// others from being extended. A Locker renews by it what is due together. An
// Algorithm that embeds a Batcher and has an Extend of its own needs an ExtendAll of its own.
type Batcher interface {
	ExtendAll(c redis.Conn, now time.Time, leases []Lease, ttls []time.Duration) ([]Lease, []error)
}

// batching is a Backend that can do so.
type batching interface {
	// batches splits leases, by their indexes, into those that can be extended in one
	// write. A batch of one is extended by Extend.
	batches(leases []Lease) [][]int
	extendAll(ctx context.Context, now func() time.Time, leases []Lease, ttls []time.Duration) ([]Lease, []error)
}

// renewAll renews locks that are due together.
func (k *Locker) renewAll(due []*Lock) {
	locks, leases := due[:0], make([]Lease, 0, len(due))
	for _, l := range due {
		switch {
		case !l.op.TryLock(): // it is being extended or released
			k.agenda.renewIn(l, l.soon())
		case l.over():
			l.op.Unlock()
		default:
			locks, leases = append(locks, l), append(leases, l.current())
		}
	}
	var batches [][]int
	if b, ok := k.backend.(batching); ok && len(locks) > 1 {
		batches = b.batches(leases)
	} else {
		for i := range locks {
			batches = append(batches, []int{i})
		}
	}
	eachAtOnce(len(batches), func(n int) {
		batch := make([]*Lock, len(batches[n]))
		for i, at := range batches[n] {
			batch[i] = locks[at]
		}
		if len(batch) == 1 {
			batch[0].renew()
		} else {
			k.renewBatch(batch)
		}
	})
}

// renewBatch renews several locks in one write. Each one's op is held.
func (k *Locker) renewBatch(batch []*Lock) {
	leases, ttls := make([]Lease, len(batch)), make([]time.Duration, len(batch))
	least := k.o.Timeout
	for i, l := range batch {
		l.mu.Lock()
		leases[i], ttls[i] = l.lease, l.ttl
		l.mu.Unlock()
		least = min(least, ttls[i])
	}
	start := k.now()
	ctx, done := k.step(context.Background(), least)
	next, errs := k.backend.(batching).extendAll(ctx, k.now, leases, ttls)
	done()
	for i, l := range batch {
		if errs[i] == nil || definite(errs[i]) {
			l.renewal(l.extended(leases[i], next[i], ttls[i], errs[i], start))
			continue
		}
		// Its outcome is open: it is learnt, or asked for again, by itself.
		if next[i].Value != leases[i].Value {
			l.mu.Lock()
			l.maybe = &next[i]
			l.mu.Unlock()
		}
		l.renew()
	}
}

// renew is one renewal of one lock. l.op is held, and released.
func (l *Lock) renew() {
	l.mu.Lock()
	ctx, cancel := context.WithCancel(context.WithoutCancel(l.parent))
	ttl, left := l.ttl, l.left
	l.stop = cancel
	l.mu.Unlock()
	var err error
	if !left {
		err = l.extend(ctx, ttl)
	}
	l.mu.Lock()
	l.stop = nil
	l.mu.Unlock()
	if ctx.Err() != nil {
		err = nil // the lock is being released: nobody is interested
	}
	cancel()
	l.renewal(err)
}

// renewal notes how a renewal ended: one that failed is tried again soon, if the
// lock may still be ours. l.op is held, and released.
func (l *Lock) renewal(err error) {
	if err != nil && !errors.Is(err, ErrLost) && !l.over() {
		l.k.agenda.renewIn(l, l.soon())
		l.k.see(Event{Kind: EventFailed, Key: l.Key(), Lease: l.current(), Err: err})
	}
	l.op.Unlock()
}

// soon is when a renewal that failed is tried again.
func (l *Lock) soon() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.ttl/20, time.Millisecond)
}
