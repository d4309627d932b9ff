package promises_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
)

// Connections made before a server was replaced lead to one that can't serve any more, and says so. Every operation goes
// on over a new one, whatever kind of connection it had.
func TestAnswersOfAServerThatWasReplaced(t *testing.T) {
	kinds := withShared(all(true))
	for i, reply := range []redis.Error{
		"READONLY You can't write against a read only replica.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"LOADING Redis is loading the dataset in memory",
		"NOAUTH Authentication required.",
	} {
		for _, q := range questions {
			t.Run(string(reply[:6])+"/"+q.name, func(t *testing.T) {
				eachKind(t, kinds, func(t *testing.T, k kind) {
					if !whole && (len(k.name)+len(q.name)+i)%4 != 0 {
						return
					}
					inWorld(t, k, func(w *world) {
						var replaced atomic.Int32
						var pools []*redis.Pool
						var sources []compat.Source
						for _, s := range w.servers {
							p := &redis.Pool{MaxIdle: 8, Dial: func() (redis.Conn, error) {
								mine := replaced.Load()
								return faulty.Over(s.Dial(), func(m faulty.Message) faulty.Fate {
									switch {
									case mine < replaced.Load():
										return faulty.Answer(reply)
									case m.Name == "WAIT":
										return faulty.Answer(int64(1))
									}
									return faulty.Fate{}
								}), nil
							}}
							pools, sources = append(pools, p), append(sources, compat.Pooled(p))
						}
						o := compat.Options{Clock: clock.New()}
						locker := k.make(sources, o)
						l := w.try(locker, long)
						for _, p := range pools { // as many as a busy moment leaves
							var all []redis.Conn
							for range 6 {
								all = append(all, p.Get())
							}
							for _, c := range all {
								c.Do("PING") //nolint:errcheck // it connects
							}
							for _, c := range all {
								c.Close()
							}
						}
						replaced.Add(1)
						if _, err := q.ask(context.Background(), w, locker, l); err != nil {
							t.Errorf("after the server was replaced: %v", err)
						}
						another, err := locker.TryLock(background, k.another(2), long)
						if err != nil {
							t.Fatalf("then another lock: %v", err)
						}
						one := another.Context()
						replaced.Add(1) // and the renewals, together
						pass(2 * long)
						if one.Err() != nil {
							t.Errorf("the renewal after the next: %v", context.Cause(one))
						}
						if err := another.Release(background); err != nil {
							t.Errorf("then its release: %v", err)
						}
						if q.name != "Release" && q.name != "hand off" && q.name != "Adopt" {
							if err := l.Release(background); err != nil {
								t.Errorf("then the release: %v", err)
							}
						}
						locker.Close(w.within(time.Minute)) //nolint:errcheck // what else it holds
					})
				})
			})
		}
	}
}

// A server refuses everything for a while: Lock waits for what waiting cures, and says at once what it does not cure. An
// attempt that was refused is no unknown outcome.
func TestWhatWaitingCures(t *testing.T) {
	for reply, cures := range map[redis.Error]bool{
		"READONLY You can't write against a read only replica.":                                  true,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":       true,
		"ERR link with MASTER is down and slave-serve-stale-data is set to 'no'":                 true,
		"LOADING Redis is loading the dataset in memory":                                         true,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.": true,
		"NOREPLICAS Not enough good replicas to write.":                                          true,
		"OOM command not allowed when used memory > 'maxmemory'.":                                true,
		"ERR command not allowed when used memory > 'maxmemory'":                                 true,
		"MISCONF Redis is configured to save RDB snapshots, but is currently unable to persist":  true,
		"CLUSTERDOWN The cluster is down":                                                        true,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                true,
		"ERR max number of clients reached":                                                      true,
		"NOAUTH Authentication required.":                                                        false,
		"ERR operation not permitted":                                                            false,
		"WRONGPASS invalid username-password pair or user is disabled.":                          false,
		"NOPERM this user has no permissions to run the 'setex' command":                         false,
		"DENIED Redis is running in protected mode because protected mode is enabled":            false,
		"ERR nobody has heard of this":                                                           false,
	} {
		t.Run(strings.ReplaceAll(string(reply), " ", "_"), func(t *testing.T) {
			eachKind(t, withShared(all(true)), func(t *testing.T, k kind) {
				if !whole && (len(k.name)+len(reply))%6 != 0 {
					return
				}
				inWorld(t, k, func(w *world) {
					locker, net := w.client(compat.Options{NoRenew: true})
					w.try(locker, long).Release(background) //nolint:errcheck // the server was found safe
					net.Expect(faulty.Answer(reply).Always())
					if _, err := locker.TryLock(background, k.key, long); err == nil || !strings.Contains(err.Error(), string(reply[:20])) {
						t.Errorf("TryLock: %v, want the server's answer", err)
					} else if known := !strings.HasPrefix(string(reply), "ERR nobody"); known && errors.Is(err, compat.ErrUnknown) {
						t.Errorf("TryLock: %v, which was refused", err)
					}
					began := time.Now()
					time.AfterFunc(3*time.Second, net.Clear)
					l, err := locker.Lock(background, k.key, long)
					if took := time.Since(began); cures != (err == nil) || !cures && took > time.Second {
						t.Errorf("Lock: %v, after %v", err, took)
					}
					if err == nil {
						l.Release(background) //nolint:errcheck // it is over
					}
					pass(5 * time.Second)
				})
			})
		})
	}
}

// A proxy that waited too long for its server answers with an error of its own, and the command runs all the same. It
// proves nothing: who extended to a shorter ttl believes in no more, and nothing is said lost.
func TestAProxysErrorProvesNothing(t *testing.T) {
	ran := faulty.Fate{Serve: func(run func(...any) any) any { run(); return redis.Error("ERR Connection timed out") }}
	for _, more := range []int{0, 100} { // of the commands behind it are answered so
		for name, step := range map[string]func(l *compat.Lock) error{
			"extend":  func(l *compat.Lock) error { return l.Extend(background, short) },
			"release": func(l *compat.Lock) error { return l.Release(background) },
		} {
			t.Run(sprint("%s, and %d more", name, more), func(t *testing.T) {
				kinds := slices.DeleteFunc(append(all(false), keepers()...), kind.looks)
				eachKind(t, kinds, func(t *testing.T, k kind) {
					for n, reached := 1, true; reached && n < 60; n++ {
						inWorld(t, k, func(w *world) {
							holder, net := w.client(compat.Options{NoRenew: true})
							l := w.try(holder, long)
							net.Expect(func(m faulty.Message) faulty.Fate {
								transacts := slices.Contains(m.Write, "EXEC") && m.Name != "EXEC" // its EXEC is answered so
								if m.N < n || m.N > n+more || transacts {
									return faulty.Fate{}
								}
								return ran
							})
							err := step(l)
							reached = net.Count() >= n
							net.Expect(nil)
							if errors.Is(err, compat.ErrLost) {
								t.Errorf("command %d: %v", n, err)
							}
							if name == "extend" {
								pass(short + time.Second)
							}
							believed := believes(l)
							if errors.Is(l.Release(background), compat.ErrLost) && (believed || name == "release") {
								t.Errorf("command %d: %v, and then it is lost", n, err)
							}
						})
					}
				})
			})
		}
	}
}
