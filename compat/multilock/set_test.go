package multilock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
)

// A world is an embedded server and its clients on one mock clock.
type world struct {
	t      *testing.T
	way    way
	clock  *clock.Mock
	pauses chan time.Time // when clients that pause want to go on
	server *oldredis.Server
	fence  bool
}

// A watch is a clock that tells the world of each pause a client begins.
type watch struct {
	*clock.Mock
	pauses chan time.Time
}

func (w watch) Timer(d time.Duration) *clock.Timer {
	t := w.Mock.Timer(d)
	w.pauses <- w.Now().Add(d)
	return t
}

// everywhere runs f for every way on every version that has it.
func everywhere(t *testing.T, f func(w world)) {
	for _, v := range oldredis.Versions() {
		pool := oldredis.Run(t, v).Pool()
		defer pool.Close()
		for _, m := range ways() {
			if s := (conformance.Server{Source: pool, Transactions: true}); conformance.Refuses(t, m.on(s)) != nil {
				continue
			}
			t.Run(m.name+"/"+v, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					mock := clock.NewMock()
					mock.Set(noon)
					server := must.Get(oldredis.New(v, oldredis.Options{Clock: mock}))(t)
					t.Cleanup(func() { server.Close() })
					f(world{t, m, mock, make(chan time.Time, 1000), server, false})
				})
			})
		}
	}
}

func (w world) options() compat.Options {
	return compat.Options{NoRenew: true, Clock: watch{w.clock, w.pauses}, Rand: func() float64 { return 0 }}
}

// sets is a client that locks sets.
func (w world) sets() *compat.Locker { return w.way.set(compat.Pooled(w.server), w.fence, w.options()) }

// behind is a client of sets, behind net.
func (w world) behind(net *faulty.Network) *compat.Locker {
	return w.way.set(compat.Pooled(net.Pool(w.server)), false, w.options())
}

// singles is a client that locks single keys.
func (w world) singles() *compat.Locker {
	return compat.New(w.server, w.way.single(w.fence), w.options())
}

func (w world) try(k *compat.Locker, key string) *compat.Lock {
	w.t.Helper()
	return must.Get(k.TryLock(background, key, ttl))(w.t)
}

// do is one command of an onlooker's.
func (w world) do(name string, args ...any) any {
	w.t.Helper()
	c := w.server.Dial()
	defer c.Close()
	reply, err := c.Do(name, args...)
	if err != nil {
		w.t.Fatalf("%s %v: %v", name, args, err)
	}
	return reply
}

// free fails the test if a key is there that should not.
func (w world) free(keys ...string) {
	w.t.Helper()
	for _, k := range keys {
		if n := w.do("EXISTS", k); n != int64(0) {
			w.t.Errorf("%q still stands", k)
		}
	}
}

// until lets time pass, from one pause of the only client that runs to the
// next, until done is closed.
func (w world) until(done <-chan struct{}) time.Duration {
	w.t.Helper()
	start := w.clock.Now()
	for {
		select {
		case at := <-w.pauses:
			w.clock.Add(at.Sub(w.clock.Now()))
		case <-done:
			return w.clock.Since(start)
		case <-time.After(time.Minute):
			w.t.Fatal("the client neither pauses nor ends")
		}
	}
}

// A set and the single locks of its keys exclude each other, and so do sets
// that share a key. A refusal leaves nothing behind and names the key.
func TestSetsAndSinglesExclude(t *testing.T) {
	everywhere(t, func(w world) {
		set := w.try(w.sets(), multilock.Join("b", "a", "c"))
		for _, k := range []string{"a", "b", "c"} {
			if _, err := w.singles().TryLock(background, k, ttl); !errors.Is(err, compat.ErrHeld) {
				t.Errorf("a single lock of %s beside a set with it: %v", k, err)
			}
		}
		if _, err := w.sets().TryLock(background, multilock.Join("0", "c", "d"), ttl); !errors.Is(err, compat.ErrHeld) {
			w.t.Errorf("a set that shares c: %v", err)
		}
		w.free("0", "d")
		must.Do(w.t, set.Release(background))
		w.free("a", "b", "c")

		single := w.try(w.singles(), "c")
		_, err := w.sets().TryLock(background, multilock.Join("a", "b", "c"), ttl)
		var held *compat.HeldError
		if !errors.As(err, &held) || held.Key != "c" {
			w.t.Errorf("a set of which c is held: %v, want that it is c", err)
		}
		w.free("a", "b")
		must.Do(w.t, single.Release(background))
	})
}

// A Locker's prefix is put before each key.
func TestPrefix(t *testing.T) {
	everywhere(t, func(w world) {
		o := w.options()
		o.Prefix = "shop:"
		lock := w.try(w.way.set(compat.Pooled(w.server), false, o), multilock.Join("a", "b"))
		if _, err := w.singles().TryLock(background, "shop:b", ttl); !errors.Is(err, compat.ErrHeld) {
			w.t.Errorf("shop:b beside the set of a and b behind shop: %v", err)
		}
		if lock.Key() != "shop:all(a,b)" {
			w.t.Errorf("the set is called %q", lock.Key())
		}
		if _, err := w.way.set(compat.Pooled(w.server), false, o).TryLock(background, "a", ttl); !errors.Is(err, compat.ErrInvalid) {
			w.t.Errorf("a key that is no set: %v, want ErrInvalid", err)
		}
		must.Do(w.t, lock.Release(background))
	})
}

// A set of which one key is lost is lost, and what is left of it is released:
// by an extension, by a release, by a token alone.
func TestLosingOne(t *testing.T) {
	keys := []string{"a", "b", "c"}
	for _, gone := range keys {
		for _, step := range []string{"extend", "release", "release token", "adopt", "taken by another, extend", "taken by another, release"} {
			t.Run(gone+"/"+step, func(t *testing.T) {
				everywhere(t, func(w world) {
					set := multilock.Join(keys...)
					lock := w.try(w.sets(), set)
					w.do("DEL", gone)
					var theirs *compat.Lock
					if strings.HasPrefix(step, "taken") {
						w.clock.Add(1500 * time.Millisecond) // or both write the same second (getset/same-stamp)
						theirs = w.try(w.singles(), gone)
					}
					var err error
					switch step {
					case "extend", "taken by another, extend":
						err = lock.Extend(background, ttl)
						if lock.Context().Err() == nil {
							w.t.Error("the lock's context lives on")
						}
					case "release", "taken by another, release":
						err = lock.Release(background)
					case "release token":
						err = w.sets().ReleaseToken(background, set, lock.Token())
					case "adopt":
						_, err = w.sets().Adopt(background, set, lock.Token(), ttl)
					}
					if !errors.Is(err, compat.ErrLost) {
						w.t.Errorf("%s when %s is gone: %v, want ErrLost", step, gone, err)
					}
					for _, k := range keys {
						if k != gone || theirs == nil {
							w.free(k)
						}
					}
					if theirs != nil {
						if err := theirs.Release(background); err != nil {
							w.t.Errorf("the lock of the client that took %s: %v", gone, err)
						}
					}
				})
			})
		}
	}
}

// A holder that dies is followed when its time is over; and so is one that dies between two keys.
func TestCrash(t *testing.T) {
	everywhere(t, func(w world) {
		set := multilock.Join("a", "b", "c", "d")
		for n := 1; ; n++ { // it dies with its n-th command, run or not
			net := new(faulty.Network)
			net.Expect(faulty.Fate{Loss: []faulty.Loss{faulty.LostRequest, faulty.LostReply}[n%2], Cut: true}.At(n))
			_, err := w.behind(net).TryLock(background, set, ttl)
			died := net.Count() >= n
			if died == (err == nil) {
				w.t.Fatalf("died %v: %v", died, err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				lock, err := w.sets().Lock(background, set, ttl)
				if err != nil {
					w.t.Error(err)
					return
				}
				if err := lock.Release(background); err != nil {
					w.t.Error(err)
				}
			}()
			// What is left without an end is given one after a whole ttl, and ends
			// one ttl later; seconds are rounded up on the key.
			if took := w.until(done); took > 2*ttl+3*time.Second {
				w.t.Errorf("the client that died at command %d is followed after %v", n, took)
			}
			if !died {
				return
			}
		}
	})
}

// Whatever message is lost while a set is refused its last key, the others are released and the
// holder keeps its own.
func TestFaultsWhileRefused(t *testing.T) {
	everywhere(t, func(w world) {
		theirs := w.try(w.singles(), "c")
		for n := 1; ; n++ {
			ran := 0
			for _, f := range []faulty.Loss{faulty.LostRequest, faulty.LostReply} {
				net := new(faulty.Network)
				k := w.behind(net)
				net.Expect(faulty.Fate{Loss: f}.At(n))
				_, err := k.TryLock(background, multilock.Join("a", "b", "c"), ttl)
				if err == nil {
					w.t.Fatalf("fault %d at message %d: a set of which c is held was had", f, n)
				}
				if !errors.Is(err, compat.ErrUnknown) || !w.way.vague {
					w.free("a", "b")
				}
				w.do("DEL", "a", "b")
				ran = max(ran, net.Count())
			}
			if n > ran {
				break
			}
		}
		if err := theirs.Extend(background, ttl); err != nil {
			w.t.Errorf("the holder of c: %v", err)
		}
	})
}

// Whatever message is lost while a dead holder's keys are taken over, the
// caller is told the truth: what it holds is all it asked for, what it was refused is
// not held by it, unless it was told that it is not known.
func TestFaultsWhileTakingOver(t *testing.T) {
	everywhere(t, func(w world) {
		must.Get(w.sets().TryLock(background, multilock.Join("b"), time.Second))(w.t)
		state := w.server.Snapshot()
		for n := 1; ; n++ {
			ran := 0
			for _, f := range []faulty.Loss{faulty.LostRequest, faulty.LostReply} {
				w.server.Restore(state)
				w.clock.Add(3 * time.Second)
				net := new(faulty.Network)
				k := w.behind(net)
				net.Expect(faulty.Fate{Loss: f}.At(n))
				lock, err := k.TryLock(background, multilock.Join("a", "b", "c"), ttl)
				ran = max(ran, net.Count())
				net.Expect(nil)
				switch {
				case err == nil:
					if err := lock.Release(background); err != nil {
						w.t.Errorf("fault %d at message %d: released: %v", f, n, err)
					}
					w.free("a", "b", "c")
				case errors.Is(err, compat.ErrUnknown) || errors.Is(err, compat.ErrHeld):
				default:
					w.free("a", "c")
				}
			}
			if n > ran {
				return
			}
		}
	})
}

// One number is the fence of all keys: higher than any drawn before for one of
// them, lower than all that follow, whichever lock draws.
func TestOneFenceForAll(t *testing.T) {
	everywhere(t, func(w world) {
		w.fence = true
		w.do("SET", protocol.Aux("b", "fence"), 40)
		last := map[string]int64{"b": 40}
		for round := range 3 {
			for _, keys := range [][]string{{"a", "b"}, {"c"}, {"b", "c"}, {"a"}, {"a", "b", "c"}, {"b"}} {
				var lock *compat.Lock
				if len(keys) == 1 {
					lock = w.try(w.singles(), keys[0])
				} else {
					lock = w.try(w.sets(), multilock.Join(keys...))
				}
				for _, k := range keys {
					if lock.Fence() <= last[k] {
						w.t.Errorf("round %d, %v: fence %d, and %s had %d before", round, keys, lock.Fence(), k, last[k])
					}
					last[k] = lock.Fence()
				}
				must.Do(w.t, lock.Release(background))
			}
		}
		if last["a"] > 80 {
			w.t.Errorf("the numbers run away: %v", last)
		}
	})
}

// A list on one of the keys is left as it is, and the others are released. (MGET answers nil for
// it, as for a key that is not there.)
func TestForeign(t *testing.T) {
	everywhere(t, func(w world) {
		w.do("LPUSH", "b", "an element")
		set := multilock.Join("a", "b", "c")
		// A client that only tries to make the key can't tell what is there.
		if _, err := w.sets().TryLock(background, set, ttl); !errors.Is(err, compat.ErrForeign) && !errors.Is(err, compat.ErrHeld) {
			w.t.Errorf("a set with a list in it: %v, want ErrForeign or ErrHeld", err)
		}
		if _, err := w.sets().Inspect(background, set); !errors.Is(err, compat.ErrForeign) {
			w.t.Errorf("a set with a list in it: %v, want ErrForeign", err)
		}
		w.free("a", "c")
		if n := w.do("LLEN", "b"); n != int64(1) {
			w.t.Errorf("the list has %v elements now", n)
		}
		w.do("DEL", "b")
		lock := w.try(w.sets(), multilock.Join("a", "b", "c"))
		w.do("DEL", "b")
		w.do("LPUSH", "b", "an element")
		if err := lock.Release(background); !errors.Is(err, compat.ErrLost) {
			w.t.Errorf("a set of which one key became a list: %v, want ErrLost", err)
		}
		w.free("a", "c")
	})
}

// Inspect shows a set as its worst key, and who holds the others.
func TestInspect(t *testing.T) {
	everywhere(t, func(w world) {
		set := multilock.Join("a", "b", "c")
		inspect := func() compat.State {
			return must.Get(w.sets().Inspect(background, set))(w.t)
		}
		if st := inspect(); st.Status != compat.StatusFree || st.Value != "" || len(st.Holders) != 0 {
			w.t.Errorf("free: %+v", st)
		}
		a := w.try(w.singles(), "a")
		b := must.Get(w.singles().TryLock(background, "b", 2*ttl))(w.t)
		st := inspect()
		if st.Status != compat.StatusHeld || st.Until.Sub(noon.Add(2*ttl)).Abs() > time.Second && !w.way.vague {
			w.t.Errorf("a and b held: %+v, want until the end of b", st)
		}
		if !w.way.vague && (!st.Holds(a.Token()) || !st.Holds(b.Token())) {
			w.t.Errorf("a and b held: %+v, want both among the holders", st)
		}
	})
}

// A key that its holder left without an end is given one by a client that waits for the set.
func TestPersistentIsRepaired(t *testing.T) {
	everywhere(t, func(w world) {
		if w.way.name[:2] != "tx" && w.way.name != "in turn/tx:classic" {
			return // getsetlock's keys have no TTL, and tx:renamed repairs nothing
		}
		w.do("SET", "b", "94213c24deadbeef94213c24deadbeef")
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := w.sets().Lock(background, multilock.Join("a", "b"), ttl); err != nil {
				w.t.Error(err)
			}
		}()
		if took := w.until(done); took < 2*ttl || took > 2*ttl+3*time.Second {
			w.t.Errorf("the set was had after %v, want one ttl to be sure and one of the repair", took)
		}
	})
}

// A Lock whose context ends while it is refused leaves nothing behind.
func TestCancelled(t *testing.T) {
	everywhere(t, func(w world) {
		for n := 1; n <= 12; n++ {
			w.do("DEL", "c")
			w.try(w.singles(), "c")
			ctx, cancel := context.WithCancel(background)
			net := new(faulty.Network)
			net.Expect(faulty.Then(cancel).At(n))
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, err := w.behind(net).Lock(ctx, multilock.Join("a", "b", "c"), ttl)
				if !errors.Is(err, context.Canceled) || errors.Is(err, compat.ErrHeld) {
					w.t.Errorf("cancelled at command %d: %v, want context.Canceled", n, err)
				}
			}()
			w.until(done)
			cancel()
			w.free("a", "b")
		}
	})
}
