package promises_test

import (
	"errors"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/internal/simulate"
	"github.com/setnxlock/setnxlock/internal/must"
)

// A machine that was suspended for longer than the lease wakes up to a lost lock: its timers
// count by a clock that stood still. One whose clock is set back loses it no later for that.
func TestLostWhileSuspended(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, kind kind) {
		for _, renews := range []bool{false, true} {
			for _, by := range []time.Duration{time.Hour, -time.Hour} {
				inWorld(t, kind, func(w *world) {
					c := simulate.NewClock()
					k, n := w.client(compat.Options{Clock: c, NoRenew: !renews})
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
				k, _ := w.client(compat.Options{NoRenew: true, Clock: c, Observer: func(e compat.Event) {
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

// The clock is set ahead while an acquisition is on its way: what is returned as held is held, and what is not leaves
// nothing that keeps this process out.
func TestAcquiredWhileTheClockIsSet(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, kind kind) {
		for n, reached := 1, true; reached && n < 40; n++ {
			inWorld(t, kind, func(w *world) {
				c := simulate.NewClock()
				k, net := w.client(compat.Options{NoRenew: true, Clock: c})
				net.Expect(faulty.Then(func() { c.Set(time.Hour) }).At(n))
				l, err := k.TryLock(background, kind.key, medium)
				reached = net.Count() >= n
				if err == nil && !c.Now().Round(0).Before(l.Until().Round(0)) {
					t.Errorf("set at command %d: it returned a lock that was over", n)
				}
				net.Clear()
				if err == nil {
					l.Release(background) //nolint:errcheck // that it is free is looked at
				}
				if _, err := k.Lock(w.within(5*time.Minute), kind.key, medium); err != nil {
					t.Errorf("set at command %d, and Lock again: %v", n, err)
				}
			})
		}
	})
}

// A lock that can't change its value, and was adopted by it, goes to nobody else by that value.
func TestAdoptedIsNoSecret(t *testing.T) {
	eachKind(t, keepers(), func(t *testing.T, kind kind) {
		inWorld(t, kind, func(w *world) {
			k, _ := w.client(compat.Options{NoRenew: true})
			l := w.try(k, long)
			adopted := must.Get(k.Adopt(background, l.Key(), l.Token(), long))(t)
			if next, err := adopted.Handoff(background, long); err == nil && next.Token() == l.Token() {
				t.Errorf("it was handed off with the value that the adopter came with")
			}
			adopted.Release(background) //nolint:errcheck // it may be handed off
		})
	})
}
