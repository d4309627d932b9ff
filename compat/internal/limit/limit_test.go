package limit

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
)

// Cause never mistakes a limit of ours for the caller's own end, nor the other way round.
func TestWhoseEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step, done := Within(t.Context(), clock.New(), time.Second)
		defer done()
		type other struct{}
		if Of(context.WithValue(step, other{}, "v")) != time.Second {
			t.Error("the limit is not found below a value")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if err := Cause(step); !errors.Is(err, ErrTimeout) || !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.Canceled) {
			t.Errorf("a limit of ours: %v", err)
		}
		caller, cancel := context.WithCancel(t.Context())
		step, done = Within(caller, clock.New(), time.Second)
		defer done()
		cancel()
		if err := Cause(step); !errors.Is(err, context.Canceled) || errors.Is(err, ErrTimeout) {
			t.Errorf("the caller's end: %v", err)
		}
		if err := Because(step, errors.New("dial")); !errors.Is(err, context.Canceled) {
			t.Errorf("an error behind the caller's end: %v", err)
		}
		reason, giveUp := context.WithCancelCause(t.Context())
		giveUp(errors.New("the caller's own reason"))
		late, done := Within(t.Context(), clock.New(), time.Second)
		defer done()
		time.Sleep(time.Second)
		synctest.Wait()
		for _, ended := range []context.Context{reason, late} {
			if err := Because(ended, Dialled(context.Cause(ended))); err.Error() != Cause(ended).Error() {
				t.Errorf("a Dial that returns the reason for the end: %v", err)
			}
		}
		like, cancelLike := context.WithCancelCause(context.Background())
		cancelLike(As(caller))
		if err := Cause(like); !errors.Is(err, context.Canceled) {
			t.Errorf("that which ends as the caller's does: %v", err)
		}
		passed, done := context.WithDeadline(t.Context(), time.Now())
		defer done()
		ended, end := context.WithCancelCause(context.Background())
		end(As(passed))
		if err := Cause(ended); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			t.Errorf("that which ends with the caller's deadline: %v", err)
		}
		if err := Slow(os.ErrDeadlineExceeded); !errors.Is(err, ErrTimeout) {
			t.Errorf("a read that timed out: %v", err)
		}
		if err := Slow(context.DeadlineExceeded); errors.Is(err, ErrTimeout) {
			t.Errorf("the caller's deadline: %v", err)
		}
	})
}

// A limit also ends a step whose context can't be cancelled.
func TestTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.WithoutCancel(Timed(context.Background(), clock.New(), time.Second))
		rings, stop := Alarm(ctx)
		defer stop()
		if err := Over(ctx); err != nil {
			t.Errorf("it has not ended: %v", err)
		}
		began := time.Now()
		<-rings
		if err := Over(ctx); !errors.Is(err, ErrTimeout) || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// Early ignores a deadline of Sooner behind the caller's own deadline.
func TestEarly(t *testing.T) {
	soon, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	for ahead, ours := range map[time.Duration]bool{time.Second: true, time.Hour: false} {
		at := time.Now().Add(ahead)
		if got, early := Early(Sooner(soon, at)); early != ours || early && !got.Equal(at) {
			t.Errorf("%v ahead, in a context that ends in a minute: %v, %v", ahead, got, early)
		}
	}
}

// A step that a caller cancelled says nothing about a server. One that ran out of time may, also where another
// context passes its end on.
func TestCancelledOrRanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancelled, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		late, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		step, end := Within(t.Context(), clock.New(), time.Second)
		defer end()
		time.Sleep(time.Second)
		synctest.Wait()
		for name, c := range map[string]struct {
			ctx  context.Context
			want bool
		}{"the caller's": {cancelled, true}, "a deadline": {late, false}, "a limit": {step, false}, "none": {t.Context(), false}} {
			if got := Cancelled(c.ctx); got != c.want {
				t.Errorf("%s: %v", name, got)
			}
			if c.ctx.Err() == nil {
				continue
			}
			passed, pass := context.WithCancelCause(t.Context())
			pass(As(c.ctx))
			if got := Cancelled(passed); got != c.want {
				t.Errorf("%s, passed on: %v", name, got)
			}
		}
	})
}
