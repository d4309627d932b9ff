package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"weak"

	"github.com/setnxlock/setnxlock/compat/internal/lease"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/queue"
	"github.com/setnxlock/setnxlock/compat/internal/schedule"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// held keeps the engine's state of a held lock. A [Lock] is its user's side.
type held struct {
	k *Locker

	parent context.Context // that of Do, or of the caller that took the lock
	bound  bool            // the lock's context ends with parent
	closed bool            // its Locker's Close has released it; mu guards it
	busy   bool            // a step is under way: one at a time; mu guards it
	stays  bool            // Options.Hold keeps it, whatever its user releases; mu guards it
	long   bool            // it was told that it is held for long; a step that is under way has it

	mu     sync.Mutex
	state  lease.State // what is believed; on alone changes it
	lease  Grant       // what a lease carries beside that; its Key never changes
	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   context.CancelFunc // ends the renewal under way, if it is this lock's alone

	asked time.Duration // the ttl that its user wants; Options.Hold may ask for more; mu guards it

	why   error         // what the last step ended with
	freed chan struct{} // closed when it has ended; nil: nobody waits for that

	user   weak.Pointer[Lock] // the user's Lock, if it is not renewed beyond that one's life; mu guards it
	unseen *Lock              // the same until the first renewal: most locks end before, and a weak pointer costs as much as the rest

	item  schedule.Item[*held]
	place queue.Holder[unattached]
}

// hold makes a Lock of a new lease. Its context ends with parent if it is bound to it.
func (k *Locker) hold(parent context.Context, bound bool, le Grant, ttl time.Duration, renew bool, start time.Time, tries int) (*held, error) {
	now := k.now()
	l := &held{k: k, parent: parent, bound: bound, lease: le, asked: ttl, place: queue.Holder[unattached]{Since: now}}
	l.state = lease.New(claimOf(le, k.term(ttl)), renew, now)
	if le.How == protocol.Adopted { // a part of it may still have the value that the adopter came with
		l.state.On(lease.Event{Kind: lease.Disclose})
	}
	if le.Rotate { // an extension from before it was a Lock's may still run
		l.state.On(lease.Event{Kind: lease.Unknown, At: now, Claim: claimOf(le, k.term(ttl))})
	}
	if !k.abilities.Shared {
		k.queues.Took(l.lease.Key, &l.place)
	}
	l.item.Of = l
	if !k.scheduler.Add(&l.item, times(&l.state), now) {
		l.release(parent) //nolint:errcheck // Close came in between: what stays ends with its lease
		return nil, ErrClosed
	}
	if k.o.Observer != nil {
		k.see(Event{Context: parent, Kind: EventAcquired, Key: l.lease.Key, Lease: l.current().Lease, Took: now.Sub(start), Tries: tries}, func() {
			l.release(context.Background()) //nolint:errcheck // a panic is on its way
		})
	}
	if k.o.Hold > 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.closed { // and so was not kept: nobody may work under it
			return nil, ErrClosed
		}
		l.stays = true // it is its user's from here on
	}
	return l, nil
}

// times returns the end and the renewal of a lock.
func times(s *lease.State) schedule.Times { return schedule.Times{End: s.End(), Renew: s.RenewAt()} }

func (l *held) Lease() Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.On(lease.Event{Kind: lease.Disclose}) // this value, and not one that comes in between
	return believed(l.lease, &l.state).Lease
}

func (l *held) current() Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return believed(l.lease, &l.state)
}

func (l *held) value(i int) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.Value(i)
}

func (l *held) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		parent := l.parent
		if !l.bound {
			parent = context.WithoutCancel(parent)
		}
		l.ctx, l.cancel = context.WithCancelCause(parent)
		if l.bound {
			l.ctx = lockContext{l.ctx, &Lock{l}}
		}
		l.endContext()
	}
	return l.ctx
}

// on tells the state machine about an event, and updates the scheduler and the context to match.
func (l *held) on(e lease.Event, le Grant) lease.Verdict {
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
	switch {
	case was != lease.None || now == lease.None:
	case now == lease.Lost && (e.Kind <= lease.Release || e.Kind > lease.ReleaseNotSent):
		l.wasLost()
	case e.Kind == lease.Tick: // its release takes longer than the lease
		l.k.queues.Gone(&l.place)
	}
	return v
}

// endContext ends the context if the lock's state asks for it. l.mu is held.
func (l *held) endContext() {
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

// wasLost tells the queue and the Observer about a loss outside of a release. Without it nobody in this process
// could take the key again.
func (l *held) wasLost() {
	defer l.k.queues.Gone(&l.place)
	l.k.see(Event{Context: l.unasked(), Kind: EventLost, Key: l.lease.Key, Lease: l.current().Lease, Took: l.k.elapsed(l.place.Since), Err: l.over()}, nil)
}

// unasked returns the context for events without a call. It returns nil without an Observer.
func (l *held) unasked() context.Context {
	if l.k.o.Observer == nil {
		return nil
	}
	return context.WithoutCancel(l.parent)
}

// over returns the reason for the lock's end.
func (l *held) over() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return overError(l.lease.Key, &l.state, l.why)
}

func (l *held) saw(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why = err
}

func (l *held) lost(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return withLoss(l.lease.Key, &l.state, l.why, err)
}

// begin waits for its turn to do a step, as long as ctx lets it. tryBegin does not wait.
func (l *held) begin(ctx context.Context) error {
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

func (l *held) tryBegin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	free := !l.busy
	l.busy = true
	return free
}

func (l *held) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = false
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

func (l *held) Extend(ctx context.Context, ttl time.Duration) error {
	if err := l.k.validTTL(l.lease.Key, ttl); err != nil {
		return err
	}
	if !l.k.jobs.Enter() {
		return cmp.Or(l.ended(), ErrClosed)
	}
	defer l.k.jobs.Leave()
	if err := l.begin(ctx); err != nil {
		return err
	}
	defer l.end()
	start := l.k.now()
	if _, err := l.k.extend(ctx, l, extension{ttl: l.renewal(ttl, start)}); err != nil {
		return err
	}
	l.mu.Lock()
	l.asked = ttl
	l.mu.Unlock()
	l.k.see(Event{Context: ctx, Kind: EventExtended, Key: l.lease.Key, Lease: l.current().Lease, Took: l.k.elapsed(start)}, nil)
	return nil
}

// close releases the lock for the Locker's Close.
func (l *held) close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = l.closed || l.state.Cause() == lease.None && !l.state.Leaving()
	l.mu.Unlock()
	return l.release(ctx)
}

func (l *held) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// release carries out Lock.Release while its Locker is open.
func (l *held) release(ctx context.Context) error {
	caller, start, ended := ctx, l.k.now(), ctx.Err() != nil
	if l.on(lease.Event{Kind: lease.Release, At: start}, Grant{}) == lease.Over {
		return l.over()
	}
	own := l.k.within(ctx, l.lease.Key)
	if !ended && (ctx.Err() != nil || own != nil && own.h == l) { // it ends with the lock's own, which ends here
		at, bounded := ctx.Deadline()
		if ctx = context.WithoutCancel(ctx); bounded {
			var done context.CancelFunc
			ctx, done = context.WithDeadline(ctx, at)
			defer done()
		}
	}
	ctx, end := l.k.jobs.Operation(ctx)
	defer end()
	waits := !l.tryBegin()
	if waits {
		if err := l.interrupt(ctx); err != nil {
			return l.lost(err)
		}
		start = l.k.now()
	}
	defer l.end()
	if waits && l.on(lease.Event{Kind: lease.Release, At: start}, Grant{}) == lease.Over { // by the step that was under way
		return l.over()
	}
	if l.is(func(*lease.State) bool { return l.stays && start.Before(l.place.Since.Add(l.k.o.Hold)) }) {
		return l.stay(ctx, caller, start)
	}

	ttl := l.ttl()
	passable := l.is(func(s *lease.State) bool { return s.Passable(l.k.abilities.Rotates, ttl, start) })
	next := l.k.queues.Successor(&l.place, passable, ttl, start)
	if next != nil {
		le := l.current()
		if p := l.pass(ttl, start); p != nil {
			defer next.Grant(queue.Grant[unattached]{Passed: p}) // that it is over here comes before it begins there
			l.k.see(Event{Context: caller, Kind: EventReleased, Key: l.lease.Key, Lease: le.Lease, Took: start.Sub(l.place.Since)}, nil)
			return nil
		}
		next.Grant(queue.Grant[unattached]{}) // its end came in between
	}
	err := l.k.release(ctx, l)
	defer func() {
		switch {
		case err != nil:
			l.k.queues.Gone(&l.place)
		case l.k.abilities.Shared:
			l.k.queues.ReleasedBeside(ctx, l.lease.Key, start.Sub(l.place.Since))
		default:
			l.k.queues.Released(ctx, &l.place, ttl, start)
		}
	}()
	l.k.see(Event{Context: caller, Kind: EventReleased, Key: l.lease.Key, Lease: l.current().Lease, Took: start.Sub(l.place.Since), Err: err}, nil)
	return err
}

// interrupt ends the step under way, and begins. A renewal must not follow the release (any/renewal-outlives-release).
func (l *held) interrupt(ctx context.Context) error {
	l.mu.Lock()
	if l.stop != nil {
		l.stop()
	}
	l.mu.Unlock()
	wait, done := l.k.orCleanup(ctx)
	defer done()
	return l.begin(wait)
}

// stay ends the lock here before Options.Hold has passed. The lease goes on to its end, and nobody in this process
// is given the lock. As a release does, stay finds out whether the key was still ours.
func (l *held) stay(ctx, caller context.Context, start time.Time) error {
	step, done := l.k.orCleanup(ctx)
	_, err := l.k.read(step, l)
	done()
	l.on(lease.Event{Kind: lease.ReleaseDone}, Grant{}) // nothing of it is ours to remove
	err = l.lost(err)                                   // its time may have run out before
	l.k.queues.Gone(&l.place)
	l.k.see(Event{Context: caller, Kind: EventReleased, Key: l.lease.Key, Lease: l.current().Lease, Took: start.Sub(l.place.Since), Err: err}, nil)
	return err
}

// ttl returns the ttl of the last extension.
func (l *held) ttl() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.Claim().TTL
}

func (l *held) Detach(ctx context.Context) (Handle, error) {
	if err := l.begin(ctx); err != nil {
		return Handle{}, err
	}
	defer l.end()
	if v := l.on(lease.Event{Kind: lease.Ask, At: l.k.now()}, l.current()); v == lease.Over {
		return Handle{}, l.over()
	}
	if _, err := l.k.read(ctx, l); err != nil {
		return Handle{}, err
	}
	le := l.current()
	switch l.on(lease.Event{Kind: lease.Detach, At: l.k.now()}, le) {
	case lease.OK:
		l.k.queues.Gone(&l.place)
		return Handle{Key: l.lease.Key, Token: le.Value}, nil
	case lease.Over:
		return Handle{}, l.over()
	}
	return Handle{}, &UnknownError{Lease: le.Lease, Err: errLate}
}

var errLate = errors.New("setnxlock: an extension that was sent may still arrive; extend once more")
