package compat

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/lease"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/queue"
	"github.com/setnxlock/setnxlock/compat/internal/schedule"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A Lock is a lease that is held, until it is released, runs out or is lost.
//
// It can be lost at any time: by a pause of this process, a server that loses its keys, an
// operator. Work under it must stop when [Lock.Context] ends, and the protected resource should
// check the fence if it can. A Lock is safe for concurrent use.
type Lock struct {
	k     *Locker
	since time.Time

	parent context.Context // that of Do, or of the caller that took the lock
	bound  bool            // the lock's context ends with parent
	closed bool            // its Locker's Close has released it; mu guards it
	busy   bool            // a step is under way: one at a time; mu guards it

	mu     sync.Mutex
	state  lease.State // what is believed; on alone changes it
	lease  Grant       // what a lease carries beside that; its Key never changes
	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   context.CancelFunc // ends the renewal under way, if it is this lock's alone

	why   error         // what the last step ended with
	freed chan struct{} // closed when it has ended; nil: nobody waits for that

	item  schedule.Item[*Lock]
	place queue.Holder[loose]
}

// hold makes a Lock of a lease that has just been obtained. Its context ends with parent if
// it is bound to it.
func (k *Locker) hold(parent context.Context, bound bool, le Grant, ttl time.Duration, renew bool, start time.Time, tries int) (*Lock, error) {
	l := &Lock{k: k, since: k.now(), parent: parent, bound: bound, lease: le}
	l.state = lease.New(claimOf(le, ttl), renew, l.since)
	if le.How == protocol.Adopted { // a part of it may still have the value that the adopter came with
		l.state.On(lease.Event{Kind: lease.Disclose})
	}
	if !k.abilities.Shared {
		k.queues.Took(l.lease.Key, &l.place, l.since)
	}
	l.item.Of = l
	if !k.scheduler.Add(&l.item, times(&l.state), l.since) {
		l.release(parent) //nolint:errcheck // Close came in between: what stays ends with its lease
		return nil, ErrClosed
	}
	if k.o.Observer != nil {
		k.see(Event{Kind: EventAcquired, Key: l.lease.Key, Lease: l.current().Lease, Took: l.since.Sub(start), Tries: tries}, func() {
			l.release(context.Background()) //nolint:errcheck // a panic is on its way
		})
	}
	return l, nil
}

// times are when a lock ends and is renewed: a thirtieth of the ttl sooner, if others are.
func times(s *lease.State) schedule.Times {
	return schedule.Times{End: s.End(), Renew: s.RenewAt(), Early: s.Claim().TTL / 30}
}

// Key is the key as it stands on the server, prefix included.
func (l *Lock) Key() string { return l.lease.Key }

// Token is what the key holds: the proof that the lock is ours. With getsetlock it changes with
// every extension, with other locks after an extension of unknown outcome. "" if the lock was
// handed off. A call of Token costs later: when the lock is handed off, it is extended, so that its
// next holder gets another token.
func (l *Lock) Token() string { return l.Lease().Value }

// Fence is a number that grows with every acquisition of the key, so that the protected resource
// can refuse writes with a lower one. 0 if the algorithm draws none.
func (l *Lock) Fence() int64 { return l.current().Fence }

// Until is the end of the lease by the Locker's clock, less a margin for drift. It is never later
// than what the server is known to grant: while the outcome of an extension to a shorter ttl is
// unknown, it is the shorter one's end.
func (l *Lock) Until() time.Time { return l.current().Until }

// Lease is the lease as it is now.
func (l *Lock) Lease() Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.On(lease.Event{Kind: lease.Disclose}) // this value, and not one that comes in between
	return believed(l.lease, &l.state).Lease
}

func (l *Lock) current() Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return believed(l.lease, &l.state)
}

func (l *Lock) value(i int) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.Value(i)
}

// Context is for the work under the lock. It ends with cause [ErrLost], a [*LostError], before the lease does, with
// cause [ErrHandedOff] or [ErrDetached] when the lock goes to another holder, and without a cause
// when the lock is released (by [Locker.Close], too: but that of Do with cause [ErrClosed]), before the
// server is told.
func (l *Lock) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		parent := l.parent
		if !l.bound {
			parent = context.WithoutCancel(parent)
		}
		l.ctx, l.cancel = context.WithCancelCause(parent)
		if l.bound {
			l.ctx = context.WithValue(l.ctx, ofLock{}, l)
		}
		l.endContext()
	}
	return l.ctx
}

type ofLock struct{}

// FromContext returns the lock under which [Locker.Do] runs a function, given the function's
// context or one derived from it: for its fence, or to extend it. It returns nil for any other ctx.
func FromContext(ctx context.Context) *Lock {
	l, _ := ctx.Value(ofLock{}).(*Lock)
	return l
}

// on tells the state machine what happened, and brings in line with it what hangs on it: the
// scheduler, the context, and what watches for a loss.
func (l *Lock) on(e lease.Event, le Grant) lease.Verdict {
	l.mu.Lock()
	was, end, renew := l.state.Cause(), l.state.End(), l.state.RenewAt()
	if was == lease.None {
		follow(&l.lease, e.Kind, le)
	}
	v := l.state.On(e)
	now := l.state.Cause()
	if now == lease.None && (e.Kind == lease.Tick || end != l.state.End() || renew != l.state.RenewAt()) {
		l.k.scheduler.Set(&l.item, times(&l.state), e.At)
	} else if now != lease.None && was == lease.None {
		l.k.scheduler.Remove(&l.item)
		l.endContext()
	}
	if e.Kind == lease.Release {
		l.endContext() // before the key goes, and may be another's
	}
	l.mu.Unlock()
	if was == lease.None && now == lease.Lost && (e.Kind <= lease.Release || e.Kind > lease.ReleaseNotSent) {
		l.wasLost()
	}
	return v
}

// endContext ends the context, if there is one and it is to end. l.mu is held.
func (l *Lock) endContext() {
	if l.cancel == nil {
		return
	}
	switch c := l.state.Cause(); {
	case c == lease.None && !l.state.Leaving():
	case l.bound && l.closed && c != lease.Lost:
		l.cancel(ErrClosed)
	case c == lease.None, c == lease.Released:
		l.cancel(nil)
	default:
		l.cancel(causeError(l.lease.Key, &l.state, l.why))
	}
}

// wasLost tells the queue and the Observer of a loss that no release reports. Without it nobody in this process could
// take the key again.
func (l *Lock) wasLost() {
	defer l.k.queues.Gone(&l.place)
	le := l.current()
	if !l.bound || l.parent.Err() == nil {
		l.k.see(Event{Kind: EventLost, Key: l.lease.Key, Lease: le.Lease, Took: l.k.elapsed(l.since), Err: l.over()}, nil)
	}
}

// over is why the lock has ended.
func (l *Lock) over() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return overError(l.lease.Key, &l.state, l.why)
}

func (l *Lock) saw(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why = err
}

func (l *Lock) lost(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return lostToo(l.lease.Key, &l.state, l.why, err)
}

// begin waits for its turn to do a step, as long as ctx lets it. tryBegin does not wait.
func (l *Lock) begin(ctx context.Context) error {
	for {
		l.mu.Lock()
		if !l.busy {
			l.busy = true
			l.mu.Unlock()
			return nil
		}
		if l.freed == nil {
			l.freed = make(chan struct{})
		}
		freed := l.freed
		l.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return protocol.NotSent.Mark(fmt.Errorf("setnxlock: an extension of %q is still under way: %w", l.lease.Key, limit.Cause(ctx)))
		}
	}
}

func (l *Lock) tryBegin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	free := !l.busy
	l.busy = true
	return free
}

func (l *Lock) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = false
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

// Extend moves the end of the lease to ttl from now: it sets, it does not add. Renewals use the new
// ttl from then on. It returns [ErrLost] if the lock is no longer ours; [ErrReleased],
// [ErrHandedOff] or [ErrDetached] if it was given away; and any other error if the lock may not
// have been extended: [Lock.Until] is then the earlier of the two ends, and Extend may be called
// again.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	if err := l.k.validTTL(l.lease.Key, ttl); err != nil {
		return err
	}
	if !l.k.crew.Enter() {
		return cmp.Or(l.ended(), ErrClosed)
	}
	defer l.k.crew.Leave()
	if err := l.begin(ctx); err != nil {
		return err
	}
	defer l.end()
	return l.extend(ctx, ttl)
}

// extend is one extension. The lock is busy.
func (l *Lock) extend(ctx context.Context, ttl time.Duration) error {
	start := l.k.now()
	if _, err := l.k.extend(ctx, l, ttl, false, false, lease.Done); err != nil {
		return err
	}
	l.k.see(Event{Kind: EventExtended, Key: l.lease.Key, Lease: l.current().Lease, Took: l.k.elapsed(start)}, nil)
	return nil
}

// Release hands the lock off to the next waiter in this process (up to 14 times in a row), or else
// releases it on the server. It works when ctx has already ended, within Options.Cleanup. Nothing
// renews the lock afterwards. It returns [ErrLost] if the lock was no longer ours, and then removes
// nothing, and [ErrReleased] if it was released before. After [ErrUnknown] (the outcome could not
// be learned), [ErrAborted], or ctx's error (an extension was still under way) it may be called
// again: it compares, and never removes another client's lock.
func (l *Lock) Release(ctx context.Context) error {
	if !l.k.crew.Enter() { // Close does, or has
		return l.over()
	}
	defer l.k.crew.Leave()
	return l.release(ctx)
}

// close is Release for the Locker's Close.
func (l *Lock) close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = l.state.Cause() == lease.None && !l.state.Leaving()
	l.mu.Unlock()
	return l.release(ctx)
}

func (l *Lock) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// release is Release.
func (l *Lock) release(ctx context.Context) error {
	start, ended := l.k.now(), ctx.Err() != nil
	if l.on(lease.Event{Kind: lease.Release, At: start}, Grant{}) == lease.Over {
		return l.over()
	}
	if !ended && ctx.Err() != nil { // it comes from the lock's own, which ends here
		at, bounded := ctx.Deadline()
		if ctx = context.WithoutCancel(ctx); bounded {
			var done context.CancelFunc
			ctx, done = context.WithDeadline(ctx, at)
			defer done()
		}
	}
	ctx, end := l.k.crew.Operation(ctx)
	defer end()
	if !l.tryBegin() { // a renewal under way ends first: it must not follow the release (any/renewal-outlives-release)
		l.mu.Lock()
		if l.stop != nil {
			l.stop()
		}
		l.mu.Unlock()
		wait, done := l.k.orCleanup(ctx)
		err := l.begin(wait)
		if done(); err != nil {
			return l.lost(err)
		}
		start = l.k.now()
	}
	defer l.end()

	ttl := l.ttl()
	passable := l.is(func(s *lease.State) bool { return s.Passable(l.k.abilities.Rotates, ttl, start) })
	next, signal := l.k.queues.Successor(&l.place, passable, ttl, start)
	if next != nil {
		le := l.current()
		p := l.pass(ttl, start)
		if p == nil {
			next.Grant(queue.Grant[loose]{})
			return l.over()
		}
		defer next.Grant(queue.Grant[loose]{Passed: p}) // that it is over here comes before it begins there
		l.k.see(Event{Kind: EventReleased, Key: l.lease.Key, Lease: le.Lease, Took: start.Sub(l.since)}, nil)
		return nil
	}
	woken, err := l.k.release(ctx, l, signal)
	defer func() {
		if err != nil {
			l.k.queues.Gone(&l.place)
		} else {
			l.k.queues.Released(&l.place, woken, ttl)
		}
	}()
	l.k.see(Event{Kind: EventReleased, Key: l.lease.Key, Lease: l.current().Lease, Took: start.Sub(l.since), Err: err}, nil)
	return err
}

// ttl is that of the last extension.
func (l *Lock) ttl() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.Claim().TTL
}
