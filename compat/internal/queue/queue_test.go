package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A lock is what the tests pass on.
type lock struct{ name string }

func newQueues(t *testing.T) (qs *Queues[lock], undone *[]string) {
	undone = new([]string)
	return &Queues[lock]{
		Now: time.Now, Handoffs: 2, Pause: 10 * time.Millisecond,
		Undo: func(_ context.Context, p *lock) { *undone = append(*undone, p.name) },
		Run:  func(f func()) { go f() },
	}, undone
}

// A waiter is one goroutine in Join and Await.
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
	q, e, err := qs.Join(key)
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
	q, e, err := qs.Join(key)
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

// Those who wait become the head in the order in which they came, past one that gave up.
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

// While a lock of this process has the key nobody is the head; its release passes it on, and
// after its turns lets others have theirs.
func TestTurns(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
		q := head(t, qs, "k")
		h := new(Holder[lock])
		qs.Took("k", h, time.Now())
		qs.Leave(q)
		const ttl = time.Minute
		for turn := range qs.Handoffs {
			w := wait(t, qs, "k")
			e, _ := qs.Successor(h, true, ttl, time.Now())
			if e == nil {
				t.Fatalf("turn %d: not passed on", turn)
			}
			e.Grant(Grant[lock]{Passed: &lock{"it"}})
			synctest.Wait()
			if w.grant.Passed == nil {
				t.Fatalf("turn %d: %+v", turn, w)
			}
			h = new(Holder[lock])
			qs.Took("k", h, time.Now())
			qs.Leave(q)
		}
		w := wait(t, qs, "k")
		if e, signal := qs.Successor(h, true, ttl, time.Now()); e != nil || !signal {
			t.Fatalf("after its turns: passed on %v, signals %v", e != nil, signal)
		}
		time.Sleep(seldom * qs.Pause)
		qs.Released(h, false, ttl)
		synctest.Wait()
		if !w.ok || !w.grant.Yield {
			t.Errorf("after its turns: %+v, want it to pause for others", w.grant)
		}
		qs.Leave(q)
	})
}

// With signals it takes more turns while nobody waits elsewhere: not for ever, and not when it can't be
// asked in time.
func TestTurnsOfOneThatIsAlone(t *testing.T) {
	for _, test := range []struct {
		name  string
		takes time.Duration // to ask
		waits bool          // somebody elsewhere
		want  int           // how many times as many turns
	}{{"alone", 0, false, alone}, {"somebody waits", 0, true, 1}, {"an answer that comes too late", time.Hour, false, 1}} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
				qs.Signals = &Signals{Anyone: func(string) bool { time.Sleep(test.takes); return test.waits }}
				q := head(t, qs, "k")
				h := new(Holder[lock])
				qs.Took("k", h, time.Now())
				qs.Leave(q)
				turns := 0
				for ; ; turns++ {
					w := wait(t, qs, "k")
					e, _ := qs.Successor(h, true, time.Minute, time.Now())
					if e == nil {
						qs.Released(h, false, time.Minute)
						synctest.Wait()
						qs.Leave(q)
						break
					}
					e.Grant(Grant[lock]{Passed: &lock{"it"}})
					synctest.Wait()
					if w.grant.Passed == nil {
						t.Fatalf("turn %d: %+v", turns, w)
					}
					h = new(Holder[lock])
					qs.Took("k", h, time.Now())
					qs.Leave(q)
				}
				if turns != test.want*qs.Handoffs {
					t.Errorf("%d turns, want %d", turns, test.want*qs.Handoffs)
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// A lock that is passed on to one that has given up goes to the next, and from the last back.
func TestPassedTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], undone *[]string) {
		q := head(t, qs, "k")
		h := new(Holder[lock])
		qs.Took("k", h, time.Now())
		qs.Leave(q)
		first, second := wait(t, qs, "k"), wait(t, qs, "k")
		e, _ := qs.Successor(h, true, time.Minute, time.Now())
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
		h = new(Holder[lock])
		qs.Took("k", h, time.Now())
		qs.Leave(q)
		last := wait(t, qs, "k")
		e, _ = qs.Successor(h, true, time.Minute, time.Now())
		last.cancel()
		synctest.Wait()
		e.Grant(Grant[lock]{Passed: &lock{"it"}})
		synctest.Wait()
		if last.ok || len(*undone) != 1 {
			t.Errorf("%+v, undone %v", last, *undone)
		}
	})
}

// Close and Fail end every wait; nobody waits after Close.
func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
		q := head(t, qs, "k")
		why := errors.New("why")
		w := wait(t, qs, "k")
		qs.Fail(q, why)
		synctest.Wait()
		if w.grant.Failed != why {
			t.Errorf("Fail: %+v", w.grant)
		}
		w = wait(t, qs, "k")
		_, news, _, _ := qs.Wakeable(q)
		qs.Close()
		synctest.Wait()
		<-news
		if _, err := qs.Heard(q); !errors.Is(w.grant.Failed, ErrClosed) || !errors.Is(err, ErrClosed) {
			t.Errorf("Close: a waiter gets %v, the head %v", w.grant.Failed, err)
		}
		if _, _, err := qs.Join("k"); !errors.Is(err, ErrClosed) {
			t.Errorf("Join: %v", err)
		}
		qs.Leave(q)
	})
}

// A head of whose key a lock of this process is taken past the queue waits for it, first of all.
func TestTakenPastTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
		q := head(t, qs, "k")
		behind := wait(t, qs, "k")
		h := new(Holder[lock])
		qs.Took("k", h, time.Now())
		e, _, _, err := qs.Wakeable(q)
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

// A wake-up that comes wakes the head; one that comes to nobody goes on to a client elsewhere.
func TestSignals(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
		wake, elsewhere, left := make(chan struct{}), 0, 0
		qs.Signals = &Signals{
			Listen: func(ctx context.Context, _ string, registered func()) (bool, func(bool)) {
				registered()
				select {
				case <-wake:
					return true, nil
				case <-ctx.Done():
					return false, func(bool) { left++ }
				}
			},
			Wake: func(string) { elsewhere++ },
		}
		q := head(t, qs, "k")
		_, news, _, _ := qs.Wakeable(q)
		synctest.Wait()
		if _, _, listening, _ := qs.Wakeable(q); !listening {
			t.Error("nobody listens")
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
		qs.Wakeable(q) //nolint:errcheck
		synctest.Wait()
		qs.Leave(q)
		synctest.Wait()
		if left != 1 {
			t.Errorf("%d listeners took their registration back", left)
		}
	})
}

// What stands unchanged is counted across heads, and anew for another value.
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
		qs.Leave(q)
	})
}
