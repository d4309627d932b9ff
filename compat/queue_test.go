package compat_test

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// A hall is where the clients of one Locker wait for "k".
type hall struct {
	*world
	k   *compat.Locker
	net *faulty.Network

	mu    sync.Mutex
	seen  []compat.Event
	order []int // who had the lock, by the order in which they came
	wg    sync.WaitGroup
}

func (w *world) hall(a protocol.Algorithm, o compat.Options) *hall {
	h := &hall{world: w, net: new(faulty.Network)}
	o.Clock, o.Timeout = w.clock, cmp.Or(o.Timeout, time.Minute)
	o.Rand = func() float64 { return 0 }
	o.Observer = compat.Observer(func(e compat.Event) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.seen = append(h.seen, e)
	})
	h.k = compat.NewOn(w.through(h.net), a, o)
	return h
}

// eventually waits for what others are about to do.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	late := time.After(time.Minute)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !so() {
		select {
		case <-late:
			t.Fatalf("it never came to be: %s", what)
		case <-look.C:
		}
	}
}

// enter has n clients wait, one after the other, each to run section
// with the lock. The first of them is number from.
func (h *hall) enter(from, n int, section func(i int, l *compat.Lock)) {
	h.t.Helper()
	for i := from; i < from+n; i++ {
		before := h.k.Waiting("k")
		h.wg.Go(func() {
			l, err := h.k.Lock(background, "k", ttl)
			if err != nil {
				h.t.Error(err)
				return
			}
			h.mu.Lock()
			h.order = append(h.order, i)
			h.mu.Unlock()
			if section != nil {
				section(i, l)
			}
			if err := l.Release(background); err != nil {
				h.t.Error(err)
			}
		})
		eventually(h.t, "a waiter waits", func() bool { return h.k.Waiting("k") == before+1 })
	}
}

func (h *hall) saw(kind compat.Kind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.seen, func(e compat.Event) bool { return e.Kind == kind })
}

// hows are how the lock was acquired, each time.
func (h *hall) hows() []protocol.How {
	h.mu.Lock()
	defer h.mu.Unlock()
	var hows []protocol.How
	for _, e := range h.seen {
		if e.Kind == compat.EventAcquired {
			hows = append(hows, e.Lease.How)
		}
	}
	return hows
}

func (h *hall) inOrder(n int) {
	h.t.Helper()
	for i, got := range h.order {
		if got != i {
			h.t.Errorf("the lock went to %v, want them in the order in which they came", h.order)
			return
		}
	}
	if len(h.order) != n {
		h.t.Errorf("%d had the lock, want %d", len(h.order), n)
	}
}

// Who waits in one process is served in the order of coming, and nobody asks the
// server as long as a lock of this process has the key. The lock goes from hand to
// hand without a command, if nobody wants a fence and the lease is fresh.
func TestFirstComeFirstServed(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		h := w.hall(a, compat.Options{NoRenew: true})
		l := try(t, h.k, "k")
		h.net.Expect(nil) // counts from here
		h.enter(0, 10, nil)
		w.clock.Add(ttl / 5)
		if n := h.net.Count(); n != 0 {
			t.Errorf("%d commands were sent while a lock of this process had the key: %q", n, h.net.Sent())
		}
		release(t, l)
		h.wg.Wait()
		h.inOrder(10)
		if hows := h.hows(); !slices.Equal(hows, slices.Concat([]protocol.How{protocol.Free}, slices.Repeat([]protocol.How{protocol.HandedOff}, 10))) {
			t.Errorf("obtained %q", hows)
		}
		if n, once := h.net.Count(), releaseOf(t, w, a); n != once {
			t.Errorf("eleven sections took %d commands, want those of one release, %d: %q", n, once, h.net.Sent())
		}
		if w.value("k") != "" || h.k.Queues() != 0 {
			t.Errorf("the key holds %q, %d lines are left", w.value("k"), h.k.Queues())
		}
	})
}

func release(t *testing.T, l *compat.Lock) {
	t.Helper()
	must.Do(t, l.Release(background))
}

// releaseOf is how many commands one release sends.
func releaseOf(t *testing.T, w *world, a protocol.Algorithm) int {
	k, net := w.client(a)
	release(t, try(t, k, "other")) // the first asks who waits, too
	l := try(t, k, "other")
	net.Expect(nil)
	release(t, l)
	return net.Count()
}

// A lock is handed off to all who waited when its first holder was done, and to those who come within ten milliseconds
// from its acquisition on; then it is released, for others.
func TestATurnIsForThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "2.4")
		h := w.hall(txlock.Renamed{}, compat.Options{NoRenew: true})
		l := try(t, h.k, "k")
		h.enter(0, 5, func(i int, _ *compat.Lock) {
			if i < 2 {
				h.enter(5+i, 1, nil)
			}
			w.clock.Add(3 * time.Millisecond)
		})
		release(t, l)
		took := w.until(inBackground(h.wg.Wait))
		got := ""
		for _, how := range h.hows() {
			got += string(how[:1])
		}
		if want := "fhhhhhfh"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if took > time.Second {
			t.Errorf("it took %v, although nobody else was there", took)
		}
	})
}

// In each chain the fences grow, and each holder's is its own: it is drawn in
// the transaction that extends.
func TestHandoffDrawsAFence(t *testing.T) {
	for name, a := range map[string]protocol.Algorithm{
		"tx:renamed":     txlock.Renamed{Options: txlock.Options{Fence: true}},
		"tx:guarded":     txlock.Guarded{Options: txlock.Options{Fence: true}},
		"getset:classic": getsetlock.Classic{Options: getsetlock.Options{Fence: true}},
		"getset:guarded": getsetlock.Guarded{Options: getsetlock.Options{Fence: true}},
		"set:lua":        setlock.Lua{Options: setlock.Options{Fence: true}},
		"set:watch":      setlock.Watched{Options: setlock.Options{Fence: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "2.6.12")
				h := w.hall(a, compat.Options{NoRenew: true})
				l := try(t, h.k, "k")
				fences := []int64{l.Fence()}
				h.enter(0, 9, func(_ int, l *compat.Lock) { fences = append(fences, l.Fence()) })
				w.clock.Add(time.Second)
				release(t, l)
				w.until(inBackground(h.wg.Wait))
				for i, f := range fences {
					if f != int64(i+1) {
						t.Fatalf("fences %v, want one more each time", fences)
					}
				}
				if hows := h.hows(); !slices.Contains(hows, protocol.HandedOff) { // and released instead
					t.Errorf("obtained %q: none was handed off", hows)
				}
				h.inOrder(9)
			})
		})
	}
}

// Each holder gets the lease that it asked for: what is left of the one before
// is enough if it is three quarters of that and not more than it; otherwise the
// key is extended first.
func TestHandoffRenewsTheLease(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		h := w.hall(a, compat.Options{NoRenew: true})
		l := try(t, h.k, "k")
		for _, c := range []struct {
			gone, ttl time.Duration
			extended  bool
		}{
			{time.Second, ttl, false},
			{ttl / 4, ttl, true},
			{time.Second, ttl / 2, true}, // shorter than what is left
			{0, ttl, true},
			{0, ttl, false},
		} {
			w.clock.Add(c.gone)
			before := l.Until()
			next := must.Get(l.Handoff(background, c.ttl))(t)
			if got := !next.Until().Equal(before); got != c.extended {
				t.Errorf("%v later, for %v: extended %v, want %v", c.gone, c.ttl, got, c.extended)
			}
			if c.extended && !next.Until().Equal(protocol.Until(w.clock.Now(), c.ttl)) {
				t.Errorf("%v later, for %v: until %v", c.gone, c.ttl, next.Until())
			}
			if w.value("k") != next.Token() {
				t.Errorf("the key holds %q, its holder's token is %q", w.value("k"), next.Token())
			}
			l = next
		}
		release(t, l)
	})
}

// A chain of hand-offs does not last longer than half a lease, however few they
// are; nor is a lock handed off of which less than a quarter is left.
func TestHandoffEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "2.4")
		h := w.hall(txlock.Renamed{}, compat.Options{NoRenew: true})
		l := try(t, h.k, "k")
		w.clock.Add(ttl - ttl/5) // a fifth is left
		inside, out := make(chan struct{}), make(chan struct{})
		h.enter(0, 8, func(int, *compat.Lock) { inside <- struct{}{}; <-out })
		release(t, l)
		for range 8 {
			w.until(inBackground(func() { <-inside }))
			w.clock.Add(ttl / 5)
			out <- struct{}{}
		}
		h.wg.Wait()
		h.inOrder(8)
		got := ""
		for _, how := range h.hows() {
			got += string(how[:1])
		}
		if want := "ffhhfhhfh"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// What was lost is not handed off: the one who would have got it asks the server,
// and waits for the client that has the lock now.
func TestLostIsNotHandedOff(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		h := w.hall(a, compat.Options{NoRenew: true})
		rival, _ := w.client(a)
		l := try(t, h.k, "k")
		h.enter(0, 3, nil)
		w.do("DEL", "k")
		other := try(t, rival, "k")
		w.clock.Add(ttl / 3) // so that the next holder has to extend it
		if err := l.Release(background); err != nil {
			t.Errorf("Release of what was lost unnoticed, while others wait: %v", err)
		}
		done := inBackground(h.wg.Wait)
		eventually(t, "the next holder has asked", func() bool { return h.saw(compat.EventRefused) })
		if w.value("k") != other.Token() {
			t.Errorf("the key holds %q, its holder's token is %q", w.value("k"), other.Token())
		}
		if hows := h.hows(); len(hows) != 1 {
			t.Errorf("obtained %q beside the holder", hows)
		}
		release(t, other)
		w.until(done)
		h.inOrder(3)
	})
}

// An extension for the next holder whose reply is lost is settled like every
// other; one that fails releases the lock, and the next holder asks anew.
func TestHandoffOverABrokenNetwork(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		for _, f := range []faulty.Loss{faulty.LostRequest, faulty.LostReply} {
			for n := 1; ; n++ {
				h := w.hall(a, compat.Options{NoRenew: true})
				l := try(t, h.k, "k")
				h.enter(0, 2, nil)
				w.clock.Add(ttl / 3)
				h.net.Expect(faulty.Fate{Loss: f}.At(n))
				release(t, l)
				w.until(inBackground(h.wg.Wait))
				h.inOrder(2)
				if v := w.value("k"); v != "" {
					t.Errorf("fault %v at command %d of %q: the key holds %q", f, n, h.net.Sent(), v)
				}
				if h.net.Count() < n {
					break
				}
			}
		}
	})
}

// A lock that this process does not release but lose lets the next one ask.
func TestWaiterGoesOnAfterALoss(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		h := w.hall(a, compat.Options{NoRenew: true})
		try(t, h.k, "k") // and forget it
		h.enter(0, 2, nil)
		took := w.until(inBackground(h.wg.Wait))
		if took < ttl || took > ttl+2*time.Second {
			t.Errorf("had after %v, the lease was %v", took, ttl)
		}
		h.inOrder(2)
	})
}

// Handoff makes one holder of another: the old one is over, with a cause, before
// the new one begins, and has nothing more to do with the lock.
func TestHandoff(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		h := w.hall(a, compat.Options{})
		l := try(t, h.k, "k")
		next := must.Get(l.Handoff(background, 2*ttl))(t)
		if cause := context.Cause(l.Context()); cause != compat.ErrHandedOff {
			t.Errorf("the old holder's context ended with %v, want ErrHandedOff", cause)
		}
		for what, err := range map[string]error{
			"Release": l.Release(background), "Extend": l.Extend(background, ttl), "Handoff": second(l.Handoff(background, ttl)),
		} {
			if !errors.Is(err, compat.ErrHandedOff) {
				t.Errorf("%s by the old holder: %v, want ErrHandedOff", what, err)
			}
		}
		if err := next.Context().Err(); err != nil || w.value("k") != next.Token() {
			t.Errorf("the new holder: %v, the key holds %q, its token is %q", err, w.value("k"), next.Token())
		}
		w.clock.Add(ttl / 2)
		h.enter(0, 1, nil)
		release(t, next)
		h.wg.Wait()
		if hows := h.hows(); !slices.Equal(hows, []protocol.How{protocol.Free, protocol.HandedOff, protocol.HandedOff}) {
			t.Errorf("obtained %q", hows)
		}
	})
}

// Handoff of what is lost is ErrLost; of what can't be learnt, the old holder
// stays what it was.
func TestHandoffFails(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		h := w.hall(a, compat.Options{NoRenew: true})
		l := try(t, h.k, "k")
		if _, err := l.Handoff(background, 0); !errors.Is(err, compat.ErrInvalid) {
			t.Errorf("a ttl of 0: %v, want ErrInvalid", err)
		}
		w.clock.Add(ttl / 2)
		h.net.Expect(faulty.Fate{Loss: faulty.LostRequest}.Always())
		if _, err := l.Handoff(background, ttl); err == nil || errors.Is(err, compat.ErrLost) {
			t.Errorf("without a server: %v, want an error that is not ErrLost", err)
		}
		h.net.Expect(nil)
		if err := l.Context().Err(); err != nil {
			t.Errorf("after a hand-off that failed the context ended: %v", err)
		}
		if err := l.Extend(background, ttl); err != nil {
			t.Errorf("Extend after a hand-off that failed: %v", err)
		}
		w.clock.Add(ttl / 2)
		w.do("SET", "k", "another's")
		if _, err := l.Handoff(background, ttl); !errors.Is(err, compat.ErrLost) {
			t.Errorf("HandOn of what is another's: %v, want ErrLost", err)
		}
		if w.value("k") != "another's" {
			t.Errorf("the key holds %q", w.value("k"))
		}
	})
}

// Of a thousand who wait 999 give up: at once, and nobody notices.
func TestCancelManyWaiters(t *testing.T) {
	w := newWorld(t, "2.4")
	h := w.hall(txlock.Renamed{}, compat.Options{NoRenew: true})
	l := try(t, h.k, "k")
	h.net.Expect(nil)
	ctx, cancel := context.WithCancel(background)
	errs := make(chan error, 999)
	h.enter(0, 1, nil)
	for range 999 {
		go func() { errs <- second(h.k.Lock(ctx, "k", ttl)) }()
	}
	eventually(t, "all wait", func() bool { return h.k.Waiting("k") == 1000 })
	cancel()
	for range 999 {
		if err := <-errs; !errors.Is(err, context.Canceled) || errors.Is(err, compat.ErrHeld) {
			t.Fatalf("%v, want context.Canceled", err)
		}
	}
	if n := h.k.Waiting("k"); n != 1 || h.net.Count() != 0 {
		t.Errorf("%d are left in the queue, %d commands were sent; want 1 and none", n, h.net.Count())
	}
	release(t, l)
	h.wg.Wait()
	h.inOrder(1)
}

// A thousand who wait for what another process holds ask as one does: one listens, one step has a connection of its own, and
// those that come at once share one.
func TestManyWaitersAskAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "2.4")
		holder, _ := w.client(txlock.Renamed{})
		l := try(t, holder, "k")
		p := w.server.Pool()
		k := compat.New(p, txlock.Renamed{}, compat.Options{NoRenew: true, Clock: w.clock})
		const all = 1000
		inside := 0
		var wg sync.WaitGroup
		for range all {
			wg.Go(func() {
				if err := k.Do(background, "k", ttl, func(context.Context) error {
					inside++
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		eventually(t, "all wait", func() bool { return k.Waiting("k") == all-1 })
		w.clock.Add(time.Second)
		release(t, l)
		w.until(inBackground(wg.Wait))
		if inside != all || p.ActiveCount() > 3 || k.Queues() != 0 {
			t.Errorf("%d sections on %d connections, %d lines left", inside, p.ActiveCount(), k.Queues())
		}
	})
}

// Clients that give up at every moment, a turn or a lock on its way to them or
// not: nobody is forgotten, no lock is, and no two have it.
func TestGivingUpAtAnyMoment(t *testing.T) {
	for name, a := range map[string]protocol.Algorithm{"tx:renamed": txlock.Renamed{}, "fenced": setlock.Lua{Options: setlock.Options{Fence: true}}} {
		t.Run(name, func(t *testing.T) {
			s := oldredis.Run(t, "7.0")
			o := compat.Options{
				NoRenew: true,
				Poll:    4 * time.Millisecond, Timeout: time.Minute, Cleanup: time.Minute,
			}
			lockers := []*compat.Locker{compat.New(s.Pool(), a, o), compat.New(s.Pool(), a, o)}
			inside := 0
			var wg sync.WaitGroup
			for i := range 32 {
				k := lockers[i%2]
				wg.Go(func() {
					for range 20 {
						ctx, cancel := context.WithTimeout(background, time.Duration(rand.IntN(20))*time.Millisecond)
						err := k.Do(ctx, "k", time.Minute, func(context.Context) error {
							inside++
							runtime.Gosched()
							if inside != 1 {
								t.Errorf("%d inside", inside)
							}
							inside--
							return nil
						})
						cancel()
						if err != nil && !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, compat.ErrUnknown) {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			for _, k := range lockers {
				eventually(t, "no line is left", func() bool { return k.Queues() == 0 })
				l, err := k.TryLock(background, "k", time.Minute)
				if err != nil {
					t.Fatalf("a lock was forgotten: %v", err)
				}
				release(t, l)
			}
		})
	}
}

// A lock whose lease can't be extended is handed off as it is, for as long as it
// lasts, and then released.
func TestUnextendableIsNotHandedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "2.4")
		h := w.hall(fixed{txlock.Renamed{}}, compat.Options{NoRenew: true})
		l := try(t, h.k, "k")
		aged := make(chan struct{})
		h.enter(0, 4, func(i int, _ *compat.Lock) {
			if i == 0 {
				<-aged
			}
		})
		release(t, l)
		synctest.Wait()
		w.clock.Add(ttl / 3)
		close(aged)
		w.until(inBackground(h.wg.Wait))
		h.inOrder(4)
		got := ""
		for _, how := range h.hows() {
			got += string(how[:1])
		}
		if got != "fhfff" {
			t.Errorf("%s, want %s", got, "fhfff")
		}
	})
}

type fixed struct{ protocol.Algorithm }

func (f fixed) Extend(_ time.Time, l compat.Lease, _ time.Duration, _ bool) (compat.Lease, protocol.Change, error) {
	return l, protocol.Change{}, errors.ErrUnsupported
}

// Those who wait for the same end do not all come at the same moment: each is late by
// a part of the shortest pause that is its own, and nobody by more.
func TestWaitersSpreadAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			rand float64
			late time.Duration
		}{{0, 0}, {0.25, 25 * time.Millisecond}, {0.99, 99 * time.Millisecond}} {
			w := newWorld(t, "2.6")
			a := txlock.Renamed{Options: txlock.Options{Millis: true}}
			dead, _ := w.client(a)
			must.Get(dead.TryLock(background, "k", 1234*time.Millisecond))(t)
			end := w.clock.Now().Add(1234 * time.Millisecond)
			pauses := &paused{Mock: w.clock}
			k := compat.NewOn(w.source(), a, compat.Options{NoRenew: true, Clock: pauses, Poll: 5 * time.Second, Rand: func() float64 { return c.rand }})
			w.until(inBackground(func() { k.Lock(background, "k", ttl) })) //nolint:errcheck // who gets it does not matter
			pauses.mu.Lock()
			i := slices.IndexFunc(pauses.until, func(at time.Time) bool { return !at.Before(end) })
			if i < 0 || (pauses.until[i].Sub(end)-c.late).Abs() > time.Millisecond {
				t.Errorf("with %v it pauses until %v; the lease ends at %v, want %v later", c.rand, pauses.until, end, c.late)
			}
			pauses.mu.Unlock()
		}
	})
}

// paused is a clock that knows until when somebody has paused.
type paused struct {
	*clock.Mock
	mu    sync.Mutex
	until []time.Time
	last  time.Duration
}

func (p *paused) Timer(d time.Duration) *clock.Timer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = append(p.until, p.Now().Add(d))
	p.last = d
	return p.Mock.Timer(d)
}

// A key that changes hands is looked at often, so that a waiter comes in between;
// one that does not, ever less.
func TestWaiterLooksOftenWhereHoldersTakeTurns(t *testing.T) {
	w := newWorld(t, "2.4")
	pauses := &paused{Mock: w.clock}
	k := compat.NewOn(w.source(), txlock.Renamed{}, compat.Options{NoRenew: true, Clock: pauses, Poll: 5 * time.Second, Rand: func() float64 { return 0 }})
	ctx, cancel := context.WithCancel(background)
	w.do("SETEX", "k", 3600, "somebody")
	done := inBackground(func() { k.Lock(ctx, "k", ttl) }) //nolint:errcheck // it is cancelled
	// next lets the pause under way pass, and returns how long the next one is.
	next := func() time.Duration {
		pauses.mu.Lock()
		n, d := len(pauses.until), pauses.last
		pauses.mu.Unlock()
		w.clock.Add(d)
		eventually(t, "it pauses again", func() bool {
			pauses.mu.Lock()
			defer pauses.mu.Unlock()
			return len(pauses.until) > n
		})
		pauses.mu.Lock()
		defer pauses.mu.Unlock()
		return pauses.last
	}
	eventually(t, "it pauses", func() bool { pauses.mu.Lock(); defer pauses.mu.Unlock(); return len(pauses.until) == 1 })
	for i := range 5 {
		if d := next(); d != 100*time.Millisecond<<(i+1) {
			t.Errorf("pause %d of a wait for one holder: %v", i+2, d)
		}
	}
	for i := range 5 {
		w.do("SETEX", "k", 3600, i)
		if d := next(); d > 200*time.Millisecond {
			t.Errorf("a pause of %v, although the key has changed hands", d)
		}
	}
	cancel()
	<-done
}

// A server that does not answer keeps a hundred who wait for as long as it keeps
// one: they do not find out one after the other.
func TestWaitersFailTogether(t *testing.T) {
	w := newWorld(t, "2.4")
	const all = 100
	var k *compat.Locker
	slow := errors.New("it does not answer")
	asked := 0
	hook := sourceFunc(func(context.Context) (redis.Conn, error) {
		asked++
		eventually(t, "all wait", func() bool { return k.Waiting("k") == all-1 })
		w.clock.Add(5 * time.Second)
		return nil, slow
	})
	source := compat.Pooled(hook)
	source.Bounded = true
	k = compat.NewOn(source, txlock.Renamed{}, compat.Options{NoRenew: true, Clock: w.clock})
	var wg sync.WaitGroup
	for range all {
		wg.Go(func() {
			if _, err := k.Lock(background, "k", ttl); limit.Brought(err) != slow {
				t.Errorf("%v, want the head's error", err)
			}
		})
	}
	wg.Wait()
	if asked != 1 || k.Queues() != 0 {
		t.Errorf("asked %d times, %d lines are left", asked, k.Queues())
	}
}

type sourceFunc func(context.Context) (redis.Conn, error)

func (f sourceFunc) GetContext(ctx context.Context) (redis.Conn, error) { return f(ctx) }

// Readers do not wait for each other: the second comes in beside the first.
func TestReadersPassEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "2.4")
		read := w.hall(rwlock.Read{}, compat.Options{NoRenew: true})
		one := try(t, read.k, "k")
		two, err := read.k.Lock(background, "k", ttl)
		if err != nil {
			t.Fatal(err)
		}
		write := w.hall(rwlock.Write{}, compat.Options{NoRenew: true})
		var three *compat.Lock
		waiting := inBackground(func() { three, err = write.k.Lock(background, "k", ttl) })
		eventually(t, "the writer has asked", func() bool { return write.net.Count() > 0 })
		release(t, one)
		release(t, two)
		w.until(waiting)
		if err != nil {
			t.Fatal(err)
		}
		var readers []<-chan struct{}
		for range 5 {
			readers = append(readers, inBackground(func() {
				l, err := read.k.Lock(background, "k", ttl)
				if err != nil {
					t.Error(err)
					return
				}
				_ = l // and keep it
			}))
		}
		eventually(t, "the readers wait", func() bool { return read.k.Waiting("k") == 4 })
		release(t, three)
		for _, r := range readers {
			w.until(r)
		}
		for _, how := range read.hows() {
			if how == protocol.HandedOff {
				t.Error("a reader's lock was handed off")
			}
		}
	})
}

// Close ends the wait of one that pauses for others as it ends every other.
func TestCloseInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := compat.New(still(t, "2.4").Pool(), txlock.Renamed{}, compat.Options{NoRenew: true})
		first := must.Get(k.Lock(background, "k", ttl))(t)
		next := inBackground(func() {
			if _, err := k.Lock(background, "k", ttl); !errors.Is(err, compat.ErrClosed) {
				t.Errorf("%v, want ErrClosed", err)
			}
		})
		synctest.Wait()
		time.Sleep(ttl * 6 / 10) // long enough to leave others a moment
		must.Do(t, first.Release(background))
		synctest.Wait()
		closed := time.Now()
		closing := inBackground(func() { must.Do(t, k.Close(background)) })
		if <-next; time.Since(closed) > 0 {
			t.Errorf("its wait ended %v after Close", time.Since(closed))
		}
		if <-closing; time.Since(closed) != 20*time.Millisecond {
			t.Errorf("Close took %v, want the moment that is left to others", time.Since(closed))
		}
	})
}
