package probe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/simulate"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
)

var anHour = time.Date(2020, 1, 2, 3, 4, 5, 123456789, time.UTC)

// Two clients have clocks a quarter of an hour apart, on servers old and new. By their own clocks, one takes
// the other's lock at once; by the server's, it waits for the end of the lease, and no longer.
func TestClockAgrees(t *testing.T) {
	const ttl = 10 * time.Second
	for _, v := range oldredis.Versions() {
		synctest.Test(t, func(t *testing.T) {
			s := oldredis.MustNew(v, oldredis.Options{Clock: clock.New()})
			t.Cleanup(func() { s.Close() })
			s.Advance(40 * time.Minute)
			time.Sleep(123456789) // the seconds of client and server begin at different moments
			own, right := [2]*simulate.Clock{simulate.NewClock(), simulate.NewClock()}, [2]*probe.Clock{}
			own[1].Set(15 * time.Minute)
			for i := range own {
				right[i] = must.Get(probe.NewClock(t.Context(), compat.Pooled(s), own[i], probe.Options{}))(t)
			}
			apart := right[0].Now().Round(0).Sub(right[1].Now().Round(0)).Abs() // by their wall clocks
			if apart > right[0].Uncertainty()+right[1].Uncertainty() || right[0].Uncertainty() > 60*time.Millisecond {
				t.Errorf("%s: %v apart, ± %v and ± %v", v, apart, right[0].Uncertainty(), right[1].Uncertainty())
			}

			lock := func(c clock.Clock, key string) (*compat.Lock, error) {
				margin := getsetlock.Dialect{Margin: 2 * right[0].Uncertainty()}
				a := getsetlock.Classic{Options: getsetlock.Options{Dialect: margin}}
				k := compat.New(s, a, compat.Options{Clock: c, NoRenew: true})
				t.Cleanup(func() { k.Close(context.Background()) }) //nolint:errcheck // some locks are over
				return k.TryLock(t.Context(), key, ttl)
			}
			must.Get(lock(own[0], "own"))(t)
			if _, err := lock(own[1], "own"); err != nil {
				t.Errorf("%s: by a clock that is ahead: %v, want the lock stolen, or this test shows nothing", v, err)
			}
			for i := range right {
				key := []string{"a", "b"}[i]
				must.Get(lock(right[i], key))(t)
				time.Sleep(ttl - time.Second)
				if _, err := lock(right[1-i], key); !errors.Is(err, compat.ErrHeld) {
					t.Errorf("%s: a second before the end: %v, want ErrHeld", v, err)
				}
				time.Sleep(time.Second + 200*time.Millisecond)
				if l, err := lock(right[1-i], key); err != nil || l.Lease().How != protocol.TakenOver {
					t.Errorf("%s: after the end: %v", v, err)
				}
			}
		})
	}
}

// A Clock follows the jumps of a server's clock, and gets less certain with time. A measurement that fails leaves the
// Clock as it was.
func TestClockMeasure(t *testing.T) {
	clk := at(anHour)
	s := oldredis.MustNew("2.6", oldredis.Options{Clock: clk})
	defer s.Close()
	c := must.Get(probe.NewClock(t.Context(), compat.Pooled(s), clk, probe.Options{}))(t)
	near := func(want time.Duration) {
		t.Helper()
		if got := c.Now().Sub(clk.now); (got - want).Abs() > c.Uncertainty() {
			t.Errorf("%v ahead ± %v, want %v", got, c.Uncertainty(), want)
		}
	}
	near(0)
	before := c.Uncertainty()
	clk.now = clk.now.Add(1000 * time.Second)
	if grown := c.Uncertainty() - before; grown != 500*time.Millisecond {
		t.Errorf("less certain by %v in 1000 s, want half a second", grown)
	}
	s.Advance(90 * time.Second)
	moved, err := c.Measure(t.Context())
	if err != nil || (moved-90*time.Second).Abs() > time.Millisecond {
		t.Errorf("moved %v, %v; want 90 s", moved, err)
	}
	near(90 * time.Second)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if moved, err := c.Measure(ctx); !errors.Is(err, context.Canceled) || moved != 0 {
		t.Errorf("moved %v, %v; want it cancelled", moved, err)
	}
	near(90 * time.Second)
	ctx, end := c.WithDeadline(t.Context(), c.Now().Add(-time.Second))
	defer end()
	if ctx.Err() == nil {
		t.Error("a deadline that the server's time is past has not come")
	}
}

// Keep measures as often as it was asked to, tells, and ends with its context.
func TestClockKeep(t *testing.T) {
	mock := clock.NewMock()
	mock.Set(anHour)
	s := oldredis.MustNew("7.0", oldredis.Options{Clock: mock})
	defer s.Close()
	c := must.Get(probe.NewClock(t.Context(), compat.Pooled(s), mock, probe.Options{}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan time.Duration)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Keep(ctx, time.Minute, func(moved time.Duration, err error) {
			if err != nil {
				t.Error(err)
			}
			told <- moved
		})
	}()
	for range 3 {
		s.Advance(5 * time.Second)
		deadline := time.Now().Add(time.Minute)
		for measured := false; !measured; {
			mock.Add(time.Minute) // the timer may not have been set at the last one
			select {
			case moved := <-told:
				if (moved - 5*time.Second).Abs() > c.Uncertainty() {
					t.Errorf("moved by %v, want 5 s", moved)
				}
				measured = true
			default:
				if time.Now().After(deadline) {
					t.Fatal("it does not measure")
				}
			}
		}
	}
	cancel()
	<-done
}
