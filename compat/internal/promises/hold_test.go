package promises_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/rwlock"
)

// keptFor is the Options.Hold of these tests: no whole number of ttls.
const keptFor = 100 * time.Second

// refusedUntil returns what is wrong if a rival gets the key before end, or if it does not get it long after.
func refusedUntil(w *world, rival *compat.Locker, end, freed time.Time) string {
	last := end.Add(-time.Millisecond)
	for ; !time.Now().After(last); pass(max(min(7*time.Second, time.Until(last)), time.Millisecond)) {
		if l, err := rival.TryLock(background, w.kind.key, long); err == nil {
			l.Release(background) //nolint:errcheck // the test has failed
			return sprint("a rival has the lock %v before its hold is over", time.Until(end))
		}
	}
	pass(time.Until(freed))
	l, err := rival.TryLock(background, w.kind.key, long)
	if err != nil {
		return sprint("%v after its end: %v", time.Since(end), err)
	}
	if err := l.Release(background); err != nil {
		return sprint("the next holder's release: %v", err)
	}
	return ""
}

// Options.Hold keeps a lock from others that long, however its holder comes to an end.
func TestHold(t *testing.T) {
	ended, end := context.WithCancel(background)
	end()
	released := func(ctx context.Context) func(*world, *compat.Locker, *compat.Lock, *faulty.Network) error {
		return func(_ *world, _ *compat.Locker, l *compat.Lock, _ *faulty.Network) error {
			if err := l.Release(ctx); err != nil {
				return err
			}
			if l.Context().Err() == nil {
				return errors.New("its context goes on")
			}
			if err := l.Release(ctx); !errors.Is(err, compat.ErrReleased) {
				return errors.New("it is not over: " + sprint("%v", err))
			}
			return nil
		}
	}
	for name, ends := range map[string]func(*world, *compat.Locker, *compat.Lock, *faulty.Network) error{
		"released":                  released(background),
		"released, the caller gone": released(ended),
		"closed":                    func(_ *world, k *compat.Locker, _ *compat.Lock, _ *faulty.Network) error { return k.Close(background) },
		"dead": func(_ *world, _ *compat.Locker, _ *compat.Lock, net *faulty.Network) error {
			net.Expect(func(faulty.Message) faulty.Fate { return faulty.Fate{Loss: faulty.LostRequest} })
			return nil
		},
		"extended by less, and released": func(_ *world, _ *compat.Locker, l *compat.Lock, _ *faulty.Network) error {
			return errors.Join(l.Extend(background, medium), l.Release(background))
		},
		"renewed, and released": func(_ *world, _ *compat.Locker, l *compat.Lock, _ *faulty.Network) error {
			pass(keptFor / 2)
			return l.Release(background)
		},
		"handed off, and released": func(_ *world, _ *compat.Locker, l *compat.Lock, _ *faulty.Network) error {
			next, err := l.Handoff(background, long)
			if errors.Is(err, errors.ErrUnsupported) {
				return l.Release(background)
			}
			if err != nil {
				return err
			}
			return next.Release(background)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, all(true), func(t *testing.T, k kind) {
				inWorld(t, k, func(w *world) {
					holder, net := w.client(compat.Options{Hold: keptFor})
					rival, _ := w.client(compat.Options{NoRenew: true})
					l := w.try(holder, long)
					taken := time.Now()
					if err := ends(w, holder, l, net); err != nil {
						w.Errorf("%v", err)
					}
					if wrong := refusedUntil(w, rival, taken.Add(keptFor), taken.Add(2*keptFor+2*long)); wrong != "" {
						w.Error(wrong)
					}
				})
			})
		})
	}
}

// A lock that a release passes on is kept from others as long again, however short a ttl the next holder asks for.
func TestHoldOfTheNextHolder(t *testing.T) {
	for _, fence := range []bool{false, true} {
		eachKind(t, all(fence), func(t *testing.T, k kind) {
			inWorld(t, k, func(w *world) {
				holder, _ := w.client(compat.Options{Hold: keptFor})
				rival, _ := w.client(compat.Options{NoRenew: true})
				l, next := w.try(holder, 10*keptFor), make(chan *compat.Lock)
				go func() {
					l, err := holder.Lock(background, k.key, medium)
					if err != nil {
						w.Error(err)
					}
					next <- l
				}()
				pass(keptFor + time.Second)
				if err := l.Release(background); err != nil {
					w.Error(err)
				}
				taken := time.Now()
				if l = <-next; l == nil {
					return
				}
				if err := l.Release(background); err != nil {
					w.Error(err)
				}
				if wrong := refusedUntil(w, rival, taken.Add(keptFor), taken.Add(10*keptFor)); wrong != "" {
					w.Error(wrong)
				}
			})
		})
	}
}

// When Hold has passed a release removes the lock at once, and so does one that nobody has got.
func TestHoldPasses(t *testing.T) {
	eachKind(t, all(true), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			holder, _ := w.client(compat.Options{Hold: keptFor})
			rival, _ := w.client(compat.Options{NoRenew: true})
			l := w.try(holder, long)
			pass(keptFor + time.Second)
			if !believes(l) {
				w.Fatal("it is not renewed")
			}
			if left := time.Until(l.Until()); left > long {
				w.Errorf("it lasts %v more", left)
			}
			if err := l.Release(background); err != nil {
				w.Error(err)
			}
			l, err := rival.TryLock(background, w.kind.key, long)
			if err != nil {
				w.Fatalf("released, and %v", err)
			}
			if err := l.Release(background); err != nil {
				w.Error(err)
			}
		})
	})
}

// A lock that was lost is told as lost by its release, Hold or not.
func TestHoldTellsALoss(t *testing.T) {
	eachKind(t, singles(false), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			holder, _ := w.client(compat.Options{Hold: keptFor})
			l := w.try(holder, long)
			w.do("DEL", w.kind.on(w.kind.key))
			if err := l.Release(background); !errors.Is(err, compat.ErrLost) {
				w.Errorf("the key is gone, and the release says %v", err)
			}
			once, _ := w.client(compat.Options{Hold: long + time.Second, NoRenew: true})
			err := once.Do(background, k.another(1), long, func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
			if !errors.Is(err, compat.ErrLost) {
				w.Errorf("its time ran out in Do, which says %v", err)
			}
		})
	})
}

// Who waits in the same process gets the lock no sooner than anybody else.
func TestHoldHandsToNobody(t *testing.T) {
	eachKind(t, all(true), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			holder, _ := w.client(compat.Options{Hold: keptFor})
			var taken [2]time.Time
			ran := make(chan error, len(taken))
			for i := range taken {
				go func() {
					ran <- holder.Do(background, w.kind.key, long, func(context.Context) error {
						taken[i] = time.Now()
						return errors.New("it failed") // whatever its outcome
					})
				}()
			}
			for range taken {
				if err := <-ran; err == nil || err.Error() != "it failed" {
					w.Errorf("%v", err)
				}
			}
			if apart := taken[0].Sub(taken[1]).Abs(); apart < keptFor {
				w.Errorf("taken twice within %v", apart)
			}
		})
	})
}

// A reader that is held keeps the writers out.
func TestHoldOfAReader(t *testing.T) {
	inWorld(t, one("rw", "2.4", rwlock.Read{}), func(w *world) {
		reader, _ := w.client(compat.Options{Hold: keptFor})
		other, _ := w.client(compat.Options{})
		writer, _ := w.clientOf(rwlock.Write{}, compat.Options{NoRenew: true})
		l := w.try(reader, long)
		taken := time.Now()
		if err := l.Release(background); err != nil {
			w.Error(err)
		}
		beside := w.try(other, long) // readers share it all the same
		if err := beside.Release(background); err != nil {
			w.Error(err)
		}
		if wrong := refusedUntil(w, writer, taken.Add(keptFor), taken.Add(keptFor+long)); wrong != "" {
			w.Error(wrong)
		}
	})
}

// Whatever is lost on the way, who got the lock keeps others out for as long.
func TestHoldSurvivesFaults(t *testing.T) {
	eachKind(t, all(true), func(t *testing.T, k kind) {
		everyFault(t, k, func(w *world, strike func(*faulty.Network)) string {
			holder, net := w.client(compat.Options{Hold: keptFor})
			rival, _ := w.client(compat.Options{NoRenew: true})
			strike(net)
			l, err := holder.TryLock(background, w.kind.key, long)
			if err != nil {
				return ""
			}
			taken := time.Now()
			pass(keptFor / 2)
			l.Release(background) //nolint:errcheck // it may not learn what the key holds
			return refusedUntil(w, rival, taken.Add(keptFor), taken.Add(2*keptFor+2*long))
		})
	})
}

// A Hold that the lock can't keep is refused before anything is sent.
func TestHoldIsValid(t *testing.T) {
	inWorld(t, all(false)[0], func(w *world) {
		k, net := w.client(compat.Options{Hold: 200 * 365 * 24 * time.Hour})
		if _, err := k.TryLock(background, "k", long); !errors.Is(err, compat.ErrInvalid) || net.Count() > 0 {
			w.Errorf("%v, %d commands", err, net.Count())
		}
	})
}

// Who is given a lock, by a hand-off, by a release or by its handle, keeps it for as long.
func TestHoldOfASuccessor(t *testing.T) {
	for name, next := range map[string]func(*world, *compat.Locker, *compat.Lock) (*compat.Lock, error){
		"handed off": func(_ *world, _ *compat.Locker, l *compat.Lock) (*compat.Lock, error) {
			pass(20 * time.Second) // what is left would do for the ttl
			next, err := l.Handoff(background, long)
			if errors.Is(err, errors.ErrUnsupported) {
				return l, nil
			}
			return next, err
		},
		"waits": func(w *world, k *compat.Locker, l *compat.Lock) (*compat.Lock, error) {
			pass(keptFor + time.Second)
			got := make(chan error, 1)
			var next *compat.Lock
			go func() {
				var err error
				next, err = k.Lock(background, w.kind.key, long)
				got <- err
			}()
			pass(time.Second)
			err := errors.Join(l.Release(background), <-got)
			return next, err
		},
		"adopts": func(_ *world, k *compat.Locker, l *compat.Lock) (*compat.Lock, error) {
			h, err := l.Detach(background)
			if err != nil {
				return nil, err
			}
			pass(keptFor / 2)
			return k.AdoptHandle(background, h, long)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, all(false), func(t *testing.T, k kind) {
				inWorld(t, k, func(w *world) {
					holder, _ := w.client(compat.Options{Hold: keptFor})
					rival, _ := w.client(compat.Options{NoRenew: true})
					l, err := next(w, holder, w.try(holder, long))
					if err != nil {
						w.Fatal(err)
					}
					taken := time.Now()
					if err := l.Release(background); err != nil {
						w.Error(err)
					}
					if wrong := refusedUntil(w, rival, taken.Add(keptFor), taken.Add(2*keptFor+2*long)); wrong != "" {
						w.Error(wrong)
					}
				})
			})
		})
	}
}

// A Close that comes before the user has the lock may remove it. The user then gets ErrClosed, and no lock.
func TestHoldAndClose(t *testing.T) {
	ways := map[string]func(*world, *compat.Locker, *compat.Lock) (*compat.Lock, error){
		"Lock": func(w *world, k *compat.Locker, _ *compat.Lock) (*compat.Lock, error) {
			return k.Lock(background, w.kind.key, long)
		},
		"TryLock": func(w *world, k *compat.Locker, _ *compat.Lock) (*compat.Lock, error) {
			return k.TryLock(background, w.kind.key, long)
		},
		"AdoptHandle": func(_ *world, k *compat.Locker, l *compat.Lock) (*compat.Lock, error) {
			return k.AdoptHandle(background, l.Handle(), long)
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			eachKind(t, singles(false), func(t *testing.T, k kind) {
				inWorld(t, k, func(w *world) {
					var holder *compat.Locker
					var closes sync.WaitGroup
					holder, _ = w.client(compat.Options{Hold: keptFor, Observer: func(e compat.Event) {
						if e.Kind == compat.EventAcquired {
							closes.Go(func() { holder.Close(background) }) //nolint:errcheck // the outcome is seen on the key
							pass(time.Second)
						}
					}})
					rival, _ := w.client(compat.Options{NoRenew: true})
					var before *compat.Lock
					if name == "AdoptHandle" {
						before = w.try(rival, long)
					}
					l, err := way(w, holder, before)
					closes.Wait()
					_, free := rival.TryLock(background, w.kind.key, long)
					if (l != nil) != errors.Is(free, compat.ErrHeld) || l == nil && !errors.Is(err, compat.ErrClosed) {
						w.Errorf("the lock: %v, %v; a rival: %v", l != nil, err, free)
					}
				})
			})
		})
	}
}
