package multilock_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Philosophers need two or three forks at random, and some need one and take it with a single
// lock: nobody finds anybody else at a fork, each fork's counter, which nothing else protects, is
// right in the end, and all finish.
func TestPhilosophers(t *testing.T) {
	for _, s := range conformance.Servers(t) {
		for _, m := range ways() {
			if m.vague && s.Version != "" || conformance.Refuses(t, m.on(s)) != nil {
				continue // the vague ones differ in what is told, not in who is let in
			}
			t.Run(m.name+"/"+s.Name, func(t *testing.T) {
				t.Parallel()
				dine(t, s, m)
			})
		}
	}
}

// dining lets two tables dine at a time.
var dining = make(chan struct{}, 2)

func dine(t *testing.T, s conformance.Server, m way) {
	dining <- struct{}{}
	defer func() { <-dining }()
	const forks, philosophers, meals = 5, 10, 4
	prefix := "setnxlock-test:" + protocol.NewToken() + ":"
	t.Cleanup(func() {
		c := s.Source.Get()
		defer c.Close()
		for f := range forks {
			key := fmt.Sprint(prefix, f)
			c.Do("DEL", key, protocol.Aux(key, "fence")) //nolint:errcheck // the next test has other keys
		}
	})
	o := compat.Options{NoRenew: true, Prefix: prefix, Poll: 5 * time.Millisecond, Timeout: time.Minute}
	var at [forks]atomic.Int32
	var counters [forks]int
	var want [forks]atomic.Int32
	var overlaps atomic.Int32
	ctx := t.Context()
	var wg sync.WaitGroup
	for p := range philosophers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(p), 1))
			for range meals {
				mine := r.Perm(forks)[:1+(p+r.IntN(2))%3]
				k, key := compat.New(s.Source, m.single(false), o), fmt.Sprint(mine[0])
				if len(mine) > 1 {
					k, key = m.set(compat.Pooled(s.Source), false, o), multilock.Join(names(mine)...)
				}
				lock, err := k.Lock(ctx, key, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				for _, f := range mine {
					want[f].Add(1)
					if at[f].Add(1) != 1 {
						overlaps.Add(1)
					}
				}
				var seen [forks]int
				for _, f := range mine {
					seen[f] = counters[f]
				}
				if _, err := k.Inspect(ctx, key); err != nil { // some time passes
					t.Error(err)
				}
				for _, f := range mine {
					counters[f] = seen[f] + 1
					at[f].Add(-1)
				}
				if err := lock.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for f := range forks {
		if n := int(want[f].Load()); counters[f] != n {
			t.Errorf("fork %d was taken %d times and counted %d", f, n, counters[f])
		}
	}
	if n := overlaps.Load(); n != 0 {
		t.Errorf("%d times two were at one fork", n)
	}
}

func names(forks []int) []string {
	all := make([]string, len(forks))
	for i, f := range forks {
		all[i] = fmt.Sprint(f)
	}
	return all
}
