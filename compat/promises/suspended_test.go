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

// A call may find out that the lease is over before any timer does: the lock is lost then, once, and the key is free
// again for this process.
func TestACallFindsTheEndFirst(t *testing.T) {
	calls := map[string]func(l *compat.Lock) error{
		"Release": func(l *compat.Lock) error { return l.Release(background) },
		"Extend":  func(l *compat.Lock) error { return l.Extend(background, time.Minute) },
		"Handoff": func(l *compat.Lock) error { _, err := l.Handoff(background, time.Minute); return err },
		"Detach":  func(l *compat.Lock) error { _, err := l.Detach(background); return err },
	}
	eachKind(t, all(false), func(t *testing.T, kind kind) {
		for name, call := range calls {
			inWorld(t, kind, func(w *world) {
				c, lost := simulate.NewClock(), 0
				k, _ := w.client(compat.Options{Clock: c, Observer: func(e compat.Event) {
					if e.Kind == compat.EventLost {
						lost++
					}
				}})
				l := w.try(k, time.Minute)
				ctx := l.Context()
				c.Set(time.Hour)
				if err := call(l); !errors.Is(err, compat.ErrLost) {
					t.Errorf("%s: %v, want ErrLost", name, err)
				}
				if lost != 1 || ctx.Err() == nil {
					t.Errorf("%s: %d losses were seen, and its context ended with %v", name, lost, ctx.Err())
				}
				if again, err := k.Lock(w.within(5*time.Minute), kind.key, time.Minute); err != nil {
					t.Errorf("%s, and Lock again: %v", name, err)
				} else if err := again.Release(background); err != nil {
					t.Errorf("%s, Lock and Release again: %v", name, err)
				}
			})
		}
	})
}
