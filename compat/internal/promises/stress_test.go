package promises_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/internal/history"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

func TestStress(t *testing.T) {
	seeds := 8
	if s := os.Getenv("SETNXLOCK_SEEDS"); s != "" {
		seeds, _ = strconv.Atoi(s)
	}
	type kind struct {
		name   string
		fenced bool
		a      protocol.Algorithm
		o      compat.Options
	}
	const f, no = true, false
	for _, k := range []kind{
		{"getset:guarded", f, getsetlock.Guarded{Options: getsetlock.Options{Fence: f}}, compat.Options{}},
		{"getset:guarded nofence pinned", no, getsetlock.Guarded{}, compat.Options{}},
		{"getset:listed", no, getsetlock.ListCAS{}, compat.Options{}},
		{"tx:renamed pinned", f, txlock.Renamed{Options: txlock.Options{Fence: f}}, compat.Options{}},
		{"set:watched pinned", no, setlock.Watched{}, compat.Options{NoRenew: true}},
		{"set:lua", f, setlock.Lua{Options: setlock.Options{Fence: f}}, compat.Options{}},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			bad := 0
			for seed := range seeds {
				what := stress(t, uint64(seed), k.fenced, k.a, k.o)
				if what != "" {
					bad++
					if bad <= 3 {
						t.Errorf("seed %d: %s", seed, what)
					}
				}
			}
			if bad > 0 {
				t.Logf("%d of %d", bad, seeds)
			}
		})
	}
}

func stress(t *testing.T, seed uint64, fenced bool, a protocol.Algorithm, o compat.Options) (what string) {
	synctest.Test(t, func(t *testing.T) {
		s := must.Get(oldredis.New("7.0", oldredis.Options{Clock: clock.New()}))(t)
		defer s.Close()
		var mu sync.Mutex
		fail := func(f string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			if what == "" {
				what = fmt.Sprintf(f, args...)
			}
		}
		rng := rand.New(rand.NewPCG(seed, 7))
		var rmu sync.Mutex
		random := func(n int) int { rmu.Lock(); defer rmu.Unlock(); return rng.IntN(n) }
		keys := []string{"a", "b"}
		judge := history.Judge{Fenced: fenced, Found: func(v history.Verdict) { what = cmp.Or(what, v.String()) }}
		held := map[*compat.Lock]string{} // all that were, and what the judge calls them
		tell := func(op history.Op, l *compat.Lock) {
			now := time.Now().UnixNano()
			until, fence := l.Until().UnixNano(), l.Fence()
			judge.Add(history.Event{Op: op, ID: held[l], Key: l.Key(), At: now, Asked: now, Until: until, Fence: fence})
		}
		release := func(ctx context.Context, l *compat.Lock) error {
			mu.Lock()
			tell(history.Ends, l)
			mu.Unlock()
			return l.Release(ctx)
		}
		entered := func(l *compat.Lock) {
			l.Context()
			mu.Lock()
			defer mu.Unlock()
			for o := range held {
				op := history.Holds
				if o.Context().Err() != nil {
					op = history.Ends
				}
				tell(op, o)
			}
			held[l] = fmt.Sprintf("%d, %s", len(held), l.Lease().How)
			tell(history.Got, l)
		}
		var lockers []*compat.Locker
		var nets []*faulty.Network
		for range 2 {
			n := new(faulty.Network)
			o := o
			o.Rand = func() float64 { return float64(random(1000)) / 1000 }
			lockers = append(lockers, compat.NewOn(through(n, s), a, o))
			nets = append(nets, n)
		}
		for _, n := range nets {
			n.Expect(func(m faulty.Message) faulty.Fate {
				f := faulty.Fate{Before: time.Millisecond, After: time.Millisecond}
				switch random(10) {
				case 0:
					f = faulty.Fate{Before: time.Duration(random(300)) * time.Millisecond}
				case 1:
					f = faulty.Fate{After: time.Duration(random(300)) * time.Millisecond}
				}
				switch random(60) {
				case 0:
					f.Loss = faulty.LostReply
				case 1:
					f.Loss = faulty.LostRequest
				case 2:
					if m.Name == "EXEC" || m.Name == "EVALSHA" {
						f.Loss = faulty.LateRequest
					}
				}
				return f
			})
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(50+random(2000)) * time.Millisecond):
					for _, n := range nets {
						n.DeliverLate()
					}
				}
			}
		})
		ttl := func() time.Duration { return time.Duration(1000+random(9)*1000) * time.Millisecond }
		var workers sync.WaitGroup
		for i := range 8 {
			k := lockers[i%2]
			workers.Go(func() {
				for range 25 {
					key := keys[random(2)]
					ctx, cancel := context.WithTimeout(background, time.Duration(200+random(4000))*time.Millisecond)
					var l *compat.Lock
					var err error
					if random(3) == 0 {
						l, err = k.TryLock(ctx, key, ttl())
					} else {
						l, err = k.Lock(ctx, key, ttl())
					}
					if err == nil {
						entered(l)
						var side sync.WaitGroup
						for range 1 + random(4) {
							time.Sleep(time.Duration(random(800)) * time.Millisecond)
							op := func() {
								switch random(7) {
								case 0, 1:
									l.Extend(ctx, ttl())
								case 2:
									if next, err := l.Handoff(ctx, ttl()); err == nil {
										entered(next)
										next.Extend(background, ttl())
										release(background, next)
									}
								case 3:
									if h, err := l.Detach(ctx); err == nil {
										if next, err := lockers[random(2)].AdoptHandle(background, h, ttl()); err == nil {
											entered(next)
											release(ctx, next)
										} else if random(2) == 0 {
											k.ReleaseHandle(background, h)
										}
									}
								case 4:
									l.Token()
								case 5:
									release(ctx, l)
								case 6:
									k.Inspect(ctx, key)
								}
							}
							if random(2) == 0 {
								side.Go(op)
							} else {
								op()
							}
						}
						err := release(ctx, l)
						side.Wait()
						_ = err
					} else if errors.Is(err, compat.ErrInvalid) || errors.Is(err, compat.ErrUnsafeServer) {
						fail("%v", err)
					}
					cancel()
				}
			})
		}
		done := make(chan struct{})
		go func() { workers.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(3 * time.Hour):
			fail("hangs")
			return
		}
		close(stop)
		wg.Wait()
		for _, n := range nets {
			n.Clear()
		}
		time.Sleep(time.Minute)
		for i, k := range lockers {
			for _, key := range keys {
				ctx, cancel := context.WithTimeout(background, time.Minute)
				l, err := k.Lock(ctx, key, time.Second)
				if err != nil {
					fail("afterwards, locker %d: %v", i, err)
				} else if err := l.Release(background); err != nil {
					fail("afterwards, release: %v", err)
				}
				cancel()
			}
			if err := k.Close(background); err != nil {
				fail("close: %v", err)
			}
			if err := k.Close(background); err != nil {
				fail("close again: %v", err)
			}
		}
		for _, n := range nets {
			n.DeliverLate()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, n := range nets {
			if n.Open() != 0 {
				fail("net %d: %d connections are left open", i, n.Open())
			}
		}
	})
	return what
}
