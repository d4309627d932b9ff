package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/cluster"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// TestFailover kills a master of a real cluster twice. What had reached its
// replica is held on; what had not is lost, its holder is told before its lease
// ends, and another gets it (any/failover). All go on afterwards.
func TestFailover(t *testing.T) {
	t.Parallel()
	nodes := realredis.RunCluster(t)
	t.Run("replicated", func(t *testing.T) { replicated(t, nodes) })
	t.Run("not replicated", func(t *testing.T) { notReplicated(t, nodes) })
}

// replicated: locks whose keys had reached the replica outlive the master, and
// nobody else gets in.
func replicated(t *testing.T, nodes *realredis.Cluster) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	const master, replica = 0, 3
	var held []*compat.Lock
	var waiters []*waiter
	source := cluster.New(nodes.Addrs(), cluster.Options{})
	defer source.Close()
	for _, algo := range algorithms() {
		key := tag(master) + algo.name
		o := compat.Options{NoRenew: true, Timeout: time.Minute}
		lock := must.Get(compat.NewOn(source.Source(), algo.new(true), o).Lock(ctx, key, 40*time.Second))(t)
		held = append(held, lock)
		waiters = append(waiters, wait(ctx, t, nodes, algo, key))
	}
	nodes.Until("the replica has the keys", func() error {
		master, err := redis.Int(nodes.Try(master, "DBSIZE"))
		replica, err2 := redis.Int(nodes.Try(replica, "DBSIZE"))
		if master != replica || err != nil || err2 != nil {
			return errors.New("not all of them")
		}
		return nil
	})
	epoch := source.Epoch()
	nodes.Nodes[master].Kill()
	for _, lock := range held {
		nodes.Until("a lock is extended on the replica", func() error {
			err := lock.Extend(ctx, 40*time.Second)
			if errors.Is(err, compat.ErrLost) {
				t.Fatalf("%q, which had been replicated: %v", lock.Key(), err)
			}
			return err
		})
	}
	if got := source.Epoch(); got != epoch+1 {
		t.Errorf("epoch %d after the failover, want %d", got, epoch+1)
	}
	for i, lock := range held {
		if waiters[i].got() {
			t.Errorf("%q was held, and yet another got it", lock.Key())
		}
		if err := lock.Release(ctx); err != nil {
			t.Errorf("%q: %v", lock.Key(), err)
		}
	}
	for _, w := range waiters {
		if lock := w.wait(ctx); lock != nil {
			if lock.Fence() <= w.after {
				t.Errorf("%q: fence %d on the replica, it was %d before", lock.Key(), lock.Fence(), w.after)
			}
			if err := lock.Release(ctx); err != nil {
				t.Errorf("%q: %v", lock.Key(), err)
			}
		}
	}
}

// notReplicated: locks that only the master knew are lost with it. Their
// holders' contexts end by themselves, with the leases, whatever they do;
// the waiters get them, and a holder that comes too late harms nobody.
func notReplicated(t *testing.T, nodes *realredis.Cluster) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	const master, replica = 1, 4
	source := cluster.New(nodes.Addrs(), cluster.Options{})
	defer source.Close()
	all := algorithms()
	lockers := make([]*compat.Locker, len(all))
	for i, algo := range all { // each has found the server safe, so that taking the locks is quick
		o := compat.Options{NoRenew: true, Timeout: time.Minute}
		lockers[i] = compat.NewOn(source.Source(), algo.new(false), o)
		lock := must.Get(lockers[i].Lock(ctx, tag(master)+"before", time.Minute))(t)
		must.Do(t, lock.Release(ctx))
	}

	nodes.Nodes[replica].Stop()
	nodes.Do(master, "CLIENT", "KILL", "TYPE", "REPLICA") // else it would find in its socket what it missed
	var held []*compat.Lock
	for i, algo := range all {
		held = append(held, must.Get(lockers[i].Lock(ctx, tag(master)+algo.name, 40*time.Second))(t))
	}
	renewing := compat.NewOn(source.Source(), all[0].new(false), compat.Options{Timeout: time.Minute})
	renewed := must.Get(renewing.Lock(ctx, tag(master)+"renewed", 6*time.Second))(t)
	nodes.Nodes[master].Kill()
	nodes.Nodes[replica].Continue()
	var waiters []*waiter
	for i, algo := range all {
		waiters = append(waiters, wait(ctx, t, nodes, algo, held[i].Key()))
	}
	for i, w := range waiters {
		lock := w.wait(ctx)
		if lock == nil {
			continue
		}
		if held[i].Context().Err() != nil {
			t.Errorf("%q: its end came before another got it: this test shows no overlap", lock.Key())
		}
		if i%2 == 0 {
			nodes.Until("an extension of what was lost says so", func() error {
				if err := held[i].Extend(ctx, time.Minute); !errors.Is(err, compat.ErrLost) {
					return fmt.Errorf("%q: %v, want ErrLost", lock.Key(), err)
				}
				return nil
			})
			if cause := context.Cause(held[i].Context()); !errors.Is(cause, compat.ErrLost) {
				t.Errorf("%q: its context ended with %v, want ErrLost", lock.Key(), cause)
			}
		}
		err := held[i].Release(ctx)
		for errors.Is(err, compat.ErrUnknown) && ctx.Err() == nil { // its map is not learnt from one that knows
			err = held[i].Release(ctx)
		}
		if !errors.Is(err, compat.ErrLost) {
			t.Errorf("%q: a release of what was lost: %v, want ErrLost", lock.Key(), err)
		}
		if err := lock.Release(ctx); err != nil {
			t.Errorf("%q: after the late holder's release: %v", lock.Key(), err)
		}
	}
	select {
	case <-renewed.Context().Done():
		if cause := context.Cause(renewed.Context()); !errors.Is(cause, compat.ErrLost) {
			t.Errorf("the renewed lock's context ended with %v, want ErrLost", cause)
		}
	case <-ctx.Done():
		t.Error("nobody told the holder of a renewed lock that it was lost")
	}
	if err := renewed.Release(ctx); !errors.Is(err, compat.ErrLost) {
		t.Errorf("its release: %v, want ErrLost", err)
	}
}

// A waiter waits for a lock, again when that fails: while there is no master
// nobody answers.
type waiter struct {
	t     *testing.T
	key   string
	after int64 // the fence before
	lock  chan *compat.Lock
}

func wait(ctx context.Context, t *testing.T, nodes *realredis.Cluster, algo algorithm, key string) *waiter {
	w := &waiter{t, key, 1, make(chan *compat.Lock, 1)}
	source := cluster.New(nodes.Addrs(), cluster.Options{})
	o := compat.Options{NoRenew: true, Timeout: time.Minute, Poll: 50 * time.Millisecond}
	locks := compat.NewOn(source.Source(), algo.new(true), o)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done; source.Close() })
	go func() {
		defer close(done)
		defer close(w.lock)
		for ctx.Err() == nil {
			if lock, err := locks.Lock(ctx, key, 40*time.Second); err == nil {
				w.lock <- lock
				return
			}
		}
	}()
	return w
}

func (w *waiter) got() bool { return len(w.lock) > 0 }

func (w *waiter) wait(ctx context.Context) *compat.Lock {
	select {
	case lock := <-w.lock:
		if lock != nil {
			return lock
		}
	case <-ctx.Done():
	}
	w.t.Errorf("%q: its waiter never got it", w.key)
	return nil
}
