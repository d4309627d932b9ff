package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// The lock needs a majority of the servers, and no more.
func TestMajority(t *testing.T) {
	for n := 1; n <= 6; n++ {
		for down := range n + 1 {
			w := newWorld(t, slices.Repeat([]member{{"7.0", setlock.Lua{}}}, n))
			q, wires := w.quorum(redlock.Options{})
			for i := range down {
				wires[i].Cut()
			}
			l, err := q.Acquire(background, w.clock.Now, "job", ttl)
			if want := n-down > n/2; (err == nil) != want {
				t.Errorf("%d of %d servers down: %v, want a lock: %v", down, n, err, want)
			}
			if err == nil {
				w.wantHeld("job", strings.Repeat("-", down)+strings.Repeat("x", n-down))
				err = q.Release(background, w.clock.Now, l)
				if err != nil {
					t.Errorf("%d of %d servers down: Release: %v", down, n, err)
				}
			}
			w.wantHeld("job", strings.Repeat("-", n))
		}
	}
}

// A lock of one server of each age is one lock, which each algorithm's own
// clients are kept from on its server.
func TestFleet(t *testing.T) {
	w := newWorld(t, fleet)
	q, _ := w.quorum(redlock.Options{})
	start := w.clock.Now()
	l := w.acquire(q, "job")
	if want := protocol.Until(start, ttl); !l.Until.Equal(want) {
		t.Errorf("Until %v, want %v", l.Until, want)
	}
	if got, want := l.Value, strings.Join(w.values("job"), ","); got != want {
		t.Errorf("Value %q, want what the servers hold: %q", got, want)
	}
	for i, m := range fleet {
		if _, err := compat.New(w.servers[i], m.algo, compat.Options{NoRenew: true, Clock: w.clock}).TryLock(background, "job", ttl); !errors.Is(err, compat.ErrHeld) {
			t.Errorf("a client of server %d alone: %v, want ErrHeld", i, err)
		}
	}
	other, _ := w.quorum(redlock.Options{})
	_, err := other.Acquire(background, w.clock.Now, "job", ttl)
	var held *compat.HeldError
	if !errors.As(err, &held) || held.Key != "job" {
		t.Errorf("another client: %v, want a HeldError", err)
	}
	var all *redlock.Error
	if !errors.As(err, &all) || len(all.Servers) != 5 || all.Got != 0 || all.Need != 3 {
		t.Errorf("another client: %v, want an Error with the words of five servers", err)
	}
	must.Do(t, q.Release(background, w.clock.Now, l))
	w.wantHeld("job", "-----")
}

// When servers say until when they are held, a waiter hears when a majority
// will be free.
func TestHeldUntil(t *testing.T) {
	w := newWorld(t, stamps)
	q, _ := w.quorum(redlock.Options{})
	start := w.clock.Now()
	for i, d := range []time.Duration{50, 20, 40} { // one holder each
		one := compat.NewBackend(compat.Pooled(w.servers[i]), getsetlock.Guarded{})
		if _, err := one.Acquire(background, w.clock.Now, "job", d*time.Second); err != nil { //nolint:durationcheck // d is a number
			t.Fatal(err)
		}
	}
	_, err := q.Acquire(background, w.clock.Now, "job", ttl)
	var held *compat.HeldError
	if !errors.As(err, &held) || held.Until.Sub(start).Round(time.Second) != 20*time.Second {
		t.Errorf("two servers free, one after 20 s: %v, want held until then", err)
	}
	w.wantHeld("job", "xxx--")
	st, err := q.Inspect(background, w.clock.Now, "job")
	if err != nil || st.Status != compat.StatusHeld || len(st.Holders) != 3 || st.Until.Sub(start).Round(time.Second) != 20*time.Second {
		t.Errorf("Inspect: %+v, %v; want held for 20 s, three votes", st, err)
	}
	w.clock.Add(21 * time.Second)
	st, err = q.Inspect(background, w.clock.Now, "job")
	if err != nil || st.Status != compat.StatusDead {
		t.Errorf("Inspect, 20 s later: %+v, %v; want dead", st, err)
	}
	l := w.acquire(q, "job")
	if l.How != protocol.TakenOver {
		t.Errorf("obtained as %q, want taken over", l.How)
	}
}

// Too few servers is neither held nor lost: the error has what each of them
// said, and waiting is for the caller to decide.
func TestTooFewServers(t *testing.T) {
	w := newWorld(t, fleet)
	q, wires := w.quorum(redlock.Options{Names: []string{"amsterdam", "berlin"}})
	w.acquire(q, "held on the rest")
	for _, i := range []int{0, 2, 3} {
		wires[i].Cut()
	}
	for key, marks := range map[string]string{"free": "-----", "held on the rest": "xxxxx"} {
		k := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock})
		_, err := k.TryLock(background, key, ttl)
		for _, not := range []error{compat.ErrHeld, compat.ErrLost, compat.ErrUnknown} {
			if errors.Is(err, not) {
				t.Errorf("%s: %v is %v", key, err, not)
			}
		}
		var all *redlock.Error
		if !errors.As(err, &all) || limit.Brought(err) != syscall.ECONNREFUSED {
			t.Fatalf("%s: %v, want an Error of refused connections", key, err)
		}
		refused := 0
		for _, s := range all.Servers {
			if limit.Brought(s.Err) == syscall.ECONNREFUSED {
				refused++
			}
		}
		if refused != 3 || all.Servers[0].Name != "amsterdam" || !strings.Contains(err.Error(), "amsterdam") {
			t.Errorf("%s: %v, want three refused connections by name", key, err)
		}
		w.wantHeld(key, marks)
		if _, err := k.Inspect(background, key); !errors.As(err, &all) || limit.Brought(err) != syscall.ECONNREFUSED {
			t.Errorf("Inspect: %v, want an Error", err)
		}
	}
}

// An algorithm that excludes nobody on its server refuses the whole lock, by
// name; a ttl that one server can't keep does so too. What the others granted is
// released.
func TestRefused(t *testing.T) {
	w := newWorld(t, []member{fleet[4], {"2.0", txlock.Classic{}}, fleet[3]})
	q, _ := w.quorum(redlock.Options{})
	_, err := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock}).Lock(background, "job", ttl)
	var unsafe *compat.UnsafeServerError
	if !errors.Is(err, compat.ErrUnsafeServer) || !errors.As(err, &unsafe) || !strings.HasPrefix(unsafe.Version, "2.0") ||
		!strings.Contains(err.Error(), "servers[1]") {
		t.Errorf("with txlock on a 2.0: %v, want ErrUnsafeServer and which", err)
	}
	w.wantHeld("job", "---")

	w = newWorld(t, fleet)
	q, _ = w.quorum(redlock.Options{})
	_, err = compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock}).Lock(background, "job", 500*time.Millisecond)
	if !errors.Is(err, compat.ErrInvalid) || !strings.Contains(err.Error(), "servers[1]") {
		t.Errorf("half a second on a 2.2: %v, want ErrInvalid and which", err)
	}
	w.wantHeld("job", "-----")
	lock := must.Get(compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock}).TryLock(background, "job", ttl))(t)
	if err := lock.Extend(background, 500*time.Millisecond); !errors.Is(err, compat.ErrInvalid) || !lock.Until().Equal(protocol.Until(w.clock.Now(), ttl)) {
		t.Errorf("an extension to half a second: %v, until %v; want ErrInvalid and the end as it was", err, lock.Until())
	}
}

// A server that can't be part of the quorum is not one that can be done without, because it does not
// answer now: it is what it said last.
func TestUnfitAndSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, []member{fleet[2], fleet[4], fleet[4]})
		q, wires := w.quorum(redlock.Options{})
		w.acquire(q, "warm")
		silent := func(key string) (err error) {
			open := slow(wires[0])
			before := wires[0].Hanging()
			w.in(func() { _, err = q.Acquire(background, w.clock.Now, key, ttl) },
				step{func() bool {
					return wires[0].Hanging() > before && w.held(key) == "-xx" && rest(wires)
				}, 50 * time.Millisecond})
			wires[0].Clear()
			open()
			return err
		}
		if _, err := q.Acquire(background, w.clock.Now, "short", 500*time.Millisecond); !errors.Is(err, compat.ErrInvalid) {
			t.Fatalf("half a second on a 2.4: %v, want ErrInvalid", err)
		}
		if err := silent("after a refusal"); !errors.Is(err, compat.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid still", err)
		}
		w.acquire(q, "longer")
		if err := silent("after a vote"); err != nil {
			t.Error(err)
		}
	})
}

// Keys that are no locks on so many servers that no majority is left end the
// wait; on a minority they are votes that are missing.
func TestForeign(t *testing.T) {
	w := newWorld(t, []member{fleet[3], fleet[3], fleet[3], fleet[1], fleet[1]})
	q, _ := w.quorum(redlock.Options{})
	w.do(3, "LPUSH", "job", "x")
	l := w.acquire(q, "job")
	must.Do(t, q.Release(background, w.clock.Now, l))
	w.do(0, "SETEX", "job", 100, "another's")
	w.do(1, "SETEX", "job", 100, "another's")
	if _, err := q.Acquire(background, w.clock.Now, "job", ttl); !errors.Is(err, compat.ErrHeld) || errors.Is(err, compat.ErrForeign) {
		t.Errorf("one of five is a list, two are held: %v, want ErrHeld and no more", err)
	}
	w.do(4, "LPUSH", "job", "x")
	if _, err := q.Acquire(background, w.clock.Now, "job", ttl); !errors.Is(err, compat.ErrHeld) || errors.Is(err, compat.ErrForeign) {
		t.Errorf("two of five are lists, two are held: %v, want ErrHeld and no more", err)
	}

	w = newWorld(t, stamps)
	q, _ = w.quorum(redlock.Options{})
	for i := range 3 {
		w.do(i, "LPUSH", "job", "x")
	}
	_, err := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock}).Lock(background, "job", ttl)
	if !errors.Is(err, compat.ErrForeign) || errors.Is(err, compat.ErrHeld) {
		t.Errorf("three of five are lists: %v, want ErrForeign", err)
	}
	if _, err := q.Inspect(background, w.clock.Now, "job"); !errors.Is(err, compat.ErrForeign) {
		t.Errorf("Inspect: %v, want ErrForeign", err)
	}
}

// What is no quorum is ErrInvalid: no servers, a Backend twice, a server that is there twice by another
// name, and semaphores: of three servers with two slots each, three clients can have two.
func TestNoQuorum(t *testing.T) {
	w := newWorld(t, fleet[3:])
	a, b := compat.NewBackend(compat.Pooled(w.servers[0]), fleet[3].algo), compat.NewBackend(compat.Pooled(w.servers[1]), fleet[4].algo)
	again := compat.NewBackend(compat.Pooled(w.servers[0]), txlock.Guarded{})
	few := func(i int) compat.Backend {
		return compat.NewBackend(compat.Pooled(w.servers[i%2]), semaphore.Lock{Options: semaphore.Options{N: 2}})
	}
	reads := compat.NewBackend(compat.Pooled(w.servers[1]), readers{})
	for name, servers := range map[string][]compat.Backend{
		"none": nil, "twice": {a, b, a}, "the same twice": {a, a}, "by another name": {a, b, again}, "one as two": {a, again},
		"readers and others": {a, reads},
		"semaphores":         {few(0), few(1), few(2)}, "semaphores of sets": {few(0), few(1), multilock.New(compat.Pooled(w.servers[0]), semaphore.Lock{Options: semaphore.Options{N: 2}})},
	} {
		q := redlock.New(servers, redlock.Options{Clock: w.clock})
		for try := range 3 { // it is told each time
			if _, err := q.Acquire(background, w.clock.Now, "job", ttl); !errors.Is(err, compat.ErrInvalid) {
				t.Errorf("%s, attempt %d: %v, want ErrInvalid", name, try, err)
			}
			w.wantHeld("job", "--")
		}
	}
}

// readers is a lock that says that it is shared; each has a key of its own.
type readers struct{ setlock.Lua }

func (r readers) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	return r.Lua.Acquire(c, now, key+protocol.NewToken(), ttl)
}

func (r readers) Traits() protocol.Traits { return protocol.Traits{Shared: true, Rotates: true} }

// keepsToken is a lock whose extensions can't change its token.
type keepsToken struct{ setlock.Lua }

func (keepsToken) Traits() protocol.Traits { return protocol.Traits{} }

// A quorum of readers is shared, and those of one process don't wait for each other.
func TestReaders(t *testing.T) {
	w := newWorld(t, slices.Repeat([]member{{"7.0", readers{}}}, 3))
	q, _ := w.quorum(redlock.Options{})
	if can := q.Abilities(); !can.Shared || !can.Rotates || can.Epoch != nil {
		t.Errorf("a quorum of readers that change their tokens can do %+v", can)
	}
	k := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock})
	for range 3 {
		must.Get(k.Lock(background, "job", ttl))(t)
	}
	keeps := member{"7.0", keepsToken{}}
	for _, members := range [][]member{{fleet[4], keeps}, {keeps, fleet[4]}} {
		w = newWorld(t, members)
		if q, _ = w.quorum(redlock.Options{}); q.Abilities().Shared || q.Abilities().Rotates {
			t.Errorf("one of whose servers keeps its token can do %+v", q.Abilities())
		}
	}
}

// A server that dies with our request may have run it. A minority of those
// changes nothing: the lock was had or not, and what may be there is given back if
// the server comes back in time.
func TestUnknownMinority(t *testing.T) {
	w, q, wires := warm(t, 5, redlock.Options{})
	wires[0].Expect(dies(unanswered).Of("SET"))
	wires[1].Expect(dies(unanswered).Of("SET"))
	l := w.acquire(q, "job")
	w.wantHeld("job", "xxxxx")
	if strings.Count(l.Value, "~") != 2 {
		t.Errorf("Value %q, want two parts in doubt", l.Value)
	}
	wires[0].Clear()
	if err := q.Release(background, w.clock.Now, l); err != nil {
		t.Errorf("Release with one still away: %v", err)
	}
	w.wantHeld("job", "-x---")

	w.acquire(q, "warm again") // the server that came back is checked anew
	w.do(2, "SET", "taken", "x")
	w.do(3, "SET", "taken", "x")
	wires[0].Expect(dies(unanswered).Of("SET"))
	_, err := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock}).TryLock(background, "taken", ttl)
	if err == nil || errors.Is(err, compat.ErrUnknown) {
		t.Errorf("one granted, two taken, one unknown, one away: %v, want a definite error", err)
	}
	w.wantHeld("taken", "x-xx-")
}

// If a majority may hold what we can't take back, others may be kept out by it:
// that is unknown, and the error has the lease.
func TestUnknownMajority(t *testing.T) {
	for _, away := range []bool{false, true} { // to the third nothing is sent
		w, q, wires := warm(t, 3, redlock.Options{})
		wires[0].Expect(dies(unanswered).Of("SET"))
		wires[1].Expect(dies(unanswered).Of("SET"))
		if away {
			wires[2].Cut()
		}
		k := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock})
		_, err := k.TryLock(background, "job", ttl)
		var unknown *compat.UnknownError
		if !errors.As(err, &unknown) || errors.Is(err, compat.ErrHeld) || !errors.As(err, new(*redlock.Error)) {
			t.Fatalf("two of three unknown, the third away %v: %v, want ErrUnknown", away, err)
		}
		w.wantHeld("job", "xx-")
		for _, x := range wires {
			x.Clear()
		}
		if err := k.ReleaseToken(background, "job", unknown.Lease.Value); err != nil {
			t.Errorf("ReleaseToken of the lease that is unknown: %v", err)
		}
		w.wantHeld("job", "---")
	}
}

// A value that others may write too does not prove a part ours: what is unknown
// then is left to its end.
func TestUnknownAmbiguous(t *testing.T) {
	seconds := getsetlock.Guarded{Options: getsetlock.Options{Dialect: getsetlock.Seconds}}
	w := newWorld(t, slices.Repeat([]member{{"2.4", seconds}}, 3))
	q, wires := w.quorum(redlock.Options{})
	w.acquire(q, "warm")
	wires[0].Expect(unanswered.Of("SETNX"))
	l := w.acquire(q, "job")
	w.wantHeld("job", "xxx")
	if !strings.HasPrefix(l.Value, ",!") {
		t.Errorf("Value %q, want nothing for the first server", l.Value)
	}
	must.Do(t, q.Release(background, w.clock.Now, l))
	w.wantHeld("job", "x--")
}

// Nor does it prove that two servers are one, where another client has written it.
func TestSameStampIsNoTwin(t *testing.T) {
	seconds := getsetlock.Guarded{Options: getsetlock.Options{Dialect: getsetlock.Seconds}}
	w := newWorld(t, slices.Repeat([]member{{"2.4", seconds}}, 3))
	other, _ := w.quorum(redlock.Options{})
	w.acquire(other, "another")
	w.do(0, "SET", "job", w.values("another")[0])
	q, _ := w.quorum(redlock.Options{})
	l := w.acquire(q, "job")
	if !strings.HasPrefix(l.Value, ",!") {
		t.Errorf("Value %q, want nothing for the first server", l.Value)
	}
}

// A server that hangs holds a step up for the timeout and no longer, is not
// taken for a cancellation, and is released like any of unknown outcome.
func TestHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q, wires := warm(t, 3, redlock.Options{})
		wires[1].Expect(runsAndHangs.Of("SET"))
		var l compat.Grant
		var err error
		start := w.clock.Now()
		w.in(func() { l, err = q.Acquire(background, w.clock.Now, "job", ttl) },
			step{func() bool { return wires[1].hangs() && w.held("job") == "xxx" && rest(wires) }, 250 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if want := protocol.Until(start, ttl); !l.Until.Equal(want) {
			t.Errorf("Until %v, want %v: counted from before the first request", l.Until, want)
		}
		must.Do(t, q.Release(background, w.clock.Now, l))
		w.wantHeld("job", "---")

		wires[0].Expect(hangs.Of("SET"))
		wires[1].Expect(hangs.Of("SET"))
		w.in(func() { _, err = q.Acquire(background, w.clock.Now, "job", ttl) },
			step{func() bool { return wires[0].hangs() && wires[1].hangs() && w.held("job") == "--x" && rest(wires) }, 250 * time.Millisecond})
		if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, compat.ErrUnknown) || !strings.Contains(err.Error(), "no answer in time") {
			t.Errorf("two of three hang: %v, want that there was no answer in time", err)
		}
		w.wantHeld("job", "---")

		// A dial that is given up says that it was cancelled. Nobody did.
		for _, x := range wires[:2] {
			x.OnDial(faulty.Hang)
		}
		w.in(func() {
			_, err = compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock}).TryLock(background, "job", ttl)
		},
			step{func() bool { return wires[0].hangs() && wires[1].hangs() && w.held("job") == "--x" && rest(wires) }, 250 * time.Millisecond})
		if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, compat.ErrUnknown) || !strings.Contains(err.Error(), "no answer in time") {
			t.Errorf("two of three can't be dialled: %v, want that there was no answer in time", err)
		}
		w.wantHeld("job", "---")
	})
}

// The lease is counted from before the first request, whatever the answers take;
// if they take longer than it lasts there is none (any/lease-counted-from-reply).
func TestSlowerThanTheLease(t *testing.T) {
	w, q, wires := alike(t, 3, redlock.Options{Sequential: true})
	slow := func(d time.Duration) {
		wires[0].OnDial(func(context.Context) error { w.clock.Add(d); return nil })
	}
	slow(2 * time.Second)
	start := w.clock.Now()
	l := w.acquire(q, "job")
	if left := l.Until.Sub(w.clock.Now()); left != l.Until.Sub(start)-4*time.Second { // the check and the lock
		t.Errorf("%v are left of %v", left, ttl)
	}
	slow(ttl)
	if _, err := q.Acquire(background, w.clock.Now, "late", ttl); !errors.Is(err, compat.ErrLost) {
		t.Errorf("answers after the lease's end: %v, want ErrLost", err)
	}
	w.wantHeld("late", "---")
}

// A Dial that heeds no context holds nobody up, and what comes of it too late is
// released; a server in which too many are stuck is not asked.
func TestStuckServerIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q, wires := warm(t, 3, redlock.Options{})
		free, dialling := make(chan struct{}), make(chan struct{}, 100)
		wires[2].OnDial(func(context.Context) error { dialling <- struct{}{}; <-free; return nil })
		for n := range 20 {
			key := fmt.Sprint("job", n)
			var l compat.Grant
			var err error
			var steps []step
			if n < 16 {
				steps = append(steps, step{func() bool { return len(dialling) == n+1 && w.held(key) == "xx-" }, 400 * time.Millisecond})
			}
			w.in(func() { l, err = q.Acquire(background, w.clock.Now, key, ttl) }, steps...)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(l.Value, ",") {
				t.Errorf("Value %q, want nothing for the last server", l.Value)
			}
			eventually(t, func() bool { w.clock.Add(100 * time.Millisecond); return q.Stuck(2) == min(n+1, 16) })
		}
		close(free)
		eventually(t, func() bool { // each of the sixteen takes its part, too late, and gives it back
			for n := range 16 {
				if key := fmt.Sprint("job", n); !wires[2].ran("SET", key) || w.held(key) != "xx-" {
					return false
				}
			}
			return true
		})
		wires[2].Clear()
		w.acquire(q, "after")
		w.wantHeld("after", "xxx")
	})
}

// Close does not wait for what is stuck in a server.
func TestCloseWhileStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q, wires := alike(t, 3, redlock.Options{})
		k := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock, Timeout: time.Hour})
		w.acquire(q, "warm")
		open := slow(wires[2])
		t.Cleanup(open)
		var l *compat.Lock
		var err error
		w.in(func() { l, err = k.TryLock(background, "job", ttl) },
			step{func() bool { return wires[2].hangs() && w.held("job") == "xx-" && rest(wires) }, 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool { w.clock.Add(100 * time.Millisecond); return q.Stuck(2) == 1 })
		wires[2].Cut()
		w.in(func() { err = errors.Join(l.Release(background), k.Close(background)) })
		if err != nil {
			t.Error(err)
		}
	})
}

// A caller that cancels is told so, and no keys are left.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q, wires := warm(t, 3, redlock.Options{})
		wires[0].Expect(hangs.Of("SET"))
		wires[1].Expect(hangs.Of("SET"))
		ctx, cancel := context.WithCancel(background)
		var err error
		w.in(func() {
			_, err = compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock}).Lock(ctx, "job", ttl)
		}, step{func() bool {
			if wires[0].hangs() && wires[1].hangs() && w.held("job") == "--x" {
				cancel()
				return true
			}
			return false
		}, 0})
		if !errors.Is(err, context.Canceled) || errors.Is(err, compat.ErrHeld) || errors.Is(err, compat.ErrUnknown) {
			t.Errorf("Lock, cancelled: %v, want that and no more", err)
		}
		w.wantHeld("job", "---")
	})
}

// What is released after a cancellation takes no longer than a Locker's Cleanup, whatever a
// server may take for a step, and whether its connections heed a context or not.
func TestCancelledAndHanging(t *testing.T) {
	for name, heedless := range map[string]bool{"heeds the context": false, "heeds nothing": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, q, wires := warm(t, 3, redlock.Options{Timeout: 2 * time.Second})
				free := make(chan struct{})
				var once sync.Once
				t.Cleanup(func() { once.Do(func() { close(free) }) })
				if heedless {
					wires[0].OnDial(func(context.Context) error { <-free; return nil })
				} else {
					wires[0].Expect(runsAndHangs.Always())
				}
				ctx, cancel := context.WithCancel(background)
				var err error
				w.in(func() {
					_, err = compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock, Timeout: time.Minute}).Lock(ctx, "job", ttl)
				}, step{func() bool {
					if wires[0].hangs() && wires[1].ran("SET", "job") && wires[2].ran("SET", "job") {
						cancel()
						return true
					}
					return false
				}, 0}, step{func() bool { return heedless || w.held("job") == "x--" && wires[0].hangs() }, 50 * time.Millisecond},
					step{func() bool { return true }, 200 * time.Millisecond})
				if !errors.Is(err, context.Canceled) || errors.Is(err, compat.ErrUnknown) {
					t.Errorf("Lock, cancelled: %v, want that and no more", err)
				}
				if heedless {
					once.Do(func() { close(free) })
					eventually(t, func() bool { return w.held("job") == "---" })
				}
			})
		})
	}
}

// Clients that split the votes all come through in the end: they release
// what they have and pause for random times.
func TestSplitVotes(t *testing.T) {
	w := newWorld(t, slices.Repeat([]member{fleet[4]}, 3))
	var wg sync.WaitGroup
	for n := range 3 {
		q, _ := w.quorum(redlock.Options{Sequential: true, First: n})
		k := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock})
		wg.Go(func() {
			for range 20 {
				lock, err := k.Lock(background, "job", time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				if err := lock.Release(background); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	start := w.clock.Now()
	for w.clock.Since(start) < 50*time.Second { // less than one lease: nobody waits for an end
		select {
		case <-done:
			return
		default:
			w.clock.Add(5 * time.Millisecond)
		}
	}
	t.Error("after 50 seconds they still wait for each other")
	<-done
}

// One server after the other, from the first on, and no further than a majority
// can be had: the same answers, the same messages.
func TestSequential(t *testing.T) {
	w, q, wires := alike(t, 5, redlock.Options{Sequential: true, First: 3})
	l := w.acquire(q, "job")
	must.Do(t, q.Release(background, w.clock.Now, l))
	for _, i := range []int{3, 4, 0} {
		w.do(i, "SET", "taken", "x")
	}
	wires[1].Expect(nil)
	_, err := q.Acquire(background, w.clock.Now, "taken", ttl)
	if !errors.Is(err, compat.ErrHeld) || errors.Is(err, compat.ErrUnknown) {
		t.Errorf("three are taken: %v, want ErrHeld", err)
	}
	if wires[1].Count() != 0 {
		t.Errorf("%q was sent although no majority was left to be had", wires[1].Sent())
	}
	wires[3].Cut()
	if _, err = q.Acquire(background, w.clock.Now, "taken", ttl); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("one is away, two are taken, and two not asked: %v, want ErrHeld", err)
	}
	wires[4].Cut()
	w.acquire(q, "by the other three")
}

// The number of one server is a fence; those of several are not, and none is
// shown.
func TestFence(t *testing.T) {
	for n, want := range map[int]int64{1: 1, 3: 0} {
		w := newWorld(t, slices.Repeat([]member{{"7.0", setlock.Lua{Options: setlock.Options{Fence: true}}}}, n))
		q, _ := w.quorum(redlock.Options{})
		l := w.acquire(q, "job")
		if l.Fence != want {
			t.Errorf("%d servers: fence %d, want %d", n, l.Fence, want)
		}
		if l, err := q.Extend(background, w.clock.Now, l, ttl); err != nil || l.Fence != want {
			t.Errorf("%d servers, extended: fence %d, %v; want %d", n, l.Fence, err, want)
		}
		l.Fence = 0 // as of one that was adopted
		if l, err := q.Extend(background, w.clock.Now, l, ttl); err != nil || l.Fence != 2*want {
			t.Errorf("%d servers, extended without one: fence %d, %v; want %d", n, l.Fence, err, 2*want)
		}
	}
}
