package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// clients work through a quorum of real servers: each takes the lock, stands in
// the section for a moment, and gives it back, until it is stopped.
type clients struct {
	counter   atomic.Int64 // read and written in two steps, guarded by the lock alone
	had       atomic.Int64
	overlaps  atomic.Int64
	overslept atomic.Int64 // sections that outlived their lease, on a machine that stood still

	mu     sync.Mutex
	inside []*compat.Lock
	failed []error // what attempts ended with, other than a lock
}

func (c *clients) work(ctx context.Context, t *testing.T, k *compat.Locker, lease time.Duration) {
	for ctx.Err() == nil {
		lock, err := k.Lock(ctx, "section", lease)
		if err != nil {
			c.mu.Lock()
			c.failed = append(c.failed, err)
			c.mu.Unlock()
			continue
		}
		c.had.Add(1)
		c.enters(lock)
		seen := c.counter.Load()
		for range 10 {
			runtime.Gosched()
		}
		c.counter.Store(seen + 1)
		c.leaves(lock)
		if err := lock.Release(context.Background()); err != nil && !errors.Is(err, compat.ErrLost) && !errors.Is(err, compat.ErrUnknown) {
			t.Errorf("Release: %v", err)
		}
	}
}

// enters counts those who are inside with a lease that has not ended.
func (c *clients) enters(lock *compat.Lock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.inside {
		if time.Now().Before(other.Until()) {
			c.overlaps.Add(1)
		}
	}
	c.inside = append(c.inside, lock)
}

func (c *clients) leaves(lock *compat.Lock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !time.Now().Before(lock.Until()) {
		c.overslept.Add(1)
	}
	c.inside = slices.DeleteFunc(c.inside, func(l *compat.Lock) bool { return l == lock })
}

// failures empties the list of what attempts ended with.
func (c *clients) failures() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.failed
	c.failed = nil
	return all
}

// further waits until the clients have had the lock n times more.
func (c *clients) further(t *testing.T, n int64) {
	t.Helper()
	target := c.had.Load() + n
	eventually(t, func() bool { return c.had.Load() >= target })
}

// Five real servers. Two are killed: all goes on. One more stands still: nobody
// has the lock any more, whoever held it learns so in time, and the errors say
// what each server did. It goes on: so does all. Nobody ever overlaps.
func TestServersDie(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	var servers []*realredis.Server
	for range 5 {
		servers = append(servers, realredis.Run(t))
	}
	client := func() *compat.Locker {
		var backends []compat.Backend
		for _, s := range servers {
			backends = append(backends, compat.NewBackend(compat.Pooled(conformance.Dial(t, s.Addr)), setlock.Lua{}))
		}
		return compat.NewLocker(redlock.New(backends, redlock.Options{}), compat.Options{NoRenew: true, Poll: 20 * time.Millisecond})
	}
	var c clients
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	for range 6 {
		k := client()
		wg.Go(func() { c.work(ctx, t, k, lease) })
	}
	c.further(t, 50)
	servers[0].Kill()
	c.further(t, 20)
	servers[3].Kill()
	c.further(t, 20)

	// One holds, renewing, and another waits, while the third server of five goes.
	holder, waiter := client(), client()
	inside, ended := make(chan struct{}), make(chan error, 1)
	var held clients
	wg.Go(func() {
		for had := false; !had; { // Lock gives up when no majority has answered for a whole lease
			err := holder.Do(context.Background(), "held", lease, func(ctx context.Context) error {
				had = true
				held.enters(compat.FromContext(ctx))
				close(inside)
				<-ctx.Done()
				return context.Cause(ctx)
			})
			if had {
				ended <- err
			}
		}
	})
	<-inside
	wg.Go(func() {
		for { // likewise
			if lock, err := waiter.Lock(context.Background(), "held", lease); err == nil {
				held.enters(lock)
				lock.Release(context.Background()) //nolint:errcheck // it was had, that is all
				return
			}
		}
	})
	servers[4].Stop()
	if err := <-ended; !errors.Is(err, compat.ErrLost) {
		t.Errorf("the holder, with two of five left: %v, want ErrLost", err)
	}
	var all *redlock.Error
	var err error
	for try := 0; ; try++ {
		_, err = holder.TryLock(context.Background(), "another", lease)
		if !errors.As(err, &all) || errors.Is(err, compat.ErrHeld) {
			t.Fatalf("TryLock with two of five left: %v, want an Error", err)
		}
		if all.Got == 2 && len(all.Servers) == 3 && !errors.Is(err, compat.ErrUnknown) {
			break
		}
		if try == 20 { // those that are left may be slow, but not each time
			t.Fatalf("TryLock with two of five left: %v, want an Error of three servers", err)
		}
	}
	before := c.had.Load()
	c.failures()
	eventually(t, func() bool { return len(c.failures()) > 0 })
	if n := c.had.Load() - before; n != 0 {
		t.Errorf("%d locks were had with two of five left", n)
	}

	servers[4].Continue()
	c.further(t, 20)
	servers[0].Restart() // empty; the leases on it were over long ago
	c.further(t, 20)
	cancel()
	wg.Wait()
	for _, err := range c.failures() {
		if errors.Is(err, compat.ErrUnsafeServer) || errors.Is(err, compat.ErrForeign) || errors.Is(err, compat.ErrInvalid) {
			t.Errorf("an attempt ended with %v", err)
		}
	}
	n, counted := c.overlaps.Load()+held.overlaps.Load(), c.counter.Load() == c.had.Load()
	if n != 0 || c.overslept.Load() == 0 && !counted {
		t.Errorf("%d overlaps, counter at %d after %d locks; want none, and each counted", n, c.counter.Load(), c.had.Load())
	}
}

// BenchmarkPair is an acquisition and a release on so many real servers.
func BenchmarkPair(b *testing.B) {
	for n := 1; n <= 5; n += 2 {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var backends []compat.Backend
			for range n {
				p := conformance.Dial(b, realredis.Start(b))
				backends = append(backends, compat.NewBackend(compat.Pooled(p), setlock.Lua{}))
			}
			k := compat.NewLocker(redlock.New(backends, redlock.Options{}), compat.Options{NoRenew: true})
			b.ReportAllocs()
			for b.Loop() {
				lock := must.Get(k.TryLock(context.Background(), "bench", time.Minute))(b)
				must.Do(b, lock.Release(context.Background()))
			}
		})
	}
}
