package compat_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// A holder that dies is taken over as soon as its lease has ended on the
// server, and not before (getset/crash-holding).
func TestCrashWhileHolding(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		dead, _ := w.client(a)
		try(t, dead, "k")

		next, net := w.client(a)
		var l *compat.Lock
		var err error
		took := w.until(inBackground(func() { l, err = next.Lock(background, "k", ttl) }))
		if err != nil {
			t.Fatal(err)
		}
		// Whole-second servers keep a key up to a second longer.
		if took < ttl || took > ttl+2*time.Second {
			t.Errorf("taken over after %v, the lease was %v", took, ttl)
		}
		if w.value("k") != l.Token() {
			t.Errorf("the key holds %q, the next client's token is %q", w.value("k"), l.Token())
		}
		if n := net.Count(); n > 200 { // 100 of them to try the server out, lists too
			t.Errorf("waiting for %v took %d commands", ttl, n)
		}
	})
}

// A waiter that knows when the lease ends does not sleep past it, however long
// its pauses have become.
func TestWaiterWakesWhenTheLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "2.6")
		a := txlock.Renamed{Options: txlock.Options{Millis: true}}
		dead, _ := w.client(a)
		must.Get(dead.TryLock(background, "k", 1234*time.Millisecond))(t)
		next := compat.NewOn(w.source(), a, compat.Options{NoRenew: true, Clock: w.clock, Poll: 20 * time.Second, Rand: func() float64 { return 0 }})
		var err error
		took := w.until(inBackground(func() { _, err = next.Lock(background, "k", ttl) }))
		if err != nil || took < 1234*time.Millisecond || took > 1750*time.Millisecond {
			t.Errorf("obtained after %v, %v; want just after 1.234 s", took, err)
		}
	})
}

// Two clients find the same dead lease; the second comes in after each command
// of the first. Whatever the order, one of them wins, and under WATCH the
// key says which (getset/double-takeover, getset/loser-overwrites).
func TestTwoTakersOfOneDeadLease(t *testing.T) {
	for name, a := range map[string]protocol.Algorithm{"classic": getsetlock.Classic{}, "guarded": getsetlock.Guarded{}} {
		t.Run(name, func(t *testing.T) {
			for n := 1; n <= 8; n++ {
				w := newWorld(t, "2.4")
				dead, _ := w.client(a)
				try(t, dead, "k")
				w.clock.Add(ttl + time.Second)

				one, net := w.client(a)
				two, _ := w.client(a)
				var second *compat.Lock
				var secondErr error
				net.Expect(faulty.Then(func() { second, secondErr = two.TryLock(background, "k", ttl) }).At(n))
				first, firstErr := one.TryLock(background, "k", ttl)
				if net.Count() < n {
					break
				}
				if (firstErr == nil) == (secondErr == nil) {
					t.Fatalf("after command %d: first %v, second %v; want one winner", n, firstErr, secondErr)
				}
				for _, err := range []error{firstErr, secondErr} {
					if err != nil && !errors.Is(err, compat.ErrHeld) {
						t.Errorf("the loser got %v, want ErrHeld", err)
					}
				}
				winner := first
				if winner == nil {
					winner = second
				}
				if name == "guarded" && w.value("k") != winner.Token() {
					t.Errorf("after command %d: the key holds %q, the winner's token is %q", n, w.value("k"), winner.Token())
				}
			}
		})
	}
}

// In the published protocol the loser's GETSET stays on the key, and the winner
// can't tell its own lock from another's: it gets ErrLost, and removes
// nothing. Under WATCH the loser writes nothing (getset/loser-overwrites).
func TestLoserOverwrites(t *testing.T) {
	for name, a := range map[string]protocol.Algorithm{"classic": getsetlock.Classic{}, "guarded": getsetlock.Guarded{}} {
		w := newWorld(t, "2.4")
		dead, _ := w.client(a)
		try(t, dead, "k")
		w.clock.Add(ttl + time.Second)

		loser, net := w.client(a)
		winner, _ := w.client(a)
		var won *compat.Lock
		net.Expect(faulty.Then(sync.OnceFunc(func() { won = try(t, winner, "k") })).Of("GET"))
		if _, err := loser.TryLock(background, "k", ttl); !errors.Is(err, compat.ErrHeld) {
			t.Fatalf("%s: the loser got %v", name, err)
		}
		overwritten := w.value("k") != won.Token()
		err := won.Release(background)
		if name == "classic" && (!overwritten || !errors.Is(err, compat.ErrLost) || w.value("k") == "") {
			t.Errorf("classic: overwritten %v, release %v, key %q; want the published race", overwritten, err, w.value("k"))
		}
		if name == "guarded" && (overwritten || err != nil || w.value("k") != "") {
			t.Errorf("guarded: overwritten %v, release %v, key %q", overwritten, err, w.value("k"))
		}
	}
}

// The delayed GETSET of a loser sets a live lease back, and a third client takes
// it: two hold. That is in the published algorithm itself; under WATCH the
// same delay changes nothing (getset/stale-getset-sets-back).
func TestStaleGetsetSetsBack(t *testing.T) {
	for name, a := range map[string]protocol.Algorithm{"classic": getsetlock.Classic{}, "guarded": getsetlock.Guarded{}} {
		w := newWorld(t, "2.4")
		dead, _ := w.client(a)
		try(t, dead, "k")
		w.clock.Add(ttl + time.Second)

		delayed, net := w.client(a)
		var holder *compat.Lock
		net.Expect(faulty.Then(sync.OnceFunc(func() {
			c1, _ := w.client(a)
			try(t, c1, "k") // wins with a stamp of now+ttl, and dies
			w.clock.Add(ttl + time.Second)
			c2, _ := w.client(a)
			holder = try(t, c2, "k") // takes the dead lease over, lawfully
		})).Of("GET"))
		delayed.TryLock(background, "k", ttl) //nolint:errcheck // it loses; its GETSET was asked for long ago
		c4, _ := w.client(a)
		other, err := c4.TryLock(background, "k", ttl)
		two := err == nil && w.clock.Now().Before(holder.Until()) && w.clock.Now().Before(other.Until())
		if name == "classic" && !two {
			t.Errorf("classic: the published race did not show: %v", err)
		}
		if name == "guarded" && (two || !errors.Is(err, compat.ErrHeld)) {
			t.Errorf("guarded: another got in beside the holder: %v", err)
		}
	}
}

// A release that comes after the lease has ended and another has taken the lock
// removes nothing (any/release-after-expiry).
func TestReleaseAfterExpiry(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		slow, _ := w.client(a)
		next, _ := w.client(a)
		late := try(t, slow, "k")
		w.clock.Add(ttl + 2*time.Second)
		holder := try(t, next, "k")
		if err := late.Release(background); !errors.Is(err, compat.ErrLost) {
			t.Errorf("Release after another took the lock: %v, want ErrLost", err)
		}
		if w.value("k") != holder.Token() {
			t.Errorf("the key holds %q, its holder's token is %q", w.value("k"), holder.Token())
		}
		if cause := context.Cause(late.Context()); !errors.Is(cause, compat.ErrLost) {
			t.Errorf("the context of the lost lock ended with %v, want ErrLost", cause)
		}
	})
}

// The published lock can't release late at all: between its GET and its DEL
// another may have come. It says so and leaves the key to its time
// (getset/paused-release).
func TestClassicDoesNotReleaseLate(t *testing.T) {
	w := newWorld(t, "1.2")
	k, _ := w.client(getsetlock.Classic{})
	l := try(t, k, "k")
	w.clock.Add(ttl)
	if err := l.Release(background); !errors.Is(err, compat.ErrLost) || w.value("k") == "" {
		t.Errorf("Release at the end of the lease: %v, key %q; want ErrLost and the key as it was", err, w.value("k"))
	}
}

// A process that pauses for longer than its lease comes back with a renewal:
// the context has ended before the lease did, and the renewal does not touch
// the lock of the client that came after it (any/renew-after-loss).
func TestRenewalAcrossAPause(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		net := new(faulty.Network)
		k := compat.NewOn(w.through(net), a, compat.Options{Clock: w.clock, Rand: func() float64 { return 0 }})
		other, _ := w.client(a)
		resume := make(chan struct{})
		paused := make(chan struct{})
		var holder *compat.Lock
		err := k.Do(background, "k", ttl, func(ctx context.Context) error {
			net.Expect(faulty.First(func() { // the renewal's first command is where the process stops
				close(paused)
				<-resume
			}).At(1))
			until := w.clock.Now().Add(ttl)
			w.until(paused)
			w.until(ctx.Done())
			if now := w.clock.Now(); !now.Before(until) || !errors.Is(context.Cause(ctx), compat.ErrLost) {
				t.Errorf("ended at %v with %v, the lease ends at %v", now, context.Cause(ctx), until)
			}
			w.clock.Add(ttl)
			holder = try(t, other, "k")
			close(resume)
			return context.Cause(ctx)
		})
		if !errors.Is(err, compat.ErrLost) {
			t.Errorf("Do: %v, want ErrLost", err)
		}
		if w.value("k") != holder.Token() {
			t.Errorf("the key holds %q, its holder's token is %q", w.value("k"), holder.Token())
		}
	})
}

// A renewed lock whose server is gone ends its context before the lease does.
func TestServerGone(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		k, net := w.client(a)
		err := k.Do(background, "k", ttl, func(ctx context.Context) error {
			w.clock.Add(ttl / 6)
			net.Expect(faulty.Fate{Loss: faulty.LostRequest}.Always())
			left := w.until(ctx.Done())
			if left >= ttl || left < ttl/2 {
				t.Errorf("ended %v after the server had gone, the lease was %v", left, ttl)
			}
			net.Expect(nil)
			return context.Cause(ctx)
		})
		if !errors.Is(err, compat.ErrLost) {
			t.Errorf("Do: %v, want ErrLost", err)
		}
	})
}

// A client dies between SETNX and EXPIRE: the key has no end. The safe repair
// waits until it has seen it unchanged for a whole ttl, then gives it one
// (tx/crash-before-expire).
func TestCrashBeforeExpire(t *testing.T) {
	for _, v := range []string{"2.2.5", "2.2", "2.4", "2.6", "2.8", "7.0"} {
		t.Run(v, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, v)
				w.do("SETNX", "k", "a token of the dead")
				k, _ := w.client(txlock.Classic{})
				var err error
				took := w.until(inBackground(func() { _, err = k.Lock(background, "k", ttl) }))
				if err != nil || took < 2*ttl || took > 2*ttl+3*time.Second {
					t.Errorf("obtained after %v, %v; want one ttl of looking on and one of waiting", took, err)
				}
			})
		})
	}
}

// The other variants never leave such a key: whatever request is lost, the key
// has a TTL.
func TestCrashSafeVariants(t *testing.T) {
	for name, a := range map[string]protocol.Algorithm{"guarded": txlock.Guarded{}, "renamed": txlock.Renamed{}} {
		for n := 1; n <= 6; n++ {
			w := newWorld(t, "2.4")
			k, net := w.client(a)
			net.Expect(faulty.Fate{Loss: faulty.LostRequest, Cut: true}.At(n)) // the client is dead
			k.TryLock(background, "k", ttl)                                    //nolint:errcheck // the dead get no answer
			if w.value("k") != "" {
				if left, err := redis.Int(w.do("TTL", "k"), nil); err != nil || left < 0 {
					t.Errorf("%s, dead after command %d: the key has TTL %d", name, n-1, left)
				}
			}
			w.clock.Add(ttl + 2*time.Second)
			if keys, _ := redis.Strings(w.do("KEYS", "*"), nil); len(keys) != 0 {
				t.Errorf("%s, dead after command %d: %q are left after the ttl", name, n-1, keys)
			}
		}
	}
}

// The repair does not touch a holder that is between its SETNX and its EXPIRE,
// nor a timestamp lock (tx/ttl-repair).
func TestTTLRepairAgainstALiveHolder(t *testing.T) {
	for _, c := range []struct {
		never bool
		value string
	}{
		{false, "token"},
		{true, "token"},
		{false, "1330837567.000"},
	} {
		w := newWorld(t, "2.4")
		w.do("SETNX", "k", c.value) // the holder's EXPIRE is on its way
		k, _ := w.client(txlock.Classic{NoRepair: c.never})
		if _, err := k.TryLock(background, "k", time.Second); !errors.Is(err, compat.ErrHeld) {
			t.Errorf("never %v, %s: %v, want ErrHeld", c.never, c.value, err)
		}
		ctx, cancel := context.WithCancel(background)
		var err error
		done := inBackground(func() { _, err = k.Lock(ctx, "k", 3*time.Second) })
		w.clock.Add(2 * time.Second)
		ttl, _ := redis.Int(w.do("TTL", "k"), nil)
		if ttl != -1 || w.value("k") != c.value {
			t.Errorf("never %v, %s: TTL %d, the key holds %q", c.never, c.value, ttl, w.value("k"))
		}
		cancel()
		<-done
		if !errors.Is(err, context.Canceled) {
			t.Errorf("never %v, %s: %v, want the cancellation", c.never, c.value, err)
		}
	}
}

// A timestamp that stands for ever is a lock of getsetlock, whose keys have no
// TTL: it is never repaired, however long it is seen.
func TestTimestampsAreNeverRepaired(t *testing.T) {
	w := newWorld(t, "2.4")
	for _, v := range []string{"1330837567", "1330837567.123456", "1330837567123", "1330837567123456789", "1330837567-123-456", "9e107d9d-372b-b682-6bd8-1d3542a419d6:1330837567123"} {
		w.do("SET", "k", v)
		st := compat.State{Key: "k", Value: v, Status: compat.StatusPersistent}
		if _, err := (txlock.Classic{}).Repair(w.clock.Now(), st, ttl); !errors.Is(err, compat.ErrHeld) {
			t.Errorf("Repair of %s: %v, want ErrHeld", v, err)
		}
		if left, _ := redis.Int(w.do("TTL", "k"), nil); left != -1 {
			t.Errorf("%s was given a TTL of %d", v, left)
		}
	}
}

// A context that ends after any command of a wait: Lock returns its error, and
// nothing is left behind.
func TestCancelledAtEachPoint(t *testing.T) {
	algorithms := map[string]protocol.Algorithm{"getset:classic": getsetlock.Classic{}}
	for name, a := range safe {
		algorithms[name] = a
	}
	for name, a := range algorithms {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				w := newWorld(t, from(name, "2.4"))
				k, net := w.client(a)
				must.Get(k.Inspect(background, "k"))(t)
				ctx, cancel := context.WithCancel(background)
				net.Expect(faulty.Then(cancel).At(n))
				l, err := k.Lock(ctx, "k", ttl)
				if net.Count() < n { // it was over before
					cancel()
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				cancel()
				if !errors.Is(err, context.Canceled) || errors.Is(err, compat.ErrHeld) || l != nil {
					t.Errorf("cancelled after command %d: %v, want context.Canceled alone", n, err)
				}
				if v := w.value("k"); v != "" {
					t.Errorf("cancelled after command %d: %q was left behind", n, v)
				}
			}
		})
	}
}

// A context that is cancelled during the wait ends it at once.
func TestCancelledWhileWaiting(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		holder, _ := w.client(a)
		held := try(t, holder, "k")
		k, net := w.client(a)
		ctx, cancel := context.WithCancel(background)
		var err error
		done := inBackground(func() { _, err = k.Lock(ctx, "k", ttl) })
		for net.Count() < 6 { // it has been refused, and has looked again
			w.clock.Add(50 * time.Millisecond)
		}
		cancel()
		<-done // without time passing
		if !errors.Is(err, context.Canceled) || errors.Is(err, compat.ErrHeld) {
			t.Errorf("%v, want context.Canceled and not ErrHeld", err)
		}
		if w.value("k") != held.Token() {
			t.Error("the waiter has changed the key")
		}
	})
}

// Clocks that disagree: the timestamp lock is taken over early by a client that
// is ahead, unless a margin allows for it; the token lock does not ask clients'
// clocks (getset/skewed-takeover).
func TestSkewedClocks(t *testing.T) {
	margin := getsetlock.Options{Dialect: getsetlock.Dialect{Margin: 20 * time.Second}}
	for _, c := range []struct {
		name  string
		a     protocol.Algorithm
		skew  time.Duration
		taken bool
	}{
		{"published, 15 s ahead", getsetlock.Classic{}, 15 * time.Second, true},
		{"guarded, 15 s ahead", getsetlock.Guarded{}, 15 * time.Second, true},
		{"guarded, 5 s ahead", getsetlock.Guarded{}, 5 * time.Second, false},
		{"guarded, 15 s ahead, margin 20 s", getsetlock.Guarded{Options: margin}, 15 * time.Second, false},
		{"classic, 15 s ahead, margin 20 s", getsetlock.Classic{Options: margin}, 15 * time.Second, false},
		{"guarded, 15 s behind", getsetlock.Guarded{}, -15 * time.Second, false},
		{"tx, 1 h ahead", txlock.Guarded{}, time.Hour, false},
		{"tx, 1 h behind", txlock.Renamed{}, -time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "2.4")
			k, _ := w.client(c.a)
			held := try(t, k, "k")
			other, _ := w.skewed(c.a, c.skew)
			_, err := other.TryLock(background, "k", ttl)
			if taken := err == nil; taken != c.taken {
				t.Errorf("taken %v (%v), want %v", taken, err, c.taken)
			}
			err = held.Release(background)
			if c.taken != errors.Is(err, compat.ErrLost) {
				t.Errorf("the first holder's release: %v", err)
			}
		})
	}
}

// What a timestamp client can't read in full is held by somebody: not expired,
// not overwritten, not given a TTL.
func TestUnreadableIsHeld(t *testing.T) {
	for _, a := range []protocol.Algorithm{getsetlock.Classic{}, getsetlock.Guarded{}} {
		w := newWorld(t, "2.4")
		for _, v := range []string{"1", "true", "", "locked", "1330837567123", "94213c24deadbeef94213c24deadbeef", "9e99c1", "-1330837567", "+1330837567", " 1330837567", "1330837567.", "1330837567.1e9", "host:123", "NaN"} {
			w.do("SET", "k", v)
			k, _ := w.client(a)
			_, err := k.TryLock(background, "k", ttl)
			if !errors.Is(err, compat.ErrHeld) || !errors.Is(err, compat.ErrForeign) {
				t.Errorf("%T over %q: %v, want ErrHeld and ErrForeign", a, v, err)
			}
			if got := w.value("k"); got != v {
				t.Errorf("%T changed %q to %q", a, v, got)
			}
		}
	}
}

// A key that is not a string is not a lock: waiting does not help.
func TestWrongType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, v := range []string{"2.2", "7.0"} {
			for name, a := range safe {
				w := newWorld(t, from(name, v))
				w.do("LPUSH", "k", "x")
				k, _ := w.client(a)
				var err error
				w.until(inBackground(func() { _, err = k.Lock(background, "k", ttl) }))
				if !errors.Is(err, compat.ErrForeign) {
					t.Errorf("%s on %s: Lock of a list: %v, want ErrForeign", name, v, err)
				}
			}
		}
	})
}

// The fence comes from the transaction that takes the key; one whose reply was
// lost is drawn anew, and still grows.
func TestFenceOfAResolvedAcquire(t *testing.T) {
	for _, a := range []protocol.Algorithm{
		getsetlock.Guarded{Options: getsetlock.Options{Fence: true}},
		txlock.Classic{Options: txlock.Options{Fence: true}},
		txlock.Guarded{Options: txlock.Options{Fence: true}},
		txlock.Renamed{Options: txlock.Options{Fence: true}},
	} {
		w := newWorld(t, "2.4")
		k, net := w.client(a)
		before := try(t, k, "k")
		must.Do(t, before.Release(background))
		lost := false
		net.Expect(func(m faulty.Message) faulty.Fate {
			if m.Name == "EXEC" && !lost {
				lost = true
				return faulty.Fate{Loss: faulty.LostReply}
			}
			return faulty.Fate{}
		})
		l := try(t, k, "k")
		if l.Lease().How != protocol.Resolved || l.Fence() <= before.Fence() {
			t.Errorf("%T: %s with fence %d after %d; want resolved, and greater", a, l.Lease().How, l.Fence(), before.Fence())
		}
		if n, _ := redis.Int64(w.do("GET", protocol.Aux("k", "fence")), nil); n != l.Fence() {
			t.Errorf("%T: the counter is at %d, the fence is %d", a, n, l.Fence())
		}
	}
}

// A lost GETSET of the published protocol can't be distinguished from a lost race: the
// outcome stays unknown, the key is left alone, and frees itself.
func TestUnknownTakeover(t *testing.T) {
	w := newWorld(t, "1.2")
	dead, _ := w.client(getsetlock.Classic{})
	try(t, dead, "k")
	w.clock.Add(ttl + time.Second)
	k, net := w.client(getsetlock.Classic{})
	net.Expect(faulty.Fate{Loss: faulty.LostReply}.Of("GETSET"))
	_, err := k.TryLock(background, "k", ttl)
	var unknown *compat.UnknownError
	if !errors.As(err, &unknown) || unknown.Lease.Value != w.value("k") {
		t.Fatalf("%v, key %q; want ErrUnknown with the lease", err, w.value("k"))
	}
	w.clock.Add(ttl + time.Second)
	next, _ := w.client(getsetlock.Classic{})
	if l := try(t, next, "k"); l.Lease().How != protocol.TakenOver {
		t.Errorf("obtained %s after the unknown one's time", l.Lease().How)
	}
}
