package promises_test

import (
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/sentinel"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// Renewals that are made together decide as single ones do: a reply that was lost, and
// a server that can't be reached for a moment, lose no lock that nobody touched.
func TestBatchesDecideAsSinglesDo(t *testing.T) {
	const ttl = 9 * time.Second // renewed every 3 s
	renew := func(w *world, size int, fault func(n *faulty.Network)) (commands int, lost []string) {
		k, net := w.client(compat.Options{})
		locks := make([]*compat.Lock, size)
		for i := range locks {
			l, err := k.TryLock(background, w.kind.another(i), ttl)
			if err != nil {
				w.Fatal(err)
			}
			l.Context()
			locks[i] = l
		}
		pass(2500 * time.Millisecond)
		net.Expect(nil)
		fault(net)
		pass(time.Second)
		commands = net.Count()
		pass(30 * time.Second)
		for _, l := range locks {
			if !believes(l) {
				lost = append(lost, l.Key())
			}
			if err := l.Release(background); err != nil && believes(l) {
				lost = append(lost, err.Error())
			}
		}
		return commands, lost
	}
	eachKind(t, append(all(false), keepers()...), func(t *testing.T, k kind) {
		for _, size := range []int{1, 2, 3} {
			commands, wrong := 0, 0
			inWorld(t, k, func(w *world) {
				var lost []string
				if commands, lost = renew(w, size, func(*faulty.Network) {}); len(lost) > 0 {
					t.Errorf("%d locks, no fault: lost %q", size, lost)
				}
			})
			for _, what := range []faulty.Loss{faulty.LostReply, faulty.LostRequest} {
				stride := 2
				switch {
				case whole:
					stride = 1
				case realredis.UnderRace():
					stride = 5
				}
				for n := 1; n <= commands; n += stride {
					inWorld(t, k, func(w *world) {
						_, lost := renew(w, size, func(net *faulty.Network) {
							net.Expect(func(m faulty.Message) faulty.Fate {
								if m.N != n {
									return faulty.Fate{}
								}
								time.AfterFunc(400*time.Millisecond, net.Clear)
								return faulty.Fate{Loss: what, Cut: true}
							})
						})
						if len(lost) > 0 {
							if wrong++; wrong == 1 {
								t.Errorf("%d locks, %s at command %d, and 0.4 s without a server: lost %q", size, what, n, lost)
							}
						}
					})
				}
			}
			if wrong > 1 {
				t.Logf("%d locks: wrong in %d of %d runs", size, wrong, 2*commands)
			}
		}
	})
}

// What makes sure of a batch is asked once for all of it.
func TestOneWaitForABatch(t *testing.T) {
	inWorld(t, one("", "5.0", sentinel.Replicated{Algorithm: txlock.Renamed{}}), func(w *world) {
		k, net := w.client(compat.Options{})
		for i := range 5 {
			if _, err := k.TryLock(background, w.kind.another(i), 9*time.Second); err != nil {
				w.Fatal(err)
			}
		}
		net.Expect(nil)
		pass(3 * time.Second)
		waits, renewed := strings.Count(net.Names(), "WAIT"), strings.Count(net.Names(), "EXPIRE")
		if waits != 1 || renewed != 5 {
			w.Errorf("%d renewals waited %d times for the replicas", renewed, waits)
		}
		k.Close(background) //nolint:errcheck
	})
}

// Whatever step of a holder fails, its lock still ends with its lease, and the key is to
// be had again in the same process.
func TestFailedStepsLeaveTheLockScheduled(t *testing.T) {
	for name, step := range map[string]func(l *compat.Lock) (*compat.Lock, error){
		"extend":   func(l *compat.Lock) (*compat.Lock, error) { return nil, l.Extend(background, medium) },
		"release":  func(l *compat.Lock) (*compat.Lock, error) { return nil, l.Release(background) },
		"hand off": func(l *compat.Lock) (*compat.Lock, error) { return handoff(background, l, medium) },
		"detach":   func(l *compat.Lock) (*compat.Lock, error) { _, err := detach(background, l); return nil, err },
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, all(false), func(t *testing.T, k kind) {
				everyFault(t, k, func(w *world, strike func(*faulty.Network)) string {
					holder, net := w.client(compat.Options{NoRenew: true})
					l := w.try(holder, medium)
					pass(time.Second)
					strike(net)
					l.Extend(background, medium) //nolint:errcheck // unknown, perhaps
					next, err := step(l)
					end := l.Until()
					net.Clear()
					pass(max(0, time.Until(end)))
					if next != nil {
						pass(max(0, time.Until(next.Until())))
					}
					if l.Context().Err() == nil {
						return sprint("after %v: the lease is over, its context is not", err)
					}
					if next != nil && next.Context().Err() == nil {
						return "the next holder's context outlived its lease"
					}
					start := time.Now()
					again, err := holder.Lock(w.within(time.Hour), w.kind.key, medium)
					if err != nil {
						return sprint("the same process, after the lease: %v", err)
					}
					if took := time.Since(start); took > 2*medium {
						return sprint("the same process got it %v after the lease's end", took)
					}
					again.Release(background) //nolint:errcheck
					return ""
				})
			})
		})
	}
}
