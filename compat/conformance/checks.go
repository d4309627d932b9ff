package conformance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

var checks = []struct {
	name string
	run  func(*suite, testing.TB)
	only func(Lock) bool // nil: every lock
}{
	{"exclusion", (*suite).exclusion, nil},
	{"sharing", (*suite).sharing, func(l Lock) bool { return l.Shared }},
	{"holder only", (*suite).holderOnly, nil},
	{"expiry", (*suite).expiry, nil},
	{"extension", (*suite).extension, nil},
	{"renewal", (*suite).renewal, nil},
	{"unknown", (*suite).unknown, nil},
	{"fences", (*suite).fences, func(l Lock) bool { return l.Fence }},
	{"adoption", (*suite).adoption, nil},
	{"hand-over", (*suite).handOver, nil},
}

// busy lets two of the checks that keep the processor busy run at a time, so
// that those which wait for a lease to end keep their time.
var busy = make(chan struct{}, 2)

const nobodys = "0000000000.000" // a token that nobody has

// exclusion: of 32 clients no two that exclude each other stand in the section
// together. Where clients share, every fourth is a rival.
func (c *suite) exclusion(t testing.TB) {
	busy <- struct{}{}
	defer func() { <-busy }()
	const clients, rounds = 32, 3
	var alone, together, overlaps atomic.Int32
	counter, want := 0, 0
	var wg sync.WaitGroup
	ctx := within(t, 60*time.Second)
	for i := range clients {
		k, shares := c.client(), c.Shared
		if c.Shared && i%4 == 0 {
			k, shares = c.rival(), false
		}
		if !shares {
			want += rounds
		}
		wg.Go(func() {
			for range rounds {
				lock, err := k.Lock(ctx, c.key("exclusion"), 20*time.Second)
				if err != nil {
					t.Error(err)
					return
				}
				seen := 0
				if shares {
					together.Add(1)
				} else {
					if alone.Add(1) != 1 || together.Load() != 0 {
						overlaps.Add(1)
					}
					seen = counter
				}
				if _, err := k.Inspect(ctx, c.key("exclusion")); err != nil { // some time passes inside
					t.Error(err)
				}
				if shares {
					if alone.Load() != 0 {
						overlaps.Add(1)
					}
					together.Add(-1)
				} else {
					counter = seen + 1
					alone.Add(-1)
				}
				if err := lock.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := overlaps.Load(); n != 0 || counter != want {
		t.Errorf("%d overlaps, counter at %d, want 0 and %d", n, counter, want)
	}
}

// sharing: clients that share hold a key together, and keep a rival out until
// the last of them has gone.
func (c *suite) sharing(t testing.TB) {
	ctx := within(t, 30*time.Second)
	key := c.key("sharing")
	var held []*compat.Lock
	for range 8 {
		lock, err := c.client().TryLock(ctx, key, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, lock)
	}
	st, err := c.client().Inspect(ctx, key)
	for _, lock := range held {
		if err != nil || st.Status != compat.StatusHeld || !st.Holds(lock.Token()) {
			t.Fatalf("Inspect: %+v, %v; want %q among its holders", st, err, lock.Token())
		}
	}
	for _, lock := range held {
		if _, err := c.rival().TryLock(ctx, key, 20*time.Second); !errors.Is(err, compat.ErrHeld) {
			t.Errorf("a rival's TryLock of a shared key: %v, want ErrHeld", err)
		}
		if err := lock.Release(ctx); err != nil {
			t.Error(err)
		}
	}
	lock, err := c.rival().Lock(ctx, key, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client().TryLock(ctx, key, 20*time.Second); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("TryLock of a key that a rival holds: %v, want ErrHeld", err)
	}
	if err := lock.Release(ctx); err != nil {
		t.Error(err)
	}
}

// holderOnly: nobody but the holder releases, and it only once.
func (c *suite) holderOnly(t testing.TB) {
	ctx := within(t, 20*time.Second)
	key := c.key("holder")
	a, b := c.client(), c.client()
	lock, err := a.TryLock(ctx, key, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.rival().TryLock(ctx, key, 10*time.Second); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("TryLock of a held key: %v, want ErrHeld", err)
	}
	if err := b.ReleaseToken(ctx, key, nobodys); !errors.Is(err, compat.ErrLost) {
		t.Errorf("ReleaseToken with another's token: %v, want ErrLost", err)
	}
	st, err := b.Inspect(ctx, key)
	if err != nil || !st.Holds(lock.Token()) || st.Status != compat.StatusHeld {
		t.Errorf("Inspect: %+v, %v; want held by %q", st, err, lock.Token())
	}
	if err := lock.Release(ctx); err != nil {
		t.Error(err)
	}
	second, err := c.take(ctx, b, key, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(ctx); !errors.Is(err, compat.ErrLost) {
		t.Errorf("second Release: %v, want ErrLost", err)
	}
	if st, err := a.Inspect(ctx, key); err != nil || !st.Holds(second.Token()) {
		t.Errorf("after another's second Release: %+v, %v; want %q still there", st, err, second.Token())
	}
	if err := second.Release(ctx); err != nil {
		t.Error(err)
	}
}

// expiry: a holder that dies is taken over when its lease has ended, not before;
// and if it was not dead but slow, its release comes too late to do harm.
func (c *suite) expiry(t testing.TB) {
	ctx := within(t, 30*time.Second)
	key := c.key("expiry")
	start := time.Now()
	late, err := c.client().TryLock(ctx, key, c.TTL)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := c.rival().Lock(ctx, key, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < c.TTL-compat.Drift(c.TTL) {
		t.Errorf("taken over after %v, within the lease of %v", took, c.TTL)
	}
	if err := late.Release(ctx); !errors.Is(err, compat.ErrLost) {
		t.Errorf("Release after the takeover: %v, want ErrLost", err)
	}
	if st, err := c.client().Inspect(ctx, key); err != nil || !st.Holds(lock.Token()) {
		t.Errorf("after a late Release: %+v, %v; want %q still there", st, err, lock.Token())
	}
	if err := lock.Release(ctx); err != nil {
		t.Error(err)
	}
}

// extension: an extended lock is held past its first end, and its context lives on.
func (c *suite) extension(t testing.TB) {
	ctx := within(t, 30*time.Second)
	key := c.key("extension")
	lock, err := c.client().TryLock(ctx, key, 2*c.TTL)
	if err != nil {
		t.Fatal(err)
	}
	first := lock.Until()
	if err := lock.Extend(ctx, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if !lock.Until().After(first.Add(10 * time.Second)) {
		t.Errorf("Until %v after an extension to 20 s, was %v", lock.Until(), first)
	}
	st, err := c.client().Inspect(ctx, key)
	if err != nil || st.Status != compat.StatusHeld || time.Until(st.Until) < 15*time.Second || !st.Holds(lock.Token()) {
		t.Errorf("Inspect after the extension: %+v, %v", st, err)
	}
	if err := lock.Release(ctx); err != nil {
		t.Error(err)
	}
	if err := lock.Extend(ctx, time.Second); !errors.Is(err, compat.ErrLost) {
		t.Errorf("Extend after Release: %v, want ErrLost", err)
	}
}

// renewal: Do keeps the lock for longer than its ttl.
func (c *suite) renewal(t testing.TB) {
	ctx := within(t, 30*time.Second)
	key := c.key("renewal")
	err := c.client().Do(ctx, key, c.TTL, func(held context.Context) error {
		waiter, cancel := context.WithTimeout(held, 2*c.TTL)
		defer cancel()
		if _, err := c.rival().Lock(waiter, key, c.TTL); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock beside a renewed lock, for two leases: %v, want its deadline", err)
		}
		return context.Cause(held)
	})
	if err != nil {
		t.Error(err)
	}
}

// fences: numbers grow from acquisition to acquisition.
func (c *suite) fences(t testing.TB) {
	ctx := within(t, 20*time.Second)
	key := c.key("fences")
	last := int64(0)
	for range 5 {
		lock, err := c.take(ctx, c.client(), key, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if lock.Fence() <= last {
			t.Errorf("fence %d after %d", lock.Fence(), last)
		}
		last = lock.Fence()
		if _, err := c.rival().TryLock(ctx, key, 10*time.Second); !errors.Is(err, compat.ErrHeld) {
			t.Error(err)
		}
		if err := lock.Extend(ctx, 10*time.Second); err != nil || lock.Fence() != last {
			t.Errorf("Extend: %v, fence %d, want %d", err, lock.Fence(), last)
		}
		if err := lock.Release(ctx); err != nil {
			t.Error(err)
		}
	}
}

// adoption: a token is enough to go on with a lock; a wrong one is not.
func (c *suite) adoption(t testing.TB) {
	ctx := within(t, 20*time.Second)
	key := c.key("adoption")
	a, b := c.client(), c.client()
	lock, err := a.TryLock(ctx, key, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Adopt(ctx, key, nobodys, 10*time.Second); !errors.Is(err, compat.ErrLost) {
		t.Errorf("Adopt with a wrong token: %v, want ErrLost", err)
	}
	adopted, err := b.Adopt(ctx, key, lock.Token(), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if c.Fence && adopted.Fence() <= lock.Fence() {
		t.Errorf("adopted with fence %d, it was %d before", adopted.Fence(), lock.Fence())
	}
	if err := adopted.Release(ctx); err != nil {
		t.Error(err)
	}
	if err := lock.Release(ctx); !errors.Is(err, compat.ErrLost) {
		t.Errorf("Release by the handle that gave it away: %v, want ErrLost", err)
	}
}

// handOver: a lock that is given away, as a string, stays held until its new
// holder gives it back; the old one has nothing to do with it any more.
func (c *suite) handOver(t testing.TB) {
	ctx := within(t, 20*time.Second)
	key := c.key("hand-over")
	o := c.options()
	o.Renew = true
	lock, err := c.New(plain, o).TryLock(ctx, key, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := lock.HandOver(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if cause := context.Cause(lock.Context()); !errors.Is(cause, compat.ErrHandedOver) {
		t.Errorf("the old holder's context ended with %v, want ErrHandedOver", cause)
	}
	if err := lock.Release(ctx); !errors.Is(err, compat.ErrLost) {
		t.Errorf("Release of a lock that was handed over: %v, want ErrLost", err)
	}
	if _, err := c.rival().TryLock(ctx, key, 10*time.Second); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("between the two holders: %v, want ErrHeld", err)
	}
	if handle, err = compat.ParseHandle(handle.String()); err != nil {
		t.Fatal(err)
	}
	b := c.New(plain, o)
	adopted, err := b.AdoptHandle(ctx, handle, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.rival().TryLock(ctx, key, 10*time.Second); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("after the adoption: %v, want ErrHeld", err)
	}
	if err := adopted.Release(ctx); err != nil {
		t.Error(err)
	}
	if _, err := b.AdoptHandle(ctx, handle, 20*time.Second); !errors.Is(err, compat.ErrLost) {
		t.Errorf("adopted after the release: %v, want ErrLost", err)
	}
}
