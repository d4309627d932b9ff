package probe

import (
	"context"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
)

// A Clock shows a server's time: the computer's time, corrected by the server's [Offset]. With it
// as a Locker's clock, getsetlock goes by the server's time: if all clients do that, their own
// clocks need not agree:
//
//	clk, err := probe.NewClock(ctx, compat.Pooled(pool), nil, probe.Options{})
//	go clk.Keep(ctx, time.Minute, nil)
//	timed := getsetlock.Options{Dialect: getsetlock.Dialect{Margin: 2 * clk.Uncertainty()}}
//	locks := compat.New(pool, getsetlock.Guarded{Options: timed}, compat.Options{Clock: clk})
//
// Two such clocks differ by at most the sum of their uncertainties. With a Margin of that sum, no
// client takes a lock that is held (getset/skewed-takeover). Clients of other libraries still go by
// their own clocks. If somebody sets the server's clock, all these clients follow it
// (any/server-clock-jump).
//
// Its timers and tickers are the computer's: they count the same seconds, and a correction does not
// move one that is running.
type Clock struct {
	clock.Clock // the computer's
	source      compat.Source
	o           Options

	mu     sync.RWMutex
	offset time.Duration
	off    time.Duration // how much offset may have been wrong by, on either side, when it was measured
	at     time.Time     // by the computer's clock
}

// drift is by how much two computers' clocks may run apart, at most: more than
// NTP lets a clock be slewed, and several times what a bare quartz does.
const drift = 1.0 / 2000

// NewClock measures the Offset of the server behind source from base (nil: the
// computer's clock) and returns its clock. The errors are Offset's.
func NewClock(ctx context.Context, source compat.Source, base clock.Clock, o Options) (*Clock, error) {
	if base == nil {
		base = clock.New()
	}
	c := &Clock{Clock: base, source: source, o: o}
	_, err := c.Measure(ctx)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Now returns the server's time.
func (c *Clock) Now() time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.Clock.Now().Add(c.offset)
}

// Since returns the time since t, by the server's clock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Until returns the time until t, by the server's clock.
func (c *Clock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// WithDeadline returns a context with an end at t, by the server's clock.
func (c *Clock) WithDeadline(parent context.Context, t time.Time) (context.Context, context.CancelFunc) {
	return c.Clock.WithTimeout(parent, c.Until(t))
}

// Uncertainty returns the largest error of Now, in either direction: the uncertainty that [Offset] returned, and half a
// thousandth of the time since then.
func (c *Clock) Uncertainty() time.Duration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.uncertainty()
}

func (c *Clock) uncertainty() time.Duration {
	return c.off + time.Duration(float64(c.Clock.Since(c.at))*drift)
}

// Measure measures the offset again, corrects the clock, and returns by how much Now has moved. If
// that is more than the Uncertainty before and after together, somebody set one of the two clocks
// in between. On an error, which is one of [Offset]'s, the clock is unchanged.
func (c *Clock) Measure(ctx context.Context) (moved time.Duration, err error) {
	offset, off, err := Offset(ctx, c.source, c.Clock, c.o)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	moved = offset - c.offset
	c.offset, c.off, c.at = offset, off, c.Clock.Now()
	return moved, nil
}

// Keep calls Measure at intervals of every, until ctx is done, and passes each result to report, if that is not nil.
// When Measure fails, the clock runs on, and its Uncertainty grows.
func (c *Clock) Keep(ctx context.Context, every time.Duration, report func(moved time.Duration, err error)) {
	for {
		t := c.Clock.Timer(every)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		moved, err := c.Measure(ctx)
		if report != nil && ctx.Err() == nil {
			report(moved, err)
		}
	}
}
