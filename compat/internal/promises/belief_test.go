package promises_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
)

// An act is what a holder does with its lock. It returns the locks that somebody may believe in.
type act struct {
	name  string
	first time.Duration // the ttl of the acquisition
	do    func(w *world, k *compat.Locker, n *faulty.Network, l *compat.Lock) []*compat.Lock
}

const (
	short  = 5 * time.Second
	medium = 20 * time.Second
	long   = time.Minute
)

func extend(ttls ...time.Duration) func(*world, *compat.Locker, *faulty.Network, *compat.Lock) []*compat.Lock {
	return func(_ *world, _ *compat.Locker, n *faulty.Network, l *compat.Lock) []*compat.Lock {
		for i, ttl := range ttls {
			if i > 0 {
				n.Mend()
			}
			l.Extend(background, ttl) //nolint:errcheck // whatever it says
		}
		return []*compat.Lock{l}
	}
}

func handsOff(ttl time.Duration) func(*world, *compat.Locker, *faulty.Network, *compat.Lock) []*compat.Lock {
	return func(_ *world, _ *compat.Locker, _ *faulty.Network, l *compat.Lock) []*compat.Lock {
		next, err := handoff(background, l, ttl)
		if err != nil {
			return []*compat.Lock{l}
		}
		return []*compat.Lock{l, next}
	}
}

// releases to a waiter of the same process, who asked for a ttl of its own.
func releases(ttl time.Duration) func(*world, *compat.Locker, *faulty.Network, *compat.Lock) []*compat.Lock {
	return func(w *world, k *compat.Locker, n *faulty.Network, l *compat.Lock) []*compat.Lock {
		ctx := w.within(3 * time.Second)
		var next *compat.Lock
		done := make(chan struct{})
		go func() {
			defer close(done)
			if got, err := k.Lock(ctx, w.kind.key, ttl); err == nil {
				got.Context()
				next = got
			}
		}()
		synctest.Wait()
		l.Release(background) //nolint:errcheck // whatever it says
		<-done
		if next == nil {
			return []*compat.Lock{l}
		}
		return []*compat.Lock{l, next}
	}
}

var acts = []act{
	{"extend to a shorter ttl", long, extend(short)},
	{"extend to a longer ttl", medium, extend(long)},
	{"extend to a shorter ttl, then a longer one", long, extend(short, 2*long)},
	{"extend to a longer ttl, then a shorter one", medium, extend(long, short)},
	{"hand off with a shorter ttl", long, handsOff(short)},
	{"hand off with a longer ttl", medium, handsOff(long)},
	{"release to a waiter with a shorter ttl", long, releases(short)},
	{"release to a waiter with a longer ttl", medium, releases(long)},
}

// What a client believes is never more than what the server grants: whatever was
// lost on the way, another client that comes in finds nobody who still works.
func TestBeliefNeverOutlivesTheGrant(t *testing.T) {
	kinds := slices.Concat(all(false), mouthpieces(), keepers())
	for _, k := range []kind{singles(true)[1], singles(true)[5], singles(true)[7]} {
		k.name += " with a fence"
		kinds = append(kinds, k)
	}
	for _, a := range acts {
		t.Run(a.name, func(t *testing.T) {
			eachKind(t, kinds, func(t *testing.T, k kind) {
				everyFault(t, k, func(w *world, strike func(*faulty.Network)) string {
					holder, net := w.client(compat.Options{NoRenew: true})
					rival, _ := w.client(compat.Options{NoRenew: true})
					l := w.try(holder, a.first)
					pass(time.Second)
					strike(net)
					return overlap(w, rival, a.do(w, holder, net, l))
				})
			})
		})
	}
}

// overlap has a rival try again and again until nobody believes in any of locks any
// more. It returns what is wrong: that it got in before.
func overlap(w *world, rival *compat.Locker, locks []*compat.Lock) string {
	for range 1000 {
		var end time.Time
		for _, l := range locks {
			if believes(l) && l.Until().After(end) {
				end = l.Until()
			}
		}
		left := time.Until(end)
		if left <= time.Millisecond {
			break
		}
		pass(max(time.Millisecond, min(left/8, left-time.Millisecond)))
		for _, key := range w.kind.each() {
			got, err := rival.TryLock(background, key, time.Hour)
			if err != nil {
				if !errors.Is(err, compat.ErrHeld) {
					return sprint("the rival got %v", err)
				}
				continue
			}
			for _, l := range locks {
				if believes(l) {
					return sprint("another client has %q, and the holder believes in its lock for another %v", key, time.Until(l.Until()).Round(time.Millisecond))
				}
			}
			got.Release(background) //nolint:errcheck // it is over anyway
			return ""
		}
	}
	pass(time.Millisecond)
	for _, l := range locks {
		if l.Context().Err() == nil && !time.Now().Before(l.Until()) {
			pass(time.Hour)
			if l.Context().Err() == nil {
				return "the context did not end with the lease, nor an hour later"
			}
			return "the context outlived the lease"
		}
	}
	return ""
}

// One or two requests of an extension that was given up, or sent again at once, arrive after a later one has
// succeeded, which may not reach all servers: they must not shorten what the holder believes in. The published
// getset:classic, whose GETSET compares nothing, can't keep this promise.
func TestDelayedExtension(t *testing.T) {
	for name, c := range map[string]struct{ cut, lost bool }{
		"given up": {true, false}, "sent again": {false, false}, "sent again, and then cut off": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := append(all(false)[1:], keepers()...)
			if c.lost {
				kinds = keepers()
			}
			eachKind(t, kinds, func(t *testing.T, k kind) {
				two := !c.cut && strings.Contains(k.name, "keeping") // else what is late finds another value
				for n, reached := 1, true; reached && n < 60; n++ {
					for second := n; second < n+5 && (second == n || two); second++ {
						inWorld(t, k, func(w *world) {
							holder, net := w.client(compat.Options{NoRenew: true})
							rival, _ := w.client(compat.Options{NoRenew: true})
							l := w.try(holder, long)
							pass(time.Second)
							net.Expect(func(m faulty.Message) faulty.Fate {
								if m.N == n || m.N == second && !c.lost {
									return faulty.Fate{Loss: faulty.LateRequest, Cut: c.cut}
								}
								return faulty.Fate{}
							})
							l.Extend(background, short) //nolint:errcheck // unknown
							reached = net.Count() >= n
							net.Clear()
							if c.lost {
								net.Expect(faulty.Fate{Loss: faulty.LostRequest, Cut: true}.At(second - n + 1))
							}
							l.Extend(background, long) //nolint:errcheck // whatever it says
							net.DeliverLate()
							if what := overlap(w, rival, []*compat.Lock{l}); what != "" {
								t.Errorf("commands %d and %d came late: %s", n, second, what)
							}
						})
					}
				}
			})
		})
	}
}

// Each holder's fence is greater than those of the holders before it, and no
// holder's fence ever falls.
func TestFencesNeverFall(t *testing.T) {
	adopt := func(w *world, k *compat.Locker, _ *faulty.Network, l *compat.Lock) []*compat.Lock {
		h, err := detach(background, l)
		if err != nil {
			return []*compat.Lock{l}
		}
		next, err := k.AdoptHandle(background, h, medium)
		if err != nil {
			return []*compat.Lock{l}
		}
		return []*compat.Lock{l, next}
	}
	extendAndHandOff := func(w *world, k *compat.Locker, n *faulty.Network, l *compat.Lock) []*compat.Lock {
		l.Extend(background, long) //nolint:errcheck // whatever it says
		n.Clear()
		return handsOff(medium)(w, k, n, l)
	}
	for _, a := range append(acts, act{"adopt", long, adopt}, act{"extend, then hand off", long, extendAndHandOff}) {
		t.Run(a.name, func(t *testing.T) {
			kinds := singles(true)
			for _, k := range composites(true) {
				if len(k.versions) == 1 { // a lock of several servers has none
					kinds = append(kinds, k)
				}
			}
			eachKind(t, kinds, func(t *testing.T, k kind) {
				everyFault(t, k, func(w *world, strike func(*faulty.Network)) string {
					holder, net := w.client(compat.Options{NoRenew: true})
					l := w.try(holder, a.first)
					first := l.Fence()
					if first == 0 {
						return "the first holder has no fence"
					}
					pass(time.Second)
					strike(net)
					locks := a.do(w, holder, net, l)
					net.Clear()
					last := first
					for i, l := range locks {
						switch f := l.Fence(); {
						case i == 0 && f < first:
							return sprint("the holder's fence fell from %d to %d", first, f)
						case i > 0 && f <= last:
							return sprint("the next holder's fence is %d, after %d", f, last)
						default:
							last = f
						}
					}
					l = locks[len(locks)-1]
					if l.Extend(background, long) == nil && l.Fence() < last {
						return sprint("an extension later the fence fell from %d to %d", last, l.Fence())
					}
					l.Release(background) //nolint:errcheck // whatever it says
					pass(3 * long)
					if next := w.try(holder, long); next.Fence() <= last {
						return sprint("a later holder's fence is %d, after %d", next.Fence(), last)
					}
					return ""
				})
			})
		})
	}
}
