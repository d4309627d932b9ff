package simulate

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		if now := c.Now(); !now.Round(0).Equal(time.Now()) {
			t.Fatalf("a clock that is right says %v at %v", now, time.Now())
		}
		began := c.Now()
		until := began.Add(10 * time.Second)
		for _, step := range []struct {
			pass, set, mono, wall, left time.Duration
		}{
			{0, 0, 0, 0, 10 * time.Second},
			{1500 * time.Millisecond, 0, 1500 * time.Millisecond, 1500 * time.Millisecond, 8500 * time.Millisecond},
			{0, 2300 * time.Millisecond, 1500 * time.Millisecond, 3800 * time.Millisecond, 6200 * time.Millisecond},
			{time.Second, -time.Hour, 2500 * time.Millisecond, 4800*time.Millisecond - time.Hour, 7500 * time.Millisecond},
			{0, 2 * time.Hour, 2500 * time.Millisecond, 4800*time.Millisecond + time.Hour, 5200*time.Millisecond - time.Hour},
		} {
			time.Sleep(step.pass)
			c.Set(step.set)
			now := c.Now()
			if mono, wall := now.Sub(began), now.Round(0).Sub(began.Round(0)); mono != step.mono || wall != step.wall {
				t.Errorf("%v later, set by %v: %v by the monotonic clock, %v by the wall clock; want %v and %v", step.pass, step.set, mono, wall, step.mono, step.wall)
			}
			if left := c.left(until); left != step.left {
				t.Errorf("%v left, want %v", left, step.left)
			}
			if since, until := c.Since(began), c.Until(until); since != step.mono || until != 10*time.Second-step.mono {
				t.Errorf("Since %v, Until %v", since, until)
			}
		}
	})
}
