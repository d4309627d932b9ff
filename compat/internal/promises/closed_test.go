package promises_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
)

// A lease that has ended needs no release: nothing is sent, whoever asks, and however many there are.
func TestWhatHasEndedIsNotReleased(t *testing.T) {
	eachKind(t, withShared(all(true)), func(t *testing.T, k kind) {
		for _, how := range []string{"Release", "Close"} {
			inWorld(t, k, func(w *world) {
				locker, net := w.client(compat.Options{NoRenew: true, Timeout: time.Second})
				var locks []*compat.Lock
				for n := range 40 {
					locks = append(locks, must.Get(locker.TryLock(background, k.another(n+2), short))(t))
				}
				net.Expect(faulty.Fate{Before: faulty.Forever}.Always())
				pass(2 * short)
				began, sent := time.Now(), net.Count()
				if how == "Close" {
					locker.Close(background) //nolint:errcheck // they are lost
				} else {
					for _, l := range locks {
						if err := l.Release(background); !errors.Is(err, compat.ErrLost) {
							t.Errorf("Release: %v", err)
						}
					}
				}
				if took := time.Since(began); took > 0 || net.Count() > sent {
					t.Errorf("%s took %v, and sent %v", how, took, net.Names())
				}
			})
		}
	})
}

// A lock that Close has released was not held to the end of its work: the work hears it, and so does who waits for it,
// however often Close is called.
func TestDoSaysThatItWasClosed(t *testing.T) {
	eachKind(t, withShared(all(true)), func(t *testing.T, k kind) {
		for _, stops := range []bool{true, false} {
			inWorld(t, k, func(w *world) {
				locker, net := w.client(compat.Options{})
				var cause, during error
				done := make(chan error, 1)
				go func() {
					done <- locker.Do(background, k.key, long, func(ctx context.Context) error {
						<-ctx.Done()
						cause = context.Cause(ctx)
						during = compat.FromContext(ctx).Extend(background, long)
						if !stops {
							time.Sleep(time.Minute)
						}
						return nil
					})
				}()
				synctest.Wait()
				beside := w.tryKey(locker, k.another(2))
				net.Expect(faulty.Fate{Before: 50 * time.Millisecond}.Always())
				var all sync.WaitGroup
				for range 2 {
					all.Go(func() {
						if err := locker.Close(background); err != nil {
							t.Errorf("Close: %v", err)
						}
					})
					synctest.Wait()
				}
				all.Wait()
				if err := <-done; !errors.Is(err, compat.ErrClosed) {
					t.Errorf("Do: %v", err)
				}
				if !errors.Is(cause, compat.ErrClosed) || beside.Context().Err() == nil {
					t.Errorf("the causes are %v and %v", cause, context.Cause(beside.Context()))
				}
				if during == nil || !errors.Is(beside.Release(background), compat.ErrReleased) {
					t.Errorf("an extension then: %v", during)
				}
			})
		}
	})
}

// tryKey is try of another key.
func (w *world) tryKey(k *compat.Locker, key string) *compat.Lock {
	w.Helper()
	l, err := k.TryLock(background, key, long)
	if err != nil {
		w.Fatal(err)
	}
	l.Context()
	return l
}

// When Close has returned, nothing more is sent, dialled or returned, whatever was under way when it was called, and
// whatever is called then.
func TestNothingHappensAfterClose(t *testing.T) {
	kinds := withShared(all(true))
	kinds = append(kinds, quorum("redlock", false, []string{"2.2", "2.2", "2.2"}, getsetlock.Guarded{}, getsetlock.Guarded{}, getsetlock.Guarded{}))
	calls := append(slices.Clip(questions), question{"AdoptHandle", func(ctx context.Context, _ *world, k *compat.Locker, l *compat.Lock) (*compat.Lock, error) {
		return k.AdoptHandle(ctx, l.Handle(), long)
	}}, question{"ReleaseHandle", func(ctx context.Context, _ *world, k *compat.Locker, l *compat.Lock) (*compat.Lock, error) {
		return nil, k.ReleaseHandle(ctx, l.Handle())
	}}, question{"Detach", func(ctx context.Context, _ *world, _ *compat.Locker, l *compat.Lock) (*compat.Lock, error) {
		_, err := l.Detach(ctx)
		return l, err
	}})
	for _, q := range calls {
		for state, befall := range map[string]func(n *faulty.Network){
			"all is well": func(*faulty.Network) {},
			"slow":        func(n *faulty.Network) { n.Expect(faulty.Fate{Before: 150 * time.Millisecond}.Always()) },
			"hangs":       func(n *faulty.Network) { n.Expect(faulty.Fate{Before: faulty.Forever}.Always()) },
			"dial hangs":  func(n *faulty.Network) { n.Cut(); n.Mend(); n.OnDial(faulty.Hang) },
		} {
			t.Run(q.name+"/"+state, func(t *testing.T) {
				eachKind(t, kinds, func(t *testing.T, k kind) {
					if !whole && (len(k.name)+len(q.name)+len(state))%3 != 0 {
						return
					}
					inWorld(t, k, func(w *world) {
						locker, net := w.client(compat.Options{Timeout: time.Second})
						rival, _ := w.client(compat.Options{NoRenew: true})
						l := w.try(locker, long)
						w.tryKey(locker, k.another(5))
						held := w.tryKey(rival, k.another(6))
						var all sync.WaitGroup
						all.Go(func() { locker.Lock(background, k.another(6), long) })     //nolint:errcheck // it waits
						all.Go(func() { locker.Lock(w.within(long), k.another(6), long) }) //nolint:errcheck
						synctest.Wait()
						befall(net)
						all.Go(func() { q.ask(background, w, locker, l) }) //nolint:errcheck // it is under way
						time.Sleep(50 * time.Millisecond)
						locker.Close(background) //nolint:errcheck
						sent, open := net.Count(), net.Open()
						var dials, closed atomic.Int32
						net.OnDial(func(context.Context) error { dials.Add(1); return errors.New("no") })
						net.OnClose(func() { closed.Add(1) })
						if q.name != "Release" {
							q.ask(background, w, locker, l) //nolint:errcheck // it is closed
						}
						pass(time.Hour)
						all.Wait()
						if n := net.Count(); n != sent || dials.Load() > 0 || closed.Load() > 0 || open > 0 && state == "all is well" && net.Open() > 0 {
							t.Errorf("after Close: %d sent (%.200s), %d dialled, %d returned, %d are open", n-sent, net.Names(), dials.Load(), closed.Load(), net.Open())
						}
						held.Release(background) //nolint:errcheck
						rival.Close(background)  //nolint:errcheck
					})
				})
			})
		}
	}
}

// A Backend may be given to several Lockers, each with its options.
func TestOneBackendOfSeveralLockers(t *testing.T) {
	for name, wrap := range map[string]func(compat.Backend) compat.Backend{
		"as it is": func(b compat.Backend) compat.Backend { return b },
		"wrapped":  func(b compat.Backend) compat.Backend { return forwarding{b} },
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, []kind{one("getset:guarded", "2.2", getsetlock.Guarded{})}, func(t *testing.T, k kind) {
				inWorld(t, k, func(w *world) {
					net := new(faulty.Network)
					b := wrap(compat.NewBackend(kept(4, []compat.Source{through(net, w.servers[0])})[0], getsetlock.Guarded{}))
					var all sync.WaitGroup
					for i, o := range []compat.Options{{}, {}, {}, {}, {}} {
						all.Go(func() {
							locker := compat.NewLocker(b, o)
							for n := range 4 {
								l, err := locker.TryLock(background, fmt.Sprint("k", i, n), long)
								if errors.Is(err, compat.ErrInvalid) && name == "wrapped" {
									break
								}
								if err == nil {
									err = errors.Join(l.Extend(background, long), l.Release(background))
								}
								if err != nil {
									t.Errorf("Locker %d: %v", i, err)
								}
							}
							if err := locker.Close(background); err != nil {
								t.Errorf("Locker %d: Close: %v", i, err)
							}
						})
					}
					all.Wait()
					pass(time.Minute)
					if n := net.Open(); n > 0 {
						t.Errorf("%d connections are not returned", n)
					}
				})
			})
		})
	}
}

// forwarding is a user's own type that has a Backend in it.
type forwarding struct{ compat.Backend }
