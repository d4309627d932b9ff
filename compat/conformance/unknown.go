package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/internal/must"
)

// unknown loses one message of acquire, extend or release. The caller learns the truth or that it is unknown, and
// afterwards the key is free, or ours, as it was told.
func (c *suite) unknown(t testing.TB) {
	defer c.turn()()
	ctx := within(t)
	net := new(faulty.Network)
	k := c.New(over(net), c.options())
	if _, err := k.Inspect(ctx, c.key("unknown")); err != nil { // the network works
		t.Fatal(err)
	}
	if net.Count() == 0 {
		t.Fatal("New does not use its Sources through wrap, so that nothing can be lost")
	}
	everyLoss(net, faults[:2], func(name string, lose func()) {
		key := c.key("unknown-" + name)
		// It finds out whether the servers are safe. What can be lost meanwhile: compat/internal/promises,
		// TestFailedAttemptsAreUndoneOrUnknown.
		release(t, ctx, c.taken(t, ctx, k, key, time.Minute))
		lose()
		c.truthful(t, ctx, k, key)
	})
}

// truthful runs acquire, extend and release over k. Each result must agree with the server.
func (c *suite) truthful(t testing.TB, ctx context.Context, k *compat.Locker, key string) {
	inspect := func() compat.State {
		st := must.Get(c.client().Inspect(ctx, key))(t)
		return st
	}
	lock, err := k.TryLock(ctx, key, patient)
	var unknown *compat.UnknownError
	switch {
	case errors.As(err, &unknown):
		if !c.Ambiguous {
			t.Errorf("TryLock: %v, although the key can be read", err)
		}
		if st := inspect(); st.Value != "" && !st.Holds(unknown.Lease.Value) {
			t.Errorf("an unknown outcome left %+v, its lease says %q", st, unknown.Lease.Value)
		}
		return
	case err != nil:
		if st := inspect(); st.Value != "" {
			t.Errorf("TryLock: %v, and yet the key is %+v", err, st)
		}
		return
	}
	if st := inspect(); !st.Holds(lock.Token()) {
		t.Errorf("held by the token %q, but the key is %+v", lock.Token(), st)
	}
	if c.Fence && lock.Fence() == 0 {
		t.Error("held without a fence, although the lock draws them")
	}
	if err := lock.Extend(ctx, patient); errors.Is(err, compat.ErrLost) {
		t.Errorf("Extend: %v, although nobody took it", err)
	}
	err = lock.Release(ctx)
	switch st := inspect(); {
	case err == nil && st.Value != "":
		t.Errorf("released, and yet the key is %+v", st)
	case errors.Is(err, compat.ErrUnknown) && !c.Ambiguous:
		t.Errorf("Release: %v, although it can be repeated", err)
	case errors.Is(err, compat.ErrLost):
		t.Errorf("Release: %v, although nobody took it", err)
	}
}

// faults are the ways to lose a message, and with the last all that come after it.
var faults = []faulty.Fate{{Loss: faulty.LostRequest}, {Loss: faulty.LostReply}, {Loss: faulty.LostReply, Cut: true}}

// over passes the commands of a Source through net.
func over(net *faulty.Network) func(compat.Source) compat.Source {
	return func(s compat.Source) compat.Source {
		s.Get = net.Get(s.Get)
		return s
	}
}

// everyLoss calls step with each of these faults for its n-th message on net, until there are no more,
// and lets it begin to lose. A client that goes on from step to step has what the losses before left it.
func everyLoss(net *faulty.Network, faults []faulty.Fate, step func(name string, lose func())) {
	for n, ran := 1, 1; n <= ran; n++ {
		ran = 0
		for i, f := range faults {
			var sent atomic.Int64 // a wake-up is sent in the background
			net.Expect(nil)
			step(fmt.Sprintf("%d-%d", n, i+1), func() {
				net.Expect(func(m faulty.Message) faulty.Fate {
					sent.Store(int64(m.N))
					return f.At(n)(m)
				})
			})
			ran = max(ran, int(sent.Load()))
		}
	}
}

// lostExtension loses a message of an extension to a shorter ttl. The holder believes in no more than the server
// grants, and can go on: it extends again and releases, and no fence is lower than one before it.
func (c *suite) lostExtension(t testing.TB) {
	defer c.turn()()
	ctx := within(t)
	net := new(faulty.Network)
	k, other := c.New(over(net), c.options()), c.client()
	everyLoss(net, faults, func(name string, lose func()) {
		key := c.key("lost-extension-" + name)
		lock := c.taken(t, ctx, k, key, time.Minute)
		fence := lock.Fence()
		extend := func(ttl time.Duration) error {
			err := lock.Extend(ctx, ttl)
			net.Expect(nil)
			c.believes(t, ctx, name, lock, key)
			if errors.Is(err, compat.ErrLost) {
				t.Errorf("%s: Extend: %v, although nobody took it", name, err)
			}
			if lock.Fence() < fence {
				t.Errorf("%s: fence %d after %d", name, lock.Fence(), fence)
			}
			return err
		}
		lose()
		extend(40 * time.Second) //nolint:errcheck // what it says is looked at there
		if err := extend(50 * time.Second); err != nil && !c.Ambiguous {
			t.Errorf("%s: extended again, with nothing lost: %v", name, err)
		}
		if err := lock.Release(ctx); err != nil {
			if !c.Ambiguous {
				t.Errorf("%s: released, with nothing lost: %v", name, err)
			}
			return
		}
		next, err := c.take(ctx, other, key, patient)
		if err != nil {
			t.Fatalf("%s: released, and then %v", name, err)
		}
		same := c.Counter == nil || c.Counter(c.prefix, key, next.Token()) == c.Counter(c.prefix, key, lock.Token())
		if c.Fence && same && next.Fence() <= lock.Fence() {
			t.Errorf("%s: the next one's fence is %d after %d", name, next.Fence(), lock.Fence())
		}
		release(t, ctx, next)
	})
}

// believes compares a lock's end with the server's, which may be rounded to a second: it must not be later.
func (c *suite) believes(t testing.TB, ctx context.Context, name string, lock *compat.Lock, key string) {
	st := must.Get(c.client().Inspect(ctx, key))(t)
	if end := st.Until; !end.IsZero() && len(st.Holders) == 0 && lock.Until().After(end.Add(1500*time.Millisecond)) {
		t.Errorf("%s: believed until %v, and the server ends it at %v", name, lock.Until(), end)
	}
}

// lostRelease: a release of unknown outcome can be repeated, and ends in the truth: it is
// released.
func (c *suite) lostRelease(t testing.TB) {
	defer c.turn()()
	ctx := within(t)
	net := new(faulty.Network)
	k := c.New(over(net), c.options())
	everyLoss(net, faults, func(name string, lose func()) {
		key := c.key("lost-release-" + name)
		lock := c.taken(t, ctx, k, key, time.Minute)
		lose()
		err := lock.Release(ctx)
		net.Expect(nil)
		if err != nil {
			if !errors.Is(err, compat.ErrUnknown) || errors.Is(err, compat.ErrLost) {
				t.Errorf("%s: Release: %v, want ErrUnknown", name, err)
			}
			if cause := context.Cause(lock.Context()); cause == nil {
				t.Errorf("%s: the context goes on after a Release", name)
			}
			release(t, ctx, lock)
		}
		want(t, name+": Release after that", lock.Release(ctx), compat.ErrReleased)
		if st, err := c.client().Inspect(ctx, key); err != nil || st.Status != compat.StatusFree && st.Status != compat.StatusDead {
			t.Errorf("%s: released, and yet the key is %+v, %v", name, st, err)
		}
	})
}

// lostDetachment detaches a lock with a lost token. It stays held when it can't be detached, and its context ends
// before its lease, so that it is nobody's for ever.
func (c *suite) lostDetachment(t testing.TB) {
	ctx := within(t)
	key, net, mock := c.key("lost-detachment"), new(faulty.Network), now()
	o := c.options()
	o.Clock = mock
	k := c.New(over(net), o)
	lock := c.taken(t, ctx, k, key, time.Minute)
	held := lock.Context()
	net.Expect(faults[2].Always())
	if err := lock.Extend(ctx, 40*time.Second); err == nil {
		t.Fatal("Extend: no error, although nothing was answered")
	}
	handle, err := lock.Detach(ctx)
	net.Expect(nil)
	if err == nil { // its token does not change
		adopted, err := c.client().AdoptHandle(ctx, handle, patient)
		if err != nil {
			t.Fatalf("detached, and AdoptHandle: %v", err)
		}
		release(t, ctx, adopted)
		return
	}
	if held.Err() != nil || errors.Is(err, compat.ErrLost) {
		t.Errorf("Detach: %v, context %v; want it held on", err, context.Cause(held))
	}
	keptOut(t, ctx, c.rival(), key, "a rival's TryLock after a Detach that failed")
	mock.Add(mock.Until(lock.Until()))
	mock.Add(time.Second)
	select {
	case <-held.Done():
	case <-ctx.Done():
		t.Fatal("the context outlives the lease after a Detach that failed")
	}
	want(t, "the context ended", context.Cause(held), compat.ErrLost)
	lock.Release(ctx) //nolint:errcheck // one that does not compare leaves a key whose time has run out
	c.remove(t, ctx, key)
	next, err := k.Lock(ctx, key, patient) // the Locker does not believe that it still holds it
	if err != nil {
		t.Fatal(err)
	}
	release(t, ctx, next)
}

// lateHandle releases by a handle from before a hand-off: the new holder keeps the lock.
func (c *suite) lateHandle(t testing.TB) {
	ctx := within(t)
	key := c.key("late-handle")
	lock := c.taken(t, ctx, c.client(), key, patient)
	late := lock.Handle()
	next, err := lock.Handoff(ctx, patient)
	if err != nil {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Handoff: %v", err)
		}
		release(t, ctx, lock)
		return
	}
	if c.Fence && next.Fence() <= lock.Fence() {
		t.Errorf("handed off with fence %d, it was %d before", next.Fence(), lock.Fence())
	}
	want(t, "Release after Handoff", lock.Release(ctx), compat.ErrHandedOff)
	want(t, "ReleaseHandle with a handle from before the hand-off", c.client().ReleaseHandle(ctx, late), compat.ErrLost)
	keptOut(t, ctx, c.rival(), key, "a rival's TryLock after a late ReleaseHandle")
	release(t, ctx, next)
}

// lostBatch loses a message of several renewals together. The locks survive it, as one that is renewed alone does, and
// can then be extended; in the end they are released.
func (c *suite) lostBatch(t testing.TB) {
	defer c.turn()()
	ctx := within(t)
	const size = 3 // one first, one last, and one in between
	const ttl = time.Minute
	net := new(faulty.Network)
	mock, events := now(), newEvents()
	o := c.options()
	o.Clock, o.NoRenew, o.Observer = mock, false, events.Observe
	k := c.New(over(net), o)
	var locks []*compat.Lock
	each := func(name, did string, call func(*compat.Lock) error) {
		for i, lock := range locks {
			if err := call(lock); err != nil {
				t.Fatalf("%s: %d renewed together: %s lock %d: %v", name, size, did, i, err)
			}
		}
	}
	for i := range size {
		lock := c.taken(t, ctx, k, c.key(fmt.Sprintf("lost-batch-%d", i)), ttl)
		locks = append(locks, lock)
	}
	everyLoss(net, faults, func(name string, lose func()) {
		each(name, "extending", func(l *compat.Lock) error { return l.Extend(ctx, ttl) }) // they are due together again
		first := locks[0].Until()
		events.forget()
		lose()
		mock.Add(21 * time.Second)
		events.await(t, size, compat.EventExtended, compat.EventFailed, compat.EventLost)
		net.Expect(nil)
		renewed := func() bool {
			return !slices.ContainsFunc(locks, func(l *compat.Lock) bool { return l.Context().Err() == nil && !l.Until().After(first) })
		}
		for try := 0; try < 10 && !renewed(); try++ { // one that was not renewed is tried again soon
			mock.Add(3 * time.Second)
			events.wait(200*time.Millisecond, renewed)
		}
		each(name, "after the loss,", func(l *compat.Lock) error { return context.Cause(l.Context()) }) // nobody took it
	})
	each("in the end", "releasing", func(l *compat.Lock) error {
		if err := l.Release(ctx); err != nil && !c.Ambiguous {
			return err
		}
		return nil
	})
}
