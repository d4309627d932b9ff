package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/lease"
	"github.com/setnxlock/setnxlock/compat/internal/queue"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

func (l *held) Handoff(ctx context.Context, ttl time.Duration) (*Lock, error) {
	if err := l.k.validTTL(l.lease.Key, ttl); err != nil {
		return nil, err
	}
	if !l.k.jobs.Enter() {
		return nil, cmp.Or(l.ended(), ErrClosed)
	}
	defer l.k.jobs.Leave()
	if err := l.begin(ctx); err != nil { // no renewal comes in between
		return nil, err
	}
	defer l.end()
	start, old := l.k.now(), l.current()
	renews := l.is((*lease.State).Renews)
	if !l.k.abilities.Rotates && !l.is((*lease.State).Undisclosed) {
		return nil, fmt.Errorf("setnxlock: %q: somebody knows the token, and this lock can't change it: %w", l.lease.Key, errors.ErrUnsupported)
	}
	next := old
	asked := ttl
	ttl = l.k.term(ttl)
	fresh := l.is(func(s *lease.State) bool { return s.FreshFor(ttl, start) && s.Until().Sub(start) >= l.k.o.Hold })
	if !fresh || l.on(lease.Event{Kind: lease.Handoff, At: start, Claim: claimOf(old, l.ttl())}, old) != lease.OK {
		if err := l.ended(); err != nil {
			return nil, err
		}
		var err error
		if next, err = l.k.extend(ctx, l, extension{ttl: ttl, rotate: true, redraw: true, handsOff: true}); err != nil {
			return nil, err
		}
	} else {
		asked = max(asked, next.Until.Sub(start))
	}
	next.How, next.Rotate = protocol.HandedOff, false
	l.k.see(Event{Context: ctx, Kind: EventReleased, Key: l.lease.Key, Lease: old.Lease, Took: start.Sub(l.place.Since)}, func() {
		l.k.undo(ctx, newUnattached(next, ttl, start), nil) //nolint:errcheck // a panic is on its way
		l.k.queues.Gone(&l.place)
	})
	return forUser(l.k.hold(ctx, false, next, asked, renews, start, 0))
}

// ended returns the reason for the lock's end, or nil while it is held.
func (l *held) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.Cause() == lease.None && !l.state.Leaving() {
		return nil
	}
	return overError(l.lease.Key, &l.state, l.why)
}

// is asks the state machine.
func (l *held) is(f func(s *lease.State) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return f(&l.state)
}

// pass takes the lease off l for the next holder. The lease belongs to nobody yet. pass returns nil if l does not
// hold it any more.
func (l *held) pass(ttl time.Duration, now time.Time) *unattached {
	l.mu.Lock()
	le, undisclosed := believed(l.lease, &l.state), l.state.Undisclosed()
	passes := l.state.On(lease.Event{Kind: lease.Pass, At: now}) == lease.OK
	if passes {
		l.k.scheduler.Remove(&l.item)
		l.endContext()
	}
	l.mu.Unlock()
	if !passes {
		return nil
	}
	p := newUnattached(le, ttl, now)
	if !undisclosed {
		p.on(lease.Event{Kind: lease.Disclose}, le)
	}
	return p
}

// inherit takes over a lock after a release passed it on. It extends the lock, with a value and a fence of its
// own, unless the lease is fresh and nobody knows its value. On an error it has been released as far as it was
// ours.
func (k *Locker) inherit(ctx context.Context, q *queue.Queue[unattached], h *unattached, ttl time.Duration) error {
	now := k.now()
	h.lease.How = protocol.HandedOff
	if !now.Before(h.state.End()) {
		return k.undo(ctx, h, &LostError{Key: h.lease.Key, Err: errors.New("its time was running out when it was handed off")})
	}
	if h.state.FreshFor(ttl, now) { // for Options.Hold, too: a turn of this process is over after half a ttl
		return nil
	}
	was, known := h.state.Claim(), !h.state.Undisclosed()
	next, err := k.extend(ctx, h, extension{ttl: ttl, rotate: known, redraw: true})
	if err == nil && known && (next.Rotate || h.state.Claim().Value == was.Value) {
		err = fmt.Errorf("setnxlock: %q: somebody knows the token, and it could not be changed: %w", h.lease.Key, errors.ErrUnsupported)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		k.queues.CannotHandOff(q)
	}
	switch {
	case err == nil && was.Fence > 0 && h.state.Claim().Fence <= was.Fence:
		err = fmt.Errorf("setnxlock: %q was handed off without a new fence", h.lease.Key)
	case err == nil:
		return nil
	case errors.Is(err, ErrLost), errors.Is(err, ErrForeign):
		return err
	}
	return k.undo(ctx, h, err)
}
