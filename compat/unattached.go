package compat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/lease"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// unattached holds a lease without a Lock: of an attempt in doubt, of a lock on its way to the next holder, or of a
// part of a lock made of several.
type unattached struct {
	state lease.State
	lease Grant
	why   error // what the last step ended with
}

func newUnattached(l Grant, ttl time.Duration, now time.Time) *unattached {
	h := &unattached{lease: l, state: lease.New(claimOf(l, ttl), false, now)}
	for _, v := range slices.Backward(l.OtherValues) { // the likeliest was asked for last
		e := lease.Event{Kind: lease.Unknown, At: now, Claim: claimOf(l, ttl)}
		e.Claim.Value = v
		h.state.On(e)
	}
	return h
}

func claimOf(l Grant, ttl time.Duration) lease.Claim {
	return lease.Claim{Value: l.Value, Until: l.Until, TTL: ttl, Fence: l.Fence}
}

func (h *unattached) current() Grant             { return believed(h.lease, &h.state) }
func (h *unattached) value(i int) (string, bool) { return h.state.Value(i) }
func (h *unattached) over() error                { return overError(h.lease.Key, &h.state, h.why) }
func (h *unattached) lost(err error) error       { return withLoss(h.lease.Key, &h.state, h.why, err) }
func (h *unattached) saw(err error)              { h.why = err }

func (h *unattached) on(e lease.Event, l Grant) lease.Verdict {
	follow(&h.lease, e.Kind, l)
	return h.state.On(e)
}

// believed puts the state machine's claim into l.
func believed(l Grant, s *lease.State) Grant {
	c := s.Claim()
	l.Value, l.Until, l.Fence, l.Rotate = c.Value, c.Until, c.Fence, s.Rotate()
	return l
}

// follow keeps the epoch and the connection of a lease, beside its claim. An extension touches the key, and so
// ends a connection's watch over it.
func follow(of *Grant, k lease.Kind, l Grant) {
	switch k {
	case lease.Done, lease.Handoff:
		of.Ambiguous, of.epoch, of.pin = l.Ambiguous, l.epoch, 0
	case lease.Unknown:
		of.Ambiguous, of.pin = of.Ambiguous || l.Ambiguous, 0
	}
}

// since returns the epoch of the last replacement of key's server.
func since(b Backend, key string) uint64 {
	a := b.Abilities()
	if a.server != nil {
		return a.server.since(key)
	}
	return epochOf(b)
}

// epochOf returns the present epoch of b, or 0 if its servers are not replaced.
func epochOf(b Backend) uint64 {
	if e := b.Abilities().Epoch; e != nil {
		return e()
	}
	return 0
}

// overError returns the error of an operation on an ended lock. why is the last step's error.
func overError(key string, s *lease.State, why error) error {
	err := causeError(key, s, why)
	if s.Cause() == lease.Lost {
		return err
	}
	return fmt.Errorf("%w: %q", err, key)
}

// causeError returns the cause for the end of a lock's context.
func causeError(key string, s *lease.State, why error) error {
	switch s.Cause() {
	case lease.Released, lease.None: // None: its release has begun
		return ErrReleased
	case lease.HandedOff:
		return ErrHandedOff
	case lease.Detached:
		return ErrDetached
	}
	c := s.Claim()
	e := &LostError{Key: key, Err: why, Confirmed: c.Until.Add(lease.Drift(c.TTL) - c.TTL), Renewed: s.Renews()}
	if seen := (*LostError)(nil); errors.As(why, &seen) && seen.Key == key {
		e.Value, e.Gone, e.Err = seen.Value, seen.Gone, seen.Err
	}
	return e
}

// withLoss adds the loss of the lock and its reason to a release's error. Whatever became of the release, the work
// under a lost lock may have overlapped.
func withLoss(key string, s *lease.State, why, err error) error {
	if s.Cause() != lease.Lost {
		return err
	}
	if errors.Is(err, ErrLost) {
		why = ErrLost // and what else err says
	}
	if seen := (*LostError)(nil); err == ErrLost || errors.As(err, &seen) && err == error(seen) {
		why, err = err, nil
	}
	if err == nil {
		return overError(key, s, why)
	}
	return fmt.Errorf("%w: %w", overError(key, s, why), err)
}

// withOtherValues adds every other value that the key may hold to l.
func (h *unattached) withOtherValues(l Grant) Grant {
	l.OtherValues = nil
	for i := 0; ; i++ {
		v, ok := h.value(i)
		if !ok {
			return l
		}
		if v != l.Value {
			l.OtherValues = append(l.OtherValues, v)
		}
	}
}

// Settled wraps b as a part of a lock made of several. It settles a step with a lost reply by reading the key, as
// the Locker does for its own lock.
func Settled(b Backend) Backend { return part{b} }

type part struct{ Backend }

func (b part) resolver(now func() time.Time) *resolver {
	same := func(ctx context.Context, _ time.Duration) (context.Context, func()) { return ctx, func() {} }
	return &resolver{backend: b.Backend, now: now, step: same, cleanup: func(ctx context.Context) (context.Context, func()) { return same(ctx, 0) }}
}

// Acquire asks once more if a request of unknown outcome turns out not to have taken the key. An idle connection,
// closed by the server, must not cost a part of the lock. With an error of outcome Unknown it returns the lease
// that may stand.
func (b part) Acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (Grant, error) {
	for try := 1; ; try++ {
		l, err := b.Backend.Acquire(ctx, now, key, ttl)
		if protocol.OutcomeOf(err) != protocol.Unknown {
			return l, err
		}
		h := newUnattached(l, ttl, now())
		err = b.resolver(now).settle(ctx, h, ttl, err)
		switch {
		case err == nil, errors.Is(err, ErrUnknown):
			return h.current(), err
		case protocol.OutcomeOf(err) == protocol.Refused:
			return l, err
		case try == 2 || ctx.Err() != nil: // it is free, or was taken back
			return l, protocol.NotSent.Mark(err)
		}
	}
}

// Extend returns, with an error of outcome Unknown, the lease that holds in any case. Grant.OtherValues
// lists the other values that the key may hold.
func (b part) Extend(ctx context.Context, now func() time.Time, l Grant, ttl time.Duration) (Grant, error) {
	h := newUnattached(l, ttl, now())
	next, err := b.resolver(now).extend(ctx, h, extension{ttl: ttl, rotate: l.Rotate, redraw: l.Fence == 0})
	switch protocol.OutcomeOf(err) {
	case protocol.Done:
		got := h.withOtherValues(h.current())
		got.Final, got.drew = next.Final, next.drew
		got.Rotate = got.Rotate || l.Rotate && got.Value == l.Value && b.Abilities().Rotates
		return got, nil
	case protocol.Unknown:
		next.Until = h.state.Until()
		return h.withOtherValues(next), err
	}
	if h.state.Rotate() && !errors.Is(err, ErrLost) { // an earlier try may have run
		next := h.withOtherValues(h.current())
		return next, &UnknownError{Lease: next.Lease, Err: cause(err)}
	}
	return l, err
}

// Release removes the key if it is ours.
func (b part) Release(ctx context.Context, now func() time.Time, l Grant) error {
	if l.epoch == 0 { // a part of a lease: when it was written is not known
		l.epoch = epochOf(b.Backend)
	}
	return b.resolver(now).release(ctx, newUnattached(l, 0, now()))
}
