package bridge_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/bridge"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

const ttl = 10 * time.Second

// lockOf is the first of a stage's locks that is safe on the server.
func lockOf(t testing.TB, source compat.Source, s bridge.Stage) protocol.Algorithm {
	t.Helper()
	var err error
	for _, a := range s.Locks() {
		if err = probe.Check(t.Context(), source, a, "k", probe.Options{}); err == nil {
			return a
		}
	}
	t.Fatalf("no lock of %s is safe here: %v", s.Lock, err)
	return nil
}

// A fleet is some workers that each do a little work under the lock, again and
// again. They see whether they are alone.
type fleet struct {
	t      testing.TB
	source compat.Source
	key    string
	lease  time.Duration
	wg     sync.WaitGroup

	overlaps, sections atomic.Int64
	counter            atomic.Int64 // an update that got lost is to be seen
	lapsed             atomic.Int64 // sections that outlived their lease, on a machine that stood still
	mu                 sync.Mutex
	inside             []*compat.Lock
	last               time.Time
	stall              time.Duration // the longest time in which nobody got in
}

// A worker works until it is told to stop. The last thing it does when it is to die
// is to take the lock.
type worker struct {
	stop, die chan struct{}
	ended     chan struct{}
	rounds    atomic.Int64
}

func (f *fleet) start(a protocol.Algorithm) *worker {
	w := &worker{stop: make(chan struct{}), die: make(chan struct{}), ended: make(chan struct{})}
	k := compat.NewOn(f.source, a, compat.Options{NoRenew: true, Poll: 20 * time.Millisecond})
	f.wg.Go(func() {
		defer close(w.ended)
		for {
			select {
			case <-w.stop:
				return
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			lock, err := k.Lock(ctx, f.key, f.lease)
			cancel()
			if errors.Is(err, compat.ErrUnknown) || errors.Is(err, compat.ErrTimeout) {
				continue
			}
			if err != nil {
				f.t.Error(err)
				return
			}
			select {
			case <-w.die:
				f.enter(lock, func() {})
				return
			default:
			}
			f.enter(lock, func() { k.Inspect(context.Background(), f.key) }) //nolint:errcheck // some time passes inside
			if err := lock.Release(context.Background()); err != nil && time.Now().Before(lock.Until()) {
				f.t.Errorf("%T: %v", a, err)
			}
			w.rounds.Add(1)
			time.Sleep(2 * time.Millisecond) // what else it has to do: the others get in
		}
	})
	return w
}

// enter counts as overlaps those who are inside with a lease that has not ended.
func (f *fleet) enter(lock *compat.Lock, work func()) {
	f.mu.Lock()
	for _, other := range f.inside {
		if time.Now().Before(other.Until()) {
			f.overlaps.Add(1)
		}
	}
	f.inside = append(f.inside, lock)
	f.stall = max(f.stall, time.Since(f.last))
	f.mu.Unlock()
	seen := f.counter.Load()
	work()
	f.counter.Store(seen + 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = time.Now()
	f.sections.Add(1)
	f.inside = slices.DeleteFunc(f.inside, func(l *compat.Lock) bool { return l == lock })
	if !f.last.Before(lock.Until()) {
		f.lapsed.Add(1)
	}
}

// works waits until each of workers has been in the section again.
func (f *fleet) works(workers []*worker) {
	f.t.Helper()
	before := make([]int64, len(workers))
	for i, w := range workers {
		before[i] = w.rounds.Load()
	}
	deadline := time.Now().Add(time.Minute)
	for i, w := range workers {
		for w.rounds.Load() == before[i] {
			if time.Now().After(deadline) {
				f.t.Fatal("a worker got no turn in a minute")
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// end stops all workers and says what they have seen.
func (f *fleet) end(workers []*worker) {
	f.t.Helper()
	for _, w := range workers {
		close(w.stop)
	}
	f.wg.Wait()
	f.t.Logf("%d sections, %d overlaps, %v the longest time in which nobody got in", f.sections.Load(), f.overlaps.Load(), f.stall.Round(time.Millisecond))
	if f.overlaps.Load() != 0 || f.lapsed.Load() == 0 && f.counter.Load() != f.sections.Load() {
		f.t.Errorf("%d overlaps, the counter at %d after %d sections", f.overlaps.Load(), f.counter.Load(), f.sections.Load())
	}
}

// rehearse carries out a plan: each stage is rolled out worker by worker, while
// the others work on. One of the old clients dies with the lock in its hands, and one of
// the bridge's.
func rehearse(t *testing.T, source compat.Source, p bridge.Plan) *fleet {
	f := &fleet{t: t, source: source, key: "report", lease: 2 * time.Second, last: time.Now()}
	const size = 4
	workers := make([]*worker, size)
	for i := range workers {
		workers[i] = f.start(lockOf(t, source, p.Stages[0]))
	}
	f.works(workers)
	for n, s := range p.Stages[1:] {
		a := lockOf(t, source, s)
		for i, w := range workers {
			if i == size/2 {
				close(w.die)
			} else {
				close(w.stop)
			}
			<-w.ended
			workers[i] = f.start(a)
			f.works(workers)
		}
		t.Logf("stage %d, %s: rolled out, %d sections so far", n+1, s.Lock, f.sections.Load())
	}
	f.end(workers)
	return f
}

// TestRehearsal carries out whole plans on a real server, and on an old one.
func TestRehearsal(t *testing.T) {
	for _, r := range []struct{ from, to string }{
		{"redis-py-2.9", "set"},
		{"setnx-expire", "set"},
		{"jedis-lock", "set"},
		{"mlanett-redis-lock", "set"},
		{"redis-in-action", "tx"},
		{"spring", "set"},
	} {
		t.Run(r.from, func(t *testing.T) {
			t.Parallel()
			p := must.Get(bridge.NewPlan(r.from, r.to))(t)
			rehearse(t, compat.Pooled(conformance.Dial(t, realredis.Start(t))), p)
		})
	}
	for _, from := range []string{"redis-py-2.9", "jedis-lock"} {
		t.Run(from+" on 2.4", func(t *testing.T) {
			t.Parallel()
			p := must.Get(bridge.NewPlan(from, "tx"))(t)
			synctest.Test(t, func(t *testing.T) {
				s := must.Get(oldredis.New("2.4", oldredis.Options{Clock: clock.New()}))(t)
				defer s.Close()
				f := rehearse(t, compat.Pooled(s), p)
				// A lease; a second and another for dialects of whole ones; and the waiters' looks.
				if limit := f.lease + 2*time.Second + 20*time.Millisecond; f.stall > limit {
					t.Errorf("nobody got in for %v, although a lease is %v", f.stall, f.lease)
				}
			})
		})
	}
}

// Without the bridge the lock of an old client that died is nobody's for ever:
// the plan's own reason.
func TestSkippedStage(t *testing.T) {
	p := must.Get(bridge.NewPlan("redis-py-2.9", "set"))(t)
	if !strings.Contains(p.Stages[1].Why, "never recovers") {
		t.Fatalf("the plan gives another reason: %s", p.Stages[1].Why)
	}
	s := oldredis.Run(t, "7.0")
	old := compat.New(s, lockOf(t, compat.Pooled(s), p.Stages[0]), compat.Options{NoRenew: true})
	must.Get(old.TryLock(t.Context(), "report", time.Second))(t)
	c := protocol.NewConn(s.Dial())
	defer c.Close()
	later := time.Now().Add(24 * time.Hour)
	if _, err := lockOf(t, compat.Pooled(s), p.Stages[2]).Acquire(c, later, "report", ttl); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("a new client, a day later: %v, want ErrHeld", err)
	}
	if l, err := lockOf(t, compat.Pooled(s), p.Stages[1]).Acquire(c, later, "report", ttl); err != nil || l.How != protocol.TakenOver {
		t.Errorf("the bridge, a day later: %+v, %v; want it taken over", l, err)
	}
}
