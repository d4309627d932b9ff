package compat_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// A lock is renewed when the context in which it was taken has ended, and when it was handed off.
func TestRenewalOutlivesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must.Get(oldredis.New("2.4", oldredis.Options{Clock: clock.New()}))(t)
		defer s.Close()
		source := compat.Pooled(s)
		source.Bounded = true
		k := compat.NewOn(source, txlock.Renamed{}, compat.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		l, err := k.TryLock(ctx, "k", ttl)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * ttl)
		if err := l.Context().Err(); err != nil || l.Until().Before(time.Now()) {
			t.Fatalf("two leases later: %v, until %v", err, l.Until())
		}
		if l, err = l.Handoff(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * ttl)
		if err := l.Context().Err(); err != nil || l.Until().Before(time.Now()) {
			t.Errorf("two leases after it was handed off: %v, until %v", err, l.Until())
		}
		must.Do(t, k.Close(t.Context()))
	})
}

// A watcher counts what happens to the locks of a client.
type watcher chan compat.Event

func (w watcher) Observe(e compat.Event) {
	switch e.Kind {
	case compat.EventExtended, compat.EventFailed, compat.EventLost:
		w <- e
	}
}

// next is the next event, whatever lock it is of.
func (w watcher) next(t *testing.T) compat.Event {
	t.Helper()
	select {
	case e := <-w:
		return e
	case <-time.After(time.Minute):
		t.Fatal("nothing happened any more")
		return compat.Event{}
	}
}

// renewing is a client that renews what it holds, and n locks of its.
func (w *world) renewing(t *testing.T, a protocol.Algorithm, n int) ([]*compat.Lock, *faulty.Network, watcher) {
	net, seen := new(faulty.Network), make(watcher, 10000)
	k := compat.NewOn(w.through(net), a, compat.Options{Timeout: time.Minute, Cleanup: time.Minute, Clock: w.clock, Observer: seen.Observe})
	var locks []*compat.Lock
	for i := range n {
		locks = append(locks, try(t, k, fmt.Sprint("k", i)))
	}
	net.Expect(nil)
	return locks, net, seen
}

// batched are all that can renew many locks in one write.
func batched(t *testing.T, f func(t *testing.T, w *world, a protocol.Algorithm)) {
	everywhere(t, f)
	for name, a := range map[string]protocol.Algorithm{
		"getset:classic": getsetlock.Classic{}, "getset:seconds": getsetlock.Guarded{Options: getsetlock.Options{Dialect: getsetlock.Seconds}},
		"tx:fenced": txlock.Renamed{Options: txlock.Options{Fence: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, newWorld(t, "2.4"), a)
		})
	}
}

// A hundred locks are renewed in two writes;
// one that was lost, or that is not a lock any more, does not keep the others from it.
func TestRenewedTogether(t *testing.T) {
	batched(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		const n = 100
		locks, net, seen := w.renewing(t, a, n)
		w.do("DEL", "k3")
		w.do("SET", "k5", "another's")
		w.do("DEL", "k7")
		w.do("LPUSH", "k7", "no lock")
		w.clock.Add(ttl / 3)
		extended, lost := 0, map[string]bool{}
		for extended+len(lost) < n {
			switch e := seen.next(t); e.Kind {
			case compat.EventExtended:
				extended++
			case compat.EventLost:
				lost[e.Key] = true
			default:
				t.Fatalf("%s: %v", e.Kind, e.Err)
			}
		}
		if len(lost) != 3 || !lost["k3"] || !lost["k5"] || !lost["k7"] {
			t.Errorf("lost are %v, want k3, k5 and k7", lost)
		}
		if writes := net.Writes(); writes > 2 {
			t.Errorf("%d writes for %d renewals: they were not made together", writes, n)
		}
		for i, l := range locks {
			err := l.Release(background)
			if want := i == 3 || i == 5 || i == 7; want != (errors.Is(err, compat.ErrLost) || errors.Is(err, compat.ErrForeign)) || err != nil && !want {
				t.Errorf("Release of k%d: %v", i, err)
			}
		}
	})
}

// Whatever message of a renewal of several is lost, no lock is, and none is
// left behind.
func TestLossAmongMany(t *testing.T) {
	batched(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		for _, f := range []faulty.Loss{faulty.LostRequest, faulty.LostReply} {
			for at := 1; ; at++ {
				locks, net, seen := w.renewing(t, a, 3)
				hit := false
				net.Expect(func(m faulty.Message) faulty.Fate {
					if m.N != at {
						return faulty.Fate{}
					}
					hit = true
					return faulty.Fate{Loss: f}
				})
				w.clock.Add(ttl / 3)
				for extended := 0; extended < 3; {
					switch e := seen.next(t); e.Kind {
					case compat.EventExtended:
						extended++
					case compat.EventFailed:
						w.clock.Add(ttl / 20)
					case compat.EventLost:
						t.Fatalf("%v at command %d: %s was lost: %v", f, at, e.Key, e.Err)
					}
				}
				if locks[0].Lease().Ambiguous { // a release whose reply is lost stays unknown, rightly
					net.Expect(nil)
				}
				for _, l := range locks {
					if err := l.Release(background); err != nil {
						t.Errorf("%v at command %d: Release: %v", f, at, err)
					}
					if v := w.value(l.Key()); v != "" {
						t.Errorf("%v at command %d: %s was left behind: %q", f, at, l.Key(), v)
					}
				}
				if !hit {
					if at < 4 {
						t.Errorf("no more than %d commands were sent", at-1)
					}
					break
				}
			}
		}
	})
}

// Of many locks of different lengths each ends at its own time, and no released
// one is heard of again.
func TestEachLockEndsAtItsTime(t *testing.T) {
	m := clock.NewMock()
	m.Set(time.Date(2012, 3, 4, 5, 6, 7, 0, time.UTC))
	s := must.Get(oldredis.New("2.4", oldredis.Options{Clock: m}))(t)
	defer s.Close()
	lost := make(chan string, 2000)
	k := compat.New(s, txlock.Renamed{}, compat.Options{NoRenew: true, Clock: m, Observer: compat.Observer(func(e compat.Event) {
		if e.Kind == compat.EventLost {
			lost <- e.Key
		}
	})})
	random := rand.New(rand.NewPCG(1, 2))
	type held struct {
		*compat.Lock
		ends time.Time
	}
	locks := map[string]held{}
	for round := range 60 {
		for i := range 20 {
			key, ttl := fmt.Sprint(round, "-", i), time.Duration(1+random.IntN(40))*time.Second
			l := must.Get(k.TryLock(background, key, ttl))(t)
			locks[key] = held{l, l.Until()}
		}
		for key, l := range locks {
			switch random.IntN(6) {
			case 0:
				if err := l.Release(background); err != nil {
					t.Errorf("%s: %v", key, err)
				}
				delete(locks, key)
			case 1:
				if err := l.Extend(background, 30*time.Second); err != nil {
					t.Errorf("%s: %v", key, err)
				}
				locks[key] = held{l.Lock, l.Until()}
			}
		}
		m.Add(time.Second)
		due := 0
		for _, l := range locks {
			if !l.ends.Add(-250 * time.Millisecond).After(m.Now()) {
				due++
			}
		}
		for range due {
			select {
			case key := <-lost:
				l, ok := locks[key]
				if left := l.ends.Sub(m.Now()); !ok || left > time.Second {
					t.Fatalf("%s ended %v before its time, or after its release", key, left)
				}
				if !errors.Is(context.Cause(l.Context()), compat.ErrLost) {
					t.Errorf("%s: its context ended with %v", key, context.Cause(l.Context()))
				}
				delete(locks, key)
			case <-time.After(time.Minute):
				t.Fatalf("%d locks are past their end and go on", due)
			}
		}
		for key, l := range locks {
			if l.ends.Before(m.Now()) {
				t.Errorf("%s ended at %v and goes on", key, l.ends)
			}
		}
	}
	if len(locks) == 0 {
		t.Error("no lock outlived the test: it shows nothing of those whose time has not come")
	}
}

// leaping is a mock that another goroutine moves by an hour between a look at it and the timer
// that is set by what was seen.
type leaping struct{ *clock.Mock }

func (c leaping) AfterFunc(d time.Duration, f func()) *clock.Timer {
	c.Add(time.Hour)
	return c.Mock.AfterFunc(d, f)
}

// A clock that moves on while the timer is being set moves past nobody's end: a mock's timer
// would wait for its next move, for ever if nobody moves it again.
func TestTimerSetTooLate(t *testing.T) {
	m := leaping{clock.NewMock()}
	m.Set(time.Date(2012, 3, 4, 5, 6, 7, 0, time.UTC))
	s := must.Get(oldredis.New("2.4", oldredis.Options{Clock: m.Mock}))(t)
	defer s.Close()
	seen := make(watcher, 10)
	k := compat.New(s, txlock.Renamed{}, compat.Options{NoRenew: true, Clock: m, Observer: seen.Observe})
	if l, err := k.TryLock(background, "k", time.Minute); err != nil {
		t.Fatal(err)
	} else if e := seen.next(t); e.Kind != compat.EventLost || l.Context().Err() == nil {
		t.Errorf("an hour later: %v, context %v", e.Kind, l.Context().Err())
	}
}

// A hundred thousand held locks have their room: with its key's queue, its token and its place in the heap, each has
// less than 700 bytes as long as the allocator rounds the first of these up to no more than 512.
func TestHeldIsSmall(t *testing.T) {
	if compat.HeldSize > 512 {
		t.Errorf("%d bytes, want 512 at most", compat.HeldSize)
	}
}
