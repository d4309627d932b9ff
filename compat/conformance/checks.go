package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
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
	{"renewals", (*suite).renewals, nil},
	{"unknown", (*suite).unknown, nil},
	{"lost extension", (*suite).lostExtension, nil},
	{"lost release", (*suite).lostRelease, nil},
	{"lost batch", (*suite).lostBatch, nil},
	{"lost detachment", (*suite).lostDetachment, nil},
	{"fences", (*suite).fences, func(l Lock) bool { return l.Fence }},
	{"adoption", (*suite).adoption, nil},
	{"detachment", (*suite).detachment, nil},
	{"late handle", (*suite).lateHandle, nil},
	{"limits", (*suite).limits, nil},
	{"one connection", (*suite).oneConnection, nil},
	{"closing", (*suite).closing, nil},
	{"forwarding", (*suite).forwarding, func(l Lock) bool { return l.algorithm != nil }},
	{"crowd", (*suite).crowd, nil},
}

// busy lets some of the checks that keep the processor busy run at a time, so that those which wait
// for a lease to end keep their time. Each waits for a server's replies most of the time.
var busy = make(chan struct{}, 4*runtime.GOMAXPROCS(0))

// turn waits until a check may keep the processor busy; virtual time needs no turn.
func (c *suite) turn() (done func()) {
	if c.virtual {
		return func() {}
	}
	busy <- struct{}{}
	return func() { <-busy }
}

// patient is a lease that no check waits for: it lasts though others keep the processors busy.
const patient = 2 * time.Minute

const nobodys = "0000000000.000" // a token that nobody has

// exclusion lets 16 clients contend: no two rivals stand in the section together. Where clients share, every fourth is
// a rival.
func (c *suite) exclusion(t testing.TB) {
	c.contend(t, "exclusion", 16, 1, func(p int) (k *compat.Locker, shares bool) {
		if c.Shared && p%4 == 0 {
			return c.rival(), false
		}
		return c.client(), c.Shared
	})
}

// crowd: three processes with four clients each. A lock that a process hands off to its next client
// excludes as any other does, its fence is a new one, and nobody waits for ever.
func (c *suite) crowd(t testing.TB) {
	var handedOff atomic.Int32
	c.contend(t, "crowd", 3, 4, func(p int) (k *compat.Locker, shares bool) {
		o := c.options()
		o.Observer = compat.Observer(func(e compat.Event) {
			if e.Kind == compat.EventAcquired && e.Lease.How == protocol.HandedOff {
				handedOff.Add(1)
			}
		})
		if c.Shared && p == 0 {
			return c.Rival(plain, o), false
		}
		return c.New(plain, o), c.Shared
	})
	switch n := handedOff.Load(); {
	case n == 0 && !c.Shared && !c.Turns:
		t.Error("no lock was handed off")
	case n > 0 && c.Turns:
		t.Errorf("%d locks were handed off, past those who waited elsewhere", n)
	}
}

// A section is what a lock keeps clients from being in at once.
type section struct {
	alone, together, overlaps, counter atomic.Int32
	fence                              atomic.Int64
	most                               int32 // that stand together; 0: any number
}

// enter brings in a client that shares with nobody; done leaves.
func (s *section) enter() (done func()) {
	if s.alone.Add(1) != 1 || s.together.Load() != 0 {
		s.overlaps.Add(1)
	}
	seen := s.counter.Load()
	return func() {
		s.counter.Store(seen + 1) // not Add: an update that got lost is to be seen
		s.alone.Add(-1)
	}
}

// join brings in a client that shares with others like it; done leaves.
func (s *section) join() (done func()) {
	if n := s.together.Add(1); s.most > 0 && n > s.most {
		s.overlaps.Add(1)
	}
	return func() {
		if s.alone.Load() != 0 {
			s.overlaps.Add(1)
		}
		s.together.Add(-1)
	}
}

// contend lets the clients of processes take a key three times each. Nobody may stand beside a rival, nor too many
// together, and no update may get lost.
func (c *suite) contend(t testing.TB, name string, processes, clients int, open func(p int) (k *compat.Locker, shares bool)) {
	defer c.turn()()
	const rounds = 3
	key, ctx := c.key(name), within(t)
	inside := section{most: int32(c.Most)}
	want := int32(0)
	var wg sync.WaitGroup
	for p := range processes {
		k, shares := open(p)
		if !shares {
			want += int32(clients * rounds)
		}
		round := func() error {
			lock, err := k.Lock(ctx, key, patient)
			if err != nil {
				return err
			}
			enter := inside.join
			if !shares {
				enter = inside.enter
				if c.Fence && inside.fence.Swap(lock.Fence()) >= lock.Fence() {
					t.Errorf("fence %d, and none before it was lower", lock.Fence())
				}
			}
			done := enter()
			if _, err := k.Inspect(ctx, key); err != nil { // some time passes inside
				t.Error(err)
			}
			for range processes * clients { // in which the others run, on a machine with few processors too
				runtime.Gosched()
			}
			done()
			return lock.Release(ctx)
		}
		for range clients {
			wg.Go(func() {
				for range rounds {
					if err := round(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if n, sum := inside.overlaps.Load(), inside.counter.Load(); n != 0 || sum != want {
		t.Errorf("%d overlaps, counter at %d, want 0 and %d", n, sum, want)
	}
}

// sharing takes a key by as many clients as may share it. They keep a rival out until the last has gone.
func (c *suite) sharing(t testing.TB) {
	ctx := within(t)
	key := c.key("sharing")
	var held []*compat.Lock
	for range cmp.Or(c.Most, 8) {
		lock := must.Get(c.client().TryLock(ctx, key, patient))(t)
		held = append(held, lock)
	}
	if c.Most > 0 {
		keptOut(t, ctx, c.client(), key, "TryLock of one client too many")
		release(t, ctx, held[0])
		held[0] = must.Get(c.client().TryLock(ctx, key, patient))(t)
	}
	st, err := c.client().Inspect(ctx, key)
	for _, lock := range held {
		if err != nil || st.Status != compat.StatusHeld || !st.Holds(lock.Token()) {
			t.Fatalf("Inspect: %+v, %v; want %q among its holders", st, err, lock.Token())
		}
	}
	for _, lock := range held {
		keptOut(t, ctx, c.rival(), key, "a rival's TryLock of a shared key")
		release(t, ctx, lock)
	}
	lock := must.Get(c.rival().Lock(ctx, key, patient))(t)
	keptOut(t, ctx, c.client(), key, "TryLock of a key that a rival holds")
	release(t, ctx, lock)
}

// keptOut checks the refusal of a held key.
func keptOut(t testing.TB, ctx context.Context, k *compat.Locker, key, what string) {
	t.Helper()
	_, err := k.TryLock(ctx, key, patient)
	want(t, what, err, compat.ErrHeld)
}

// refusedInVain lets rivals be refused who ask for longer, and shorter: the end of the held key stays where it is. An
// EXPIRE of a loser would free a live holder's key, or keep a dead one's for ever.
func (c *suite) refusedInVain(t testing.TB, ctx context.Context, key string) {
	before := must.Get(c.client().Inspect(ctx, key))(t)
	for _, ttl := range []time.Duration{2 * patient, patient / 2} {
		if _, err := c.rival().TryLock(ctx, key, ttl); !errors.Is(err, compat.ErrHeld) {
			t.Errorf("TryLock of a held key, for %v: %v, want %v", ttl, err, compat.ErrHeld)
		}
		st, err := c.client().Inspect(ctx, key)
		if moved := st.Until.Sub(before.Until); err != nil || moved.Abs() > patient/4 {
			t.Errorf("a refused attempt for %v moves the end of the lock by %v, %v", ttl, moved, err)
		}
	}
}

// holderOnly lets the holder alone release, and only once.
func (c *suite) holderOnly(t testing.TB) {
	ctx := within(t)
	key := c.key("holder")
	a, b := c.client(), c.client()
	lock := c.taken(t, ctx, a, key, patient)
	keptOut(t, ctx, c.rival(), key, "TryLock of a held key")
	c.refusedInVain(t, ctx, key)
	want(t, "ReleaseToken with another's token", b.ReleaseToken(ctx, key, nobodys), compat.ErrLost)
	st, err := b.Inspect(ctx, key)
	if err != nil || !st.Holds(lock.Token()) || st.Status != compat.StatusHeld {
		t.Errorf("Inspect: %+v, %v; want held by %q", st, err, lock.Token())
	}
	release(t, ctx, lock)
	second := c.taken(t, ctx, b, key, patient)
	want(t, "second Release", lock.Release(ctx), compat.ErrReleased)
	if st, err := a.Inspect(ctx, key); err != nil || !st.Holds(second.Token()) {
		t.Errorf("after another's second Release: %+v, %v; want %q still there", st, err, second.Token())
	}
	release(t, ctx, second)
}

// patiently runs a check with short leases. A busy machine can lose one: an error of check may come from that, and is
// tried again with leases six times as long, twice.
func (c *suite) patiently(t testing.TB, name string, check func(ctx context.Context, key string, ttl time.Duration) error) {
	ttl := c.TTL
	for try := 1; ; try++ {
		ctx := within(t)
		err := check(ctx, c.key(fmt.Sprintf("%s-%d", name, try)), ttl)
		if err == nil {
			return
		}
		if try == 3 || ctx.Err() != nil { // nothing takes so long, however busy the machine is
			t.Errorf("with a lease of %v: %v", ttl, err)
			return
		}
		ttl *= 6
	}
}

// expiry lets a holder die: its lock is taken over when its lease has ended, not before. If it was not dead but slow,
// its release comes too late to do harm.
func (c *suite) expiry(t testing.TB) {
	c.patiently(t, "expiry", func(ctx context.Context, key string, ttl time.Duration) error {
		start := time.Now()
		late, err := c.client().TryLock(ctx, key, ttl)
		if err != nil {
			return err
		}
		lock, err := c.rival().Lock(ctx, key, 10*ttl)
		if err != nil {
			return err
		}
		if took := time.Since(start); took < protocol.Until(start, ttl).Sub(start) {
			t.Errorf("taken over after %v, within the lease of %v", took, ttl)
		}
		want(t, "Release after the takeover", late.Release(ctx), compat.ErrLost)
		st, err := c.client().Inspect(ctx, key)
		if now := time.Now(); err == nil && !st.Holds(lock.Token()) && now.Before(lock.Until()) {
			err = fmt.Errorf("after a late Release: %+v; want %q still there", st, lock.Token()) // or a vote came late
		}
		return errors.Join(err, lock.Release(ctx))
	})
}

// extension: an extended lock is held past its first end.
func (c *suite) extension(t testing.TB) {
	c.patiently(t, "extension", func(ctx context.Context, key string, ttl time.Duration) error {
		lock, err := c.client().TryLock(ctx, key, 2*ttl)
		if err != nil {
			return err
		}
		first := lock.Until()
		if err := lock.Extend(ctx, 20*ttl); err != nil {
			return err
		}
		if !lock.Until().After(first.Add(10 * ttl)) {
			t.Errorf("Until %v after an extension to %v, was %v", lock.Until(), 20*ttl, first)
		}
		st, err := c.client().Inspect(ctx, key)
		if err != nil || time.Until(lock.Until()) < 15*ttl {
			return errors.Join(err, lock.Release(ctx))
		}
		if st.Status != compat.StatusHeld || time.Until(st.Until) < 15*ttl || !st.Holds(lock.Token()) {
			t.Errorf("Inspect after the extension: %+v", st)
		}
		release(t, ctx, lock)
		want(t, "Extend after Release", lock.Extend(ctx, ttl), compat.ErrReleased)
		return nil
	})
}

// renewal: Do keeps the lock for longer than its ttl.
func (c *suite) renewal(t testing.TB) {
	c.patiently(t, "renewal", func(ctx context.Context, key string, ttl time.Duration) error {
		o := c.options()
		o.NoRenew = false
		return c.New(plain, o).Do(ctx, key, ttl, func(held context.Context) error {
			waiter, cancel := context.WithTimeout(held, 2*ttl)
			defer cancel()
			switch _, err := c.rival().Lock(waiter, key, ttl); {
			case err == nil && held.Err() == nil:
				return errors.New("a rival got a lock that is being renewed")
			case held.Err() == nil && !errors.Is(err, context.DeadlineExceeded):
				return err
			}
			return context.Cause(held)
		})
	})
}

// renewals renews many locks of one client together: they outlast their ttl, and a lost one is lost alone.
func (c *suite) renewals(t testing.TB) {
	c.patiently(t, "renewals", func(ctx context.Context, _ string, ttl time.Duration) error {
		o := c.options()
		o.NoRenew = false
		k := c.New(plain, o)
		var locks []*compat.Lock
		defer func() {
			for _, lock := range locks {
				lock.Release(context.Background()) //nolint:errcheck // those that matter are released below
			}
		}()
		name := protocol.NewToken()
		for i := range 16 {
			lock, err := c.take(ctx, k, c.key(fmt.Sprint(name, i)), ttl)
			if err != nil {
				return err
			}
			locks = append(locks, lock)
		}
		stolen, last := locks[5], locks[15].Until()
		if err := k.ReleaseToken(ctx, c.key(fmt.Sprint(name, 5)), stolen.Token()); err != nil {
			return fmt.Errorf("release by token: %w", err)
		}
		look := time.NewTicker(ttl / 50)
		defer look.Stop()
		for locks[0].Until().Before(last.Add(ttl/2)) || stolen.Context().Err() == nil {
			select {
			case <-look.C:
			case <-locks[0].Context().Done():
				return fmt.Errorf("lock 0: %w", context.Cause(locks[0].Context()))
			case <-ctx.Done():
				return fmt.Errorf("a lock that was released behind its back goes on: %w", ctx.Err())
			}
		}
		for i, lock := range locks {
			if lock == stolen {
				continue
			}
			if err := context.Cause(lock.Context()); err != nil {
				return fmt.Errorf("lock %d: %w", i, err)
			}
			if err := lock.Release(ctx); err != nil {
				return fmt.Errorf("release of lock %d: %w", i, err)
			}
		}
		return nil
	})
}

// fences draws numbers: they grow from acquisition to acquisition, and equal the counter, however high.
func (c *suite) fences(t testing.TB) {
	ctx := within(t)
	key := c.key("fences")
	var counters []string
	names := c.Keys(c.prefix, key)
	for _, name := range names {
		if counter := protocol.Aux(name, "fence"); slices.Contains(names, counter) {
			counters = append(counters, counter)
		}
	}
	ask := func(name string, args ...any) any {
		reply := must.Get(do(ctx, c.Sources[0], args[0].(string), name, args...))(t)
		return reply
	}
	last := map[string]int64{}
	for n := range 8 {
		if from := map[int]int64{3: 1<<53 - 1, 5: 1<<60 + 1, 7: math.MaxInt64 - 2}[n]; from > 0 {
			for _, counter := range counters {
				ask("SET", counter, from)
			}
		}
		lock := c.taken(t, ctx, c.client(), key, patient)
		fence, mine, of := lock.Fence(), counters, ""
		if c.Counter != nil {
			of = c.Counter(c.prefix, key, lock.Token())
			mine = []string{of}
		}
		if fence <= last[of] {
			t.Errorf("fence %d after %d", fence, last[of])
		}
		last[of] = fence
		for _, counter := range mine {
			if at, err := redis.String(ask("GET", counter), nil); err != nil || at != strconv.FormatInt(fence, 10) {
				t.Errorf("fence %d, and %s is at %s: %v", fence, counter, at, err)
			}
		}
		keptOut(t, ctx, c.rival(), key, "TryLock of a held key")
		if err := lock.Extend(ctx, patient); err != nil || lock.Fence() != fence {
			t.Errorf("Extend: %v, fence %d, want %d", err, lock.Fence(), fence)
		}
		release(t, ctx, lock)
	}
}

// adoption: a token is enough to go on with a lock; a wrong one is not.
func (c *suite) adoption(t testing.TB) {
	ctx := within(t)
	key := c.key("adoption")
	a, b := c.client(), c.client()
	lock := c.taken(t, ctx, a, key, patient)
	if _, err := b.Adopt(ctx, key, nobodys, patient); !errors.Is(err, compat.ErrLost) {
		t.Errorf("Adopt with a wrong token: %v, want ErrLost", err)
	}
	adopted := must.Get(b.Adopt(ctx, key, lock.Token(), patient))(t)
	if c.Fence && adopted.Fence() <= lock.Fence() {
		t.Errorf("adopted with fence %d, it was %d before", adopted.Fence(), lock.Fence())
	}
	release(t, ctx, adopted)
	want(t, "Release by the handle that gave it away", lock.Release(ctx), compat.ErrLost)
}

// detachment passes a lock on as a string. It stays held until its next holder releases it; the one before has nothing
// to do with it any more.
func (c *suite) detachment(t testing.TB) {
	ctx := within(t)
	key := c.key("detachment")
	o := c.options()
	o.NoRenew = false
	lock := c.taken(t, ctx, c.New(plain, o), key, patient)
	handle, err := lock.Detach(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the context of the holder before ended", context.Cause(lock.Context()), compat.ErrDetached)
	want(t, "Release of a lock that was detached", lock.Release(ctx), compat.ErrDetached)
	keptOut(t, ctx, c.rival(), key, "between the two holders")
	if err = handle.UnmarshalText([]byte(handle.String())); err != nil {
		t.Fatal(err)
	}
	b := c.New(plain, o)
	adopted := must.Get(b.AdoptHandle(ctx, handle, patient))(t)
	keptOut(t, ctx, c.rival(), key, "after the adoption")
	release(t, ctx, adopted)
	if _, err := b.AdoptHandle(ctx, handle, patient); !errors.Is(err, compat.ErrLost) {
		t.Errorf("adopted after the release: %v, want ErrLost", err)
	}
	o.NoRenew = true
	gone := c.taken(t, ctx, c.New(plain, o), key, patient)
	must.Do(t, b.ReleaseHandle(ctx, gone.Handle()))
	_, err = gone.Detach(ctx)
	want(t, "Detach of a lock that another process has released", err, compat.ErrLost)
}
