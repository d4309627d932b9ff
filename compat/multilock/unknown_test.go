package multilock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// lose loses message n, and those that follow if all is set.
func lose(n int, l faulty.Loss, all bool) faulty.Hook {
	return func(m faulty.Message) faulty.Fate {
		if m.N == n || all && m.N > n {
			return faulty.Fate{Loss: l}
		}
		return faulty.Fate{}
	}
}

// eachFault runs f for each way to lose messages from the n-th on, for n = 1, 2, … until f says
// that the n-th was never sent.
func eachFault(f func(n int, fault faulty.Hook) (sent int)) {
	for n := 1; ; n++ {
		most := 0
		for _, fault := range []faulty.Loss{faulty.LostRequest, faulty.LostReply} {
			for _, all := range []bool{false, true} {
				most = max(most, f(n, lose(n, fault, all)))
			}
		}
		if n > most {
			return
		}
	}
}

// Whatever messages are lost while a set is extended to a shorter ttl, the lock never claims to
// end later than any of its keys does, and the next extension or the release tells the truth.
func TestShorterExtension(t *testing.T) {
	const long, short = 60 * time.Second, 5 * time.Second
	everywhere(t, func(w world) {
		keys := []string{"a", "b", "c"}
		start := w.server.Snapshot()
		eachFault(func(n int, fault faulty.Hook) int {
			w.server.Restore(start)
			net := new(faulty.Network)
			lock := must.Get(w.behind(net).TryLock(background, multilock.Join(keys...), long))(w.t)
			net.Expect(fault)
			extended := lock.Extend(background, short)
			sent := net.Count()
			net.Expect(nil)
			if errors.Is(extended, compat.ErrLost) {
				w.t.Errorf("message %d: %v, although nobody touched the keys", n, extended)
				return sent
			}
			for _, k := range keys {
				st := must.Get(w.singles().Inspect(background, k))(w.t)
				if lock.Until().After(st.Until) {
					w.t.Errorf("message %d: Until is %v, and %s ends at %v; extended: %v", n, lock.Until(), k, st.Until, extended)
				}
			}
			if err := lock.Release(background); err != nil {
				w.t.Errorf("message %d: released after %v: %v", n, extended, err)
			}
			w.free(keys...)
			return sent
		})
	})
}

// A shortened key, and a server that can't be reached for the next: no reply is lost, and the
// lock ends with the first key.
func TestShortenedInPart(t *testing.T) {
	a, b := oldredis.Run(t, "2.2"), oldredis.Run(t, "2.2")
	net := new(faulty.Network)
	k := compat.NewLocker(multilock.New(two(a, net.Pool(b)), txlock.Guarded{}), compat.Options{NoRenew: true})
	lock, err := k.TryLock(background, multilock.Join("0", "1"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	net.Cut()
	err = lock.Extend(background, 5*time.Second)
	if !errors.Is(err, compat.ErrUnknown) || time.Until(lock.Until()) > 5*time.Second {
		t.Errorf("%v, and ends in %v; want ErrUnknown, and 5 s", err, time.Until(lock.Until()))
	}
	net.Mend()
	if err := lock.Extend(background, time.Minute); err != nil || time.Until(lock.Until()) < 50*time.Second {
		t.Errorf("%v, and ends in %v; want it extended", err, time.Until(lock.Until()))
	}
	must.Do(t, lock.Release(background))
}

// A release that finds one key gone and hears nothing of another says both, on one line.
func TestReleasePartlyLost(t *testing.T) {
	everywhere(t, func(w world) {
		both := false
		eachFault(func(n int, fault faulty.Hook) int {
			net := new(faulty.Network)
			lock := must.Get(w.behind(net).TryLock(background, multilock.Join("a", "b"), ttl))(w.t)
			w.do("DEL", "b")
			net.Expect(fault)
			released := lock.Release(background)
			sent := net.Count()
			net.Expect(nil)
			if released != nil && strings.Contains(released.Error(), "\n") {
				w.t.Errorf("message %d: %q, want an error on one line", n, released)
			}
			both = both || errors.Is(released, compat.ErrUnknown) && strings.Contains(released.Error(), "; ")
			lock.Release(background) //nolint:errcheck // until nothing of it is left
			w.do("DEL", "a")
			return sent
		})
		if strings.HasPrefix(w.way.name, "in turn") && !both {
			w.t.Error("no release was told both")
		}
	})
}

// Readers of one Locker hold a set together: none waits for the other to release it.
func TestReadersShareSets(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	k := compat.NewLocker(multilock.New(compat.Pooled(s), rwlock.Read{}), compat.Options{NoRenew: true})
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	set := multilock.Join("a", "b")
	one := must.Get(k.Lock(ctx, set, ttl))(t)
	two, err := k.Lock(ctx, set, ttl)
	if err != nil {
		t.Fatalf("a second reader: %v", err)
	}
	if st, err := k.Inspect(ctx, set); err != nil || len(st.Holders) < 4 {
		t.Errorf("%+v, %v, want both readers of both keys", st, err)
	}
	write := compat.New(s, rwlock.Write{}, compat.Options{NoRenew: true})
	if _, err := write.TryLock(ctx, "b", ttl); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("a writer of b beside them: %v, want ErrHeld", err)
	}
	for _, l := range []*compat.Lock{one, two} {
		must.Do(t, l.Release(ctx))
	}
}

// A set is open to a reader if all of its keys are, whichever of them ends last.
func TestASetIsOpenIfAllKeysAre(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	k := compat.NewLocker(multilock.New(compat.Pooled(s), rwlock.Read{}), compat.Options{NoRenew: true})
	read, write := compat.New(s, rwlock.Read{}, compat.Options{NoRenew: true}), compat.New(s, rwlock.Write{}, compat.Options{NoRenew: true})
	set := multilock.Join("a", "b")
	must.Get(read.TryLock(background, "a", ttl))(t)
	for _, written := range []time.Duration{0, ttl / 2, 2 * ttl} {
		release := func() error { return nil }
		if written > 0 {
			lock := must.Get(write.TryLock(background, "b", written))(t)
			release = func() error { return lock.Release(background) }
		}
		if st, err := k.Inspect(background, set); err != nil || st.Status != compat.StatusHeld || st.Open != (written == 0) {
			t.Errorf("a reader, and a writer for %v: %+v, %v", written, st, err)
		}
		must.Do(t, release())
	}
}

// A set is handed off with a new value on every key, or not at all: the handle of the holder before,
// late, would release the key that kept its own. Two keys of one set get the same whole second as
// before when it begins between them.
func TestHandoffOfEveryKey(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	mock := clock.NewMock()
	mock.Set(time.Unix(1_600_000_000, 999_500_000))
	net := new(faulty.Network)
	net.Expect(faulty.Then(func() { mock.Add(time.Millisecond) }).Of("SETNX")) // into the next second behind the first key
	source := compat.Pooled(net.Pool(s))
	k := compat.NewLocker(multilock.New(source, getsetlock.Classic{Options: getsetlock.Options{Dialect: getsetlock.Seconds}}), compat.Options{NoRenew: true, Clock: mock})
	lock := must.Get(k.TryLock(background, multilock.Join("a", "b"), ttl))(t)
	net.Expect(nil)
	late := lock.Handle()
	next, err := lock.Handoff(background, ttl)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		if err := lock.Release(background); err != nil {
			t.Errorf("Release after a Handoff that was refused: %v", err)
		}
	case err != nil:
		t.Errorf("Handoff: %v", err)
	default:
		if err := k.ReleaseHandle(background, late); !errors.Is(err, compat.ErrLost) {
			t.Errorf("ReleaseHandle with the handle from before: %v, want ErrLost", err)
		}
		if err := next.Release(background); err != nil {
			t.Errorf("Release by the one it was handed to: %v", err)
		}
	}
}
