package promises_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// pooled is a client over a redigo pool whose connections know how many generations there were before them, and the
// pool. befalls says what becomes of a message over an old one.
func (w *world) pooled(o compat.Options, generation *atomic.Int32, befalls faulty.Fate, tune func(*redis.Pool)) (*compat.Locker, *redis.Pool) {
	p := &redis.Pool{MaxIdle: 8, Dial: func() (redis.Conn, error) {
		mine := generation.Load()
		return faulty.Over(w.servers[0].Dial(), func(m faulty.Message) faulty.Fate {
			switch {
			case mine < generation.Load():
				return befalls
			case m.Name == "WAIT":
				return faulty.Answer(int64(1))
			}
			return faulty.Fate{}
		}), nil
	}}
	if tune != nil {
		tune(p)
	}
	o.Clock = clock.New()
	return w.kind.make([]compat.Source{compat.Pooled(p)}, o), p
}

// busy leaves n idle connections.
func busy(p *redis.Pool, n int) {
	all := make([]redis.Conn, n)
	for i := range all {
		all[i] = p.Get()
		all[i].Do("PING") //nolint:errcheck // it connects
	}
	for _, c := range all {
		c.Close()
	}
}

// onePool are kinds of one server with all the ways in which a step comes to its connection.
func onePool() []kind {
	var kinds []kind
	for _, k := range all(true) {
		if len(k.versions) == 1 {
			kinds = append(kinds, k)
		}
	}
	return withShared(kinds)
}

// The other holders of a lock that is shared don't keep a client out whose connection breaks in the middle of an attempt.
// What it then reads is no refusal.
func TestABrokenConnectionIsNoRefusalByThoseWhoShare(t *testing.T) {
	read := rwlock.Read{}
	eachKind(t, []kind{
		one("rwlock.Read", "2.4", read),
		one("semaphore of 3", "2.2", semaphore.Lock{Options: semaphore.Options{N: 3}}),
		several("multilock.New(rwlock.Read)", "2.4", read),
		quorum("redlock(rwlock.Read)", true, []string{"2.4", "2.4", "2.4"}, read, read, read),
		quorum("redlock(rwlock.Read), one server", true, []string{"2.4"}, read),
	}, func(t *testing.T, k kind) {
		for _, loss := range []faulty.Loss{faulty.LostRequest, faulty.LostReply} {
			for n, sent := 1, 1; n <= sent; n++ {
				inWorld(t, k, func(w *world) {
					another, _ := w.client(compat.Options{NoRenew: true})
					w.try(another, medium)
					locker, network := w.client(compat.Options{NoRenew: true})
					if err := w.try(locker, medium).Release(background); err != nil {
						t.Fatal(err)
					}
					network.Expect(faulty.Fate{Loss: loss}.At(n))
					if _, err := locker.TryLock(background, k.key, medium); err != nil {
						t.Errorf("%v, message %d: %v", loss, n, err)
					}
					sent = network.Count()
				})
			}
		}
	})
}

// Connections may die without a word while they are idle, all at once: a firewall has forgotten them. A lock that is
// renewed lives on, and of those that ask then, one does not hear in time, however short their patience is.
func TestConnectionsThatDiedWithoutAWord(t *testing.T) {
	eachKind(t, onePool(), func(t *testing.T, k kind) {
		for _, patience := range []time.Duration{0, 150 * time.Millisecond, 2 * time.Second} {
			inWorld(t, k, func(w *world) {
				var generation atomic.Int32
				locker, pool := w.pooled(compat.Options{}, &generation, faulty.Fate{Before: faulty.Forever}, nil)
				l := w.try(locker, 30*time.Second)
				busy(pool, 6)
				generation.Add(1)
				if patience == 0 {
					if pass(2 * time.Minute); !believes(l) {
						t.Errorf("the lock is lost: %v", context.Cause(l.Context()))
					}
				}
				failed := 0
				for n := range 8 {
					ctx := background
					if patience > 0 {
						ctx = w.within(patience)
					}
					another, err := locker.TryLock(ctx, k.another(n+2), long)
					if err != nil {
						failed++
						continue
					}
					another.Release(background) //nolint:errcheck // asked for below
				}
				if failed > 1 {
					t.Errorf("patience %v: %d of 8 have failed", patience, failed)
				}
				locker.Close(background) //nolint:errcheck
				pool.Close()
			})
		}
	})
}

// A pool says which connections are not to be used any more, by their age or by a test: that goes for shared ones, too.
func TestAPoolReplacesConnections(t *testing.T) {
	for name, tune := range map[string]func(p *redis.Pool, generation *atomic.Int32){
		"MaxConnLifetime": func(p *redis.Pool, _ *atomic.Int32) { p.MaxConnLifetime = 20 * time.Second },
		"TestOnBorrow": func(p *redis.Pool, _ *atomic.Int32) {
			p.TestOnBorrow = func(c redis.Conn, _ time.Time) error { _, err := c.Do("PING"); return err }
		},
		"IdleTimeout": func(p *redis.Pool, _ *atomic.Int32) { p.IdleTimeout = 20 * time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, onePool(), func(t *testing.T, k kind) {
				if !whole && (len(k.name)+len(name))%3 != 0 {
					return
				}
				inWorld(t, k, func(w *world) {
					var generation atomic.Int32
					locker, pool := w.pooled(compat.Options{NoRenew: true}, &generation, faulty.Answer(redis.Error("ERR an old server's")),
						func(p *redis.Pool) { tune(p, &generation) })
					for n := range 3 {
						if l, err := locker.TryLock(background, k.another(n+2), long); err != nil {
							t.Errorf("generation %d: %v", n, err)
						} else if err := l.Release(background); err != nil {
							t.Errorf("generation %d: release: %v", n, err)
						}
						generation.Add(1)
						pass(time.Minute)
					}
					locker.Close(background) //nolint:errcheck
					pool.Close()
				})
			})
		})
	}
}

// While a Dial hangs, at most one goes on that nobody waits for, however many have asked; when it is over, all is well.
func TestOneDialForNobody(t *testing.T) {
	for name, at := range map[string]bool{"at once": true, "one after the other": false} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, onePool(), func(t *testing.T, k kind) {
				for _, checked := range []bool{true, false} {
					inWorld(t, k, func(w *world) {
						var generation, dials atomic.Int32
						var gate atomic.Pointer[chan struct{}]
						locker, pool := w.pooled(compat.Options{NoRenew: true, Timeout: 200 * time.Millisecond}, &generation, faulty.Fate{Loss: faulty.LostRequest},
							func(p *redis.Pool) {
								dial := p.Dial
								p.Dial = func() (redis.Conn, error) {
									if g := gate.Load(); g != nil {
										dials.Add(1)
										<-*g
										dials.Add(-1)
									}
									return dial()
								}
							})
						if checked {
							w.try(locker, long)
						}
						hang := make(chan struct{})
						generation.Add(1)
						gate.Store(&hang)
						var all sync.WaitGroup
						for n := range 40 {
							ask := func() {
								began := time.Now()
								_, err := locker.TryLock(background, k.another(n+2), long)
								if took := time.Since(began); took > 6*200*time.Millisecond || !errors.Is(err, compat.ErrTimeout) && at {
									t.Errorf("after %v: %v", took, err)
								}
							}
							if at {
								all.Go(ask)
							} else {
								ask()
							}
						}
						all.Wait()
						synctest.Wait()
						if n := dials.Load(); n > 1 {
							t.Errorf("%d Dials go on, which nobody waits for", n)
						}
						gate.Store(nil)
						close(hang)
						pass(time.Second)
						if _, err := locker.TryLock(background, k.another(1), long); err != nil {
							t.Errorf("when it is over: %v", err)
						}
						locker.Close(background) //nolint:errcheck
						pool.Close()
					})
				}
			})
		})
	}
}

// What a Source says of its idle connections may be otherwise a moment later: no step outlasts its limit.
func TestIdleIsNoPromise(t *testing.T) {
	eachKind(t, onePool(), func(t *testing.T, k kind) {
		for _, q := range questions {
			inWorld(t, k, func(w *world) {
				var taken atomic.Bool
				source := through(new(faulty.Network), w.servers[0])
				get := source.Get
				source.Idle = func() int { return 3 }
				source.Get = func(ctx context.Context, key string) (redis.Conn, error) {
					if taken.Load() {
						<-time.After(time.Hour)
						return nil, errors.New("nobody is there")
					}
					return get(ctx, key)
				}
				locker := k.make([]compat.Source{source}, compat.Options{NoRenew: true, Timeout: time.Second})
				l := w.try(locker, long)
				taken.Store(true)
				pass(2 * time.Second)
				began := time.Now()
				q.ask(background, w, locker, l) //nolint:errcheck // it can't be had
				if took := time.Since(began); took > 6*time.Second && q.name != "Lock" {
					t.Errorf("%s took %v", q.name, took)
				}
				pass(2 * time.Hour)
			})
		}
	})
}

// A quorum whose servers are far away, or whose ttl is short, gets its lock by default; and again after each server has
// closed its connections.
func TestAQuorumFarAway(t *testing.T) {
	for _, c := range []struct {
		trip, ttl time.Duration
		idle      int
	}{
		{200 * time.Millisecond, 30 * time.Second, 4}, {200 * time.Millisecond, 30 * time.Second, 0}, {35 * time.Millisecond, 30 * time.Second, 0},
		{100 * time.Millisecond, 5 * time.Second, 4}, {5 * time.Millisecond, 200 * time.Millisecond, 4},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			kinds := []kind{
				quorum("set:lua", false, []string{"7.0", "7.0", "7.0"}, setlock.Lua{}, setlock.Lua{}, setlock.Lua{}),
				quorum("mixed", false, []string{"2.6", "2.6", "7.0"}, txlock.Renamed{Options: txlock.Options{Millis: true}}, setlock.Script{}, setlock.Lua{}),
			}
			if c.ttl >= time.Second {
				kinds = append(kinds, quorum("getset", false, []string{"2.2", "2.2", "2.2"}, getsetlock.ListCAS{}, getsetlock.ListCAS{}, getsetlock.ListCAS{}))
			}
			eachKind(t, kinds, func(t *testing.T, k kind) {
				inWorld(t, k, func(w *world) {
					var sources []compat.Source
					var generation atomic.Int32
					for _, s := range w.servers {
						p := &redis.Pool{MaxIdle: c.idle, DialContext: func(ctx context.Context) (redis.Conn, error) {
							if err := faulty.Pause(ctx, c.trip); err != nil {
								return nil, err
							}
							mine := generation.Load()
							return faulty.Over(s.Dial(), func(m faulty.Message) faulty.Fate {
								f := faulty.Fate{}
								if m.At == 0 {
									f.Before = c.trip
								}
								if mine < generation.Load() {
									f.Loss = faulty.LostRequest
								}
								return f
							}), nil
						}}
						sources = append(sources, compat.Pooled(p))
					}
					locker := k.make(sources, compat.Options{NoRenew: true})
					defer locker.Close(background) //nolint:errcheck
					for n := range 3 {
						for _, try := range []func(context.Context, string, time.Duration) (*compat.Lock, error){locker.Lock, locker.TryLock} {
							l, err := try(w.within(20*time.Second), fmt.Sprint("k", n), c.ttl)
							if err != nil {
								t.Errorf("round %d: %v", n, err)
								continue
							}
							if err := l.Release(background); err != nil {
								t.Errorf("round %d: release: %v", n, err)
							}
							generation.Add(1)
							pass(time.Second) // idle connections are not given up more often
						}
					}
				})
			})
		})
	}
}

// Options.Timeout is the limit of a step as a whole, whatever its context is, and however many keys it has.
func TestOneTimeoutForEveryContext(t *testing.T) {
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprint("key", i))
	}
	kinds := withShared(all(false))
	for _, k := range []kind{several("multilock.New(tx:renamed), 20", "2.4", txlock.Renamed{}), several("multilock.New(set:lua), 20", "7.0", setlock.Lua{}),
		several("multilock.New(getset:guarded), 20", "2.4", getsetlock.Guarded{})} {
		k.key = multilock.Join(many...)
		kinds = append(kinds, k)
	}
	for _, q := range questions {
		for _, trip := range []time.Duration{40 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond, faulty.Forever} {
			t.Run(fmt.Sprint(q.name, "/", trip), func(t *testing.T) {
				eachKind(t, kinds, func(t *testing.T, k kind) {
					if !whole && (len(k.name)+len(q.name)+int(trip/time.Millisecond)/10)%4 != 0 || k.pinned && trip == faulty.Forever { // half a step, over a pinned one
						return
					}
					var said [2]string
					for i, ends := range []bool{false, true} {
						inWorld(t, k, func(w *world) {
							ctx, cancel := background, func() {}
							if ends {
								ctx, cancel = context.WithCancel(background)
							}
							defer cancel()
							locker, net := w.client(compat.Options{NoRenew: true, Timeout: time.Second})
							l := w.try(locker, 2*long)
							net.Expect(func(m faulty.Message) faulty.Fate {
								if m.At > 0 {
									return faulty.Fate{}
								}
								return faulty.Fate{Before: trip}
							})
							began := time.Now()
							_, err := q.ask(ctx, w, locker, l)
							said[i] = sprint("after %v: outcome %v, ErrTimeout %t", time.Since(began).Round(50*time.Millisecond), protocol.OutcomeOf(err), errors.Is(err, compat.ErrTimeout))
							net.Clear()
							locker.Close(background) //nolint:errcheck
						})
					}
					if said[0] != said[1] {
						t.Errorf("with context.Background() %s, with one that can end %s", said[0], said[1])
					}
				})
			})
		}
	}
}
