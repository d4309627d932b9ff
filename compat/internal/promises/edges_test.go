package promises_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	slots "github.com/setnxlock/setnxlock/compat/internal/slot"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// ttls are those that are too short or too long for somebody.
var ttls = []time.Duration{
	math.MinInt64, -time.Second, -1, 0, 1, time.Microsecond, time.Millisecond,
	2 * time.Millisecond, 2020 * time.Microsecond, 2021 * time.Microsecond, 3 * time.Millisecond, // about what is taken off for drift
	500 * time.Millisecond, time.Second - 1, time.Second, time.Second + 1,
	24 * 365 * time.Hour, 250 * 24 * 365 * time.Hour, 263 * 24 * 365 * time.Hour, math.MaxInt64 / 2,
	math.MaxInt64 - time.Second, math.MaxInt64 - time.Millisecond, math.MaxInt64 - 1, math.MaxInt64,
}

// A ttl is either refused, before anything is sent, or makes a correct lease. What was
// held before a refusal stays as it was.
func TestEdgesOfTTL(t *testing.T) {
	kinds := append(all(false), one("rwlock.Read", "2.4", rwlock.Read{}),
		one("tx:renamed in milliseconds", "2.6", txlock.Renamed{Options: txlock.Options{Millis: true}}))
	for _, q := range []question{
		{"TryLock", nil}, {"Lock", nil}, {"Extend", nil}, {"hand off", nil}, {"Adopt", nil},
	} {
		t.Run(q.name, func(t *testing.T) {
			eachKind(t, kinds, func(t *testing.T, k kind) {
				for _, ttl := range ttls {
					inWorld(t, k, func(w *world) {
						if what := edge(w, q.name, ttl); what != "" {
							t.Errorf("a ttl of %d ns (%v): %s", ttl, ttl, what)
						}
					})
				}
			})
		})
	}
}

// A lease that is made much shorter lives for its time: its context ends shortly before it, by a part of
// what is left, not of what there was.
func TestShortenedLivesItsTime(t *testing.T) {
	kinds := append(all(true), all(false)...)
	kinds = append(kinds, one("tx:renamed in milliseconds", "2.6", txlock.Renamed{Options: txlock.Options{Millis: true}}))
	shorten := map[string]func(l *compat.Lock, ttl time.Duration) (*compat.Lock, error){
		"Extend":  func(l *compat.Lock, ttl time.Duration) (*compat.Lock, error) { return l, l.Extend(background, ttl) },
		"Handoff": func(l *compat.Lock, ttl time.Duration) (*compat.Lock, error) { return l.Handoff(background, ttl) },
	}
	eachKind(t, kinds, func(t *testing.T, k kind) {
		for name, to := range shorten {
			for _, ttl := range []time.Duration{40 * time.Millisecond, 150 * time.Millisecond, 240 * time.Millisecond, 500 * time.Millisecond, time.Second, 3 * time.Second} {
				for _, renews := range []bool{false, true} {
					inWorld(t, k, func(w *world) {
						locker, net := w.client(compat.Options{NoRenew: !renews})
						l := w.try(locker, long)
						net.Expect(faulty.Fate{Before: 50 * time.Microsecond, After: 50 * time.Microsecond}.Always())
						next, err := to(l, ttl)
						if errors.Is(err, compat.ErrInvalid) || errors.Is(err, errors.ErrUnsupported) {
							l.Release(background) //nolint:errcheck // it renews itself until then
							return
						}
						if err != nil {
							t.Errorf("%s(%v) of a minute's lease: %v", name, ttl, err)
							return
						}
						next.Context()
						if pass(ttl / 2); !believes(next) {
							t.Errorf("%v after %s(%v): %v", ttl/2, name, ttl, context.Cause(next.Context()))
						}
						if pass(ttl); believes(next) != renews {
							t.Errorf("%v after %s(%v), renewed %v: believed %v", ttl+ttl/2, name, ttl, renews, !renews)
						}
						locker.Close(background) //nolint:errcheck // it may be lost
					})
				}
			}
		}
	})
}

func edge(w *world, question string, ttl time.Duration) string {
	holder, net := w.client(compat.Options{NoRenew: true})
	rival, _ := w.client(compat.Options{NoRenew: true})
	old := w.try(holder, long)
	until, token := old.Until(), old.Token()
	fresh := question == "TryLock" || question == "Lock"
	key := w.kind.key
	if fresh {
		key = w.kind.another(1)
	}
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	net.Expect(faulty.First(cancel).At(200)) // it would never end
	var l *compat.Lock
	var err error
	switch question {
	case "TryLock":
		l, err = holder.TryLock(ctx, key, ttl)
	case "Lock":
		l, err = holder.Lock(ctx, key, ttl)
	case "Extend":
		l, err = old, old.Extend(ctx, ttl)
	case "hand off":
		l, err = handoff(ctx, old, ttl)
	case "Adopt":
		l, err = holder.Adopt(ctx, key, token, ttl)
	}
	synctest.Wait()
	switch {
	case ctx.Err() != nil:
		return "it never stops asking"
	case errors.Is(err, compat.ErrInvalid):
		if n := net.Count(); n > 0 {
			return sprint("refused after %d commands: %v", n, err)
		}
		if !old.Until().Equal(until) || !believes(old) {
			return sprint("refused, and the lock that was held is not what it was: until %v, %v", time.Until(old.Until()), context.Cause(old.Context()))
		}
		if fresh || w.kind.readers() {
			return ""
		}
		if _, err := rival.TryLock(background, key, long); !errors.Is(err, compat.ErrHeld) {
			return sprint("refused, and the lock that was held is gone from the server: another client gets %v", err)
		}
		return ""
	case errors.Is(err, errors.ErrUnsupported) && w.kind.keepsItsToken():
		if n := net.Count(); n > 0 || !old.Until().Equal(until) || !believes(old) {
			return sprint("refused after %d commands, and the lock that was held is not what it was: %v", n, err)
		}
		return ""
	case err != nil:
		return sprint("%v", err)
	case ttl <= 0:
		return "no error"
	case !believes(l):
		return sprint("no error, and a lease until %v from now, its context: %v", time.Until(l.Until()), context.Cause(l.Context()))
	case time.Until(l.Until()) > ttl:
		return sprint("a lease that lasts %v", time.Until(l.Until()))
	}
	waits := []time.Duration{0, time.Second, time.Hour}
	if left := time.Until(l.Until()); left < 2*time.Hour {
		waits = []time.Duration{0, left - 1}
	}
	for _, d := range waits {
		pass(d)
		if _, err := rival.TryLock(background, key, time.Hour); !w.kind.readers() && believes(l) &&
			(!errors.Is(err, compat.ErrHeld) || errors.Is(err, compat.ErrForeign)) {
			return sprint("%v later another client gets %v, and its holder believes in it for another %v", d, err, time.Until(l.Until()))
		}
	}
	return ""
}

// readers reports whether k's holders share the key.
func (k kind) readers() bool { return k.name == "rwlock.Read" }

// keepsItsToken reports whether k can't change the token of a lock: it then is not handed off
// when somebody knows the token.
func (k kind) keepsItsToken() bool { return k.name == "rwlock.Write" }

// A client that knows a lock by its handle, which has since been handed off, can't release or
// adopt the next holder's.
func TestAnOldHandleIsPowerless(t *testing.T) {
	for name, pass := range map[string]func(w *world, k *compat.Locker, l *compat.Lock) *compat.Lock{
		"hand off": func(w *world, _ *compat.Locker, l *compat.Lock) *compat.Lock {
			next, err := handoff(background, l, long)
			if err != nil {
				w.Fatal(err)
			}
			return next
		},
		"adoption, again and again": func(w *world, k *compat.Locker, l *compat.Lock) *compat.Lock {
			for range 6 {
				h, err := l.Detach(background)
				if err == nil {
					l, err = k.AdoptHandle(background, h, long)
				}
				if err != nil {
					w.Fatal(err)
				}
			}
			return l
		},
		"release to a waiter": func(w *world, k *compat.Locker, l *compat.Lock) *compat.Lock {
			return releases(long)(w, k, nil, l)[1]
		},
		"release, then another": func(w *world, k *compat.Locker, l *compat.Lock) *compat.Lock {
			if err := l.Release(background); err != nil {
				w.Fatal(err)
			}
			return w.try(k, long)
		},
	} {
		for use, do := range map[string]func(k *compat.Locker, h compat.Handle, l *compat.Lock) error{
			"ReleaseHandle": func(k *compat.Locker, h compat.Handle, _ *compat.Lock) error { return k.ReleaseHandle(background, h) },
			"ReleaseToken": func(k *compat.Locker, h compat.Handle, _ *compat.Lock) error {
				return k.ReleaseToken(background, h.Key, h.Token)
			},
			"AdoptHandle": func(k *compat.Locker, h compat.Handle, _ *compat.Lock) error {
				_, err := k.AdoptHandle(background, h, long)
				return err
			},
			"the old lock's release": func(_ *compat.Locker, _ compat.Handle, l *compat.Lock) error { return l.Release(background) },
			"the old lock's extend":  func(_ *compat.Locker, _ compat.Handle, l *compat.Lock) error { return l.Extend(background, short) },
		} {
			t.Run(name+"/"+use, func(t *testing.T) {
				kinds := all(false)
				if name == "adoption, again and again" {
					kinds = append(kinds, inSeconds(false)...)
				}
				eachKind(t, kinds, func(t *testing.T, k kind) {
					inWorld(t, k, func(w *world) {
						holder, _ := w.client(compat.Options{NoRenew: true})
						other, _ := w.client(compat.Options{NoRenew: true})
						l := w.try(holder, long)
						h := l.Handle()
						if k.keepsItsToken() && name == "adoption, again and again" {
							return
						}
						if k.keepsItsToken() && name == "hand off" {
							if _, err := handoff(background, l, long); !errors.Is(err, errors.ErrUnsupported) || !believes(l) {
								t.Errorf("handing off a lock whose token is known: %v", err)
							}
							return
						}
						next := pass(w, holder, l)
						if err := do(other, h, l); err == nil {
							t.Error("it did what it was asked, with the next holder's lock")
						}
						if _, err := other.TryLock(background, k.key, long); !errors.Is(err, compat.ErrHeld) || !believes(next) {
							t.Errorf("another client gets %v, while the next holder's context is %v", err, context.Cause(next.Context()))
						}
						if err := next.Extend(background, long); err != nil {
							t.Errorf("the next holder's extension: %v", err)
						}
					})
				})
			})
		}
	}
}

// A TTL about as long as a time.Duration can hold is a long one: neither none nor past. (What
// the server answers beyond that, compat's own tests read: the embedded one can't hold it.)
func TestForeignTTLs(t *testing.T) {
	for _, seconds := range []int64{3155760000, 9000000000, 9223372036} {
		t.Run(fmt.Sprint(seconds), func(t *testing.T) {
			kinds := singles(false)[3:]
			kinds = append(kinds, one("tx:renamed in milliseconds", "2.6", txlock.Renamed{Options: txlock.Options{Millis: true}}))
			eachKind(t, kinds, func(t *testing.T, k kind) {
				inWorld(t, k, func(w *world) {
					w.do("SETEX", "k", seconds, "somebody's")
					locker, _ := w.client(compat.Options{NoRenew: true})
					st, err := locker.Inspect(background, "k")
					if err != nil || st.Status != compat.StatusHeld || st.TTL < 24*time.Hour || !st.Until.IsZero() && time.Until(st.Until) < 24*time.Hour {
						t.Errorf("%s, a TTL of %v, until %v, %v", st.Status, st.TTL, st.Until, err)
					}
					var held *compat.HeldError
					if _, err := locker.TryLock(background, "k", long); !errors.As(err, &held) || !held.Until.IsZero() && time.Until(held.Until) < 24*time.Hour {
						t.Errorf("TryLock: %v", err)
					}
					if _, err := locker.Lock(w.within(10*time.Minute), "k", long); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("Lock: %v", err)
					}
					if ttl := w.integer("TTL", "k"); ttl < seconds-3600 {
						t.Errorf("it was given a TTL of %d s", ttl)
					}
				})
			})
		})
	}
}

// A key that is not a string is foreign for every kind of lock, whenever it came.
func TestKeysOfAnotherType(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, k kind) {
		for n, reached := 0, true; reached && n < 40; n++ {
			inWorld(t, k, func(w *world) {
				locker, net := w.client(compat.Options{NoRenew: true})
				w.try(locker, short).Release(background) //nolint:errcheck // so that the server is known
				push := func() {
					for _, key := range []string{"k", "a", "b", "c"} {
						w.do("LPUSH", key, "x")
					}
				}
				if n == 0 {
					push()
				}
				came := n == 0
				net.Expect(faulty.Then(func() {
					if free(w) {
						push()
						came = true
					}
				}).At(n))
				l, err := locker.TryLock(background, k.key, short)
				reached = n == 0 || net.Count() > n
				if came && l == nil && !errors.Is(err, compat.ErrForeign) {
					t.Errorf("a list, after command %d: %v", n, err)
				}
			})
		}
	})
}

// free reports whether there is no key on any server, and none is coming.
func free(w *world) bool {
	for _, s := range w.servers {
		c := s.Dial()
		defer c.Close()
		if n, err := c.Do("DBSIZE"); err != nil || n != int64(0) {
			return false
		}
	}
	return true
}

// A quorum in which one server stands twice is invalid each time it is asked.
func TestTwinsAreInvalidEachTime(t *testing.T) {
	k := quorum("redlock", false, []string{"2.4"}, txlock.Renamed{}, txlock.Renamed{})
	k.make = func(s []compat.Source, o compat.Options) *compat.Locker {
		b := []compat.Backend{compat.NewBackend(s[0], txlock.Renamed{}), compat.NewBackend(s[0], txlock.Renamed{})}
		return compat.NewLocker(redlock.New(b, redlock.Options{Clock: o.Clock}), o)
	}
	inWorld(t, k, func(w *world) {
		locker, _ := w.client(compat.Options{NoRenew: true})
		for n := range 4 {
			if _, err := locker.TryLock(background, "k", short); !errors.Is(err, compat.ErrInvalid) {
				t.Errorf("attempt %d: %v", n+1, err)
			}
		}
	})
}

// The name of an auxiliary key costs no more than a small multiple of its slot, whatever
// bytes the key has.
func TestLongAuxiliaryNamesAreCheap(t *testing.T) {
	realredis.Long(t)
	least := func(f func()) time.Duration { // of many: others run beside it
		best := time.Duration(math.MaxInt64)
		for range 50 {
			start := time.Now()
			f()
			best = min(best, time.Since(start))
		}
		return max(best, time.Microsecond)
	}
	for _, key := range []string{"a}" + strings.Repeat("x", 1000), strings.Repeat("{", 1000), strings.Repeat("}{", 500), "{}" + strings.Repeat("y", 1000)} {
		slot := least(func() { slots.Of(key) })
		aux := least(func() { protocol.Aux(key, "fence") })
		t.Logf("%.5q… of %d bytes: its slot took %v, an auxiliary name %v, 3000 times that at most", key, len(key), slot, aux)
		if aux > 3000*slot {
			t.Errorf("%.5q…: an auxiliary name took %v", key, aux)
		}
		if name := protocol.Aux(key, "fence"); slots.Of(name) != slots.Of(key) {
			t.Errorf("%.5q…: slots %d and %d", key, slots.Of(name), slots.Of(key))
		}
	}
}
