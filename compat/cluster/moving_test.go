package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/cluster"
	slots "github.com/setnxlock/setnxlock/compat/internal/slot"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// moving: a slot goes round the masters of a real cluster, and in it of every
// kind of lock one that is held and one that is contended for. No two are in
// the section together, nobody is told of a loss, fences grow, and all go on
// afterwards. (One slot for all: two nodes that migrate to each other at the same
// time wait for each other.)
func moving(t *testing.T, nodes *realredis.Cluster) {
	patience, part := 2*time.Minute, 2 // each kind with fences or without: all of both keep two processors busy
	if underRace {
		patience, part = 3*time.Minute, 3
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const tag = "{moving-3}"
	slot := slots.Of(tag)
	from := slot * 3 / 16384
	var counters []*counter
	var held []*compat.Lock
	source := cluster.New(nodes.Addrs(), cluster.Options{})
	defer source.Close()
	all := append(algorithms(), algorithm{"rw:write", func(fence bool) protocol.Algorithm {
		return rwlock.Write{Options: rwlock.Options{Fence: fence}}
	}})
	for i, algo := range all {
		for j, fence := range []bool{false, true} {
			if (i+j)%part != 0 {
				continue
			}
			key := fmt.Sprintf("%s%s/%v", tag, algo.name, fence)
			counters = append(counters, contend(ctx, t, nodes, algo, key, fence))
			o := compat.Options{NoRenew: true, Timeout: time.Minute}
			lock := must.Get(compat.NewOn(source.Source(), algo.new(fence), o).Lock(ctx, key+"/held", 40*time.Second))(t)
			held = append(held, lock)
		}
	}
	extend := func() {
		for _, lock := range held {
			if err := lock.Extend(ctx, 40*time.Second); err != nil {
				t.Errorf("extending %q while its slot moves: %v", lock.Key(), err)
			}
		}
	}
	for range 3 {
		to := (from + 1) % 3
		nodes.BeginMove(slot, from, to)
		extend()
		for _, c := range counters {
			switch c.keys {
			case 1:
				c.goesOn(nodes)
			case 2:
				c.stands(nodes)
			} // of more, one may hold the lock and be unable to release it, while the other waits
		}
		nodes.MoveKeys(slot, from, to)
		extend()
		nodes.EndMove(slot, from, to)
		for _, c := range counters {
			c.goesOn(nodes)
		}
		from = to
	}
	for _, c := range counters {
		c.stop()
	}
	for _, lock := range held {
		if err := lock.Release(ctx); err != nil {
			t.Errorf("%q, which was held all the time: %v", lock.Key(), err)
		}
	}
}

// A counter is one that clients count up under a lock, and only under it.
type counter struct {
	t        *testing.T
	keys     int // that an acquisition needs at once: more than one stand still while they may be apart
	n        int // by the lock alone
	inside   atomic.Int32
	overlaps atomic.Int32
	taken    atomic.Int64 // how often the lock was obtained
	refused  atomic.Int64 // how often the cluster said TRYAGAIN
	fence    int64        // of the last to hold it
	done     atomic.Bool
	wg       sync.WaitGroup
}

// contend has two clients, each with its own map, count under a lock of key.
func contend(ctx context.Context, t *testing.T, nodes *realredis.Cluster, algo algorithm, key string, fence bool) *counter {
	c := &counter{t: t, keys: 1}
	if fence || strings.HasPrefix(algo.name, "tx:renamed") {
		c.keys = 2
	}
	readersToo := algo.name == "rw:write"
	if readersToo {
		c.keys = 6
	}
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(func() { c.done.Store(true); cancel(); c.wg.Wait() })
	for range 2 {
		source := cluster.New(nodes.Addrs(), cluster.Options{})
		locks := compat.NewOn(source.Source(), algo.new(fence), compat.Options{
			NoRenew: true,
			Timeout: time.Minute, Poll: 20 * time.Millisecond, Observer: c.Observe,
		})
		c.wg.Go(func() {
			defer source.Close()
			for !c.done.Load() {
				lock, err := locks.Lock(ctx, key, 30*time.Second)
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("Lock: %v", err)
					}
					return
				}
				if c.inside.Add(1) != 1 {
					c.overlaps.Add(1)
				}
				if fence && lock.Fence() <= c.fence {
					t.Errorf("fence %d after %d", lock.Fence(), c.fence)
				}
				seen := c.n
				c.fence = lock.Fence()
				if st, err := locks.Inspect(ctx, key); err != nil || !st.Holds(lock.Token()) { // some time passes inside
					t.Errorf("inside, the key is %+v, %v; want %q", st, err, lock.Token())
				}
				c.n = seen + 1
				c.inside.Add(-1)
				c.taken.Add(1)
				err = lock.Release(ctx)
				for readersToo && errors.Is(err, compat.ErrUnknown) && ctx.Err() == nil {
					err = lock.Release(ctx) // it needs several keys as well, and they may be apart
				}
				if err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
	}
	return c
}

func (c *counter) Observe(e compat.Event) {
	if e.Kind == compat.EventAttempt && e.Err != nil && strings.Contains(e.Err.Error(), "TRYAGAIN") {
		c.refused.Add(1)
	}
}

// goesOn waits until the lock has gone round a few times more.
func (c *counter) goesOn(nodes *realredis.Cluster) {
	c.t.Helper()
	c.waitFor(nodes, "the lock is obtained", &c.taken, 8)
}

// stands waits until attempts have been put off because the slot is moved.
func (c *counter) stands(nodes *realredis.Cluster) {
	c.t.Helper()
	c.waitFor(nodes, "an attempt is put off", &c.refused, 4)
}

func (c *counter) waitFor(nodes *realredis.Cluster, what string, n *atomic.Int64, more int64) {
	c.t.Helper()
	start := n.Load()
	nodes.Until(what, func() error {
		if n.Load() < start+more {
			return errors.New("not yet")
		}
		return nil
	})
}

// stop ends the counting and checks it.
func (c *counter) stop() {
	c.t.Helper()
	c.done.Store(true)
	c.wg.Wait()
	if n := c.overlaps.Load(); n != 0 || int64(c.n) != c.taken.Load() {
		c.t.Errorf("%d overlaps, counted to %d, want %d", n, c.n, c.taken.Load())
	}
}
