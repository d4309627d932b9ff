package compat

import (
	"context"
	"errors"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/lease"
	"github.com/setnxlock/setnxlock/compat/internal/schedule"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// renewAll renews the due locks: those of one server in one write, the others one by one.
func (k *Locker) renewAll(due []*held) {
	locks, leases := due[:0], make([]Grant, 0, len(due))
	for _, l := range due {
		if l.forsaken() {
			l.saw(errForsaken)
			l.on(lease.Event{Kind: lease.Forsake, At: k.now()}, Grant{})
		} else if l.tryBegin() {
			locks, leases = append(locks, l), append(leases, l.current())
		} else { // it is being extended or released
			l.on(lease.Event{Kind: lease.Postpone, At: k.now()}, Grant{})
		}
	}
	var batches [][]int
	if s := k.abilities.server; s != nil && len(locks) > 1 {
		batches = s.batches(leases)
	} else {
		for i := range locks {
			batches = append(batches, []int{i})
		}
	}
	schedule.AtOnce(len(batches), func(n int) {
		batch := make([]*held, len(batches[n]))
		for i, at := range batches[n] {
			batch[i] = locks[at]
		}
		if len(batch) > 1 {
			batch = k.renewBatch(batch)
		}
		for _, l := range batch {
			l.renew()
		}
	})
}

// renewBatch renews several locks in one write. It returns the locks to renew one by one: those with an open
// outcome, those to be read first, and the refused ones. One address of several servers can refuse together what
// it does one by one.
func (k *Locker) renewBatch(batch []*held) (open []*held) {
	locks := make([]*held, 0, len(batch))
	var leases []Grant
	var ttls []time.Duration
	least := k.o.Timeout
	for _, l := range batch {
		ttl := l.renewal(0, k.now())
		le, v := k.ask(l, extension{ttl: ttl})
		if v != lease.OK {
			open = append(open, l)
			continue
		}
		locks, leases, ttls = append(locks, l), append(leases, le), append(ttls, ttl)
		least = min(least, ttl)
	}
	if len(locks) == 0 {
		return open
	}
	start := k.now()
	ctx, done := k.step(context.Background(), least)
	next, errs := k.abilities.server.extendAll(ctx, k.now, leases, ttls)
	done()
	for i, l := range locks {
		again, err := k.answer(l, leases[i], next[i], errs[i], extension{ttl: ttls[i]})
		if again || protocol.OutcomeOf(errs[i]) == protocol.Refused && !notOurs(errs[i]) && !answer.Passes(errs[i]) {
			open = append(open, l)
			continue
		}
		l.renewed(err, start)
		l.end()
	}
	return open
}

// renew renews one lock once. The caller has made it busy.
func (l *held) renew() {
	defer l.end()
	l.mu.Lock()
	if l.state.Leaving() {
		l.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(l.parent))
	defer cancel()
	l.stop = cancel
	l.mu.Unlock()
	start := l.k.now()
	_, err := l.k.extend(ctx, l, extension{ttl: l.renewal(0, start)})
	l.mu.Lock()
	l.stop = nil
	l.mu.Unlock()
	if ctx.Err() == nil { // else the lock is being released: nobody is interested
		l.renewed(err, start)
	}
}

// renewal returns the ttl for an extension: ttl, or that of the last one if it is 0. It is never less than the
// rest of Options.Hold, in whole seconds, which every lock can have.
func (l *held) renewal(ttl time.Duration, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.place.Since.Add(l.k.o.Hold).Sub(now)
	switch {
	case ttl == 0 && !l.stays:
		ttl = l.state.Claim().TTL
	case ttl == 0:
		ttl = l.asked
	}
	if !l.stays || left <= ttl {
		return ttl
	}
	return (left + time.Second - 1).Truncate(time.Second)
}

// lingers counts the ttls after which the Observer hears of a lock that is still held.
const lingers = 100

// renewed shows the outcome of a renewal. A failed one is tried again soon, if the lock may still be ours.
func (l *held) renewed(err error, start time.Time) {
	switch {
	case err == nil:
		l.k.see(Event{Context: l.unasked(), Kind: EventExtended, Key: l.lease.Key, Lease: l.current().Lease, Took: l.k.elapsed(start)}, nil)
		if !l.long && start.Sub(l.place.Since)/lingers >= l.ttl() {
			l.long = true
			l.k.see(Event{Context: l.unasked(), Kind: EventLingers, Key: l.lease.Key, Lease: l.current().Lease, Took: start.Sub(l.place.Since)}, nil)
		}
	case !errors.Is(err, ErrLost) && l.ended() == nil:
		l.k.see(Event{Context: l.unasked(), Kind: EventFailed, Key: l.lease.Key, Lease: l.current().Lease, Err: err}, nil)
	}
}
