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

// A limit of ours is never the caller's own end, nor the other way round.
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

// What comes after the limit goes to late, and the caller has not waited for it.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := ""
		get := func(d time.Duration) func(context.Context) (string, error) {
			return func(context.Context) (string, error) { time.Sleep(d); return "it", nil }
		}
		ctx := PerCommand(context.Background(), clock.New(), time.Second)
		if got, err := Await(ctx, get(time.Millisecond), nil); got != "it" || err != nil {
			t.Errorf("in time: %q, %v", got, err)
		}
		start := time.Now()
		got, err := Await(ctx, get(time.Minute), func(s string, _ error) { late = s })
		if got != "" || !errors.Is(err, ErrTimeout) || time.Since(start) != time.Second {
			t.Errorf("too late: %q, %v after %v", got, err, time.Since(start))
		}
		start = time.Now()
		if _, err := Await(context.WithoutCancel(ctx), get(time.Minute), func(string, error) {}); !errors.Is(err, ErrTimeout) || time.Since(start) != time.Second {
			t.Errorf("too late, with something on top of the limit: %v after %v", err, time.Since(start))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if late != "it" {
			t.Error("what came late was dropped")
		}
	})
}
