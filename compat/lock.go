package compat

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
)

// A Lock is a lease that is held, until it is released, runs out or is lost.
//
// It can be lost at any time, to a pause of this process, to a server that
// forgets, to an operator: what it protects must stop when Context ends, and
// should check the fence if it can. It is safe for concurrent use.
type Lock struct {
	k     *Locker
	ttl   time.Duration
	since time.Time

	ctx    context.Context
	cancel context.CancelCauseFunc
	end    interface{ Stop() bool }

	renewing context.CancelFunc // stops the renewal; nil if there is none
	renewed  chan struct{}      // closed when it has stopped

	op sync.Mutex // held for the length of a step: one at a time

	mu       sync.Mutex
	lease    Lease
	maybe    *Lease // an extension whose outcome is unknown: the key holds lease.Value or maybe.Value
	released bool
}

// hold makes a Lock of a lease that has just been obtained.
func (k *Locker) hold(parent context.Context, l Lease, ttl time.Duration, renew bool, start time.Time, tries int) *Lock {
	lock := &Lock{k: k, ttl: ttl, since: k.o.Clock.Now(), lease: l}
	lock.ctx, lock.cancel = context.WithCancelCause(parent)
	k.see(Event{Kind: EventAcquired, Key: l.Key, Lease: l, Took: k.o.Clock.Since(start), Tries: tries})
	lock.mu.Lock()
	lock.setEnd(l.Until)
	lock.mu.Unlock()
	if renew {
		var ctx context.Context
		ctx, lock.renewing = context.WithCancel(context.WithoutCancel(parent))
		lock.renewed = make(chan struct{})
		// The first timer is set here, not in the goroutine: whoever has the lock
		// and moves a mock clock moves the renewal.
		go lock.renew(ctx, k.o.Clock.Timer(ttl/3))
	}
	return lock
}

// Key is the key as it stands on the server, prefix included.
func (l *Lock) Key() string { return l.current().Key }

// Token is what the key holds: the proof that the lock is ours. With
// getsetlock it changes with every extension.
func (l *Lock) Token() string { return l.current().Value }

// Fence is a number that grows with every acquisition of the key, for the
// protected resource to refuse writes with an older one. 0 if the algorithm was not told to draw one.
func (l *Lock) Fence() int64 { return l.current().Fence }

// Until is the end of the lease by the Locker's clock, drift taken off.
func (l *Lock) Until() time.Time { return l.current().Until }

// Lease is the lease as it is now.
func (l *Lock) Lease() Lease { return l.current() }

// Context ends with cause ErrLost before the lease does, and without one when
// the lock is released. Work under the lock should run in it.
func (l *Lock) Context() context.Context { return l.ctx }

func (l *Lock) current() Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease
}

// Extend moves the end of the lease to ttl from now: it sets, it does not add.
// It returns ErrLost if the lock is not ours any more, and any other error if
// it is not known to have been extended; then the old end stands. A renewed
// lock is renewed by the new ttl from then on.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl <= 0 {
		return fmt.Errorf("%w: a ttl of %v", ErrInvalid, ttl)
	}
	l.op.Lock()
	defer l.op.Unlock()
	if err := l.extend(ctx, ttl); err != nil {
		return err
	}
	l.mu.Lock()
	l.ttl = ttl
	l.mu.Unlock()
	return nil
}

// extend is one extension. l.op is held.
func (l *Lock) extend(ctx context.Context, ttl time.Duration) error {
	if l.ctx.Err() != nil {
		return l.over()
	}
	start := l.k.o.Clock.Now()
	if err := l.learn(ctx); err != nil {
		return l.failed(err)
	}
	old := l.current()
	if !start.Before(old.Until) {
		return l.lose(fmt.Errorf("%w: %q: its time has run out", ErrLost, old.Key))
	}
	next, err := l.k.extend(ctx, old, ttl)
	l.mu.Lock()
	if err == nil {
		l.lease = next
		l.setEnd(next.Until)
	} else if !definite(err) && next.Value != old.Value {
		l.maybe = &next
	}
	l.mu.Unlock()
	if err != nil {
		return l.failed(err)
	}
	l.k.see(Event{Kind: EventExtended, Key: next.Key, Lease: next, Took: l.k.o.Clock.Since(start)})
	return nil
}

// learn finds out which of two values the key holds after an extension of
// unknown outcome. l.op is held.
func (l *Lock) learn(ctx context.Context) error {
	l.mu.Lock()
	maybe, lease := l.maybe, l.lease
	l.mu.Unlock()
	if maybe == nil {
		return nil
	}
	st, err := l.k.inspect(ctx, lease.Key, l.k.o.Timeout)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maybe = nil
	if st.Holds(maybe.Value) {
		l.lease = *maybe
		l.setEnd(maybe.Until)
	}
	return nil // a third value is for the step that follows to refuse
}

// failed tells what an extension's error means for the lock.
func (l *Lock) failed(err error) error {
	if errors.Is(err, ErrLost) || errors.Is(err, ErrForeign) {
		return l.lose(fmt.Errorf("%w: %q", ErrLost, l.Key()))
	}
	return err
}

// lose ends the lock's context. It returns err.
func (l *Lock) lose(err error) error {
	if l.ctx.Err() == nil {
		l.cancel(ErrLost)
		l.k.see(Event{Kind: EventLost, Key: l.Key(), Lease: l.current(), Took: l.k.o.Clock.Since(l.since), Err: err})
	}
	return err
}

// over is the error of an operation on a lock that is held no more.
func (l *Lock) over() error {
	return fmt.Errorf("%w: %q", ErrLost, l.Key())
}

// Release gives the lock back. It works when ctx has already ended: it then
// takes a context of its own, bounded by Options.Cleanup. It returns ErrLost if
// the lock was not ours any more, and removes nothing then; ErrUnknown if that
// could not be learned, or ErrAborted, and then it may be called again: it
// compares, and never removes another client's lock. After it nothing renews the lock.
func (l *Lock) Release(ctx context.Context) error {
	if l.renewing != nil {
		l.renewing()
		<-l.renewed // else a renewal could follow the release (any/renewal-outlives-release)
	}
	l.op.Lock()
	defer l.op.Unlock()

	l.mu.Lock()
	if l.released {
		l.mu.Unlock()
		return l.over()
	}
	l.end.Stop()
	lease, maybe := l.lease, l.maybe
	l.mu.Unlock()

	start := l.k.o.Clock.Now()
	err := l.k.release(ctx, lease)
	if maybe != nil && errors.Is(err, ErrLost) {
		err = l.k.release(ctx, *maybe)
	}
	if errors.Is(err, ErrLost) {
		l.cancel(ErrLost)
	}
	l.cancel(nil)
	l.mu.Lock()
	l.released = !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrAborted)
	l.mu.Unlock()
	l.k.see(Event{Kind: EventReleased, Key: lease.Key, Lease: lease, Took: start.Sub(l.since), Err: err})
	return err
}

// setEnd makes the context end shortly before until. l.mu is held.
func (l *Lock) setEnd(until time.Time) {
	if l.end != nil {
		l.end.Stop()
	}
	early := min(max(time.Millisecond, l.ttl/50), 250*time.Millisecond)
	l.end = l.k.o.Clock.AfterFunc(l.k.o.Clock.Until(until)-early, func() {
		l.mu.Lock()
		current := l.lease.Until.Equal(until)
		l.mu.Unlock()
		if current { // and not extended while this timer fired
			l.lose(fmt.Errorf("%w: %q: its time is running out", ErrLost, l.Key())) //nolint:errcheck
		}
	})
}

// renew extends the lock at each third of its ttl, sooner after a failure,
// until the lock is released or lost.
func (l *Lock) renew(ctx context.Context, t *clock.Timer) {
	defer close(l.renewed)
	defer func() { t.Stop() }()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		case <-l.ctx.Done():
			return
		}
		l.op.Lock()
		l.mu.Lock()
		ttl := l.ttl
		l.mu.Unlock()
		err := l.extend(ctx, ttl)
		l.op.Unlock()
		pause := ttl / 3
		if err != nil && ctx.Err() == nil && l.ctx.Err() == nil {
			l.k.see(Event{Kind: EventFailed, Key: l.Key(), Lease: l.current(), Err: err})
			pause = max(ttl/20, time.Millisecond)
		}
		t = l.k.o.Clock.Timer(pause)
	}
}
