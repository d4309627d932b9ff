package promises_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/internal/must"
)

// A request whose connection broke arrives later, before any of the commands that follow it
// (any/late-request). Nobody but us touches the key: whatever an operation learns on the way, it
// has lost nothing, and what it says is true. The published getset:classic, whose GETSET compares
// nothing, can't keep this promise.
func TestALateRequestIsNoLoss(t *testing.T) {
	extend := func(l *compat.Lock) error { return l.Extend(background, medium) }
	release := func(l *compat.Lock) error { return l.Release(background) }
	for name, steps := range map[string][]func(*compat.Lock) error{
		"extend":               {extend},
		"release":              {release},
		"extend, extend":       {extend, extend},
		"extend, release":      {extend, release},
		"release, and another": {release, release},
	} {
		t.Run(name, func(t *testing.T) {
			two := twoNames(true)
			two.Old = must.Get(dialect.Lookup("redis-py-2.9"))(t) // an extension changes the time under the old name alone
			two.Old.KeyName = "old:NAME"
			kinds := append(all(true)[1:], one("bridge.TwoNames", "7.0", two))
			eachKind(t, append(kinds, keepers()...), func(t *testing.T, k kind) {
				stride := 3
				if whole {
					stride = 1
				}
				wrong, ran := 0, 0
				for n, reached := 1, true; reached; n++ {
					met := true
					for arrival := n + 1 + n%stride; met; arrival += stride {
						inWorld(t, k, func(w *world) {
							holder, net := w.client(compat.Options{NoRenew: true})
							l := w.try(holder, long)
							net.Expect(func(m faulty.Message) faulty.Fate {
								switch m.N {
								case n:
									return faulty.Fate{Loss: faulty.LateRequest}
								case arrival:
									net.DeliverLate()
								}
								return faulty.Fate{}
							})
							what := lossless(l, steps)
							reached, met = net.Count() >= n, net.Count() >= arrival
							net.DeliverLate()
							if what == "" {
								what = lastly(w, l)
							}
							if ran++; what != "" {
								if wrong++; wrong <= 2 {
									t.Errorf("command %d arrives before command %d: %s", n, arrival, what)
								}
							}
						})
					}
				}
				if wrong > 0 {
					t.Logf("wrong in %d of %d runs", wrong, ran)
				}
			})
		})
	}
}

// A request from before the lock was its present holder's arrives after a longer extension, and shortens the lease
// if the lock can't change its value: the holder believes in no more. The EXPIRE of tx:classic, which compares
// nothing, can't keep this promise.
func TestALateRequestOfItsPast(t *testing.T) {
	ways := map[string]func(w *world, c *compat.Locker, arm func()) (*compat.Lock, error){
		"acquired": func(w *world, c *compat.Locker, arm func()) (*compat.Lock, error) {
			w.try(c, long).Release(background) //nolint:errcheck // its server was found safe
			arm()
			return c.TryLock(background, w.kind.key, short)
		},
		"adopted": func(w *world, c *compat.Locker, arm func()) (*compat.Lock, error) {
			h, err := w.try(c, long).Detach(background)
			if err != nil {
				t.Fatal(err)
			}
			arm()
			return c.AdoptHandle(background, h, short)
		},
		"handed off": func(w *world, c *compat.Locker, arm func()) (*compat.Lock, error) {
			l := w.try(c, long)
			arm()
			return l.Handoff(background, short)
		},
		"inherited": func(w *world, c *compat.Locker, arm func()) (l *compat.Lock, err error) {
			first, done := w.try(c, long), make(chan struct{})
			go func() {
				defer close(done)
				l, err = c.Lock(background, w.kind.key, short)
			}()
			pass(time.Second)
			arm()
			first.Release(background) //nolint:errcheck // another may have it
			<-done
			return l, err
		},
	}
	kinds := slices.DeleteFunc(append(all(false), keepers()...), func(k kind) bool { return k.looks() || k.name == "tx:classic" })
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			eachKind(t, kinds, func(t *testing.T, k kind) {
				for n, reached := 1, true; reached; n++ {
					inWorld(t, k, func(w *world) {
						holder, net := w.client(compat.Options{NoRenew: true})
						l, err := way(w, holder, func() { net.Expect(faulty.Fate{Loss: faulty.LateRequest}.At(n)) })
						reached = net.Count() >= n
						net.Expect(nil)
						if err == nil {
							err = l.Extend(background, 10*long)
						}
						net.DeliverLate()
						if err != nil {
							return
						}
						pass(short + time.Second)
						rival, _ := w.client(compat.Options{NoRenew: true})
						if _, err := rival.TryLock(background, k.key, long); err == nil && believes(l) {
							t.Errorf("command %d came late: two have it", n)
						}
					})
				}
			})
		})
	}
}

// lossless takes the steps, none of which may say that the lock was lost.
func lossless(l *compat.Lock, steps []func(*compat.Lock) error) string {
	for i, step := range steps {
		err := step(l)
		if errors.Is(err, compat.ErrLost) {
			return sprint("step %d: %v", i+1, err)
		}
	}
	return ""
}

// lastly releases l, if it is not: then anybody can have it.
func lastly(w *world, l *compat.Lock) string {
	if err := l.Release(background); err != nil && !errors.Is(err, errReleased) {
		return sprint("released at last: %v", err)
	}
	rival, _ := w.client(compat.Options{NoRenew: true})
	got, err := rival.TryLock(background, w.kind.key, long)
	if err != nil {
		return sprint("released, and another client gets %v", err)
	}
	if err := got.Release(background); err != nil {
		return sprint("the next holder's release: %v", err)
	}
	return ""
}
