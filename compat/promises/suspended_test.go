package promises_test

import (
	"errors"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/simulate"
)

// A machine that was suspended for longer than the lease wakes up to a lost lock: its timers
// count by a clock that stood still. One whose clock is set back loses it no later for that.
func TestLostWhileSuspended(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, kind kind) {
		for _, renews := range []bool{false, true} {
			for _, by := range []time.Duration{time.Hour, -time.Hour} {
				inWorld(t, kind, func(w *world) {
					c := simulate.NewClock()
					k, n := w.client(compat.Options{Clock: c, Renew: renews})
					l := w.try(k, time.Minute)
					pass(5 * time.Second)
					if !believes(l) {
						t.Fatal("lost after 5 s of 60")
					}
					n.Cut() // no answer tells it either
					if c.Set(by); by < 0 {
						pass(55 * time.Second)
					}
					pass(time.Second + time.Millisecond)
					if err := l.Context().Err(); err == nil {
						t.Errorf("the wall clock was set by %v, the lease is over, and the lock's context goes on", by)
					}
					if err := l.Extend(background, time.Minute); !errors.Is(err, compat.ErrLost) {
						t.Errorf("Extend: %v, want ErrLost", err)
					}
					n.Mend()
					k.Close(background) //nolint:errcheck // the lock is lost
				})
			}
		}
	})
}
