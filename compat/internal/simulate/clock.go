package simulate

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/benbjohnson/clock"
)

// A Clock is the clock of one machine in a bubble of testing/synctest. Its wall clock may be wrong and may be
// set. Its monotonic clock, which drives the timers, goes on unchanged. (The times of a bubble have no
// monotonic reading: without a Clock, code under test would see one clock where a program has two.)
type Clock struct {
	clock.Clock
	began time.Time
	ahead atomic.Int64 // nanoseconds between the wall clock and the bubble's
}

// outside is a time from outside the bubble: it has a monotonic reading.
var outside = time.Now()

// NewClock returns a clock with the time of the bubble in which a test calls it, or with real time outside a bubble.
func NewClock() *Clock { return &Clock{Clock: clock.New(), began: time.Now()} }

// Set moves the wall clock ahead, or back if by is negative.
func (c *Clock) Set(by time.Duration) { c.ahead.Add(int64(by)) }

// Ahead returns the error of the wall clock.
func (c *Clock) Ahead() time.Duration { return time.Duration(c.ahead.Load()) }

func (c *Clock) Now() time.Time {
	now := time.Now()
	return withWall(outside.Add(now.Sub(c.began)), now.Add(c.Ahead()))
}

func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c *Clock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// left returns the rest of a lease until until, by the clock that shows less.
func (c *Clock) left(until time.Time) time.Duration {
	now := c.Now()
	return min(until.Sub(now), until.Round(0).Sub(now.Round(0)))
}

// withWall returns t with the wall reading of wall and its own monotonic reading. A Time with both readings
// begins with a flag, 33 bits of seconds since 1885 and 30 bits of nanoseconds. TestClock fails if Go changes
// that layout.
func withWall(t, wall time.Time) time.Time {
	seconds := wall.Sub(time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC)) / time.Second
	*(*uint64)(unsafe.Pointer(&t)) = 1<<63 | uint64(seconds)<<30 | uint64(wall.Nanosecond())
	return t
}
