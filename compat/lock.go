package compat

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Lock is a lease that is held, until it is released, runs out or is lost.
//
// It can be lost at any time, to a pause of this process, to a server that
// forgets, to an operator: what it protects must stop when Context ends, and
// should check the fence if it can. It is safe for concurrent use.
type Lock struct {
	k     *Locker
	since time.Time

	parent context.Context // that of Do, or of whoever took the lock
	bound  bool            // the lock's context ends with parent

	op sync.Mutex // held for the length of a step: one at a time

	mu       sync.Mutex
	ttl      time.Duration
	lease    Lease
	maybe    *Lease // an extension whose outcome is unknown: the key holds lease.Value or maybe.Value
	renewed  bool   // it is renewed until it ends
	ended    bool   // it is held no more, or on its way there
	cause    error  // why, if it was not released: ErrLost, ErrHandedOver
	released bool
	left     bool            // it is being released or handed over: nothing is done for it by itself any more
	ctx      context.Context // nil until somebody asks for it
	cancel   context.CancelCauseFunc
	stop     context.CancelFunc // ends the renewal under way, if it is one lock's alone

	place place
	line  *line // the key's in this process, guarded by the lines' mutex; nil: others may hold the key beside us
}

// hold makes a Lock of a lease that has just been obtained. Its context ends
// with parent if it is bound to it.
func (k *Locker) hold(parent context.Context, bound bool, l Lease, ttl time.Duration, renew bool, start time.Time, tries int) *Lock {
	lock := &Lock{k: k, ttl: ttl, since: k.now(), lease: l, parent: parent, bound: bound, renewed: renew}
	if !k.shared {
		k.lines.took(lock)
	}
	k.see(Event{Kind: EventAcquired, Key: l.Key, Lease: l, Took: lock.since.Sub(start), Tries: tries})
	k.agenda.add(lock, end(l, ttl), lock.every())
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
func (l *Lock) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		parent := l.parent
		if !l.bound {
			parent = context.WithoutCancel(parent)
		}
		l.ctx, l.cancel = context.WithCancelCause(parent)
		if l.ended {
			l.cancel(l.cause)
		}
	}
	return l.ctx
}

// over reports whether the lock is held no more, or must not be relied on.
func (l *Lock) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended || l.bound && l.parent.Err() != nil
}

// finish ends the lock's context with a cause, nil when it is released. It
// reports whether it was the first to do so.
func (l *Lock) finish(cause error) bool {
	l.mu.Lock()
	first := !l.ended
	if first {
		l.ended, l.cause = true, cause
		if l.cancel != nil {
			l.cancel(cause)
		}
	}
	l.mu.Unlock()
	return first
}

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
	return l.extend(ctx, ttl)
}

// extend is one extension. l.op is held.
func (l *Lock) extend(ctx context.Context, ttl time.Duration) error {
	if l.over() {
		return l.gone()
	}
	start := l.k.now()
	if err := l.learn(ctx); err != nil {
		return l.failed(err)
	}
	old := l.current()
	if !start.Before(old.Until) {
		return l.lose(fmt.Errorf("%w: %q: its time has run out", ErrLost, old.Key))
	}
	next, err := l.k.extend(ctx, old, ttl)
	return l.extended(old, next, ttl, err, start)
}

// extended notes how an extension of old to ttl, asked for at start, has ended.
func (l *Lock) extended(old, next Lease, ttl time.Duration, err error, start time.Time) error {
	l.mu.Lock()
	if err == nil {
		l.lease, l.ttl = next, ttl
	} else if !definite(err) && next.Value != old.Value {
		l.maybe = &next
	}
	every := l.every()
	l.mu.Unlock()
	if err != nil {
		return l.failed(err)
	}
	if !l.k.now().Before(next.Until) { // any/lease-counted-from-reply
		return l.lose(fmt.Errorf("%w: %q: the reply came after the lease had run out", ErrLost, next.Key))
	}
	l.k.agenda.set(l, end(next, ttl), every)
	l.k.see(Event{Kind: EventExtended, Key: next.Key, Lease: next, Took: l.k.since(start)})
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
		l.k.agenda.set(l, end(*maybe, l.ttl), l.every())
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
	noticed := l.over() // with the context that it was bound to
	if !l.finish(ErrLost) {
		return err
	}
	l.k.agenda.remove(l)
	l.k.unkeep(l.current())
	if !noticed {
		l.k.see(Event{Kind: EventLost, Key: l.Key(), Lease: l.current(), Took: l.k.since(l.since), Err: err})
	}
	l.k.gone(l)
	return err
}

// gone is the error of an operation on a lock that is held no more.
func (l *Lock) gone() error {
	return fmt.Errorf("%w: %q", ErrLost, l.Key())
}

// Release gives the lock back: to the next who waits for it in this process
// (see Options.MaxHandOvers), else to the server. It works when ctx has already ended: it then
// takes a context of its own, bounded by Options.Cleanup. It returns ErrLost if
// the lock was not ours any more, and removes nothing then; ErrUnknown if that
// could not be learned, or ErrAborted, and then it may be called again: it
// compares, and never removes another client's lock. After it nothing renews the lock.
func (l *Lock) Release(ctx context.Context) error {
	l.leave()
	l.op.Lock() // a renewal under way ends first: it must not follow the release (any/renewal-outlives-release)
	defer l.op.Unlock()

	l.mu.Lock()
	if l.released {
		l.mu.Unlock()
		return l.gone()
	}
	lease, maybe := l.lease, l.maybe
	start := l.k.now()
	able, ttl := l.able(start), l.ttl
	l.mu.Unlock()

	heir, signal := l.k.heir(l, able, ttl, start)
	if heir != nil {
		l.handOn(heir, lease, start)
		return nil
	}
	woken, err := l.k.release(ctx, lease, signal)
	if maybe != nil && errors.Is(err, ErrLost) {
		woken, err = l.k.release(ctx, *maybe, signal)
	}
	if errors.Is(err, ErrLost) {
		l.finish(ErrLost)
	} else {
		l.finish(nil)
	}
	l.mu.Lock()
	l.released = !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrAborted)
	l.mu.Unlock()
	l.k.see(Event{Kind: EventReleased, Key: lease.Key, Lease: lease, Took: start.Sub(l.since), Err: err})
	if err != nil {
		l.k.gone(l)
	} else {
		l.k.gaveBack(l, woken, ttl)
	}
	return err
}

// leave takes the lock off the agenda, and stops the renewal under way if it can.
func (l *Lock) leave() {
	l.k.agenda.remove(l)
	l.mu.Lock()
	l.left = true
	if l.stop != nil {
		l.stop()
	}
	l.mu.Unlock()
}

// end is when the context of a lease does: shortly before it.
func end(l Lease, ttl time.Duration) time.Time {
	return l.Until.Add(-min(max(time.Millisecond, ttl/50), 250*time.Millisecond))
}

// every is how often the lock is renewed: three times in its ttl; 0: never. l.mu is held.
func (l *Lock) every() time.Duration {
	if !l.renewed {
		return 0
	}
	return l.ttl / 3
}

// expire ends a lock whose end has come, unless it was extended at that moment.
func (l *Lock) expire() {
	l.mu.Lock()
	until := end(l.lease, l.ttl)
	again := until.After(l.k.now()) && !l.ended && !l.left
	if again {
		l.k.agenda.add(l, until, l.every())
	}
	l.mu.Unlock()
	if !again {
		l.lose(fmt.Errorf("%w: %q: its time is running out", ErrLost, l.Key())) //nolint:errcheck
	}
}
