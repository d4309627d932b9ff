package compat

import (
	"context"
	"errors"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/internal/lease"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// attempt makes one attempt and settles an unknown outcome.
func (k *Locker) attempt(ctx context.Context, key string, ttl time.Duration, n int) (Grant, error) {
	start, ttl := k.started(), k.term(ttl)
	var l Grant
	var err error
	for again := false; ; again = true {
		step, done := k.step(ctx, ttl)
		l, err = k.backend.Acquire(step, k.now, key, ttl)
		done()
		l, err = k.acquired(ctx, l, ttl, err)
		if again || !answer.Closed(err) || errors.Is(err, ErrUnknown) || errors.Is(err, ErrHeld) || ctx.Err() != nil {
			break
		} // else the pool's connection was dead, and the key was found free: ask over a live one
	}
	if k.o.Observer == nil {
		return l, err
	}
	k.see(Event{Context: ctx, Kind: EventAttempt, Key: key, Lease: l.Lease, Took: k.elapsed(start), Tries: n, Err: err}, func() {
		if err == nil {
			k.undo(ctx, newUnattached(l, ttl, start), nil) //nolint:errcheck // a panic is on its way
		}
	})
	if errors.Is(err, ErrHeld) {
		k.see(Event{Context: ctx, Kind: EventRefused, Key: key, Lease: l.Lease, Took: k.elapsed(start), Tries: n, Err: err}, nil)
	}
	return l, err
}

// term returns the ttl to acquire a lock with: ttl, and not less than Options.Hold. The first lease stands
// whatever becomes of its holder.
func (k *Locker) term(ttl time.Duration) time.Duration { return max(ttl, k.o.Hold) }

// acquired settles an attempt of unknown outcome, and undoes one that came too late.
func (k *Locker) acquired(ctx context.Context, l Grant, ttl time.Duration, err error) (Grant, error) {
	if o := protocol.OutcomeOf(err); o == protocol.Refused || o == protocol.NotSent {
		return l, err
	}
	now := k.now()
	if err == nil && ctx.Err() == nil && !lease.Past(now, l.Until) {
		return l, nil
	}
	h := newUnattached(l, ttl, now)
	switch {
	case err != nil:
		err = k.settle(ctx, h, ttl, err)
	case ctx.Err() != nil: // taken, but nobody is waiting for it any more
		err = k.undo(ctx, h, limit.Cause(ctx))
	default: // the reply took longer than the lease lasts (any/lease-counted-from-reply)
		err = k.undo(ctx, h, &LostError{Key: l.Key, Err: errors.New("the answer came after its time had run out")})
	}
	return h.current(), err
}

// refusal adds the key's holder to err, if the algorithm was refused without a look at the key. For a key that is
// not a string it returns ErrForeign, whichever lock was refused by it.
func (k *Locker) refusal(ctx context.Context, key string, ttl time.Duration, err error) error {
	held, ok := err.(*HeldError)
	if !ok || held.Value != "" || !held.Until.IsZero() || held.Foreign {
		return err
	}
	st, readErr := k.inspect(ctx, key, ttl)
	switch {
	case errors.Is(readErr, ErrForeign):
		return readErr
	case readErr == nil && st.Status != StatusFree && st.Status != StatusDead:
		return &HeldError{Key: held.Key, Value: st.Value, Until: st.Until, Foreign: st.Status == StatusForeign}
	}
	return err
}

// stepContext bounds one step by ctx, Options.Timeout and ttl.
func (k *Locker) stepContext(ctx context.Context, ttl time.Duration) (context.Context, func()) {
	d := min(k.o.Timeout, ttl)
	switch {
	case limit.Cancels(ctx):
		return limit.Within(cleaning.With(ctx, k.jobs), k.o.Clock, d)
	case ctx == context.Background():
		return limit.Timed(k.plain, k.o.Clock, d), func() {}
	}
	return limit.Timed(cleaning.With(ctx, k.jobs), k.o.Clock, d), func() {}
}

// started and elapsed measure a time for an Observer. Without one they do not ask the clock.
func (k *Locker) started() (now time.Time) {
	if k.o.Observer != nil {
		now = k.now()
	}
	return now
}

func (k *Locker) elapsed(start time.Time) time.Duration {
	if k.o.Observer == nil {
		return 0
	}
	return k.o.Clock.Since(start)
}

// see shows e to the Observer, without the value: the value proves the lock ours. If the Observer panics, undo
// keeps the lock from being held by nobody.
func (k *Locker) see(e Event, undo func()) {
	if k.o.Observer == nil {
		return
	}
	e.Lease.Value = ""
	onPanic(func() { k.o.Observer(e) }, undo)
}
