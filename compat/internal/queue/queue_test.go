package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A lock stands for the lock that a release passes on.
type lock struct{ name string }

func newQueues(t *testing.T) (qs *Queues[lock], undone *[]string) {
	undone = new([]string)
	return &Queues[lock]{
		Now: time.Now, Pause: 10 * time.Millisecond, Longest: 500 * time.Millisecond,
		Undo: func(_ context.Context, p *lock) { *undone = append(*undone, p.name) },
		Run:  func(f func()) { go f() },
	}, undone
}

// A waiter runs a goroutine in Join and Await.
type waiter struct {
	cancel context.CancelFunc
	queue  *Queue[lock]
	grant  Grant[lock]
	ok     bool
	served bool
}

func wait(t *testing.T, qs *Queues[lock], key string) *waiter {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	q, e, _, err := qs.Join(key, time.Minute)
	if e == nil || err != nil {
		t.Fatalf("joined: entry %v, %v", e, err)
	}
	w := &waiter{cancel: cancel, queue: q}
	go func() {
		w.grant, w.ok = qs.Await(ctx, e)
		w.served = true
	}()
	synctest.Wait()
	return w
}

func head(t *testing.T, qs *Queues[lock], key string) *Queue[lock] {
	t.Helper()
	q, e, _, err := qs.Join(key, time.Minute)
	if e != nil || err != nil {
		t.Fatalf("not the head at once: entry %v, %v", e, err)
	}
	return q
}

func bubble(t *testing.T, f func(t *testing.T, qs *Queues[lock], undone *[]string)) {
	synctest.Test(t, func(t *testing.T) {
		qs, undone := newQueues(t)
		f(t, qs, undone)
		if n := qs.Len(); n != 0 {
			t.Errorf("%d queues are left", n)
		}
	})
}

// Waiters become the head in the order of their arrival. A waiter that gave up is skipped.
func TestOrder(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
		q := head(t, qs, "k")
		all := []*waiter{wait(t, qs, "k"), wait(t, qs, "k"), wait(t, qs, "k")}
		all[1].cancel()
		synctest.Wait()
		if !all[1].served || all[1].ok || qs.Waiting("k") != 2 {
			t.Fatalf("one that gave up: %+v; %d wait", all[1], qs.Waiting("k"))
		}
		for _, w := range []*waiter{all[0], all[2]} {
			if w.served {
				t.Fatal("served before its turn")
			}
			qs.Leave(q)
			synctest.Wait()
			if !w.ok || w.grant.Passed != nil {
				t.Fatalf("the next in the queue: %+v", w)
			}
		}
		qs.Leave(q)
	})
}

// A queue has no head while a lock of this process has the key. Releases pass the lock on to all waiters, and
// to waiters that come soon. After that, other processes have their turn.
func TestTurns(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
		q := head(t, qs, "k")
		h := &Holder[lock]{Since: time.Now()}
		qs.Took("k", h)
		qs.Leave(q)
		const ttl = time.Minute
		next := func(w *waiter) {
			t.Helper()
			e := qs.Successor(h, true, ttl, time.Now())
			if e == nil {
				t.Fatal("not passed on")
			}
			e.Grant(Grant[lock]{Passed: &lock{"it"}})
			if synctest.Wait(); w.grant.Passed == nil {
				t.Fatalf("%+v", w)
			}
			h = &Holder[lock]{Since: time.Now()}
			qs.Took("k", h)
			qs.Leave(q)
		}
		all := []*waiter{wait(t, qs, "k"), wait(t, qs, "k"), wait(t, qs, "k")}
		time.Sleep(qs.Pause / 2)
		next(all[0])
		soon := wait(t, qs, "k")
		time.Sleep(qs.Pause)
		next(all[1])
		next(all[2])
		if e := qs.Successor(h, true, ttl, time.Now()); e != nil {
			t.Fatal("passed on after its turn")
		}
		time.Sleep(qs.Pause)
		qs.Released(context.Background(), h, ttl, time.Now())
		synctest.Wait()
		if !soon.ok || soon.grant.Yield != 2*qs.Pause {
			t.Errorf("after its turn: %+v, want it to pause for others", soon.grant)
		}
		qs.Leave(q)
	})
}

// The end of a turn wakes a client elsewhere, and this client goes first. Each lock of a lone goroutine is a
// turn. Its first release asks for waiters elsewhere. Of its other short turns few releases ask, as long as
// there was no waiter.
func TestTurnsEndWithAWakeUp(t *testing.T) {
	for _, waits := range []bool{false, true} {
		bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
			asked := 0
			qs.Signals = &Signals{Wake: func(context.Context, string, time.Duration) bool { asked++; time.Sleep(time.Millisecond); return waits }}
			for _, test := range []struct {
				had  time.Duration
				asks bool
			}{{0, true}, {qs.Pause / 4, false}, {qs.Pause, true}} {
				asked = 0
				q := head(t, qs, "k")
				h := &Holder[lock]{Since: time.Now()}
				qs.Took("k", h)
				qs.Leave(q)
				time.Sleep(test.had)
				go qs.Released(context.Background(), h, time.Minute, time.Now())
				synctest.Wait()
				if (asked > 0) != (test.asks || waits) {
					t.Fatalf("had for %v, and asked who waits %d times", test.had, asked)
				}
				if asked == 0 {
					continue
				}
				w := wait(t, qs, "k") // before the answer comes
				if qs.Waiting("k") != 1 {
					t.Error("the head before it is known whether a client elsewhere was woken")
				}
				time.Sleep(time.Millisecond)
				if synctest.Wait(); !w.ok || w.grant.Woken != waits {
					t.Errorf("%+v, want it to know of the other: %v", w.grant, waits)
				}
				qs.Leave(w.queue)
			}
		})
	}
}

// A lone goroutine takes the key again only behind the client that its release has woken.
func TestRetakerLetsTheWokenGoFirst(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
		qs.Signals = &Signals{Wake: func(context.Context, string, time.Duration) bool { return true }}
		q := head(t, qs, "k")
		h := &Holder[lock]{Since: time.Now()}
		qs.Took("k", h)
		qs.Leave(q)
		qs.Released(context.Background(), h, time.Minute, time.Now())
		for _, after := range []time.Duration{0, qs.Pause} {
			time.Sleep(after)
			q, e, g, err := qs.Join("k", time.Minute)
			if e != nil || err != nil || !g.Woken || g.Yield != 2*qs.Pause-after {
				t.Fatalf("%v after the wake-up: %+v, %v", after, g, err)
			}
			qs.Leave(q)
		}
		time.Sleep(qs.Pause)
		q, _, g, err := qs.Join("k", time.Minute)
		if err != nil || g.Yield != 0 {
			t.Errorf("a client that does not come is waited for: %+v, %v", g, err)
		}
		qs.Leave(q)
	})
}

// A lock passed on to a waiter that gave up goes to the next waiter. Without a next waiter it goes back to the
// server.
func TestPassedTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], undone *[]string) {
		q := head(t, qs, "k")
		h := &Holder[lock]{Since: time.Now()}
		qs.Took("k", h)
		qs.Leave(q)
		first, second := wait(t, qs, "k"), wait(t, qs, "k")
		e := qs.Successor(h, true, time.Minute, time.Now())
		first.cancel()
		second.cancel()
		synctest.Wait() // the second has left; the first knows that a grant is on its way
		if first.served || !second.served {
			t.Fatal("the first left before its grant came, or the second did not")
		}
		third := wait(t, qs, "k")
		e.Grant(Grant[lock]{Passed: &lock{"it"}})
		synctest.Wait()
		if first.ok || !third.ok || third.grant.Passed == nil || len(*undone) > 0 {
			t.Fatalf("first %+v, third %+v, undone %v", first, third, *undone)
		}
		h = &Holder[lock]{Since: time.Now()}
		qs.Took("k", h)
		qs.Leave(q)
		last := wait(t, qs, "k")
		e = qs.Successor(h, true, time.Minute, time.Now())
		last.cancel()
		synctest.Wait()
		e.Grant(Grant[lock]{Passed: &lock{"it"}})
		synctest.Wait()
		if last.ok || len(*undone) != 1 {
			t.Errorf("%+v, undone %v", last, *undone)
		}
	})
}

// Close and Fail end every wait. A wait after Close fails.
func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
		q := head(t, qs, "k")
		why := errors.New("why")
		w := wait(t, qs, "k")
		qs.Fail(q, why, time.Minute-1)
		synctest.Wait()
		if w.served {
			t.Errorf("Fail of others: %+v", w.grant)
		}
		qs.Fail(q, why, time.Minute)
		synctest.Wait()
		if w.grant.Failed != why {
			t.Errorf("Fail: %+v", w.grant)
		}
		w = wait(t, qs, "k")
		_, news, _, _ := qs.Wakeable(q, time.Minute)
		qs.Close()
		synctest.Wait()
		<-news
		if _, err := qs.Heard(q); !errors.Is(w.grant.Failed, ErrClosed) || !errors.Is(err, ErrClosed) {
			t.Errorf("Close: a waiter gets %v, the head %v", w.grant.Failed, err)
		}
		if _, _, _, err := qs.Join("k", time.Minute); !errors.Is(err, ErrClosed) {
			t.Errorf("Join: %v", err)
		}
		qs.Leave(q)
	})
}

// A head waits, as the first entry, for a lock of this process that was taken past the queue.
func TestTakenPastTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
		q := head(t, qs, "k")
		behind := wait(t, qs, "k")
		h := &Holder[lock]{Since: time.Now()}
		qs.Took("k", h)
		e, _, _, err := qs.Wakeable(q, time.Minute)
		if e == nil || err != nil {
			t.Fatalf("the head: %v, %v", e, err)
		}
		qs.Gone(h)
		if g, ok := qs.Await(t.Context(), e); !ok || g.Failed != nil || behind.served {
			t.Errorf("the former head: %+v, %v", g, ok)
		}
		qs.Leave(q)
		synctest.Wait()
		qs.Leave(q)
	})
}

// A head that asks the server while a lock of this process is taken past the queue stays the only head. It tries
// again as soon as that lock is gone.
func TestOneHead(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
		q := head(t, qs, "k")
		_, news, _, _ := qs.Wakeable(q, time.Minute)
		behind := wait(t, qs, "k")
		h := &Holder[lock]{Since: time.Now()}
		qs.Took("k", h)
		if e := qs.Successor(h, true, time.Minute, time.Now()); e != nil {
			t.Error("passed on beside the head")
			e.Grant(Grant[lock]{})
		}
		qs.Released(context.Background(), h, time.Minute, time.Now())
		synctest.Wait()
		select {
		case <-news:
		default:
			t.Error("the head sleeps on")
		}
		if try, err := qs.Heard(q); !try || err != nil || behind.served {
			t.Errorf("the head is to try: %v, %v; served behind it: %v", try, err, behind.served)
		}
		qs.Leave(q)
		synctest.Wait()
		qs.Leave(q)
	})
}

// There are no more hand-offs after a lock could not be extended by its successor.
func TestCannotHandOff(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
		q := head(t, qs, "k")
		qs.CannotHandOff(q)
		h := &Holder[lock]{Since: time.Now()}
		qs.Took("k", h)
		qs.Leave(q)
		w := wait(t, qs, "k")
		if e := qs.Successor(h, true, time.Minute, time.Now()); e != nil {
			t.Error("passed on")
			e.Grant(Grant[lock]{})
		}
		qs.Released(context.Background(), h, time.Minute, time.Now())
		synctest.Wait()
		if !w.ok || w.grant.Passed != nil {
			t.Errorf("the next in the queue: %+v", w.grant)
		}
		qs.Leave(q)
	})
}

// A wake-up wakes the head. Without a head the wake-up goes on to a client elsewhere.
func TestSignals(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
		wake, elsewhere, left := make(chan struct{}), 0, 0
		qs.Signals = &Signals{
			Listen: func(ctx context.Context, _ string, _ bool, registered func(int)) (bool, func(bool)) {
				registered(1)
				select {
				case <-wake:
					return true, nil
				case <-ctx.Done():
					return false, func(bool) { left++ }
				}
			},
			Wake: func(context.Context, string, time.Duration) bool { elsewhere++; return true },
		}
		q := head(t, qs, "k")
		_, news, _, _ := qs.Wakeable(q, time.Minute)
		synctest.Wait()
		if _, _, pause, _ := qs.Wakeable(q, time.Minute); pause != qs.Longest {
			t.Errorf("one that listens looks after %v", pause)
		}
		<-news // registered: look
		wake <- struct{}{}
		synctest.Wait()
		<-news
		if try, err := qs.Heard(q); !try || err != nil {
			t.Errorf("woken: try %v, %v", try, err)
		}
		qs.Leave(q) // without the lock
		synctest.Wait()
		if elsewhere != 1 {
			t.Errorf("a wake-up that nobody made use of woke %d clients elsewhere", elsewhere)
		}
		q = head(t, qs, "k")
		qs.Wakeable(q, time.Minute) //nolint:errcheck
		synctest.Wait()
		qs.Leave(q)
		synctest.Wait()
		if left != 1 {
			t.Errorf("%d listeners took their registration back", left)
		}
	})
}

// The time of an unchanged value counts across heads. It starts again for another value.
func TestUnchanged(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
		q := head(t, qs, "k")
		start := time.Now()
		at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
		for _, step := range []struct {
			value   string
			watched bool
			at      int
			want    time.Duration
		}{{"a", true, 0, 0}, {"a", true, 5, 5 * time.Second}, {"b", true, 6, 0}, {"b", true, 8, 2 * time.Second}, {"b", false, 9, 0}, {"b", true, 12, 0}} {
			if got := qs.Unchanged(q, step.value, step.watched, at(step.at)); got != step.want {
				t.Errorf("%q after %d s: %v, want %v", step.value, step.at, got, step.want)
			}
		}
		qs.Repaired(q, at(20))
		if got := qs.Unchanged(q, "b", true, at(21)); got != time.Second {
			t.Errorf("a second after a repair: %v", got)
		}
		h := &Holder[lock]{Since: time.Now()}
		qs.Took("k", h)
		qs.Gone(h)
		if got := qs.Unchanged(q, "b", true, at(30)); got != 0 {
			t.Errorf("the key was ours in between: unchanged for %v", got)
		}
		qs.Leave(q)
	})
}

// A party is a waiter in TestAnyOrder.
type party struct {
	id     int
	queue  *Queue[lock]
	cancel context.CancelFunc
	grants chan Grant[lock] // closed when its wait has ended
}

// Three properties hold in any order of events. Waiters are served in the order of their arrival. There is one
// head at most, and no head beside a lock of this process, unless the lock was taken past the queue. There is a
// head or a lock of ours as long as there are waiters.
func TestAnyOrder(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { anyOrder(t, rand.New(rand.NewPCG(seed, 0)), seed) })
		if t.Failed() {
			return
		}
	}
}

func anyOrder(t *testing.T, r *rand.Rand, seed uint64) {
	qs, undone := newQueues(t)
	var story []string
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("seed %d: "+format+"\n%s", append(append([]any{seed}, args...), strings.Join(story, "\n"))...)
	}
	var q *Queue[lock]       // of the head
	var here *Holder[lock]   // has the key
	var news <-chan struct{} // wakes the sleeping head
	var waiting []*party
	came, back := 0, 0 // back: locks that were passed on, but found no waiter
	await := func(e *Entry[lock], first bool) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &party{came, e.queue, cancel, make(chan Grant[lock], 1)}
		came++
		at := len(waiting)
		if first {
			at = 0
		}
		waiting = slices.Insert(waiting, at, p)
		go func() {
			defer close(p.grants)
			if g, ok := qs.Await(ctx, e); ok {
				p.grants <- g
			}
		}()
	}
	take := func() {
		here = &Holder[lock]{Since: time.Now()}
		qs.Took("k", here)
	}
	// served lets the first waiter take its grant.
	served := func() {
		synctest.Wait()
		for i, p := range waiting {
			select {
			case g, ok := <-p.grants:
				if i > 0 || !ok {
					fail("%d was served before %d, or gave up by itself: %v", p.id, waiting[0].id, !ok)
				}
				q, news, waiting = p.queue, nil, waiting[1:]
				if g.Passed != nil {
					take()
					qs.Leave(q)
					q = nil
				}
				return
			default:
			}
		}
	}
	for range 60 {
		switch what := r.IntN(8); {
		case what < 3:
			story = append(story, "one comes")
			of, e, _, err := qs.Join("k", time.Minute)
			switch {
			case err != nil:
				fail("%v", err)
			case e != nil:
				await(e, false)
			case q != nil || here != nil || len(waiting) > 0:
				fail("one that came is the head: beside a head %v, beside a lock %v, before %d", q != nil, here != nil, len(waiting))
			default:
				q, news = of, nil
			}
		case what == 3 && len(waiting) > 0:
			i := r.IntN(len(waiting))
			story = append(story, "one gives up")
			waiting[i].cancel()
			synctest.Wait()
			waiting = slices.Delete(waiting, i, i+1)
		case what == 4 && q != nil && here == nil:
			story = append(story, "the head takes it")
			take()
			qs.Leave(q)
			q, news = nil, nil
		case what == 5 && q != nil:
			if r.IntN(2) == 0 {
				story = append(story, "the head gives up")
				of := q
				q, news = nil, nil
				qs.Leave(of)
				break
			}
			story = append(story, "the head sleeps")
			e, n, _, err := qs.Wakeable(q, time.Minute)
			if err != nil || (e != nil) != (here != nil) {
				fail("the head is to wait for a lock of ours: %v, %v", e != nil, err)
			}
			if news = n; e != nil {
				q = nil
				await(e, true)
			}
		case what == 6 && here == nil:
			story = append(story, "it is taken past the queue")
			take()
		case what == 7 && here != nil:
			h, asked := here, q
			if e := qs.Successor(h, r.IntN(4) > 0, time.Minute, time.Now()); e != nil {
				story = append(story, "it is passed on")
				here = nil
				g := Grant[lock]{Passed: &lock{"it"}}
				if r.IntN(4) == 0 {
					story = append(story, "… but was lost")
					g.Passed = nil
				}
				if r.IntN(4) == 0 {
					story = append(story, "… to one that gives up")
					waiting[0].cancel()
					synctest.Wait()
					if waiting = waiting[1:]; len(waiting) == 0 && g.Passed != nil {
						back++
					}
				}
				e.Grant(g)
				if asked != nil {
					fail("passed on beside the head")
				}
				break
			}
			story = append(story, "it is released")
			here = nil
			qs.Released(context.Background(), h, time.Minute, time.Now())
			if asked == nil || news == nil {
				break
			}
			select {
			case <-news:
				if try, _ := qs.Heard(asked); !try {
					fail("the head is not to try")
				}
				news = nil
			default:
				fail("the head sleeps on")
			}
		}
		served()
		if n := qs.Waiting("k"); n != len(waiting) || n > 0 && q == nil && here == nil {
			fail("%d wait, want %d; behind a head: %v; for a lock of ours: %v", n, len(waiting), q != nil, here != nil)
		}
		if len(*undone) != back {
			fail("%d were undone, want %d", len(*undone), back)
		}
		if n := qs.Len(); (n > 0) != (q != nil || here != nil) {
			fail("%d queues", n)
		}
	}
	for _, p := range waiting {
		p.cancel()
	}
	synctest.Wait()
}

// The pause between two looks stays short for a lock that gives out the turns itself: no release wakes the
// client whose turn has come.
func TestPausesOfTurnsStayShort(t *testing.T) {
	for apart, most := range map[bool]time.Duration{true: inTurn * 10 * time.Millisecond, false: 500 * time.Millisecond} {
		qs := Queues[lock]{Now: time.Now, NoHandOff: apart, Pause: 10 * time.Millisecond, Longest: 500 * time.Millisecond}
		q, _, _, err := qs.Join("k", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		longest := time.Duration(0)
		for range 20 {
			_, _, pause, err := qs.Wakeable(q, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			longest = max(longest, pause)
		}
		if longest != most {
			t.Errorf("apart %v: the longest pause is %v, want %v", apart, longest, most)
		}
		qs.Leave(q)
	}
}
