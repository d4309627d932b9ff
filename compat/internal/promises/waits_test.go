package promises_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/setnxlock/setnxlock/compat/sentinel"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// A scarcity is a source that has no connection to give for a while.
type scarcity struct {
	name  string
	start func(w *world) (s compat.Source, end func(), none func())
}

var scarcities = []scarcity{
	{"the caller has the pool's only connection", func(w *world) (compat.Source, func(), func()) {
		p := &redis.Pool{MaxActive: 1, Wait: true, MaxIdle: 1, DialContext: w.servers[0].GetContext}
		var held redis.Conn
		return compat.Pooled(p), func() { held.Close(); p.Close() }, func() { held = p.Get() }
	}},
	{"a Dial without a context hangs", func(w *world) (compat.Source, func(), func()) {
		hang := make(chan struct{})
		var hanging atomic.Bool
		p := &redis.Pool{Dial: func() (redis.Conn, error) {
			if hanging.Load() {
				<-hang
				return nil, syscall.ECONNREFUSED
			}
			return w.servers[0].Dial(), nil
		}}
		return compat.Pooled(p), func() { close(hang); p.Close() }, func() { hanging.Store(true) }
	}},
	{"a DialContext hangs", func(w *world) (compat.Source, func(), func()) {
		n := new(faulty.Network)
		return through(n, w.servers[0]), n.Clear, func() { n.OnDial(faulty.Hang) }
	}},
}

// scarce are the locks that are tried without connections.
func scarce() []kind {
	multi := several("multilock.New", "2.6.12", txlock.Renamed{})
	multi.key = multilock.Join("a", "b")
	return []kind{one("getset:guarded", "2.6.12", getsetlock.Guarded{}), one("tx:renamed", "2.6.12", txlock.Renamed{}),
		one("set:lua", "2.6.12", setlock.Lua{}), multi}
}

// Waiting for a connection ends with Options.Timeout, and with the caller's context if that
// is sooner, whatever the source is and whatever is asked.
func TestWaitingForAConnectionIsBounded(t *testing.T) {
	for _, sc := range scarcities {
		for _, q := range questions {
			for _, who := range []string{"Options.Timeout", "Options.Timeout, with a context that can end", "the context"} {
				t.Run(sc.name+"/"+q.name+"/"+who, func(t *testing.T) {
					eachKind(t, scarce(), func(t *testing.T, k kind) {
						inWorld(t, k, func(w *world) {
							o := compat.Options{NoRenew: true, Clock: clock.New(), Timeout: time.Second, Cleanup: 200 * time.Millisecond}
							limit := o.Timeout
							ctx := background
							switch who {
							case "Options.Timeout":
							case "the context":
								o.Timeout, limit = time.Hour, 300*time.Millisecond
								ctx = w.within(limit)
							default:
								ctx = w.within(time.Hour)
							}
							source, end, none := sc.start(w)
							locker := w.kind.make([]compat.Source{source}, o)
							l := w.try(locker, medium)
							pass(forgotten)
							none()
							start := time.Now()
							done := make(chan error, 1)
							go func() { _, err := q.ask(ctx, w, locker, l); done <- err }()
							// A step and what it may need to learn, or to clean up: a few limits, not more.
							select {
							case err := <-done:
								if took := time.Since(start); took > 4*limit+o.Cleanup {
									t.Errorf("it took %v: %v", took, err)
								} else if err == nil {
									t.Error("no error")
								}
								end()
							case <-time.After(time.Minute):
								t.Errorf("it has not ended after a minute; the limit is %v", limit)
								end()
								<-done
							}
							pass(time.Minute)
						})
					})
				})
			}
		}
	}
}

// While a batch of renewals waits for a connection, a release heeds its context, and
// the locks end with their leases. This runs in no bubble, because what hangs may
// hang on a mutex.
func TestRenewalsWithoutAConnection(t *testing.T) {
	for _, size := range []int{1, 3} {
		for _, ask := range []string{"release", "extend", "hand off", "detach"} {
			t.Run(fmt.Sprintf("%s/%d locks", ask, size), func(t *testing.T) {
				t.Parallel()
				stands := clock.NewMock()
				stands.Set(time.Date(2012, 3, 4, 5, 6, 7, 0, time.UTC))
				server := oldredis.MustNew("2.4", oldredis.Options{Clock: stands})
				defer server.Close()
				waits := announced{make(chan struct{}, 100), new(atomic.Bool)}
				p := &redis.Pool{MaxActive: 1, Wait: true, MaxIdle: 1, DialContext: server.GetContext}
				locker := compat.New(announcing{p, waits}, getsetlock.Guarded{}, compat.Options{Clock: stands})
				locks := make([]*compat.Lock, size)
				for i := range locks {
					l := must.Get(locker.TryLock(background, fmt.Sprint("k", i), 3*time.Second))(t)
					locks[i] = l
				}
				waits.on.Store(true)
				held := p.Get()
				stands.Add(time.Second)
				select {
				case <-waits.asked: // a renewal waits for a connection, for ever
				case <-time.After(time.Minute):
					t.Error("no renewal has asked for a connection in a minute")
				}
				ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
				defer cancel()
				done := make(chan error, 1)
				go func() {
					switch l := locks[0]; ask {
					case "release":
						done <- l.Release(ctx)
					case "extend":
						done <- l.Extend(ctx, 3*time.Second)
					case "hand off":
						_, err := handoff(ctx, l, time.Minute)
						done <- err
					case "detach":
						detach(ctx, l) //nolint:errcheck // it needs no connection
						done <- nil
					}
				}()
				late, tick := time.After(time.Minute), time.NewTicker(time.Millisecond)
				defer tick.Stop()
				for ended := false; !ended; {
					select {
					case <-done:
						ended = true
					case <-tick.C:
						stands.Add(10 * time.Millisecond) // what Options.Cleanup grants passes
					case <-late:
						t.Fatal("a context of 20 ms has not ended it after a minute")
					}
				}
				held.Close()
				for _, l := range locks {
					l.Release(background) //nolint:errcheck
				}
				p.Close()
			})
		}
	}
}

// An announcing source tells of each connection that is asked for, from when it is on.
type announcing struct {
	compat.Pool
	announced
}

type announced struct {
	asked chan struct{}
	on    *atomic.Bool
}

func (a announcing) GetContext(ctx context.Context) (redis.Conn, error) {
	if a.on.Load() {
		select {
		case a.asked <- struct{}{}:
		default:
		}
	}
	return a.Pool.GetContext(ctx)
}

// What is done after a context has ended is bounded by Options.Cleanup, once, however many steps
// it takes, for every kind of lock.
func TestCleanupIsBounded(t *testing.T) {
	kinds := append(singles(false), composites(false)[:5]...)
	patient := quorum("redlock with a long limit", false, []string{"2.2", "2.4", "2.6.12"})
	patient.make = func(s []compat.Source, o compat.Options) *compat.Locker {
		servers := []compat.Backend{compat.NewBackend(s[0], getsetlock.Guarded{}), compat.NewBackend(s[1], txlock.Renamed{}), compat.NewBackend(s[2], setlock.Lua{})}
		return compat.NewLocker(redlock.New(servers, redlock.Options{Timeout: 2 * time.Second, Clock: o.Clock}), o)
	}
	kinds = append(kinds, patient, quorum("redlock", false, []string{"2.2", "2.4", "2.6.12"}, getsetlock.Guarded{}, txlock.Renamed{}, setlock.Lua{}))
	eachKind(t, kinds, func(t *testing.T, k kind) {
		for _, q := range questions {
			for n, reached := 1, true; reached && n < 40; n++ {
				inWorld(t, k, func(w *world) {
					locker, net := w.client(compat.Options{NoRenew: true, Timeout: time.Hour, Cleanup: 250 * time.Millisecond})
					l := w.try(locker, long)
					net.Expect(func(m faulty.Message) faulty.Fate {
						if m.N >= n {
							return faulty.Fate{Before: time.Hour}
						}
						return faulty.Fate{}
					})
					start := time.Now()
					err, ok := ended(net, time.Hour+time.Minute, func() error { _, err := q.ask(w.within(time.Second), w, locker, l); return err })
					reached = net.Count() >= n
					if took := time.Since(start); !ok || took > time.Second+250*time.Millisecond {
						t.Errorf("%s, no answer from command %d on: it took %v with a context of 1 s: %v", q.name, n, took, err)
					}
					net.Clear()
					locker.Close(w.within(time.Minute)) //nolint:errcheck // it waits for what is cleaned up behind the call
				})
			}
		}
	})
}

// Each key of a set has its share of Options.Cleanup: one that is not answered leaves the others
// theirs, so that no more stays behind than must.
func TestASilentKeyCostsTheOthersNothing(t *testing.T) {
	eachKind(t, composites(false)[:3], func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			locker, net := w.client(compat.Options{NoRenew: true, Timeout: time.Hour})
			l := w.try(locker, long)
			net.Expect(faulty.Fate{Before: time.Hour}.At(1))
			ctx, cancel := context.WithCancel(background)
			cancel()
			start := time.Now()
			if err := l.Release(ctx); !errors.Is(err, compat.ErrUnknown) || time.Since(start) > 250*time.Millisecond {
				t.Errorf("a release with a context that had ended, %v later: %v", time.Since(start), err)
			}
			if a, b, c := w.get("a"), w.get("b"), w.get("c"); a != "" || b != "" || c == "" {
				t.Errorf("it left %q, %q and %q: c alone was not answered", a, b, c)
			}
			net.Clear()
		})
	})
}

// A token is good for a release when the context has ended, and within Options.Cleanup even if
// nobody answers.
func TestReleaseTokenAfterTheEnd(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, k kind) {
		for _, silent := range []bool{false, true} {
			inWorld(t, k, func(w *world) {
				locker, net := w.client(compat.Options{NoRenew: true, Timeout: time.Hour})
				l := w.try(locker, long)
				key, token := l.Key(), l.Token()
				must.Get(l.Detach(background))(t)
				if silent {
					net.OnDial(faulty.Hang)
				}
				ctx, cancel := context.WithCancel(background)
				cancel()
				start := time.Now()
				err := locker.ReleaseToken(ctx, key, token)
				if (err != nil) != silent || time.Since(start) > 250*time.Millisecond {
					t.Errorf("a server that is silent: %t: after %v: %v", silent, time.Since(start), err)
				}
				net.Clear()
			})
		}
	})
}

// A key that nothing will ever end is repaired when it has been seen unchanged
// for a ttl, by those who wait in one process together: also if each of them
// waits for less.
func TestRepairWithShortContexts(t *testing.T) {
	for _, c := range []kind{
		one("tx:classic", "2.4", txlock.Classic{}), one("forwarding(tx:classic)", "2.4", plain{txlock.Classic{}}),
		one("sentinel.Replicated(tx:classic)", "5.0", sentinel.Replicated{Algorithm: txlock.Classic{}}),
		one("txlock.Fleet", "2.4", txlock.Fleet{}), several("multilock.New", "2.4", txlock.Classic{}),
	} {
		for _, waiters := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s/%d", c.name, waiters), func(t *testing.T) {
				t.Parallel()
				inWorld(t, c, func(w *world) {
					for _, key := range []string{"k", "a"} {
						w.do("SET", key, protocol.NewToken())
					}
					locker, _ := w.client(compat.Options{NoRenew: true})
					until := time.Now().Add(2 * time.Minute)
					var got atomic.Int32
					var wg sync.WaitGroup
					for i := range waiters {
						wg.Go(func() {
							time.Sleep(time.Duration(i) * 400 * time.Millisecond) // so that there is always one
							for got.Load() == 0 && time.Now().Before(until) {
								ctx, cancel := context.WithTimeout(background, 1600*time.Millisecond)
								l, err := locker.Lock(ctx, c.key, 2*time.Second)
								if err == nil {
									got.Add(1)
									l.Release(background) //nolint:errcheck
								}
								cancel()
							}
						})
					}
					wg.Wait()
					if got.Load() == 0 {
						t.Error("nobody got it in two minutes")
					}
				})
			})
		}
	}
}

// However many connections of a pool are dead, a healthy server is found.
func TestManyDeadConnections(t *testing.T) {
	for _, dead := range []int{1, 20, 100} {
		for _, q := range append(questions[:6:6], questions[6]) {
			t.Run(fmt.Sprintf("%s/%d", q.name, dead), func(t *testing.T) {
				kinds := append(singles(false), several("multilock.New", "2.4", txlock.Renamed{}),
					one("multilock.Tx", "2.4", multilock.Tx{}))
				kinds[len(kinds)-1].key = multilock.Join("a", "b")
				eachKind(t, kinds, func(t *testing.T, k kind) {
					inWorld(t, k, func(w *world) {
						pool := &redis.Pool{MaxIdle: 200, DialContext: w.servers[0].GetContext}
						defer pool.Close()
						locker := w.kind.make([]compat.Source{compat.Pooled(pool)}, compat.Options{NoRenew: true, Clock: clock.New()})
						l := w.try(locker, long)
						conns := make([]redis.Conn, dead)
						for i := range conns {
							conns[i] = pool.Get()
							conns[i].Do("PING") //nolint:errcheck
						}
						for _, c := range conns {
							c.Close()
						}
						w.servers[0].Restart(oldredis.Keeping)
						if _, err := q.ask(background, w, locker, l); err != nil {
							t.Errorf("%d dead connections: %v", dead, err)
						}
					})
				})
			})
		}
	}
}

// An Observer that panics takes nothing with it: the key can be had again.
func TestPanickingObserver(t *testing.T) {
	for _, bad := range []compat.Kind{compat.EventAttempt, compat.EventAcquired, compat.EventRefused, compat.EventExtended, compat.EventReleased} {
		t.Run(string(bad), func(t *testing.T) {
			kinds := []kind{all(false)[1], all(false)[5], all(false)[7], composites(false)[1], composites(false)[5], composites(false)[12]}
			eachKind(t, kinds, func(t *testing.T, k kind) {
				for _, q := range []question{questions[0], questions[1], questions[2], questions[3], questions[6]} {
					inWorld(t, k, func(w *world) {
						var panics atomic.Bool
						locker, _ := w.client(compat.Options{NoRenew: true, Observer: compat.Observer(func(e compat.Event) {
							if e.Kind == bad && panics.Load() {
								panics.Store(false)
								panic("an Observer's own")
							}
						})})
						rival, _ := w.client(compat.Options{NoRenew: true})
						l := w.try(locker, medium)
						if bad == compat.EventRefused {
							if _, err := rival.TryLock(background, k.another(1), medium); err != nil {
								w.Fatal(err)
							}
						}
						panics.Store(true)
						func() {
							defer func() { recover() }()               //nolint:errcheck // the caller survives it, as an HTTP server does
							q.ask(w.within(time.Second), w, locker, l) //nolint:errcheck
						}()
						panics.Store(false)
						pass(2 * long)
						for _, key := range []string{k.key, k.another(1)} {
							var got *compat.Lock
							done := make(chan error, 1)
							ctx := w.within(10 * time.Minute)
							go func() { var err error; got, err = locker.Lock(ctx, key, long); done <- err }()
							synctest.Wait()
							if err := <-done; err != nil {
								t.Errorf("%s, then Lock of %s: %v", q.name, key, err)
							} else if err := got.Release(background); err != nil && !errors.Is(err, compat.ErrLost) {
								t.Errorf("%s, then Lock and Release: %v", q.name, err)
							}
						}
					})
				}
			})
		})
	}
}

// A late context's deadline has passed before it ends, as that of a timer on a busy machine.
type late struct {
	context.Context
	deadline time.Time
}

func (l late) Deadline() (time.Time, bool) { return l.deadline, true }

// A connection notices a deadline before its context has ended. A caller who asks the context why Lock has ended is told.
func TestLockEndsAfterItsContext(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, k kind) {
		for after := time.Second; after < 2*time.Second; after += 50 * time.Millisecond {
			inWorld(t, k, func(w *world) {
				rival, _ := w.client(compat.Options{NoRenew: true})
				w.try(rival, long)
				locker, _ := w.client(compat.Options{NoRenew: true})
				deadline := time.Now().Add(after)
				ctx, cancel := context.WithDeadline(background, deadline.Add(200*time.Millisecond))
				defer cancel()
				if _, err := locker.Lock(late{ctx, deadline}, k.key, long); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil {
					t.Errorf("%v, %v before the context had ended", err, time.Until(deadline.Add(200*time.Millisecond)))
				}
			})
		}
	})
}
