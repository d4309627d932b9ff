package compat

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// HandOn gives the lock to a new holder in this process, without releasing it on
// the server: the new Lock is a holder of its own, with a fence of its own if
// the algorithm draws them, until ttl from now. It is extended on the server for
// that, unless no fence is drawn and three quarters of ttl are left anyway. This
// Lock is over then, and its context ends with cause ErrHandedOver. On an error it is
// what it was: ErrLost if the lock is ours no more, and any other error if it is not
// known to have been extended.
//
// A Release does the same by itself if somebody waits for the lock in this
// process: see Options.MaxHandOvers.
func (l *Lock) HandOn(ctx context.Context, ttl time.Duration) (*Lock, error) {
	if ttl <= 0 {
		return nil, fmt.Errorf("%w: a ttl of %v", ErrInvalid, ttl)
	}
	l.op.Lock() // no renewal comes in between
	defer l.op.Unlock()
	if l.over() {
		return nil, l.gone()
	}
	if err := l.learn(ctx); err != nil {
		return nil, l.failed(err)
	}
	start, old := l.k.now(), l.current()
	if !start.Before(old.Until) {
		return nil, l.lose(fmt.Errorf("%w: %q: its time has run out", ErrLost, old.Key))
	}
	next, err := l.k.fresh(ctx, old, ttl, start)
	if err != nil {
		next.Fence = old.Fence // should it turn out to stand, it is still this holder's
		return nil, l.extended(old, next, ttl, err, start)
	}
	l.leave()
	l.mu.Lock()
	l.released = true
	l.mu.Unlock()
	l.finish(ErrHandedOver)
	l.k.see(Event{Kind: EventReleased, Key: old.Key, Lease: old, Took: start.Sub(l.since)})
	return l.k.hold(ctx, false, next, ttl, l.renewed, start, 0), nil
}

// fresh makes of a lease that is handed on the next holder's: with a fence of its
// own, and until ttl from now or not much sooner.
func (k *Locker) fresh(ctx context.Context, l Lease, ttl time.Duration, now time.Time) (Lease, error) {
	l.How = HandedOn
	left := l.Until.Sub(now)
	if l.Fence == 0 && left >= (ttl-Drift(ttl))/4*3 && left <= ttl {
		return l, nil
	}
	l.Fence = 0 // so that one is drawn
	next, err := k.extend(ctx, l, ttl)
	next.How = HandedOn
	return next, err
}

// able reports whether the lock can be handed on by its release: it is not lost,
// it is known what the key holds, and a quarter of the lease is left, in which
// the next holder can extend it. l.mu is held.
func (l *Lock) able(now time.Time) bool {
	return !l.ended && l.maybe == nil && l.lease.Until.Sub(now) >= l.ttl/4
}

// handOn is a release that gives the lock to the first in line. That it is over
// here comes before it begins there.
func (l *Lock) handOn(heir *waiter, lease Lease, now time.Time) {
	l.mu.Lock()
	l.released = true
	l.mu.Unlock()
	l.finish(nil)
	l.k.see(Event{Kind: EventReleased, Key: lease.Key, Lease: lease, Took: now.Sub(l.since)})
	heir.turn <- turn{lease: &lease}
}

// inherit takes a lock that was handed on by its release. On an error it has
// been given back as far as it was ours.
func (k *Locker) inherit(ctx context.Context, ln *line, l Lease, ttl time.Duration) (Lease, error) {
	now := k.now()
	if !now.Before(end(l, ttl)) {
		return l, k.giveBack(ctx, l, fmt.Errorf("%w: %q: its time is running out", ErrLost, l.Key))
	}
	next, err := k.fresh(ctx, l, ttl, now)
	if err == nil && k.now().Before(next.Until) {
		return next, nil
	}
	if errors.Is(err, errors.ErrUnsupported) {
		k.lines.mu.Lock()
		ln.crowd.stiff = true
		k.lines.mu.Unlock()
	}
	switch {
	case err == nil:
		err = fmt.Errorf("%w: the reply came after the lease had run out", ErrLost)
	case errors.Is(err, ErrLost), errors.Is(err, ErrForeign):
		return l, err
	}
	if next.Value != l.Value {
		err = k.giveBack(ctx, next, err)
	}
	return l, k.giveBack(ctx, l, err)
}
