package promises_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/sentinel"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// kept are sources, each of which lets a Locker keep n of its connections.
func kept(n int, sources []compat.Source) []compat.Source {
	sources = slices.Clone(sources)
	for i := range sources {
		sources[i].Keep = n
	}
	return sources
}

// sharing is k with connections that the steps share.
func sharing(k kind) kind {
	alone := k.make
	k.name, k.shared = k.name+", shared", true
	k.make = func(s []compat.Source, o compat.Options) *compat.Locker {
		return alone(kept(2, s), o)
	}
	return k
}

// withShared are kinds, and the same with shared connections.
func withShared(kinds []kind) []kind {
	all := kinds
	for _, k := range kinds {
		all = append(all, sharing(k))
	}
	return all
}

// prompt is k with sources that end with the context themselves, so that nobody watches over them.
func prompt(k kind) kind {
	watched := k.make
	k.name += ", prompt"
	k.make = func(s []compat.Source, o compat.Options) *compat.Locker {
		for i := range s {
			s[i].Bounded = true
		}
		return watched(s, o)
	}
	return k
}

// forgotten is when a client has given back the connections that it kept for its next step.
const forgotten = 1100 * time.Millisecond

// A step's limit is its own: what others wait for at the same time, a connection or the check of the server,
// makes it no longer, and no shorter.
func TestManyAtOnceTakeAsLongAsOne(t *testing.T) {
	const limit, many = time.Second, 12
	kinds := withShared(singles(false))
	kinds = append(kinds, quorum("redlock", false, []string{"2.2", "2.4", "2.6.12"}, getsetlock.Guarded{}, txlock.Renamed{}, setlock.Lua{}),
		one("rwlock.Write", "2.4", rwlock.Write{}), one("sentinel.Replicated", "5.0", sentinel.Replicated{Algorithm: txlock.Renamed{}}))
	for _, q := range questions {
		if q.name == "hand off" {
			continue // it sends nothing while most of the lease is left
		}
		for hang, hangs := range hangs {
			for _, fresh := range []bool{false, true} {
				if fresh && q.name != "TryLock" && q.name != "Lock" {
					continue // they need a lock, which is taken after the check
				}
				name := q.name + "/" + hang + " hangs"
				if fresh {
					name += "/not checked yet"
				}
				t.Run(name, func(t *testing.T) {
					eachKind(t, kinds, func(t *testing.T, k kind) {
						// limits are how long the shortest and the longest of n take that begin one after the other.
						limits := func(n int, apart time.Duration) (least, most time.Duration) {
							least = long
							inWorld(t, k, func(w *world) {
								locker, net := w.client(compat.Options{NoRenew: true, Timeout: limit})
								own := make([]*world, n) // each with a key of its own
								locks := make([]*compat.Lock, n)
								for i := range own {
									own[i] = &world{T: w.T, kind: w.kind, servers: w.servers}
									own[i].kind.key = fmt.Sprintf("k%d-", i)
									if !fresh {
										locks[i] = own[i].try(locker, long)
									}
								}
								hangs(net)
								if hang != "reply" {
									pass(forgotten)
								}
								took, errs := make([]time.Duration, n), make([]error, n)
								var all sync.WaitGroup
								for i := range n {
									all.Go(func() {
										time.Sleep(time.Duration(i) * apart)
										began := time.Now()
										_, errs[i] = q.ask(background, own[i], locker, locks[i])
										took[i] = time.Since(began)
									})
								}
								done := make(chan struct{})
								go func() { all.Wait(); close(done) }()
								select {
								case <-done:
								case <-time.After(2 * long):
									t.Error("not all have ended")
								}
								net.Clear()
								<-done
								for i, err := range errs {
									if least, most = min(least, took[i]), max(most, took[i]); !errors.Is(err, compat.ErrTimeout) || !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
										t.Errorf("%d of %d, after %v: %v, want ErrTimeout", i, n, took[i], err)
										break
									}
								}
								locker.Close(w.within(time.Minute)) //nolint:errcheck // it waits for what is cleaned up behind the call
								pass(time.Minute)
							})
							return least, most
						}
						alone, _ := limits(1, 0)
						for _, apart := range []time.Duration{0, limit / many} {
							least, most := limits(many, apart)
							if k.name == "redlock" { // it does not wait again for a server that has not answered
								least = alone
							}
							if least < alone || most > alone {
								t.Errorf("%d at once, %v apart: they took %v to %v, and one takes %v alone", many, apart, least, most, alone)
							}
						}
					})
				})
			}
		}
	}
}

// The wait for a connection is part of a step: what it took, the server has not.
func TestTheWaitForAConnectionCounts(t *testing.T) {
	const limit = time.Second
	eachKind(t, withShared(append(singles(false), one("rwlock.Write", "2.4", rwlock.Write{}))), func(t *testing.T, k kind) {
		for _, ends := range []bool{false, true} {
			inWorld(t, k, func(w *world) {
				net := new(faulty.Network)
				source := through(net, w.servers[0])
				net.OnDial(func(context.Context) error { time.Sleep(limit * 6 / 10); return nil })
				net.Expect(faulty.Fate{Before: limit * 6 / 10}.At(1))
				ctx := background
				if ends {
					ctx = w.within(time.Hour)
				}
				locker := k.make([]compat.Source{source}, compat.Options{NoRenew: true, Timeout: limit})
				began := time.Now()
				_, err := locker.Inspect(ctx, k.key)
				if took := time.Since(began); took != limit || !errors.Is(err, compat.ErrTimeout) {
					t.Errorf("a context that can end: %t: after %v: %v, want ErrTimeout after %v", ends, took, err, limit)
				}
				locker.Close(w.within(time.Minute)) //nolint:errcheck
				pass(time.Minute)
			})
		}
	})
}

// A Dial that fails tells all that wait for it: none of them has another one fail for itself.
func TestADialThatFailsIsToldToAll(t *testing.T) {
	eachKind(t, []kind{sharing(one("getset:guarded", "2.2", getsetlock.Guarded{})), sharing(one("set:lua", "7.0", setlock.Lua{}))}, func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			const takes, many = time.Second, 10
			var dials atomic.Int32
			source := compat.Source{Get: func(context.Context, string) (redis.Conn, error) {
				dials.Add(1)
				time.Sleep(takes)
				return nil, syscall.ECONNREFUSED
			}}
			locker := k.make([]compat.Source{source}, compat.Options{NoRenew: true, Timeout: time.Hour})
			began := time.Now()
			var all sync.WaitGroup
			for i := range many {
				all.Go(func() {
					_, err := locker.Inspect(background, fmt.Sprint(i))
					if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(began) != takes {
						t.Errorf("after %v: %v", time.Since(began), err)
					}
				})
			}
			all.Wait()
			if n := dials.Load(); n != 1 {
				t.Errorf("%d Dials, one is wanted", n)
			}
		})
	})
}

// A caller who gives up a Dial has it fail for nobody else: who has more time dials again.
func TestADialThatIsGivenUpIsNotToldToOthers(t *testing.T) {
	eachKind(t, []kind{sharing(one("getset:guarded", "2.2", getsetlock.Guarded{})), sharing(one("set:lua", "7.0", setlock.Lua{}))}, func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			locker, net := w.client(compat.Options{NoRenew: true, Timeout: time.Hour})
			net.OnDial(faulty.Hang)
			gone := make(chan error, 1)
			go func() { _, err := locker.Inspect(w.within(time.Second), k.key); gone <- err }()
			synctest.Wait()
			stays := make(chan error, 1)
			go func() { _, err := locker.Inspect(background, k.key); stays <- err }()
			synctest.Wait()
			net.OnDial(nil) // the next Dial works
			if err := <-gone; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who gave up: %v", err)
			}
			if err := <-stays; err != nil {
				t.Errorf("who waited for its Dial: %v", err)
			}
			locker.Close(background) //nolint:errcheck
		})
	})
}
