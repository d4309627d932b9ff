package probe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
)

var anHour = time.Date(2020, 1, 2, 3, 4, 5, 123456789, time.UTC)

// Two clients whose clocks are a quarter of an hour apart, on servers old and
// new: by their own clocks one takes the other's lock at once; by the server's it
// waits for the end of the lease, and no longer.
func TestClockAgrees(t *testing.T) {
	const ttl = 10 * time.Second
	for _, v := range oldredis.Versions() {
		clk := at(anHour)
		s := oldredis.MustNew(v, oldredis.Options{Clock: clk})
		s.Advance(40 * time.Minute)
		own := [2]skewed{{clk, 0}, {clk, 15 * time.Minute}}
		var right [2]*probe.Clock
		for i := range own {
			c, err := probe.NewClock(t.Context(), compat.Pooled(s), own[i], probe.Options{})
			if err != nil {
				t.Fatalf("%s: %v", v, err)
			}
			right[i] = c
		}
		apart := right[0].Now().Sub(right[1].Now()).Abs()
		if apart > right[0].Uncertainty()+right[1].Uncertainty() || right[0].Uncertainty() > 60*time.Millisecond {
			t.Errorf("%s: %v apart, ± %v and ± %v", v, apart, right[0].Uncertainty(), right[1].Uncertainty())
		}

		lock := func(o compat.Options, key string) (*compat.Lock, error) {
			margin := getsetlock.Dialect{Margin: 2 * right[0].Uncertainty()}
			return compat.New(s, getsetlock.Classic{Options: getsetlock.Options{Dialect: margin}}, o).TryLock(t.Context(), key, ttl)
		}
		if _, err := lock(compat.Options{Clock: own[0]}, "own"); err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		if _, err := lock(compat.Options{Clock: own[1]}, "own"); err != nil {
			t.Errorf("%s: by a clock that is ahead: %v, want the lock stolen, or this test shows nothing", v, err)
		}
		for i := range right {
			key := []string{"a", "b"}[i]
			if _, err := lock(compat.Options{Clock: right[i]}, key); err != nil {
				t.Fatalf("%s: %v", v, err)
			}
			clk.now = clk.now.Add(ttl - time.Second)
			if _, err := lock(compat.Options{Clock: right[1-i]}, key); !errors.Is(err, compat.ErrHeld) {
				t.Errorf("%s: a second before the end: %v, want ErrHeld", v, err)
			}
			clk.now = clk.now.Add(time.Second + 200*time.Millisecond)
			if l, err := lock(compat.Options{Clock: right[1-i]}, key); err != nil || l.Lease().How != protocol.TakenOver {
				t.Errorf("%s: after the end: %v", v, err)
			}
		}
		s.Close()
	}
}

// A skewed clock runs with another and shows a later time.
type skewed struct {
	*sleeper
	by time.Duration
}

func (s skewed) Now() time.Time                  { return s.sleeper.Now().Add(s.by) }
func (s skewed) Since(t time.Time) time.Duration { return s.Now().Sub(t) }
func (s skewed) Until(t time.Time) time.Duration { return t.Sub(s.Now()) }

// A server's clock that was set, and one that runs away, are followed; what
// can't be measured leaves the clock as it was, and less certain.
func TestClockMeasure(t *testing.T) {
	clk := skewed{at(anHour), 0}
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
