package promises_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/semaphore"
)

// A Do in a Do of the same key, which its context tells, is an error at once: nothing is sent, and nothing is lost.
func TestDoInDo(t *testing.T) {
	eachKind(t, all(true), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			locks, net := w.client(compat.Options{})
			err := locks.Do(w.within(time.Minute), k.key, long, func(ctx context.Context) error { // not for ever, if it waits
				began, sent := time.Now(), net.Count()
				derived, end := context.WithTimeout(context.WithValue(ctx, w, w), time.Hour)
				defer end()
				for name, nested := range map[string]func(context.Context) error{
					"Do": func(ctx context.Context) error {
						return locks.Do(ctx, k.key, long, func(context.Context) error { w.Error("it ran"); return nil })
					},
					"Lock": func(ctx context.Context) error { _, err := locks.Lock(ctx, k.key, long); return err },
				} {
					for _, ctx := range []context.Context{ctx, derived} {
						if err := nested(ctx); !errors.Is(err, compat.ErrInvalid) {
							w.Errorf("%s in Do: %v", name, err)
						}
					}
				}
				if took, n := time.Since(began), net.Count()-sent; took > 0 || n > 0 {
					w.Errorf("after %v and %d commands", took, n)
				}
				if _, err := locks.TryLock(ctx, k.key, long); !errors.Is(err, compat.ErrHeld) {
					w.Errorf("TryLock in Do: %v", err)
				}
				return compat.FromContext(ctx).Extend(ctx, long)
			})
			if err != nil {
				w.Error(err)
			}
		})
	})
}

// Once the lock is released, or was lost, the same context may take it again; so may any context that does not come
// from it.
func TestDoAfterDo(t *testing.T) {
	eachKind(t, singles(false), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			locks, _ := w.client(compat.Options{})
			again := func(ctx context.Context) error {
				return locks.Do(context.WithoutCancel(ctx), k.key, long, func(context.Context) error { return nil })
			}
			for name, ends := range map[string]func(context.Context) error{
				"released": func(ctx context.Context) error { return compat.FromContext(ctx).Release(ctx) },
				"lost": func(ctx context.Context) error {
					w.do("DEL", k.key)
					if err := compat.FromContext(ctx).Extend(ctx, long); !errors.Is(err, compat.ErrLost) {
						return errors.New("it is not lost")
					}
					return nil
				},
			} {
				err := locks.Do(background, k.key, long, func(ctx context.Context) error {
					return errors.Join(ends(ctx), again(ctx))
				})
				if name == "released" && err != nil || name == "lost" && !errors.Is(err, compat.ErrLost) || errors.Is(err, compat.ErrInvalid) {
					w.Errorf("%s: %v", name, err)
				}
			}
			waited := make(chan error)
			err := locks.Do(background, k.key, long, func(context.Context) error {
				go func() { waited <- again(background) }()
				pass(time.Second)
				return nil
			})
			if err := errors.Join(err, <-waited); err != nil {
				w.Error(err)
			}
		})
	})
}

// Locks in one another: each is found by its key, by the Locker that took it.
func TestFromContextOfAKey(t *testing.T) {
	eachKind(t, singles(true), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			locks, _ := w.client(compat.Options{Prefix: "app:"})
			others, _ := w.client(compat.Options{Prefix: "web:"})
			outer := context.Background()
			if locks.FromContext(outer, "a") != nil || compat.FromContext(outer) != nil {
				w.Error("found in nothing")
			}
			err := locks.Do(outer, "a", long, func(ctx context.Context) error {
				return locks.Do(ctx, "b", long, func(ctx context.Context) error {
					return others.Do(ctx, "a", long, func(ctx context.Context) error {
						lock, err := locks.Lock(ctx, "c", long)
						if err != nil {
							return err
						}
						joined, end := lock.With(ctx)
						defer end()
						for key, l := range map[string]*compat.Lock{
							"app:a": locks.FromContext(joined, "a"), "app:b": locks.FromContext(joined, "b"),
							"app:c": locks.FromContext(joined, "c"), "web:a": others.FromContext(joined, "a"),
						} {
							if l == nil || l.Key() != key || l.Fence() == 0 {
								w.Errorf("%s: %v", key, l)
							}
						}
						if locks.FromContext(joined, "d") != nil || others.FromContext(joined, "b") != nil || locks.FromContext(ctx, "c") != nil {
							w.Error("found what is not there")
						}
						if compat.FromContext(joined) != lock || compat.FromContext(ctx).Key() != "web:a" {
							w.Error("the innermost is another")
						}
						late, end := context.WithTimeout(joined, time.Minute)
						defer end()
						if err := locks.Do(late, "a", long, nil); !errors.Is(err, compat.ErrInvalid) {
							w.Errorf("the outermost in the innermost: %v", err)
						}
						return lock.Release(ctx)
					})
				})
			})
			if err != nil {
				w.Error(err)
			}
		})
	})
}

// Several may hold these at once: a reader in a reader, and a semaphore that has room.
func TestDoInDoOfShared(t *testing.T) {
	eachKind(t, []kind{
		one("readers", "2.4", rwlock.Read{}),
		one("semaphore of 2", "2.4", semaphore.Lock{Options: semaphore.Options{N: 2}}),
	}, func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			locks, _ := w.client(compat.Options{})
			ran := false
			err := locks.Do(background, k.key, long, func(ctx context.Context) error {
				outer := compat.FromContext(ctx)
				return locks.Do(ctx, k.key, long, func(ctx context.Context) error {
					ran = locks.FromContext(ctx, k.key) == compat.FromContext(ctx) && compat.FromContext(ctx) != outer
					return nil
				})
			})
			if err != nil || !ran {
				w.Errorf("%v, %v", err, ran)
			}
		})
	})
}
