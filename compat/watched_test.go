package compat_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// A dead holder's lock is recovered after it has stood unchanged for a whole
// lease, by a client whose clock is right, an hour ahead or an hour behind: not
// before, and soon after.
func TestPatientRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, skew := range []time.Duration{0, time.Hour, -time.Hour} {
			w := newWorld(t, "2.4")
			a := getsetlock.Patient{Lease: ttl}
			holder, _ := w.client(a)
			dead := try(t, holder, "k")
			k, _ := w.skewed(a, skew)
			if _, err := k.TryLock(background, "k", ttl); !errors.Is(err, protocol.ErrHeld) {
				t.Errorf("skewed by %v: TryLock: %v, want ErrHeld", skew, err)
			}
			var err error
			took := w.until(inBackground(func() { _, err = k.Lock(background, "k", ttl) }))
			drift := ttl - protocol.Until(time.Time{}, ttl).Sub(time.Time{})
			if err != nil || took < ttl+drift || took > ttl+drift+3*time.Second {
				t.Errorf("skewed by %v: recovered after %v, %v; want a lease of %v and a little", skew, took, err, ttl)
			}
			if err := dead.Release(background); !errors.Is(err, protocol.ErrLost) {
				t.Errorf("skewed by %v: the dead holder's Release: %v, want ErrLost", skew, err)
			}
		}
	})
}

// A holder that lives renews its lease, and so changes the value: clients whose
// clocks are wrong by an hour look on.
func TestPatientWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, skew := range []time.Duration{time.Hour, -time.Hour} {
			w := newWorld(t, "2.4")
			a := getsetlock.Patient{Lease: ttl}
			holder := compat.NewOn(w.source(), a, compat.Options{Clock: w.clock})
			k, _ := w.skewed(a, skew)
			got := false
			done := inBackground(func() {
				err := holder.Do(background, "k", ttl, func(held context.Context) error {
					ctx, cancel := context.WithCancel(held)
					end := w.clock.AfterFunc(3*ttl, cancel)
					defer end.Stop()
					_, err := k.Lock(ctx, "k", ttl)
					got = err == nil
					return context.Cause(held)
				})
				if err != nil {
					t.Errorf("skewed by %v: the holder: %v", skew, err)
				}
			})
			w.until(done)
			if got {
				t.Errorf("skewed by %v: taken while its holder renewed it", skew)
			}
		}
	})
}

// A holder whose dialect counts in seconds writes the same value again within one: it may have renewed its lease at that
// second's end.
func TestPatientWaitsForAUnit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, d := range getsetlock.Dialects() {
			const ttl = 3 * time.Second
			w := newWorld(t, "2.4")
			a := getsetlock.Patient{Options: getsetlock.Options{Dialect: d}, Lease: ttl}
			holder, _ := w.client(a)
			w.clock.Add(100 * time.Millisecond)
			lock, err := holder.TryLock(background, "k", ttl)
			if err != nil {
				t.Fatal(err)
			}
			k, _ := w.skewed(a, time.Hour)
			var after error
			done := inBackground(func() {
				_, err = k.Lock(background, "k", ttl)
				after = context.Cause(lock.Context())
			})
			synctest.Wait() // it has seen the value
			w.clock.Add(800 * time.Millisecond)
			if err := lock.Extend(background, ttl); err != nil {
				t.Fatal(err)
			}
			if w.until(done); err != nil || !errors.Is(after, compat.ErrLost) {
				t.Errorf("%s: %v; the holder's context has ended with %v, want ErrLost", d.Name, err, after)
			}
		}
	})
}

// Every change of the value begins the watch anew: a lock that passes from hand
// to hand is nobody's to remove, however long it is looked at.
func TestPatientBeginsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "2.4")
		a := getsetlock.Patient{Lease: ttl}
		k, _ := w.client(a)
		w.do("SET", "k", "1330837567.000000000000000")
		var err error
		done := inBackground(func() { _, err = k.Lock(background, "k", ttl) })
		for n := range 6 {
			select {
			case <-done:
				t.Fatalf("taken after %d changes, %v", n, err)
			default:
				for range 16 { // eight seconds, less than a lease
					w.clock.Add(500 * time.Millisecond)
				}
				w.do("SET", "k", "1330837567.00000000000000"+string(rune('1'+n)))
			}
		}
		if took := w.until(done); err != nil || took < ttl {
			t.Errorf("taken %v after the last change, %v; want a whole lease", took, err)
		}
	})
}

// What is no time of the dialect is never removed, however long it stands.
func TestPatientLeavesStrangers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "2.4")
		const token = "94213c24e0f911f0a9d30242ac120002"
		w.do("SET", "k", token)
		k, _ := w.client(getsetlock.Patient{Lease: ttl})
		ctx, cancel := context.WithCancel(background)
		w.clock.AfterFunc(3*ttl, cancel)
		var err error
		w.until(inBackground(func() { _, err = k.Lock(ctx, "k", ttl) }))
		if !errors.Is(err, context.Canceled) || w.value("k") != token {
			t.Errorf("%v, and the key holds %q", err, w.value("k"))
		}
	})
}

// Between the last look and the removal the holder renews: it keeps the lock.
func TestPatientTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "2.4")
	a := getsetlock.Patient{Lease: ttl}
	c := protocol.NewConn(w.server.Dial())
	defer c.Close()
	w.do("SET", "k", "1330837567.000000000000001")
	st, err := a.Inspect(c, w.clock.Now(), "k")
	if err != nil || st.Watch < ttl || st.Status != protocol.StatusHeld {
		t.Fatalf("%+v, %v", st, err)
	}
	w.do("SET", "k", "1330837577.000000000000002")
	ch, err := a.Traits().Repair(w.clock.Now(), st, ttl)
	if err == nil {
		_, err = c.Run(ch)
	}
	if !errors.Is(err, protocol.ErrLost) || w.value("k") != "1330837577.000000000000002" {
		t.Errorf("Repair: %v, the key holds %q", err, w.value("k"))
	}
	for _, d := range []time.Duration{ttl + 1, time.Hour} {
		if _, err := a.Acquire(c, w.clock.Now(), "other", d); !errors.Is(err, protocol.ErrInvalid) {
			t.Errorf("a ttl of %v beside a Lease of %v: %v, want ErrInvalid", d, ttl, err)
		}
	}
}
