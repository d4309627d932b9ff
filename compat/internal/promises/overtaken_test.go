package promises_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/setlock"
)

// takenFrom has another client take the lock of that key, whoever has it.
func (w *world) takenFrom(key string) *compat.Lock {
	w.Helper()
	keys, err := multilock.Split(key)
	if err != nil {
		keys = []string{key}
	}
	for _, k := range keys {
		w.do("DEL", w.kind.on(k))
	}
	rival, _ := w.client(compat.Options{NoRenew: true})
	got, err := rival.TryLock(background, key, long)
	if err != nil {
		w.Fatalf("a key that was deleted: %v", err)
	}
	return got
}

// looks reports that the kind looks and then acts: what comes in between it changes, as published.
func (k kind) looks() bool { return k.name == "getset:classic" }

// lingers reports that the kind asks more behind what decides: other servers, or the replicas.
func (k kind) lingers() bool {
	return len(k.versions) > 1 || strings.HasPrefix(k.name, "sentinel.")
}

// Somebody deletes the key and takes it, before any of the commands of an extension: that says
// that the lock was lost, and the other client has its own.
func TestOvertakenExtension(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, k kind) {
		for n, reached := 1, true; reached && n < 60; n++ {
			inWorld(t, k, func(w *world) {
				holder, net := w.client(compat.Options{NoRenew: true})
				l := w.try(holder, long)
				pass(time.Second)
				var other *compat.Lock
				net.Expect(faulty.First(func() { other = w.takenFrom(k.key) }).At(n))
				err := l.Extend(background, long)
				if reached = other != nil; !reached {
					return
				}
				if err == nil && k.lingers() {
					err = l.Extend(background, long)
				}
				if !errors.Is(err, compat.ErrLost) {
					t.Errorf("another took it before command %d: %v", n, err)
				}
				if err := other.Extend(background, long); err != nil && (n == 1 || !k.looks()) {
					t.Errorf("who took it before command %d: %v", n, err)
				}
			})
		}
	})
}

// The same with one of several locks that are renewed together: no other is lost.
func TestOvertakenInABatch(t *testing.T) {
	const ttl = 9 * time.Second // renewed every 3 s
	eachKind(t, all(false), func(t *testing.T, k kind) {
		for at := range 3 {
			for n, reached := 1, true; reached && n < 60; n++ {
				inWorld(t, k, func(w *world) {
					holder, net := w.client(compat.Options{})
					locks := make([]*compat.Lock, 3)
					for i := range locks {
						l, err := holder.TryLock(background, k.another(i), ttl)
						if err != nil {
							w.Fatal(err)
						}
						l.Context()
						locks[i] = l
					}
					pass(2500 * time.Millisecond)
					var other *compat.Lock
					net.Expect(faulty.First(func() { other = w.takenFrom(k.another(at)) }).At(n))
					pass(time.Second)
					if reached = other != nil; !reached {
						holder.Close(background) //nolint:errcheck
						return
					}
					if err := other.Extend(background, long); err != nil && (n == 1 || !k.looks()) {
						t.Errorf("who took lock %d before command %d: %v", at, n, err)
					}
					net.Expect(nil)
					pass(4 * time.Second)
					for i, l := range locks {
						if believes(l) == (i == at) {
							t.Errorf("lock %d was taken before command %d; lock %d: %v", at, n, i, l.Context().Err())
						}
					}
					holder.Close(background) //nolint:errcheck
				})
			}
		}
	})
}

// A server refuses one command, whichever it is: a step that fails says what was refused, and
// what is believed of the key is nothing that was not seen: once another client has it, nothing of
// ours touches it.
func TestARefusalProvesNothing(t *testing.T) {
	const refusal = redis.Error("OOM command not allowed when used memory > 'maxmemory'")
	for _, step := range []string{"TryLock", "Extend"} {
		t.Run(step, func(t *testing.T) {
			eachKind(t, all(false), func(t *testing.T, k kind) {
				for n, reached := 1, true; reached && n < 60; n++ {
					inWorld(t, k, func(w *world) {
						holder, net := w.client(compat.Options{NoRenew: true})
						refused := ""
						refuse := func() {
							net.Expect(func(m faulty.Message) faulty.Fate {
								if m.N != n {
									return faulty.Fate{}
								}
								refused = m.Name
								return faulty.Answer(refusal)
							})
						}
						if step == "TryLock" { // its server was found safe
							w.try(holder, long).Release(background) //nolint:errcheck
							refuse()
						}
						l, err := holder.TryLock(background, k.key, long)
						if step == "Extend" {
							l.Context()
							refuse()
							err = l.Extend(background, long)
						}
						net.Expect(nil)
						if reached = refused != ""; !reached {
							return
						}
						lost := errors.Is(err, compat.ErrLost) && w.get(k.each()[0]) == "" // before 2.6.5 the rest of a transaction runs
						if err != nil && !lost && !strings.Contains(err.Error(), string(refusal)) {
							t.Errorf("%s, command %d, was refused: %v", refused, n, err)
						}
						if l == nil {
							return
						}
						other := w.takenFrom(k.key)
						if err := l.Release(background); !errors.Is(err, compat.ErrLost) {
							t.Errorf("%s, command %d, was refused, and another took it; the release: %v", refused, n, err)
						}
						if err := other.Extend(background, long); err != nil {
							t.Errorf("%s, command %d, was refused; who took it then: %v", refused, n, err)
						}
					})
				}
			})
		})
	}
}

// An attempt that failed has left nothing on the key, or says that it does not know.
func TestFailedAttemptsAreUndoneOrUnknown(t *testing.T) {
	lua := setlock.Lua{}
	two, four := quorum("quorum of two", true, []string{"7.0", "7.0"}, lua, lua), quorum("quorum of four", true, []string{"7.0", "7.0", "7.0", "7.0"}, lua, lua, lua, lua)
	eachKind(t, append(append(all(false), mouthpieces()...), two, four), func(t *testing.T, k kind) {
		everyFault(t, k, func(w *world, strike func(*faulty.Network)) string {
			taker, net := w.client(compat.Options{NoRenew: true})
			strike(net)
			_, err := taker.TryLock(background, k.key, long)
			net.Clear()
			if err == nil || errors.Is(err, compat.ErrUnknown) {
				return ""
			}
			rival, _ := w.client(compat.Options{NoRenew: true})
			if _, held := rival.TryLock(background, k.key, long); held != nil {
				return sprint("%v; and then another client: %v", err, held)
			}
			return ""
		})
	})
}

// Of two that take a lock whose time has run out, one between the commands of the other, one has
// it: also where the other's reply is lost, and the key is found to hold what that one has written.
func TestTwoTakeADeadLock(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, k kind) {
		for n, reached := 1, true; reached && n < 60; n++ {
			for lost := n; lost < n+3; lost++ {
				inWorld(t, k, func(w *world) {
					dead, _ := w.client(compat.Options{NoRenew: true})
					w.try(dead, short)
					first, net := w.client(compat.Options{NoRenew: true})
					rival, _ := w.client(compat.Options{NoRenew: true})
					if _, err := first.TryLock(background, k.key, long); !errors.Is(err, compat.ErrHeld) { // its server was found safe
						t.Fatalf("a lock that lives: %v", err)
					}
					pass(short + 2*time.Second)
					var rivals atomic.Pointer[compat.Lock] // a step behind the release may be the n-th
					net.Expect(func(m faulty.Message) faulty.Fate {
						if m.N == n {
							other, _ := rival.TryLock(background, k.key, long)
							rivals.Store(other)
						}
						if m.N == lost {
							return faulty.Fate{Loss: faulty.LostReply}
						}
						return faulty.Fate{}
					})
					l, err := first.TryLock(background, k.key, long)
					reached = net.Count() >= n
					if other := rivals.Load(); err == nil && other != nil && believes(l) && believes(other) {
						t.Errorf("one came before command %d, the reply to command %d was lost: both have it", n, lost)
					}
				})
			}
		}
	})
}

// A lock whose token somebody releases, before any command of an extension, is not extended back: the
// extension, or the next one, says that it is lost, and the key is free.
func TestReleasedByItsTokenMeanwhile(t *testing.T) {
	for _, fence := range []bool{false, true} {
		eachKind(t, append(all(fence), one("rwlock.Read", "2.4", rwlock.Read{Options: rwlock.Options{Fence: fence}})), func(t *testing.T, k kind) {
			for n, reached := 1, true; reached && n < 60; n++ {
				inWorld(t, k, func(w *world) {
					holder, net := w.client(compat.Options{NoRenew: true})
					l := w.try(holder, long)
					other, _ := w.client(compat.Options{NoRenew: true})
					token, released := l.Token(), errors.New("not called")
					net.Expect(faulty.First(func() { released = other.ReleaseToken(background, k.key, token) }).At(n))
					err := l.Extend(background, long)
					if reached = net.Count() >= n; !reached || released != nil {
						return
					}
					net.Clear()
					if err == nil {
						err = l.Extend(background, long)
					}
					if !errors.Is(err, compat.ErrLost) {
						t.Errorf("released before command %d, and yet: %v, want ErrLost", n, err)
					}
					if st, err := other.Inspect(background, k.key); err != nil || st.Value != "" && !k.looks() {
						t.Errorf("released before command %d, and yet it is %+v, %v", n, st, err)
					}
				})
			}
		})
	}
}

// A release whose reply is lost is not repeated if another client can have written the same value since: in a dialect of
// whole seconds that client has taken the key in the same second.
func TestASameValueIsNotReleased(t *testing.T) {
	for _, name := range []string{"Release", "ReleaseHandle"} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, seconds(), func(t *testing.T, k kind) {
				taken := false
				for n, reached := 1, true; reached && n < 60; n++ {
					inWorld(t, k, func(w *world) {
						holder, net := w.client(compat.Options{NoRenew: true})
						rival, _ := w.client(compat.Options{NoRenew: true})
						l := w.try(holder, long)
						release := l.Release
						if name == "ReleaseHandle" {
							h := l.Handle()
							holder, net = w.client(compat.Options{NoRenew: true})
							release = func(ctx context.Context) error { return holder.ReleaseHandle(ctx, h) }
						}
						var next *compat.Lock
						net.Expect(faulty.Fate{Serve: func(run func(...any) any) any {
							run()
							next, _ = rival.TryLock(background, k.key, long)
							return io.ErrUnexpectedEOF
						}}.At(n))
						err := release(background)
						if reached = net.Count() >= n; next == nil {
							return
						}
						taken = true
						if lost := next.Extend(background, long); lost != nil {
							t.Errorf("another client took it after command %d, whose reply was lost: %v, and it: %v", n, err, lost)
						}
					})
				}
				if !taken {
					t.Error("nobody could take it in the meantime")
				}
			})
		})
	}
}
