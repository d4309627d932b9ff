package compat_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/stock"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// kept are a lock whose steps travel together, and one that pins its connection.
var kept = map[string]protocol.Algorithm{"set:lua": setlock.Lua{}, "tx:renamed": txlock.Renamed{}}

// inItsOwnTime runs f in a bubble, with a pool of connections to a server.
func inItsOwnTime(t *testing.T, f func(t *testing.T, p *redis.Pool)) {
	synctest.Test(t, func(t *testing.T) {
		s := must.Get(oldredis.New("7.0", oldredis.Options{Clock: clock.New()}))(t)
		t.Cleanup(func() { s.Close() })
		f(t, s.Pool())
	})
}

// out is how many connections of p are not in it.
func out(p *redis.Pool) int { return p.ActiveCount() - p.IdleCount() }

// A pool that is shared with the program's own work never runs dry for what a Locker keeps: a quarter of it at most stays
// out between two steps, none of a small one, and a second after the last step none at all.
func TestAPoolIsNotOurs(t *testing.T) {
	for _, most := range []int{1, 4, 10, 40} {
		for name, a := range kept {
			t.Run(fmt.Sprint(name, "/", most), func(t *testing.T) {
				inItsOwnTime(t, func(t *testing.T, p *redis.Pool) {
					p.MaxActive, p.MaxIdle, p.Wait = most, most, true
					k := compat.New(p, a, compat.Options{NoRenew: true})
					var all sync.WaitGroup
					var inside atomic.Int32
					together := make(chan struct{}) // all that are inside
					for n := range most {
						all.Go(func() {
							for range 5 {
								err := k.Do(background, fmt.Sprint("k", n), time.Minute, func(ctx context.Context) error {
									if int(inside.Add(1)) == most {
										synctest.Wait()
										if n := out(p); n > most/4 {
											t.Errorf("%d connections of %d are kept while nobody does anything", n, most)
										}
										close(together)
									}
									<-together
									c := p.Get()
									defer c.Close()
									if _, err := c.Do("SELECT", 3); err != nil {
										return err
									}
									_, err := c.Do("SELECT", 0)
									return err
								})
								if err != nil {
									t.Error(err)
								}
							}
						})
					}
					all.Wait()
					time.Sleep(1100 * time.Millisecond)
					if n := out(p); n != 0 {
						t.Errorf("%d connections are out, a second after the last step", n)
					}
				})
			})
		}
	}
}

// Nothing is left of a Locker that nobody closes, and it can't hurt that its pool is closed.
func TestPoolIsClosedAndNotItsLocker(t *testing.T) {
	for name, a := range kept {
		t.Run(name, func(t *testing.T) {
			inItsOwnTime(t, func(t *testing.T, p *redis.Pool) { // a bubble with goroutines that are left panics
				k := compat.New(p, a, compat.Options{NoRenew: true})
				var all sync.WaitGroup
				for n := range 8 {
					all.Go(func() { release(t, try(t, k, fmt.Sprint("k", n))) })
				}
				all.Wait()
				p.Close()
				if _, err := k.TryLock(background, "later", time.Minute); err != nil && !errors.Is(err, compat.ErrUnknown) && protocol.OutcomeOf(err) != protocol.NotSent {
					t.Errorf("over a closed pool: %v", err)
				}
				time.Sleep(2 * time.Second)
				if _, err := k.TryLock(background, "k0", time.Minute); protocol.OutcomeOf(err) != protocol.NotSent {
					t.Errorf("over a closed pool, when nothing is kept any more: %v", err)
				}
			})
		})
	}
}

// What is kept goes back to its pool after a second, which tests and replaces it.
func TestOnBorrowIsAsked(t *testing.T) {
	for name, a := range kept {
		t.Run(name, func(t *testing.T) {
			inItsOwnTime(t, func(t *testing.T, p *redis.Pool) {
				var last atomic.Int64
				longest := time.Duration(0)
				p.TestOnBorrow = func(redis.Conn, time.Time) error {
					now := time.Now().UnixNano()
					if before := last.Swap(now); before > 0 {
						longest = max(longest, time.Duration(now-before))
					}
					return nil
				}
				k := compat.New(p, a, compat.Options{NoRenew: true})
				for range 100 {
					release(t, try(t, k, "k"))
					time.Sleep(100 * time.Millisecond)
				}
				if last.Load() == 0 || longest > 2500*time.Millisecond {
					t.Errorf("for %v the pool tested nothing", longest)
				}
				k.Close(background) //nolint:errcheck
			})
		})
	}
}

// When a pool has handed out all that it has, what is kept goes back at once: a step does not wait for it to have its age.
func TestAFullPoolGetsBackWhatIsKept(t *testing.T) {
	inItsOwnTime(t, func(t *testing.T, p *redis.Pool) {
		p.MaxActive, p.MaxIdle, p.Wait = 3, 3, true
		source := compat.Pooled(p)
		source.Keep = 6
		k := compat.NewOn(source, txlock.Renamed{}, compat.Options{})
		release(t, try(t, k, "checked"))
		began := time.Now()
		for _, key := range []string{"a", "b", "c", "d", "e"} { // three of them are pinned
			try(t, k, key)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		k.Close(background) //nolint:errcheck
	})
}

// Redigo's own connections are known, whichever way the pool gets them, and a program's are not.
func TestWhatIsKnownToBeShareable(t *testing.T) {
	addr := realredis.Start(t)
	for name, c := range map[string]struct {
		dial func() (redis.Conn, error)
		want bool
	}{
		"redigo's":    {func() (redis.Conn, error) { return redis.Dial("tcp", addr) }, true},
		"a program's": {func() (redis.Conn, error) { c, err := redis.Dial("tcp", addr); return struct{ redis.Conn }{c}, err }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &redis.Pool{Dial: c.dial}
			defer p.Close()
			conn := p.Get()
			defer conn.Close()
			if got := stock.Shareable(conn); got != c.want {
				t.Errorf("shareable: %v", got)
			}
		})
	}
}

// A lock that nobody can reach any more is renewed no longer, and ends as lost, with that as its reason, also if its
// With was never ended; one that is reached is renewed.
func TestForsakenLockEnds(t *testing.T) {
	for _, reached := range []bool{false, true} {
		inItsOwnTime(t, func(t *testing.T, p *redis.Pool) {
			var mu sync.Mutex
			var lost error
			var lingers int
			k := compat.New(p, txlock.Renamed{}, compat.Options{Observer: func(e compat.Event) {
				mu.Lock()
				defer mu.Unlock()
				switch e.Kind {
				case compat.EventLost:
					lost = e.Err
				case compat.EventLingers:
					lingers++
				}
			}})
			const ttl = 10 * time.Second
			l := try(t, k, "k")
			must.Do(t, l.Extend(background, ttl))
			if _, forgotten := l.With(background); forgotten == nil { // and never called
				t.Fatal("With returns no end")
			}
			over := func() bool { mu.Lock(); defer mu.Unlock(); return lost != nil }
			for n := 0; n < 300 && (reached || !over()); n++ { // the runtime takes its time to notice
				if !reached {
					l = nil
					runtime.GC()
				}
				time.Sleep(ttl / 2)
				synctest.Wait()
			}
			mu.Lock()
			defer mu.Unlock()
			if reached != (lost == nil) || lost != nil && !strings.Contains(lost.Error(), "nobody could reach the lock") {
				t.Errorf("reached %v: lost %v", reached, lost)
			}
			if reached {
				if lingers != 1 {
					t.Errorf("told %d times that a lock is held for long", lingers)
				}
			}
			runtime.KeepAlive(l)
		})
	}
}

// A lock of many years is not told to linger after its first renewal.
func TestALongLockDoesNotLinger(t *testing.T) {
	w := newWorld(t, "2.4")
	const year = 365 * 24 * time.Hour
	seen := make(chan compat.Kind, 9)
	k := compat.NewOn(w.source(), txlock.Renamed{}, compat.Options{Clock: w.clock, Observer: func(e compat.Event) {
		if e.Kind != compat.EventAttempt && e.Kind != compat.EventAcquired {
			seen <- e.Kind
		}
	}})
	l := must.Get(k.TryLock(background, "k", 10*year))(t)
	w.clock.Add(4 * year)
	if kind := <-seen; kind != compat.EventExtended {
		t.Fatal(kind)
	}
	must.Do(t, l.Release(background)) // waits for the renewal
	if kind := <-seen; kind != compat.EventReleased {
		t.Error(kind)
	}
}
