package simulate

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/benbjohnson/clock"
)

// A Clock is that of one machine in a bubble of testing/synctest. Its wall clock may be wrong and may be
// set; its monotonic clock, by which its timers count, knows nothing of that. (The times of a bubble have
// no monotonic reading, so that code under test would see one clock where a program has two.)
type Clock struct {
	clock.Clock
	began time.Time
	ahead atomic.Int64 // of the bubble, in nanoseconds
}

// outside is no bubble's: it has a monotonic reading.
var outside = time.Now()

// NewClock is right. It is called in the bubble.
func NewClock() *Clock { return &Clock{Clock: clock.New(), began: time.Now()} }

// Set sets the wall clock ahead, or back.
func (c *Clock) Set(by time.Duration) { c.ahead.Add(int64(by)) }

// Ahead is by how much the wall clock is wrong.
func (c *Clock) Ahead() time.Duration { return time.Duration(c.ahead.Load()) }

func (c *Clock) Now() time.Time {
	now := time.Now()
	return withWall(outside.Add(now.Sub(c.began)), now.Add(c.Ahead()))
}

func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c *Clock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// left is how much of a lease is left that ends at until: by the clock by which it is less.
func (c *Clock) left(until time.Time) time.Duration {
	now := c.Now()
	return min(until.Sub(now), until.Round(0).Sub(now.Round(0)))
}

// withWall is t with another wall clock's reading and its own monotonic one. A Time with both begins with a
// flag, 33 bits of seconds since 1885 and 30 of nanoseconds (TestClock finds out if that changes).
func withWall(t, wall time.Time) time.Time {
	seconds := wall.Sub(time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC)) / time.Second
	*(*uint64)(unsafe.Pointer(&t)) = 1<<63 | uint64(seconds)<<30 | uint64(wall.Nanosecond())
	return t
}
