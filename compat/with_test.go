package compat_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/txlock"
)

// What With returns ends with whichever ends first, for that one's cause, and else is the caller's context.
func TestWith(t *testing.T) {
	own := errors.New("the caller's reason")
	type named struct{}
	for name, c := range map[string]struct {
		end   func(w *world, l *compat.Lock, caller context.CancelCauseFunc) error
		cause error
	}{
		"caller":   {func(_ *world, _ *compat.Lock, caller context.CancelCauseFunc) error { caller(own); return nil }, own},
		"lost":     {func(w *world, _ *compat.Lock, _ context.CancelCauseFunc) error { w.clock.Add(ttl); return nil }, compat.ErrLost},
		"released": {func(_ *world, l *compat.Lock, _ context.CancelCauseFunc) error { return l.Release(background) }, context.Canceled},
		"handed off": {func(_ *world, l *compat.Lock, _ context.CancelCauseFunc) error {
			_, err := l.Handoff(background, ttl)
			return err
		}, compat.ErrHandedOff},
		"detached": {func(_ *world, l *compat.Lock, _ context.CancelCauseFunc) error {
			_, err := l.Detach(background)
			return err
		}, compat.ErrDetached},
	} {
		for _, before := range []bool{false, true} { // With is called
			w := newWorld(t, "2.4")
			k, _ := w.client(txlock.Renamed{})
			l := try(t, k, "k")
			caller, cancel := context.WithCancelCause(context.WithValue(background, named{}, name))
			bounded, stop := context.WithTimeout(caller, time.Hour)
			end := func() {
				if err := c.end(w, l, cancel); err != nil {
					t.Fatal(name, err)
				}
			}
			if !before {
				end()
			}
			ctx, done := l.With(bounded)
			if before {
				if ctx.Err() != nil {
					t.Errorf("%s: ended before either has: %v", name, context.Cause(ctx))
				}
				end()
				<-ctx.Done()
			}
			if cause := context.Cause(ctx); ctx.Err() == nil || !errors.Is(cause, c.cause) {
				t.Errorf("%s, With before that %v: it ends with cause %v", name, before, cause)
			}
			at, _ := ctx.Deadline()
			if want, _ := bounded.Deadline(); !at.Equal(want) || ctx.Value(named{}) != name || compat.FromContext(ctx) != l {
				t.Errorf("%s: deadline %v, value %v, lock %v", name, at, ctx.Value(named{}), compat.FromContext(ctx))
			}
			done()
			stop()
		}
	}
}

// The end of what With returned ends nothing else, and one that is the lock's own already, in Do, ends with it.
func TestWithIsOver(t *testing.T) {
	w := newWorld(t, "2.4")
	k, _ := w.client(txlock.Renamed{})
	l := try(t, k, "k")
	ctx, end := l.With(background)
	end()
	if ctx.Err() != context.Canceled || l.Context().Err() != nil {
		t.Errorf("it says %v, the lock's own %v", ctx.Err(), l.Context().Err())
	}
	caller, cancel := context.WithCancel(background)
	err := k.Do(caller, "do", ttl, func(own context.Context) error {
		joined, end := compat.FromContext(own).With(background)
		defer end()
		cancel()
		<-joined.Done()
		return context.Cause(joined)
	})
	if err != context.Canceled {
		t.Error(err)
	}
}
