package compat

import (
	"context"
	"errors"
	"time"
	"weak"
)

// A Lock is a lease that is held, until it is released, runs out or is lost.
//
// It can be lost at any time: by a pause of this process, a server that loses its keys, an
// operator. Work under it must stop when [Lock.Context] ends, and the protected resource should
// check the fence if it can. A Lock is safe for concurrent use.
//
// If a program drops a Lock without releasing it, the lock is renewed at most once more after the garbage
// collector has run. Then it ends with its lease, as lost.
type Lock struct{ h *held }

// lock wraps l for its user. Renewals stop when the user forgets the wrapper; Do keeps its own lock.
func (l *held) lock() *Lock {
	lock := &Lock{l}
	if !l.bound { // Do releases its own
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.state.Renews() {
			l.unseen = lock
		}
	}
	return lock
}

// forsaken reports whether its user can't reach it any more. Each renewal asks; the first can't know.
func (l *held) forsaken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unseen != nil {
		l.user, l.unseen = weak.Make(l.unseen), nil
	}
	return l.user != weak.Pointer[Lock]{} && l.user.Value() == nil
}

var errForsaken = errors.New("nobody could reach the lock any more, and nobody had released it: it was renewed no longer")

// ofLock asks a context for the lock that it is for; ofKey, for that of a key.
type (
	ofLock struct{}
	ofKey  struct {
		k   *Locker
		key string // with its prefix
	}
)

// lockContext carries a lock to the work under it.
type lockContext struct {
	context.Context
	lock *Lock
}

func (c lockContext) Value(key any) any {
	switch key := key.(type) {
	case ofLock:
		return c.lock
	case ofKey:
		if key == (ofKey{c.lock.h.k, c.lock.Key()}) {
			return c.lock
		}
	}
	return c.Context.Value(key)
}

// FromContext returns the lock under which [Locker.Do] runs a function, given the function's context, one from
// [Lock.With], or one derived from either: for its fence, or to extend it. It returns nil for any other ctx. Of a
// Do within another it returns the inner one's; [Locker.FromContext] finds either.
func FromContext(ctx context.Context) *Lock {
	l, _ := ctx.Value(ofLock{}).(*Lock)
	return l
}

// FromContext returns the lock of a key: the innermost of that key among the nested locks of this Locker. It
// returns nil if ctx has none. The function FromContext looks at the innermost lock of any key.
func (k *Locker) FromContext(ctx context.Context, key string) *Lock {
	return k.within(ctx, k.o.Prefix+key)
}

// within looks in ctx for the lock of a key with its prefix.
func (k *Locker) within(ctx context.Context, key string) *Lock {
	if FromContext(ctx) == nil {
		return nil // most calls: no key to look for is made
	}
	l, _ := ctx.Value(ofKey{k, key}).(*Lock)
	return l
}

// Key returns the key as it stands on the server, prefix included.
func (l *Lock) Key() string { return l.h.lease.Key }

// Token returns the value of the key: the proof of our lock. With getsetlock it changes with every extension, with
// other locks after an extension of unknown outcome. It returns "" if the lock was handed off. After a call of
// Token, a hand-off extends the lock, so that its next holder gets another token.
func (l *Lock) Token() string { return l.Lease().Value }

// Fence returns a number, higher with every acquisition of the key, so the protected resource can refuse writes
// with a lower one. It returns 0 if the algorithm draws none.
func (l *Lock) Fence() int64 { return l.h.current().Fence }

// Until returns the end of the lease by the Locker's clock, less a margin for drift. It is never later than what
// the server is known to grant: while the outcome of an extension to a shorter ttl is unknown, it is the shorter
// one's end.
func (l *Lock) Until() time.Time { return l.h.current().Until }

// Lease returns the lease as it is now.
func (l *Lock) Lease() Lease { return l.h.Lease() }

// Handle names the lock to another process, which may release it ([Locker.ReleaseHandle]) or adopt
// it when its holder is gone ([Locker.AdoptHandle]). With getsetlock each extension makes a new
// handle. To give a held lock away, use [Lock.Detach].
func (l *Lock) Handle() Handle { return Handle{Key: l.Key(), Token: l.Token()} }

// Context returns a context for the work under the lock. It ends with cause [ErrLost], a [*LostError], before the
// lease does, and with cause [ErrHandedOff] or [ErrDetached] when the lock goes to another holder. It ends without
// a cause when the lock is released, before the server is told. A release by [Locker.Close] does the same, but
// ends the context of Do with cause [ErrClosed].
func (l *Lock) Context() context.Context { return l.h.Context() }

// With joins ctx with [Lock.Context]. The joined context has the values and the deadline of ctx, and ends when
// either ends, with the cause of that one. [FromContext] finds the lock in it. It is for work under a lock that
// was taken by Lock or TryLock; the context that [Locker.Do] gives to its function ends with the caller's by
// itself. Call end when the work is over, as after [context.WithCancel].
func (l *Lock) With(ctx context.Context) (joined context.Context, end context.CancelFunc) {
	own := l.Context()
	joined, cancel := context.WithCancelCause(ctx)
	lost := func() { cancel(context.Cause(own)) }
	if own.Err() != nil {
		lost()
	}
	stop := context.AfterFunc(own, lost)
	// The lock is in a context above the one that its own can reach: the scheduler would else keep a forgotten lock alive.
	return lockContext{joined, l}, func() { stop(); cancel(nil) }
}

// Extend moves the end of the lease to ttl from now: it sets, it does not add. Renewals use the new
// ttl from then on. It returns [ErrLost] if the lock is no longer ours; [ErrReleased],
// [ErrHandedOff] or [ErrDetached] if it was given away; and any other error if the lock may not
// have been extended: [Lock.Until] is then the earlier of the two ends, and Extend may be called
// again.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error { return l.h.Extend(ctx, ttl) }

// Release hands the lock off to the next waiter in this process, or else releases it on the server. The hand-offs
// end when everybody who waited when the first holder was done has had the lock. Release works when ctx has
// already ended, within Options.Cleanup. Nothing renews the lock afterwards. It returns [ErrLost] if the lock was
// no longer ours, and then removes nothing, and [ErrReleased] if it was released before. After [ErrUnknown] (the
// outcome could not be learned), [ErrAborted], or ctx's error (an extension was still under way) it may be called
// again: it compares, and never removes another client's lock. Before Options.Hold has passed it only looks: the
// lock is over here, and stays on the server.
func (l *Lock) Release(ctx context.Context) error {
	if !l.h.k.jobs.Enter() { // Close does, or has
		return l.h.over()
	}
	defer l.h.k.jobs.Leave()
	return l.h.release(ctx)
}

// Handoff gives the lock to a new holder in this process, without releasing it on the server. The
// new Lock has its own fence if the algorithm draws them, a token that nobody else knows, and ends
// ttl from now. For that the lock is extended on the server, unless no fence is drawn, nobody knows
// the token and three quarters of ttl are left. This Lock is then over, and its context ends with
// cause [ErrHandedOff]. On an error there is no new Lock: it is [ErrLost] if the lock is no longer
// ours, and any other error if the lock may not have been extended, as for [Lock.Extend].
//
// [Lock.Release] does the same by itself if somebody in this process waits for the lock.
func (l *Lock) Handoff(ctx context.Context, ttl time.Duration) (*Lock, error) {
	return l.h.Handoff(ctx, ttl)
}

// Detach gives the lock away without releasing it: this process no longer renews or releases it, and
// its context ends with cause [ErrDetached]. The handle can be adopted until [Lock.Until]. Detach
// reads the key. It returns [ErrLost], [ErrReleased], [ErrHandedOff] or [ErrDetached] if the lock is
// no longer held, and any other error if it is not known what the key holds: the lock then stays held
// here. After an extension of unknown outcome, extend the lock once more before you detach it. That
// does not help a lock that can't change its token (Traits.Rotates): the earlier extension may still
// run.
func (l *Lock) Detach(ctx context.Context) (Handle, error) { return l.h.Detach(ctx) }
