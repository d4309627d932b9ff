package promises_test

import (
	"errors"
	"testing"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
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
			eachKind(t, append(all(true)[1:], keepers()...), func(t *testing.T, k kind) {
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
