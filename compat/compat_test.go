package compat_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	slots "github.com/setnxlock/setnxlock/compat/internal/slot"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

func TestRounding(t *testing.T) {
	for _, c := range []struct {
		ttl           time.Duration
		seconds, msec int64 // 0: refused
	}{
		{0, 0, 0}, {-time.Second, 0, 0}, {time.Microsecond, 0, 0}, {time.Millisecond, 0, 1},
		{999 * time.Millisecond, 0, 999}, {time.Second, 1, 1000}, {time.Second + 1, 2, 1001},
		{1500 * time.Millisecond, 2, 1500}, {time.Minute, 60, 60000},
	} {
		s, err := protocol.Whole(c.ttl, time.Second)
		if s != c.seconds || (c.seconds == 0) != errors.Is(err, compat.ErrInvalid) {
			t.Errorf("%v in seconds: %d, %v; want %d", c.ttl, s, err, c.seconds)
		}
		ms, err := protocol.Whole(c.ttl, time.Millisecond)
		if ms != c.msec || (c.msec == 0) != errors.Is(err, compat.ErrInvalid) {
			t.Errorf("%v in milliseconds: %d, %v; want %d", c.ttl, ms, err, c.msec)
		}
	}
}

// What makes no lock is refused before anything is sent.
func TestInvalid(t *testing.T) {
	w := newWorld(t, "2.4")
	for _, c := range []struct {
		a   protocol.Algorithm
		key string
		ttl time.Duration
	}{
		{txlock.Renamed{}, "", ttl},
		{txlock.Renamed{}, "k", 0},
		{txlock.Renamed{}, "k", -time.Second},
		{txlock.Renamed{}, "k", 999 * time.Millisecond},
		{txlock.Guarded{}, "k", time.Millisecond},
		{txlock.Classic{}, "k", time.Millisecond},
		{getsetlock.Classic{}, "k", time.Microsecond},
		{getsetlock.Guarded{Options: getsetlock.Options{Dialect: getsetlock.Seconds}}, "k", 500 * time.Millisecond},
	} {
		k, net := w.client(c.a)
		_, err := k.TryLock(background, c.key, c.ttl)
		if !errors.Is(err, compat.ErrInvalid) {
			t.Errorf("%T, key %q, ttl %v: %v, want ErrInvalid", c.a, c.key, c.ttl, err)
		}
		for _, m := range net.Sent() {
			if strings.Contains("SETNX SETEX GETSET EXPIRE", m.Name) && w.value(c.key) != "" {
				t.Errorf("%T, ttl %v: %s was sent", c.a, c.ttl, m)
			}
		}
	}
}

// Auxiliary keys share the key's slot: the cluster's own CLUSTER KEYSLOT says so.
func TestAuxiliaryKeysShareTheSlot(t *testing.T) {
	c := must.Get(redis.Dial("tcp", realredis.Start(t, "--cluster-enabled", "yes")))(t)
	defer c.Close()
	slot := func(key string) int {
		return must.Get(redis.Int(c.Do("CLUSTER", "KEYSLOT", key)))(t)
	}
	for key, want := range map[string]string{
		"k": "k:fence:{k}", "a b": "a b:fence:{a b}", "{tag}k": "{tag}k:fence", "x{tag}y": "x{tag}y:fence",
		"a}b": "", "{": "", "}": "", "{}": "", "{}k": "", "a{b": "", "{a": "", "}{": "", "{{a}}": "{{a}}:fence", "ключ": "ключ:fence:{ключ}",
	} {
		if got, want := slots.Of(key), slot(key); got != want {
			t.Errorf("Slot(%q) is %d, the server says %d", key, got, want)
		}
		aux := protocol.Aux(key, "fence")
		if slot(aux) != slot(key) {
			t.Errorf("%q and its fence %q are in slots %d and %d", key, aux, slot(key), slot(aux))
		}
		if !strings.HasPrefix(aux, key+":") {
			t.Errorf("the fence of %q is %q, which does not begin with it: an ACL for a prefix forbids it", key, aux)
		}
		if want != "" && aux != want {
			t.Errorf("the fence of %q is %q, want %q", key, aux, want)
		}
		if other := protocol.Aux(key, "tmp"); other == aux {
			t.Errorf("two auxiliary keys of %q share the name %q", key, aux)
		}
	}
}

// An Observer sees what happened, in order, with how and for how long.
func TestObserver(t *testing.T) {
	w := newWorld(t, "2.4")
	var mu sync.Mutex
	var seen []string
	var events []compat.Event
	a := txlock.Renamed{Options: txlock.Options{Fence: true}}
	k := compat.NewOn(w.source(), a, compat.Options{NoRenew: true, Clock: w.clock, Observer: compat.Observer(func(e compat.Event) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, string(e.Kind))
		events = append(events, e)
	})})
	l := try(t, k, "k")
	if _, err := k.TryLock(background, "k", ttl); !errors.Is(err, compat.ErrHeld) {
		t.Fatal(err)
	}
	w.clock.Add(time.Second)
	must.Do(t, l.Extend(background, ttl))
	must.Do(t, l.Release(background))
	gone := try(t, k, "k")
	w.clock.Add(time.Minute)
	<-gone.Context().Done()
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(seen, " "); got != "attempt acquired attempt refused extended released attempt acquired lost" {
		t.Errorf("seen: %s", got)
	}
	if e := events[1]; e.Lease.How != protocol.Free || e.Lease.Fence != 1 || e.Tries != 1 {
		t.Errorf("acquired: %+v", e)
	}
	if e := events[5]; e.Took != time.Second {
		t.Errorf("released after %v, want 1 s", e.Took)
	}
}

func TestSlog(t *testing.T) {
	w := newWorld(t, "2.4")
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	k := compat.NewOn(w.source(), txlock.Guarded{}, compat.Options{NoRenew: true, Clock: w.clock, Observer: compat.Slog(log), Prefix: "p:"})
	l := try(t, k, "k")
	must.Do(t, l.Release(background))
	want := `level=INFO msg="lock acquired" key=p:k took=0s tries=1 how=free until=2012-03-04T05:06:16.898Z
level=INFO msg="lock released" key=p:k took=0s
`
	if out.String() != want {
		t.Errorf("logged\n%swant\n%s", out.String(), want)
	}
}

// Nothing renews after a release, however the two meet.
func TestNoRenewalAfterRelease(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		net := new(faulty.Network)
		k := compat.NewOn(w.through(net), a, compat.Options{Clock: w.clock})
		l := try(t, k, "k")
		for range 50 { // three renewals, each with time to be made
			w.clock.Add(ttl / 50)
		}
		must.Do(t, l.Release(background))
		sent := net.Count()
		w.clock.Add(ttl)
		if n := net.Count(); n != sent {
			t.Errorf("%d commands were sent after the release", n-sent)
		}
		if w.value("k") != "" {
			t.Errorf("the key holds %q", w.value("k"))
		}
	})
}

// A panic in the critical section releases the lock.
func TestPanicReleases(t *testing.T) {
	w := newWorld(t, "2.4")
	k, _ := w.client(txlock.Renamed{})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		k.Do(background, "k", ttl, func(context.Context) error { panic("in the section") }) //nolint:errcheck
	}()
	if w.value("k") != "" {
		t.Errorf("the key holds %q after the panic", w.value("k"))
	}
}

// A renewal that fails is tried again well before the next would be due.
func TestFailedRenewalIsTriedSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "2.4")
		net := new(faulty.Network)
		seen := make(chan compat.Kind, 100)
		observe := func(e compat.Event) {
			if e.Kind == compat.EventFailed || e.Kind == compat.EventExtended {
				seen <- e.Kind
			}
		}
		k := compat.NewOn(w.through(net), txlock.Renamed{}, compat.Options{Clock: w.clock, Observer: observe})
		expect := func(after time.Duration, want compat.Kind) {
			t.Helper()
			w.clock.Add(after)
			synctest.Wait()
			select {
			case got := <-seen:
				if got != want {
					t.Errorf("%v later: %s, want %s", after, got, want)
				}
			default:
				t.Fatalf("%v later: nothing happened", after)
			}
		}
		err := k.Do(background, "k", ttl, func(ctx context.Context) error {
			for range 3 {
				net.Expect(faulty.Fate{Loss: faulty.LostRequest}.Always())
				expect(ttl/3, compat.EventFailed)
				net.Expect(nil)
				expect(ttl/20, compat.EventExtended)
			}
			return ctx.Err()
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A lock extended to a longer ttl outlives its first end.
func TestExtendSetsDoesNotAdd(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		k, _ := w.client(a)
		l := try(t, k, "k")
		for _, d := range []time.Duration{time.Minute, 5 * time.Second, 20 * time.Second} {
			must.Do(t, l.Extend(background, d))
			if got := l.Until(); !got.Equal(protocol.Until(w.clock.Now(), d)) {
				t.Errorf("extended to %v: until %v", d, got)
			}
		}
		w.clock.Add(19 * time.Second)
		if err := l.Context().Err(); err != nil {
			t.Errorf("after 19 s of 20: %v", err)
		}
		w.clock.Add(time.Second)
		if err := l.Extend(background, ttl); !errors.Is(err, compat.ErrLost) {
			t.Errorf("Extend after the end: %v, want ErrLost", err)
		}
	})
}

// A prefix is part of the key on the server, and of nothing else.
func TestPrefix(t *testing.T) {
	w := newWorld(t, "2.4")
	k := compat.NewOn(w.source(), txlock.Renamed{Options: txlock.Options{Fence: true}}, compat.Options{NoRenew: true, Clock: w.clock, Prefix: "app:"})
	l := try(t, k, "k")
	if w.value("app:k") != l.Token() || l.Key() != "app:k" {
		t.Errorf("app:k holds %q, Key is %q", w.value("app:k"), l.Key())
	}
	if w.value("app:k:fence:{app:k}") != "1" {
		t.Errorf("the fence is at %q", w.value("app:k:fence:{app:k}"))
	}
	if err := k.ReleaseToken(background, "k", l.Token()); err != nil {
		t.Error(err)
	}
}

// Do returns the section's own error as it is, and says a loss once.
func TestDoReturnsTheSectionsError(t *testing.T) {
	w := newWorld(t, "2.4")
	k, _ := w.client(txlock.Renamed{})
	own := errors.New("own")
	if err := k.Do(background, "k", ttl, func(context.Context) error { return own }); err != own {
		t.Errorf("%v, want the very error that was returned", err)
	}
	err := k.Do(background, "k", ttl, func(context.Context) error { w.do("DEL", "k"); return own })
	if !errors.Is(err, own) || !errors.Is(err, compat.ErrLost) {
		t.Errorf("after a loss: %v, want both errors", err)
	}
	err = k.Do(background, "k", ttl, func(context.Context) error { w.do("DEL", "k"); return compat.ErrLost })
	if err != compat.ErrLost {
		t.Errorf("a loss that the section has reported: %v, want it once", err)
	}
}

// Whoever works under a lock in another goroutine than the one that gives it up, or closes its Locker, has been told
// when the server removes the key: from then on it may be another's.
func TestContextEndsBeforeItsRelease(t *testing.T) {
	for name, give := range map[string]func(*compat.Locker, *compat.Lock) error{
		"Release": func(_ *compat.Locker, l *compat.Lock) error { return l.Release(context.Background()) },
		"Close":   func(k *compat.Locker, _ *compat.Lock) error { return k.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := oldredis.Run(t, "2.4")
			k := compat.New(s, txlock.Renamed{}, compat.Options{NoRenew: true})
			l := must.Get(k.TryLock(t.Context(), "k", time.Minute))(t)
			works, removed := l.Context(), false
			s.SetTrace(func(_ int, cmd []string, _ any) {
				if cmd[0] == "DEL" && cmd[1] == "k" {
					removed = true
					if works.Err() == nil {
						t.Error("the key is removed, and the lock's context goes on")
					}
				}
			})
			if err := give(k, l); err != nil || !removed {
				t.Errorf("%v, removed %v", err, removed)
			}
			if context.Cause(works) != context.Canceled {
				t.Errorf("cause %v, want none but Canceled", context.Cause(works))
			}
		})
	}
}

// A release in the lock's own context, which it ends, has the time of any other all the same, and not
// that of one whose context had ended before.
func TestReleaseInItsOwnContext(t *testing.T) {
	own := func(l *compat.Lock) context.Context { return l.Context() }
	joined := func(l *compat.Lock) context.Context { ctx, _ := l.With(background); return ctx } // ends with the lock
	for _, test := range []struct {
		in          func(*compat.Lock) context.Context
		limit, dial time.Duration
		released    bool
	}{
		{own, time.Hour, time.Second, true}, {joined, time.Hour, time.Second, true},
		{own, 2 * time.Second, time.Second, true}, {joined, 2 * time.Second, time.Second, true},
		{own, 2 * time.Second, 3 * time.Second, false}, {joined, 2 * time.Second, 3 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var dial time.Duration
			source := compat.Pooled(still(t, "2.4").Pool())
			source.Keep = 0
			get := source.Get
			source.Get = func(ctx context.Context, key string) (redis.Conn, error) {
				select {
				case <-time.After(dial):
					return get(ctx, key)
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			l, err := compat.NewOn(source, txlock.Renamed{}, compat.Options{NoRenew: true}).TryLock(t.Context(), "k", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(test.in(l), test.limit)
			defer cancel()
			dial = test.dial
			if err := l.Release(ctx); (err == nil) != test.released {
				t.Errorf("within %v, a connection takes %v: %v", test.limit, test.dial, err)
			}
		})
	}
}
