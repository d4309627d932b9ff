package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// fleets are those that an extension is different for: tokens stay, stamps
// change.
var fleets = map[string][]member{"of five ages": fleet, "of stamps": stamps}

// A majority extends a lease; the others follow when they can.
func TestExtendByMajority(t *testing.T) {
	for name, members := range fleets {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, members)
			q, wires := w.quorum(redlock.Options{})
			first := w.acquire(q, "job")
			w.clock.Add(5 * time.Second)
			wires[0].Cut()
			wires[3].Cut()
			l, err := q.Extend(background, w.clock.Now, first, ttl)
			if err != nil {
				t.Fatal(err)
			}
			if want := protocol.Until(w.clock.Now(), ttl); !l.Until.Equal(want) {
				t.Errorf("Until %v, want %v", l.Until, want)
			}
			wires[0].Clear() // in time: the part that was left behind follows
			wires[3].Clear()
			if l, err = q.Extend(background, w.clock.Now, l, 2*ttl); err != nil {
				t.Fatal(err)
			}
			w.clock.Add(ttl)
			w.wantHeld("job", "xxxxx")
			if got, want := l.Value, strings.Join(w.values("job"), ","); got != want {
				t.Errorf("Value %q, want what the servers hold: %q", got, want)
			}
			must.Do(t, q.Release(background, w.clock.Now, l))
			w.wantHeld("job", "-----")
		})
	}
}

// An extension that reaches too few leaves the lease as it is, and what it did
// change is known: the next one, or the release, finds the new values.
func TestExtendByTooFew(t *testing.T) {
	for name, members := range fleets {
		for _, f := range []faulty.Fate{lost, unanswered} {
			t.Run(fmt.Sprint(name, f.Loss), func(t *testing.T) {
				w := newWorld(t, members)
				q, wires := w.quorum(redlock.Options{})
				k := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock})
				lock, err := k.TryLock(background, "job", ttl)
				if err != nil {
					t.Fatal(err)
				}
				until := lock.Until()
				for try := range 3 {
					w.clock.Add(time.Second)
					for _, x := range wires[2:] { // dies with our request, which may have run
						x.Expect(dies(f).Of("EXEC", "EVALSHA"))
					}
					err = lock.Extend(background, ttl)
					if err == nil || errors.Is(err, compat.ErrLost) || !errors.Is(err, compat.ErrUnknown) {
						t.Fatalf("try %d: two extended, three unknown: %v, want ErrUnknown", try, err)
					}
					for _, x := range wires {
						x.Cut()
					}
					if err := lock.Extend(background, ttl); err == nil || errors.Is(err, compat.ErrLost) || errors.Is(err, compat.ErrUnknown) {
						t.Fatalf("try %d: nobody answers: %v, want a definite error, and not lost", try, err)
					}
					for _, x := range wires {
						x.Clear()
					}
				}
				if lock.Context().Err() != nil || !lock.Until().Equal(until) {
					t.Errorf("Until %v, want %v as before", lock.Until(), until)
				}
				w.wantHeld("job", "xxxxx")
				if err := lock.Extend(background, ttl); err != nil {
					t.Errorf("all answer again: %v", err)
				}
				if got, want := lock.Token(), strings.Join(w.values("job"), ","); got != want {
					t.Errorf("Token %q, want what the servers hold: %q", got, want)
				}
				must.Do(t, lock.Release(background))
				w.wantHeld("job", "-----")
			})
		}
	}
}

// When a majority has forgotten the lease it is lost, and what is left of it is
// released.
func TestExtendLost(t *testing.T) {
	for name, members := range fleets {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, members)
			q, _ := w.quorum(redlock.Options{})
			k := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock})
			lock := must.Get(k.TryLock(background, "job", ttl))(t)
			w.servers[0].FlushAll()
			w.servers[4].FlushAll()
			if err := lock.Extend(background, ttl); err != nil {
				t.Fatalf("two of five have forgotten: %v", err)
			}
			if got, want := lock.Token(), strings.Join(w.values("job"), ","); got != want {
				t.Errorf("Token %q, want what the servers hold: %q", got, want)
			}
			w.wantHeld("job", "xxxxx")
			for _, s := range w.servers[2:] {
				s.FlushAll()
			}
			if err := lock.Extend(background, ttl); !errors.Is(err, compat.ErrLost) || lock.Context().Err() == nil {
				t.Errorf("three of five have forgotten: %v, want ErrLost and the end of the context", err)
			}
			w.wantHeld("job", "-----")
			if err := lock.Release(background); !errors.Is(err, compat.ErrLost) {
				t.Errorf("Release: %v, want ErrLost", err)
			}
		})
	}
}

// A shorter lease that reached some servers and not others is believed to end when the shorter
// one does, unless a majority is known to have the longer one still. Whatever reply is lost,
// the lock goes on from there: it is extended again, and released.
func TestShortenByTooFew(t *testing.T) {
	for _, test := range []struct {
		name    string
		fate    faulty.Fate
		away    []int // servers on which it meets that fate, each with its own death
		unknown bool  // want ErrUnknown and the shorter end, else a definite error and the longer one
	}{
		{"two of five shortened, three not reached", faulty.Fate{}, []int{0, 1, 2}, false},
		{"the replies of three lost", unanswered, []int{1, 2, 3}, true},
		{"the replies of all lost", unanswered, []int{0, 1, 2, 3, 4}, true},
		{"the requests of three lost", lost, []int{2, 3, 4}, true},
	} {
		for name, members := range fleets {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				w := newWorld(t, members)
				q, wires := w.quorum(redlock.Options{})
				k := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock})
				lock, err := k.TryLock(background, "job", time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				long, short := lock.Until(), protocol.Until(w.clock.Now(), ttl)
				for _, i := range test.away {
					if test.fate.Loss == faulty.None {
						wires[i].Cut()
					} else {
						wires[i].Expect(dies(test.fate).Of("EXEC", "EVALSHA", "EVAL", "DEL"))
					}
				}
				want := long
				if test.unknown {
					want = short
				}
				err = lock.Extend(background, ttl)
				if err == nil || errors.Is(err, compat.ErrLost) || errors.Is(err, compat.ErrUnknown) != test.unknown {
					t.Errorf("%v, want an error, not ErrLost, and ErrUnknown: %v", err, test.unknown)
				}
				if !lock.Until().Equal(want) {
					t.Errorf("Until is %v away, want %v", lock.Until().Sub(w.clock.Now()), want.Sub(w.clock.Now()))
				}
				w.wantHeld("job", "xxxxx")
				for _, x := range wires {
					x.Clear()
				}
				w.clock.Add(time.Second)
				if err := lock.Extend(background, time.Minute); err != nil {
					t.Fatalf("all answer again: %v", err)
				}
				if want := protocol.Until(w.clock.Now(), time.Minute); !lock.Until().Equal(want) {
					t.Errorf("extended again, Until is %v away, want %v", lock.Until().Sub(w.clock.Now()), want.Sub(w.clock.Now()))
				}
				must.Do(t, lock.Release(background))
				w.wantHeld("job", "-----")
			})
		}
	}
}

// A part in doubt is not known to have the old end: a shorter one that another server has is believed.
func TestShortenBesideDoubts(t *testing.T) {
	w, q, wires := alike(t, 3, redlock.Options{})
	l, err := q.Acquire(background, w.clock.Now, "job", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range wires[1:] {
		x.Expect(dies(lost).Of("EVALSHA", "EVAL"))
	}
	if l, err = q.Extend(background, w.clock.Now, l, time.Minute); !errors.Is(err, compat.ErrUnknown) {
		t.Fatalf("one of three extended: %v, want ErrUnknown", err)
	}
	l, err = q.Extend(background, w.clock.Now, l, ttl)
	if want := protocol.Until(w.clock.Now(), ttl); !errors.Is(err, compat.ErrUnknown) || !l.Until.Equal(want) {
		t.Errorf("one of three shortened: %v, until %v; want ErrUnknown, and %v", err, l.Until, want)
	}
}

// One server that has forgotten the lease and one that does not answer are no loss yet.
func TestExtendOneLostOneAway(t *testing.T) {
	w, q, wires := alike(t, 3, redlock.Options{})
	l := w.acquire(q, "job")
	w.servers[0].FlushAll()
	wires[1].Cut()
	if _, err := q.Extend(background, w.clock.Now, l, ttl); err == nil || errors.Is(err, compat.ErrLost) {
		t.Errorf("%v, want an error, and not ErrLost", err)
	}
	w.wantHeld("job", "-xx")
}

// An extension that takes longer than the lease lasts, or than its own ttl, loses the lock.
func TestExtendTooSlowly(t *testing.T) {
	for name, c := range map[string]struct {
		ttl, takes time.Duration
		cut        []int
	}{
		"than its own ttl":                    {2 * time.Second, 3 * time.Second, nil},
		"than the lease, and reaches too few": {time.Minute, ttl, []int{1, 2}},
	} {
		w, q, wires := alike(t, 3, redlock.Options{Sequential: true})
		l := w.acquire(q, "job")
		for _, i := range c.cut {
			wires[i].Cut()
		}
		wires[0].OnDial(func(context.Context) error { w.clock.Add(c.takes); return nil })
		if _, err := q.Extend(background, w.clock.Now, l, c.ttl); !errors.Is(err, compat.ErrLost) {
			t.Errorf("slower %s: %v, want ErrLost", name, err)
		}
	}
}

// A release waits for those that may have lost the lock, as long as it is their word that decides.
func TestReleaseLearnsOfTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q, wires := alike(t, 5, redlock.Options{})
		l := w.acquire(q, "job")
		for _, i := range []int{0, 1, 3} {
			w.servers[i].FlushAll()
		}
		open := slow(wires[3])
		t.Cleanup(open)
		so := func() bool { return wires[3].hangs() && w.held("job") == "-----" && rest(wires) }
		var err error
		w.in(func() { err = q.Release(background, w.clock.Now, l) },
			step{so, 60 * time.Millisecond}, step{so, 60 * time.Millisecond}, step{func() bool { open(); return true }, 0})
		if !errors.Is(err, compat.ErrLost) {
			t.Errorf("three of five have forgotten, the third of them says so late: %v, want ErrLost", err)
		}
	})
}

// An extension asks for new values where Grant.Rotate does, and for a part in doubt: what was
// sent to it before must have no effect any more.
func TestRotation(t *testing.T) {
	w, q, wires := alike(t, 3, redlock.Options{})
	l := w.acquire(q, "job")
	was := w.values("job")
	changed := func() string {
		marks := ""
		for i, v := range w.values("job") {
			marks += map[bool]string{true: "x", false: "-"}[v != was[i]]
		}
		was = w.values("job")
		return marks
	}
	wires[1].Cut()
	l, err := q.Extend(background, w.clock.Now, l, ttl)
	if got := changed(); err != nil || got != "---" {
		t.Errorf("%v, and %s are new", err, got)
	}
	wires[1].Clear()
	l, err = q.Extend(background, w.clock.Now, l, ttl)
	if got := changed(); err != nil || got != "-x-" {
		t.Errorf("after one that did not reach the second: %v, and %s are new; want that one", err, got)
	}
	l.Rotate = true
	l, err = q.Extend(background, w.clock.Now, l, ttl)
	if got := changed(); err != nil || got != "xxx" || l.Rotate {
		t.Errorf("with Rotate: %v, and %s are new; want all", err, got)
	}
	must.Do(t, q.Release(background, w.clock.Now, l))
	w.wantHeld("job", "---")
}

// A release is done when others can have a majority. It is lost when no
// majority was ours, and unknown when too few servers say.
func TestRelease(t *testing.T) {
	for _, test := range []struct {
		cut, flush []int
		want       error
		left       string
	}{
		{nil, nil, nil, "-----"},
		{[]int{1, 4}, nil, nil, "-x--x"},
		{[]int{1, 2, 4}, nil, compat.ErrUnknown, "-xx-x"},
		{nil, []int{0, 1}, nil, "-----"},
		{nil, []int{0, 1, 2}, compat.ErrLost, "-----"},
		{[]int{3, 4}, []int{0}, nil, "---xx"},
		{[]int{4}, []int{0, 1, 2}, compat.ErrLost, "----x"},
	} {
		w := newWorld(t, fleet)
		q, wires := w.quorum(redlock.Options{})
		k := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock})
		lock := must.Get(k.TryLock(background, "job", ttl))(t)
		for _, i := range test.cut {
			wires[i].Cut()
		}
		for _, i := range test.flush {
			w.servers[i].FlushAll()
		}
		if err := lock.Release(background); !errors.Is(err, test.want) || err != nil && !errors.As(err, new(*redlock.Error)) {
			t.Errorf("%v are away, %v have forgotten: %v, want %v", test.cut, test.flush, err, test.want)
		}
		w.wantHeld("job", test.left)
		for _, x := range wires {
			x.Clear()
		}
		if errors.Is(test.want, compat.ErrUnknown) {
			if err := lock.Release(background); err != nil {
				t.Errorf("Release once more: %v", err)
			}
			w.wantHeld("job", "-----")
		}
	}
}

// A release for which too few connections could be had is unknown, even if the
// servers can be read a moment later.
func TestReleaseNotSent(t *testing.T) {
	w := newWorld(t, fleet)
	q, wires := w.quorum(redlock.Options{})
	lock := must.Get(compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock}).TryLock(background, "job", ttl))(t)
	for _, x := range wires[:3] { // neither to release nor to look
		left := 2
		x.OnDial(func(context.Context) error {
			if left--; left >= 0 {
				return syscall.ECONNREFUSED
			}
			return nil
		})
	}
	if err := lock.Release(background); !errors.Is(err, compat.ErrUnknown) || errors.Is(err, compat.ErrLost) {
		t.Errorf("Release, three of five not reached: %v, want ErrUnknown", err)
	}
	w.wantHeld("job", "xxx--")
	if err := lock.Release(background); err != nil {
		t.Errorf("Release once more: %v", err)
	}
	w.wantHeld("job", "-----")
}

// A handle is enough for another process with the same list, as long as a
// majority says so.
func TestHandle(t *testing.T) {
	for name, members := range fleets {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, members)
			q, wires := w.quorum(redlock.Options{})
			wires[1].Cut()
			lock, err := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock}).TryLock(background, "job", ttl)
			if err != nil {
				t.Fatal(err)
			}
			var h compat.Handle
			must.Do(t, h.UnmarshalText([]byte(lock.Handle().String())))

			there, wires := w.quorum(redlock.Options{})
			k := compat.NewLocker(there, compat.Options{NoRenew: true, Clock: w.clock})
			wires[0].Cut()
			adopted := must.Get(k.AdoptHandle(background, h, 2*ttl))(t)
			must.Do(t, adopted.Extend(background, 2*ttl))
			wires[2].Cut()
			wires[4].Cut()
			_, err = k.AdoptHandle(background, adopted.Handle(), ttl)
			if err == nil || errors.Is(err, compat.ErrLost) || limit.Brought(err) != syscall.ECONNREFUSED {
				t.Errorf("two of five answer: %v, want that too few do", err)
			}
			for _, x := range wires {
				x.Clear()
			}
			must.Do(t, k.ReleaseHandle(background, adopted.Handle()))
			w.wantHeld("job", "-----")
			if _, err := k.AdoptHandle(background, h, ttl); !errors.Is(err, compat.ErrLost) {
				t.Errorf("after the release: %v, want ErrLost", err)
			}

			three, _ := (&world{t: t, clock: w.clock, members: members[:3], servers: w.servers[:3]}).quorum(redlock.Options{})
			_, err = compat.NewLocker(three, compat.Options{NoRenew: true, Clock: w.clock}).AdoptHandle(background, h, ttl)
			if !errors.Is(err, compat.ErrLost) || !errors.Is(err, compat.ErrInvalid) {
				t.Errorf("by a quorum of three: %v, want ErrLost and ErrInvalid", err)
			}
		})
	}
}

// A lease that is found lasts until it is on no majority any more.
func TestFindUntil(t *testing.T) {
	w, q, _ := alike(t, 5, redlock.Options{})
	l := w.acquire(q, "job")
	for i, seconds := range []int{50, 10, 40, 20, 30} {
		w.do(i, "EXPIRE", "job", seconds)
	}
	found, err := q.Find(background, w.clock.Now, "job", l.Value)
	if err != nil || found.Until.Sub(w.clock.Now()) != 31*time.Second || !found.Ambiguous {
		t.Errorf("%+v, %v; want 30 s, when two of five will be left, and one in which a server that counts in seconds may still have it", found, err)
	}
	for i := range 3 {
		w.do(i, "PERSIST", "job")
	}
	found, err = q.Find(background, w.clock.Now, "job", l.Value)
	if err != nil || !w.clock.Now().Before(found.Until) {
		t.Errorf("without an end on three: %+v, %v; want one that is to come", found, err)
	}
	l = must.Get(q.Extend(background, w.clock.Now, found, ttl))(t)
	if st, err := q.Inspect(background, w.clock.Now, "job"); err != nil || st.Status != compat.StatusHeld || st.Value != l.Value {
		t.Errorf("after the extension: %+v, %v; want held", st, err)
	}
}

// A lease that is found is in doubt on every server that it may be on, and gone where it is not.
func TestFindDoubts(t *testing.T) {
	w, q, wires := alike(t, 5, redlock.Options{})
	l := w.acquire(q, "job")
	w.servers[0].FlushAll()
	wires[1].Cut()
	found, err := q.Find(background, w.clock.Now, "job", l.Value)
	parts := strings.Split(l.Value, ",")
	if want := ",~" + strings.Join(parts[1:], ",~"); err != nil || found.Value != want {
		t.Errorf("Value %q, %v; want %q", found.Value, err, want)
	}
}

// What is remembered of extensions that did not reach a majority is forgotten when their leases have ended.
func TestEndedIsForgotten(t *testing.T) {
	w, q, wires := alike(t, 3, redlock.Options{})
	for n := range 100 {
		l := w.acquire(q, fmt.Sprint("job", n))
		for _, x := range wires[1:] {
			x.Expect(dies(unanswered).Of("EVALSHA", "EVAL"))
		}
		if _, err := q.Extend(background, w.clock.Now, l, ttl); !errors.Is(err, compat.ErrUnknown) {
			t.Fatalf("one of three extended: %v, want ErrUnknown", err)
		}
		for _, x := range wires {
			x.Clear()
		}
		w.clock.Add(time.Minute)
	}
	if n := q.Remembered(); n > 20 {
		t.Errorf("%d of 100 are remembered, a minute from one to the next", n)
	}
}

// A key that tells no end to be believed is watched by a quorum's waiters too,
// and removed when it has not changed for that long.
func TestWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		patient := getsetlock.Patient{Lease: 3 * ttl}
		w := newWorld(t, slices.Repeat([]member{{"2.4", patient}}, 3))
		q, _ := w.quorum(redlock.Options{Timeout: time.Hour})
		w.acquire(q, "job") // and its client dies
		if st, err := q.Inspect(background, w.clock.Now, "job"); err != nil || st.Watch < 3*ttl {
			t.Errorf("Inspect: %+v, %v; want it to be watched for a lease", st, err)
		}
		w.untilLocked(q, 3*ttl)
	})
}

// Clients that give all servers one token have it said once.
func TestOneToken(t *testing.T) {
	one := setlock.Options{Token: func() string { return "host,7*" }}
	w := newWorld(t, []member{{"7.0", setlock.Lua{Options: one}}, {"7.0", setlock.Watched{Options: one}}, {"7.0", setlock.Lua{Options: one}}})
	q, _ := w.quorum(redlock.Options{})
	l := w.acquire(q, "job")
	if want := "*host%2c7%2a"; l.Value != want {
		t.Errorf("Value %q, want %q", l.Value, want)
	}
	if l, err := q.Extend(background, w.clock.Now, l, ttl); err != nil || l.Value != "*host%2c7%2a" {
		t.Errorf("Extend: %q, %v", l.Value, err)
	}
	if st, err := q.Inspect(background, w.clock.Now, "job"); err != nil || st.Value != l.Value || len(st.Holders) != 3 || st.Holders[1].Value != "host,7*" {
		t.Errorf("Inspect: %+v, %v", st, err)
	}
	must.Do(t, q.Release(background, w.clock.Now, l))
	w.wantHeld("job", "---")
}

// What is left of a lease that has run out is no vote: beside it the holder's value is the lock's.
func TestInspectBesideWhatHasRunOut(t *testing.T) {
	w := newWorld(t, fleet)
	w.do(0, "SET", "job", fmt.Sprint(w.clock.Now().Unix()-5))
	q, wires := w.quorum(redlock.Options{})
	wires[0].Cut() // it does not take what is left there
	l := w.acquire(q, "job")
	other, _ := w.quorum(redlock.Options{})
	st, err := other.Inspect(background, w.clock.Now, "job")
	if err != nil || st.Status != compat.StatusHeld || !st.Holds(l.Value) || len(st.Holders) != 4 || st.Format != "votes of 4 of 5 servers" {
		t.Errorf("%+v, %v; want %q held by four", st, err, l.Value)
	}
}

// Inspect says what an attempt would meet.
func TestInspect(t *testing.T) {
	classic := txlock.Classic{}
	for _, test := range []struct {
		name   string
		setUp  func(w *world, q *redlock.Quorum, wires []*wire)
		status compat.Status
		votes  int
		ends   bool
	}{
		{"nothing", func(*world, *redlock.Quorum, []*wire) {}, compat.StatusFree, 0, false},
		{"a lock", func(w *world, q *redlock.Quorum, _ []*wire) { w.acquire(q, "job") }, compat.StatusHeld, 5, true},
		{"a lock, two away", func(w *world, q *redlock.Quorum, wires []*wire) {
			w.acquire(q, "job")
			wires[0].Cut()
			wires[2].Cut()
		}, compat.StatusHeld, 3, true},
		{"left on two", func(w *world, q *redlock.Quorum, wires []*wire) {
			w.do(1, "SETEX", "job", 100, "x")
			w.do(2, "SETEX", "job", 100, "y")
		}, compat.StatusDead, 2, false},
		{"left on two, one away", func(w *world, q *redlock.Quorum, wires []*wire) {
			w.do(1, "SETEX", "job", 100, "x")
			w.do(2, "SETEX", "job", 50, "y")
			wires[0].Cut()
		}, compat.StatusHeld, 2, true},
		{"left on two, two away", func(w *world, q *redlock.Quorum, wires []*wire) {
			w.do(1, "SETEX", "job", 100, "x")
			w.do(2, "SETEX", "job", 50, "y")
			wires[0].Cut()
			wires[3].Cut()
		}, compat.StatusHeld, 2, true},
		{"without an end on two", func(w *world, q *redlock.Quorum, wires []*wire) {
			w.acquire(q, "job")
			w.do(1, "PERSIST", "job")
			w.do(2, "PERSIST", "job")
		}, compat.StatusHeld, 5, true},
		{"without an end on three", func(w *world, q *redlock.Quorum, wires []*wire) {
			w.acquire(q, "job")
			for i := range 3 {
				w.do(i, "PERSIST", "job")
			}
		}, compat.StatusPersistent, 5, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, slices.Repeat([]member{{"2.4", classic}}, 5))
			q, wires := w.quorum(redlock.Options{})
			test.setUp(w, q, wires)
			st, err := q.Inspect(background, w.clock.Now, "job")
			if err != nil || st.Status != test.status || len(st.Holders) != test.votes || st.Until.IsZero() == test.ends {
				t.Errorf("%+v, %v; want %s, %d votes", st, err, test.status, test.votes)
			}
		})
	}
	w := newWorld(t, slices.Repeat([]member{{"2.4", getsetlock.Guarded{}}}, 3))
	q, _ := w.quorum(redlock.Options{})
	w.do(0, "SET", "job", "not a time")
	w.do(1, "SET", "job", "nor this")
	if st, err := q.Inspect(background, w.clock.Now, "job"); err != nil || st.Status != compat.StatusForeign {
		t.Errorf("two of three are no locks: %+v, %v; want foreign", st, err)
	}
}

// Keys that were left without an end on a majority are given one, after a whole
// ttl, as on one server.
func TestRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, slices.Repeat([]member{{"2.4", txlock.Classic{}}}, 3))
		for i := range 3 {
			w.do(i, "SETNX", "job", fmt.Sprintf("%032x", i)) // and its client died
		}
		q, _ := w.quorum(redlock.Options{Timeout: time.Hour})
		w.untilLocked(q, 2*ttl) // one to watch, one to end
	})
}
