package multilock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// two is a cluster of two servers: the parity of a key's last byte tells which has it. A fence is
// where its key is.
func two(even, odd compat.Pool) compat.Source {
	return compat.Source{Slots: true, Get: func(ctx context.Context, key string) (redis.Conn, error) {
		key, _, _ = strings.Cut(key, ":fence")
		if key[len(key)-1]&1 == 0 {
			return even.GetContext(ctx)
		}
		return odd.GetContext(ctx)
	}}
}

// On a cluster each key is locked where it is, in the same suite; and a server
// that is down leaves nothing of the set behind on the others.
func TestCluster(t *testing.T) {
	a, b := oldredis.Run(t, "2.2"), oldredis.Run(t, "5.0")
	for name, one := range map[string]protocol.Algorithm{"tx:guarded": txlock.Guarded{}, "getset:guarded": getsetlock.Guarded{}} {
		k := compat.NewLocker(multilock.New(two(a, b), one), compat.Options{NoRenew: true})
		lock, err := k.TryLock(background, multilock.Join("1", "2", "3"), ttl)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for s, has := range map[*oldredis.Server][]int64{a: {0, 1, 0}, b: {1, 0, 1}} {
			c := s.Dial()
			for i, want := range has {
				if n, err := redis.Int64(c.Do("EXISTS", i+1)); err != nil || n != want {
					t.Errorf("%s: %d is there: %d, want %d; %v", name, i+1, n, want, err)
				}
			}
			c.Close()
		}
		if err := lock.Extend(background, ttl); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := lock.Release(background); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		down := new(faulty.Network)
		down.Cut()
		k = compat.NewLocker(multilock.New(two(down.Pool(a), b), one), compat.Options{NoRenew: true})
		_, err = k.TryLock(background, multilock.Join("1", "2", "3"), ttl)
		if !errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, compat.ErrUnknown) {
			t.Errorf("%s: with one server down: %v, want that, and that nothing is open", name, err)
		}
		c := b.Dial()
		if n, err := redis.Int64(c.Do("EXISTS", "1")); err != nil || n != 0 {
			t.Errorf("%s: 1 still stands; %v", name, err)
		}
		c.Close()
	}
}

// The same suite, with the keys of each set on both servers of a cluster.
func TestConformanceOnTwoServers(t *testing.T) {
	a, b := conformance.Dial(t, realredis.Start(t)), conformance.Dial(t, realredis.Start(t))
	for name, one := range map[string]func() protocol.Algorithm{
		"tx:renamed":     func() protocol.Algorithm { return txlock.Renamed{Options: txlock.Options{Fence: true}} },
		"getset:guarded": func() protocol.Algorithm { return getsetlock.Guarded{Options: getsetlock.Options{Fence: true}} },
	} {
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, conformance.Lock{
				Name: "in turn/" + name, Server: "two real-redis-servers",
				New: func(wrap func(compat.Source) compat.Source, o compat.Options) *compat.Locker {
					return compat.NewLocker(multilock.New(wrap(two(a, b)), one()), o)
				},
				Key:     func(name string) string { return multilock.Join(name+"1", name+"2", name+"3") },
				Sources: []compat.Source{two(a, b)},
				Keys:    written,
				Fence:   true,
			})
		})
	}
}

// On a real cluster one transaction can't have keys of several slots, and the
// lock says what to do; keys with one hash tag it takes.
func TestSlots(t *testing.T) {
	addr := realredis.Start(t, "--cluster-enabled", "yes")
	pool := conformance.Dial(t, addr)
	c := pool.Get()
	defer c.Close()
	must.Get(c.Do("CLUSTER", "ADDSLOTSRANGE", 0, 16383))(t)
	deadline := time.Now().Add(time.Minute)
	for {
		if _, err := c.Do("GET", "a"); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the cluster does not begin: %v", err)
		}
	}
	for _, a := range []protocol.Algorithm{
		multilock.Tx{}, multilock.GetSet{}, multilock.GetSet{Options: getsetlock.Options{Fence: true}}, multilock.GetSetClassic{},
	} {
		k := compat.New(pool, a, compat.Options{NoRenew: true})
		_, err := k.TryLock(background, multilock.Join("a", "b"), ttl)
		var unsafe *compat.UnsafeServerError
		if !errors.As(err, &unsafe) || unsafe.Use == "" {
			t.Errorf("%T: a set over two slots: %v, want ErrUnsafeServer", a, err)
		}
		if n, err := redis.Int(c.Do("EXISTS", "a")); err != nil || n != 0 {
			t.Errorf("%T: a was written all the same; %v", a, err)
		}
		lock, err := k.TryLock(background, multilock.Join("{u}:a", "{u}:b"), ttl)
		if err != nil {
			t.Errorf("%T: a set with a hash tag: %v", a, err)
			continue
		}
		if err := lock.Release(background); err != nil {
			t.Errorf("%T: %v", a, err)
		}
		k = compat.NewLocker(multilock.New(compat.Pooled(pool), txlock.Guarded{}), compat.Options{NoRenew: true})
		if lock, err = k.TryLock(background, multilock.Join("a", "b"), ttl); err != nil {
			t.Errorf("in turn: %v", err)
			continue
		}
		must.Do(t, lock.Release(background))
	}
}

// borrowed is source, and tells of each connection that is asked for.
func borrowed(source compat.Source, then func(n int64)) compat.Source {
	var n atomic.Int64
	get := source.Get
	source.Get = func(ctx context.Context, key string) (redis.Conn, error) {
		then(n.Add(1))
		return get(ctx, key)
	}
	return source
}

// A server that stands still between two keys: a client that gives up gets an answer soon, and
// learns that a part of the set may stand until its time is over.
func TestServerStandsStill(t *testing.T) {
	s := realredis.Run(t)
	pool := conformance.Dial(t, s.Addr)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	first := make(chan struct{})
	source := borrowed(compat.Pooled(pool), func(n int64) {
		if n == 3 { // for the check, for a; now for b
			s.Stop()
			close(first)
		}
	})
	k := compat.NewLocker(multilock.New(source, getsetlock.Classic{}), compat.Options{NoRenew: true, Cleanup: 50 * time.Millisecond})
	ended := make(chan error, 1)
	go func() {
		_, err := k.Lock(ctx, multilock.Join("a", "b"), 2*time.Second)
		ended <- err
	}()
	<-first
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, compat.ErrUnknown) || !errors.Is(err, context.Canceled) {
			t.Errorf("given up while the server stood still: %v, want ErrUnknown and context.Canceled", err)
		}
	case <-time.After(time.Minute):
		t.Error("Lock does not end")
	}
	s.Continue()
	lock, err := compat.NewLocker(multilock.New(compat.Pooled(pool), getsetlock.Classic{}), compat.Options{NoRenew: true}).
		Lock(background, multilock.Join("a", "b"), 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	must.Do(t, lock.Release(background))
}
