package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// Real servers of which one stands still: a lock is had, refused and released without waiting for
// it, whatever a step may take.
func TestOneStandsStill(t *testing.T) {
	t.Parallel()
	const most = time.Hour // a step's limit; what waits for the third server takes as long
	var servers []*realredis.Server
	for range 3 {
		servers = append(servers, realredis.Run(t))
	}
	client := func() *compat.Locker {
		var all []compat.Backend
		for _, s := range servers {
			all = append(all, compat.NewBackend(compat.Pooled(conformance.Dial(t, s.Addr)), setlock.Lua{}))
		}
		return compat.NewLocker(redlock.New(all, redlock.Options{Timeout: most}), compat.Options{NoRenew: true, Timeout: most})
	}
	for name, stops := range map[string]func(k *compat.Locker){
		"before its first answer": func(*compat.Locker) { servers[2].Stop() },
		"after it": func(k *compat.Locker) {
			l, err := k.TryLock(background, "warm", time.Minute)
			if err == nil {
				err = l.Release(background)
			}
			if err != nil {
				t.Fatal(err)
			}
			servers[2].Stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			k, other := client(), client()
			stops(k)
			defer servers[2].Continue()
			done := make(chan struct{})
			go func() {
				defer close(done)
				held, err := k.TryLock(background, name, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := other.TryLock(background, name, time.Minute); !errors.Is(err, compat.ErrHeld) {
					t.Errorf("another's: %v, want ErrHeld", err)
				}
				if err := errors.Join(held.Release(background), k.Close(background), other.Close(background)); err != nil {
					t.Error(err)
				}
			}()
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Fatal("something waits for the third server")
			}
		})
	}
}

// slow has the i-th server answer when the gate is opened, and not before.
func slow(w *wire) (open func()) {
	gate := make(chan struct{})
	w.OnDial(func(context.Context) error { <-gate; return nil })
	return sync.OnceFunc(func() { close(gate) })
}

// A vote that comes after the majority's belongs to the lock: an extension and the release reach
// it, and a holder who detaches the lock takes it for its own. When the lock was released before, it is given back, and Close waits for that.
func TestLateVote(t *testing.T) {
	for _, test := range []struct {
		name  string
		early bool // released before the vote has come
		then  func(k *compat.Locker, l *compat.Lock) error
	}{
		{"released", false, func(_ *compat.Locker, l *compat.Lock) error { return l.Release(background) }},
		{"extended", false, func(_ *compat.Locker, l *compat.Lock) error {
			return errors.Join(l.Extend(background, 2*ttl), l.Release(background))
		}},
		{"detached", false, func(k *compat.Locker, l *compat.Lock) error {
			h, err := l.Detach(background)
			return errors.Join(err, k.ReleaseHandle(background, h))
		}},
		{"released before", true, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, members := range fleets {
					w := newWorld(t, members)
					q, wires := w.quorum(redlock.Options{})
					k := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock, Timeout: time.Hour})
					w.acquire(q, "warm")
					open := slow(wires[2])
					t.Cleanup(open) // if the test ends before
					var l *compat.Lock
					var err error
					w.in(func() { l, err = k.TryLock(background, "job", ttl) },
						step{func() bool { return wires[2].hangs() && w.held("job") == "xx-xx" && rest(wires) }, 50 * time.Millisecond})
					if err != nil {
						t.Fatal(err)
					}
					if test.early {
						must.Do(t, l.Release(background))
						closed := make(chan error, 1)
						go func() { closed <- k.Close(background) }()
						synctest.Wait()
						select {
						case err := <-closed:
							t.Errorf("Close: %v, before the last server was cleaned", err)
						default:
						}
						open()
						if err := <-closed; err != nil {
							t.Error(err)
						}
						w.wantHeld("job", "-----")
						continue
					}
					wires[2].OnDial(nil)
					open()
					eventually(t, func() bool { return w.held("job") == "xxxxx" })
					must.Do(t, test.then(k, l))
					must.Do(t, k.Close(background))
					w.wantHeld("job", "-----")
				}
			})
		})
	}
}

// What a vote that comes late to an attempt that failed has taken is given back too.
func TestLateVoteForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q, wires := warm(t, 3, redlock.Options{})
		for i := range 2 {
			w.do(i, "SET", "job", "another's")
		}
		open := slow(wires[2])
		t.Cleanup(open)
		var err error
		w.in(func() { _, err = q.Acquire(background, w.clock.Now, "job", ttl) },
			step{func() bool {
				return wires[2].hangs() && wires[0].ran("SET", "job") && wires[1].ran("SET", "job") && rest(wires)
			}, 50 * time.Millisecond})
		if !errors.Is(err, compat.ErrHeld) {
			t.Errorf("%v, want ErrHeld", err)
		}
		wires[2].OnDial(nil)
		open()
		eventually(t, func() bool { return wires[2].ran("SET", "job") && w.held("job") == "xx-" })
	})
}

// A server that was in time before is waited for as long as Grace lets it; one that was late, only
// as long as the others took.
func TestLateServerGetsLessGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q, wires := warm(t, 3, redlock.Options{Grace: time.Second, Timeout: time.Minute})
		for n, test := range []struct {
			pass time.Duration
			late bool // it answers only when the others have the lock
		}{{900 * time.Millisecond, false}, {time.Second, true}, {time.Millisecond, true}} {
			key, before := fmt.Sprint("job", n), wires[2].Hanging()
			open := slow(wires[2])
			t.Cleanup(open)
			answers := func() bool {
				if !test.late {
					open()
				}
				return true
			}
			var l compat.Grant
			var err error
			w.in(func() { l, err = q.Acquire(background, w.clock.Now, key, ttl) },
				step{func() bool {
					return wires[2].Hanging() > before && w.held(key) == "xx-" && rest(wires)
				}, test.pass}, step{answers, 0})
			if err != nil || strings.HasSuffix(l.Value, ",") != test.late {
				t.Errorf("%v after the others: %v, Value %q; want the third server's part: %v", test.pass, err, l.Value, !test.late)
			}
			wires[2].Clear()
		}
	})
}

// It is not known that the lock is held by others before so many have said so: one that is slow is
// waited for.
func TestHeldOrAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q, wires := warm(t, 3, redlock.Options{})
		for i := 1; i < 3; i++ {
			w.do(i, "SET", "job", "another's")
		}
		wires[0].Cut()
		open := slow(wires[2])
		t.Cleanup(open)
		so := func() bool { return wires[2].hangs() && wires[1].ran("SET", "job") && rest(wires) }
		var err error
		w.in(func() { _, err = q.Acquire(background, w.clock.Now, "job", ttl) },
			step{so, 60 * time.Millisecond}, step{so, 60 * time.Millisecond}, step{func() bool { open(); return true }, 0})
		if !errors.Is(err, compat.ErrHeld) {
			t.Errorf("one away, one held, and one that says so after Grace: %v, want ErrHeld", err)
		}
	})
}

// What a failed attempt has taken is given back within the Locker's Options.Cleanup, not the
// limit of a step.
func TestCleanupIsTheLockers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q, wires := warm(t, 3, redlock.Options{Timeout: time.Hour})
		for i := range 2 {
			w.do(i, "SET", "job", "another's")
		}
		wires[2].Expect(hangs.Of("EVALSHA")) // its release
		k := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock, Timeout: time.Hour, Cleanup: 70 * time.Millisecond})
		var err error
		w.in(func() { _, err = k.TryLock(background, "job", ttl) },
			step{wires[2].hangs, 50 * time.Millisecond})
		if !errors.Is(err, compat.ErrHeld) {
			t.Errorf("%v, want ErrHeld", err)
		}
		w.in(func() { err = k.Close(background) }, step{wires[2].hangs, 70 * time.Millisecond})
		if err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// One server under two names, or two databases of one, has one vote: for readers, too, and before anybody has a lock
// by it.
func TestOneServerIsOneVote(t *testing.T) {
	old := oldredis.Run(t, "2.4") // which does not tell who it is
	oneVote(t, "an old server", old, old, oldredis.Run(t, "2.4"))
	addr, another := realredis.Start(t), conformance.Dial(t, realredis.Start(t))
	other := &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", addr, redis.DialDatabase(1))
	}}
	t.Cleanup(func() { other.Close() })
	oneVote(t, "two names", conformance.Dial(t, addr), conformance.Dial(t, addr), another)
	oneVote(t, "two databases", conformance.Dial(t, addr), other, another)
}

func oneVote(t *testing.T, name string, pools ...compat.Pool) {
	for what, a := range map[string]protocol.Algorithm{
		"tx": txlock.Renamed{}, "readers": rwlock.Read{}, "writers": rwlock.Write{},
	} {
		t.Run(name+"/"+what, func(t *testing.T) {
			var backends []compat.Backend
			for _, p := range pools {
				backends = append(backends, compat.NewBackend(compat.Pooled(p), a))
			}
			q := redlock.New(backends, redlock.Options{Timeout: time.Minute, Grace: time.Minute})
			k := compat.NewLocker(q, compat.Options{NoRenew: true, Timeout: time.Minute})
			for range 2 {
				if l, err := k.TryLock(background, t.Name(), 5*time.Minute); !errors.Is(err, compat.ErrInvalid) {
					t.Errorf("%v, %v, want ErrInvalid", l, err)
				}
			}
		})
	}
}
