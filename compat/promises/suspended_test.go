package promises_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
)

// A resumed is the clock of a machine that was suspended: its timers and its monotonic reading
// know nothing of the time by which the wall clock has gone on.
type resumed struct {
	clock.Clock
	began   time.Time // in the bubble, whose times have no monotonic reading
	as      time.Time // with one
	seconds atomic.Uint64
}

func (c *resumed) Now() time.Time {
	t := c.as.Add(time.Since(c.began))
	*(*uint64)(unsafe.Pointer(&t)) += c.seconds.Load() << 30 // a Time's wall seconds stand above its nanoseconds
	return t
}
func (c *resumed) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }
func (c *resumed) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// A machine that was suspended for longer than the lease wakes up to a lost lock: its timers
// count by a clock that stood still.
func TestLostWhileSuspended(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, kind kind) {
		for _, renews := range []bool{false, true} {
			outside := time.Now()
			inWorld(t, kind, func(w *world) {
				c := &resumed{Clock: clock.New(), began: time.Now(), as: outside}
				k, n := w.client(compat.Options{Clock: c, Renew: renews})
				l := w.try(k, time.Minute)
				pass(5 * time.Second)
				if !believes(l) {
					t.Fatal("lost after 5 s of 60")
				}
				before := c.Now()
				c.seconds.Store(3600)
				if now := c.Now(); now.Sub(before) != 0 || now.Round(0).Sub(before.Round(0)) != time.Hour {
					t.Fatalf("the monotonic reading moved by %v, the wall clock by %v", now.Sub(before), now.Round(0).Sub(before.Round(0)))
				}
				n.set(func(n *network) { n.down = true }) // no answer tells it either
				pass(time.Second + time.Millisecond)
				if err := l.Context().Err(); err == nil {
					t.Error("an hour later, by the wall clock, the lock's context goes on")
				}
				if err := l.Extend(background, time.Minute); !errors.Is(err, compat.ErrLost) {
					t.Errorf("Extend: %v, want ErrLost", err)
				}
				n.set(func(n *network) { n.down = false })
				k.Close(background) //nolint:errcheck // the lock is lost
			})
		}
	})
}
