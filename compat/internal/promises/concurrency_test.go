package promises_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// A renewal whose outcome is unknown, then an outage longer than ttl/20: renewals never resume.
func TestRenewalsResumeAfterAnOutage(t *testing.T) {
	for name, a := range map[string]protocol.Algorithm{"getset:guarded": getsetlock.Guarded{}, "tx:guarded": txlock.Guarded{}, "set:lua": setlock.Lua{}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, one("", "7.0", nil), func(w *world) {
				k, n := w.clientOf(a, compat.Options{})
				l, err := k.TryLock(background, "k", 30*time.Second) // renewed at 10 s
				if err != nil {
					t.Fatal(err)
				}
				l.Context()
				pass(9 * time.Second)
				n.Expect(faulty.Fate{Loss: faulty.LostReply, Cut: true}.Of("EXEC", "EVAL", "EVALSHA"))
				pass(6 * time.Second) // down from 10 s to 15 s
				n.Clear()
				pass(30 * time.Second)
				if !believes(l) {
					t.Errorf("lost, though the server was away for 5 s of a lease of 30 s, and nobody touched the key: %v", context.Cause(l.Context()))
				}
				k.Close(background)
			})
		})
	}
}

// Four unknown outcomes and it is never extended again.
func TestDoubtsDoom(t *testing.T) {
	for name, refusal := range map[string]redis.Error{"lost requests": "", "MISCONF": "MISCONF Redis is configured to save RDB snapshots, but is currently not able to persist on disk"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, one("", "7.0", nil), func(w *world) {
				k, n := w.clientOf(txlock.Guarded{}, compat.Options{})
				l := must.Get(k.TryLock(background, "k", 30*time.Second))(t)
				l.Context()
				pass(9 * time.Second)
				n.Expect(func(m faulty.Message) faulty.Fate {
					switch write := m.Name == "EXPIRE" || m.Name == "SETEX"; {
					case refusal == "" && (write || m.Name == "EXEC"):
						return faulty.Fate{Loss: faulty.LostRequest}
					case refusal != "" && write:
						return faulty.Answer(refusal)
					case refusal != "" && m.Name == "EXEC":
						return faulty.Answer(redis.Error("EXECABORT Transaction discarded because of previous errors."))
					}
					return faulty.Fate{}
				})
				pass(4 * time.Second) // until 13 s
				n.Clear()
				pass(30 * time.Second)
				if !believes(l) {
					t.Errorf("lost, though writes failed only from 10 s to 13 s of a lease of 30 s")
				}
				k.Close(background)
			})
		})
	}
}

// A cluster's refusal: a single renewal is "not sent", a batch's is "unknown", and four of them are the end.
func TestBatchInAClusterThatIsDown(t *testing.T) {
	for _, size := range []int{1, 2} {
		inWorld(t, one("", "7.0", nil), func(w *world) {
			k, n := w.clientOf(txlock.Guarded{}, compat.Options{})
			var locks []*compat.Lock
			for i := range size {
				l := must.Get(k.TryLock(background, "{a}"+string(rune('0'+i)), 30*time.Second))(t)
				l.Context()
				locks = append(locks, l)
			}
			pass(9 * time.Second)
			n.Expect(faulty.Answer(redis.Error("CLUSTERDOWN Hash slot not served")).Always())
			pass(11 * time.Second) // until 20 s
			n.Expect(nil)
			pass(30 * time.Second)
			for _, l := range locks {
				if !believes(l) {
					t.Errorf("%d locks: %s lost, though the cluster was down for 10 s of a lease of 30 s only", size, l.Key())
				}
			}
			k.Close(background)
		})
	}
}

// A Release while a Handoff is under way: the key stays, and Release says ErrLost.
func TestReleaseDuringHandoff(t *testing.T) {
	for name, a := range map[string]protocol.Algorithm{"getset:guarded": getsetlock.Guarded{}, "tx:guarded": txlock.Guarded{}, "set:lua": setlock.Lua{}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, one("", "7.0", nil), func(w *world) {
				k, n := w.clientOf(a, compat.Options{NoRenew: true})
				l, err := k.TryLock(background, "k", time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				n.Expect(faulty.Fate{After: 100 * time.Millisecond}.Always())
				var next *compat.Lock
				var handErr error
				var wg sync.WaitGroup
				wg.Go(func() { next, handErr = l.Handoff(background, 2*time.Minute) })
				pass(50 * time.Millisecond)
				err = l.Release(background)
				wg.Wait()
				if next == nil && w.get("k") != "" {
					t.Errorf("Handoff: %v; Release: %v; and the key stays, nobody's", handErr, err)
				}
				k.Close(background)
			})
		})
	}
}

// Release again, after ErrUnknown, as the docs invite: nil, and nothing was released.
func TestReleaseAgain(t *testing.T) {
	inWorld(t, one("", "7.0", nil), func(w *world) {
		k, n := w.clientOf(getsetlock.Guarded{}, compat.Options{NoRenew: true})
		l := must.Get(k.TryLock(background, "k", time.Minute))(t)
		n.Expect(faulty.Fate{Loss: faulty.LostRequest, Cut: true}.Of("EXEC"))
		err1 := l.Extend(background, time.Minute) // unknown
		err2 := l.Release(background)             // nothing arrives: ErrUnknown
		n.Clear()
		err3 := l.Release(background)
		if w.get("k") != "" && err3 == nil {
			t.Errorf("Extend: %v\nRelease: %v\nRelease again: %v, and the key is still held", err1, err2, err3)
		}
		k.Close(background)
	})
}

// Close while a TryLock is under way: a lock that is never ended.
func TestCloseDuringTryLock(t *testing.T) {
	inWorld(t, one("", "7.0", nil), func(w *world) {
		k, n := w.clientOf(setlock.Lua{}, compat.Options{})
		n.Expect(faulty.Fate{After: 100 * time.Millisecond}.Always())
		var l *compat.Lock
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { l, err = k.TryLock(background, "k", 5*time.Second) })
		pass(50 * time.Millisecond)
		closed := k.Close(background)
		wg.Wait()
		if l != nil {
			l.Context()
			pass(time.Minute)
			if l.Context().Err() == nil {
				t.Errorf("Close: %v, TryLock: %v; its lease ended %v ago, its context never", closed, err, time.Since(l.Until()))
			}
			l.Release(background)
		}
	})
}

// 6b. The same with Handoff.
func TestCloseDuringHandoff(t *testing.T) {
	inWorld(t, one("", "7.0", nil), func(w *world) {
		k, n := w.clientOf(setlock.Lua{}, compat.Options{})
		l, err := k.TryLock(background, "k", 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		l.Token()
		n.Expect(faulty.Fate{After: 100 * time.Millisecond}.Always())
		var next *compat.Lock
		var wg sync.WaitGroup
		wg.Go(func() { next, err = l.Handoff(background, 5*time.Second) })
		pass(50 * time.Millisecond)
		closed := k.Close(background)
		wg.Wait()
		n.Expect(nil)
		if next == nil && w.get("k") != "" {
			t.Errorf("Close: %v, Handoff: %v; the key is still held", closed, err)
		}
		if next != nil {
			next.Context()
			pass(time.Minute)
			if next.Context().Err() == nil {
				t.Errorf("Close: %v; a lock lives on", closed)
			}
		}
	})
}

// Close returns within Options.Cleanup of its context's end, however many locks are held.
func TestCloseIsBounded(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			locker, net := w.client(compat.Options{NoRenew: true, Timeout: time.Hour})
			for n := range 40 {
				must.Get(locker.TryLock(background, w.kind.another(n), long))(t)
			}
			net.OnDial(faulty.Hang)
			net.Expect(faulty.Fate{Before: time.Hour}.Always())
			start := time.Now()
			if err := locker.Close(w.within(time.Second)); err == nil || time.Since(start) > time.Second+250*time.Millisecond {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
			net.Clear()
		})
	})
}

// Close waits for the renewals under way, also for those of locks that are lost meanwhile: whoever
// closes the pool after it takes it from nobody. (A bubble does not end while a goroutine is left.)
func TestCloseWaitsForRenewals(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			locker, net := w.client(compat.Options{Timeout: time.Hour})
			for n := range 3 {
				l := must.Get(locker.TryLock(background, w.kind.another(n), short))(t)
				l.Context()
			}
			net.Expect(faulty.Fate{Before: 2 * short}.Always())
			time.Sleep(short + short/4)
			locker.Close(w.within(time.Hour)) //nolint:errcheck // what it says of locks that are lost is not asked here
		})
	})
}

// Close does not end the wait of the head.
func TestCloseEndsWaits(t *testing.T) {
	inWorld(t, one("", "7.0", nil), func(w *world) {
		other, _ := w.clientOf(setlock.Lua{}, compat.Options{})
		l := must.Get(other.TryLock(background, "k", 5*time.Second))(t)
		k, _ := w.clientOf(setlock.Lua{}, compat.Options{NoRenew: true})
		done := make(chan error, 2)
		ctx, cancel := context.WithTimeout(background, time.Hour)
		defer cancel()
		for range 2 {
			go func() { _, err := k.Lock(ctx, "k", 5*time.Second); done <- err }()
			pass(time.Second)
		}
		k.Close(background)
		for i := range 2 {
			select {
			case err := <-done:
				if !errors.Is(err, compat.ErrClosed) {
					t.Errorf("%v", err)
				}
			case <-time.After(time.Minute):
				t.Errorf("wait %d: a minute after Close, Lock still waits", i)
			}
		}
		cancel()
		l.Release(background)
		other.Close(background)
		pass(10 * time.Second)
	})
}

// Close ends a wait whose last attempt was not answered. What that attempt took is released if the server is back, and the
// outcome is unknown if not. The failures that it finds: the lock stays held for its ttl, and the error does not say so.
func TestCloseEndsAWaitInDoubt(t *testing.T) {
	for _, back := range []bool{true, false} {
		inWorld(t, one("", "7.0", nil), func(w *world) {
			n := new(faulty.Network)
			source := through(n, w.servers[0])
			source.Epoch = func() uint64 { return 0 }
			k := compat.NewOn(source, setlock.Lua{}, compat.Options{Poll: time.Hour}) // the pause after an error is a minute
			must.Get(k.TryLock(background, "other", long))(t).Release(background)     //nolint:errcheck // the server was found safe
			n.Expect(func(m faulty.Message) faulty.Fate {
				if m.Name == "SET" {
					return faulty.Fate{Loss: faulty.LostReply, Err: compat.ErrTimeout}
				}
				return faulty.Fate{Loss: faulty.LostRequest, Err: compat.ErrTimeout}
			})
			done := make(chan error, 1)
			go func() { _, err := k.Lock(background, "k", long); done <- err }()
			pass(time.Second)
			if w.get("k") == "" {
				t.Fatal("the attempt did not arrive")
			}
			if back {
				n.Clear()
			}
			k.Close(background) //nolint:errcheck
			err := <-done
			if !errors.Is(err, compat.ErrClosed) || errors.Is(err, compat.ErrUnknown) == back {
				t.Errorf("back: %v: %v", back, err)
			}
			if left := w.get("k"); back && left != "" {
				t.Errorf("after Close the key holds %q", left)
			}
		})
	}
}

// Extend returns nil, and the end is the old one.
func TestResolvedExtend(t *testing.T) {
	inWorld(t, one("", "7.0", nil), func(w *world) {
		k, n := w.clientOf(getsetlock.Guarded{}, compat.Options{NoRenew: true})
		l, err := k.TryLock(background, "k", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		struck := false
		n.Expect(func(m faulty.Message) faulty.Fate {
			if m.Name == "EXEC" && !struck {
				struck = true
				return faulty.Fate{Loss: faulty.LostReply}
			}
			return faulty.Fate{}
		})
		err = l.Extend(background, time.Minute)
		if err == nil && time.Until(l.Until()) < 50*time.Second {
			t.Errorf("Extend(1m): nil, and %v are left", time.Until(l.Until()))
		}
		l.Release(background)
		k.Close(background)
	})
}

// Detach never returns, and asks for ever.
func TestDetachLoops(t *testing.T) {
	inWorld(t, one("", "7.0", nil), func(w *world) {
		k, n := w.clientOf(getsetlock.TwoKeys{}, compat.Options{NoRenew: true})
		l, err := k.TryLock(background, "k", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		n.Expect(faulty.Fate{Loss: faulty.LostRequest}.Of("EXEC"))
		for range 3 {
			l.Extend(background, time.Hour)
		}
		ctx, cancel := context.WithCancel(background)
		n.Expect(faulty.First(func() {
			t.Errorf("Detach has sent 2000 commands, and goes on")
			cancel()
		}).At(2000))
		_, err = l.Detach(ctx)
		cancel()
		t.Logf("Detach: %v", err)
		l.Release(background)
		k.Close(background)
	})
}

// What Detach asks for after an extension of unknown outcome, to extend once more, is enough; and however
// often replies are lost in a lock's life, it can be extended afterwards.
func TestExtendOnceMore(t *testing.T) {
	two, write := getsetlock.TwoKeys{}, rwlock.Write{}
	kinds := append(append(all(false), all(true)...),
		one("getset:two-keys", "2.2", two), one("getset:two-keys with a fence", "2.2", getsetlock.TwoKeys{Fence: true}),
		one("forwarding(getset:two-keys)", "2.2", plain{two}),
		several("multilock.New(getset:two-keys)", "2.2", two), several("multilock.New(rwlock.Write)", "2.4", write),
		quorum("redlock(rwlock.Write)", true, []string{"2.4", "2.4", "2.4"}, write, write, write),
		quorum("redlock(getset:two-keys)", true, []string{"2.4", "2.4", "2.4"}, two, two, two))
	eachKind(t, kinds, func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			locker, net := w.client(compat.Options{NoRenew: true})
			l := w.try(locker, time.Hour)
			unknown := 0
			for n := range 20 {
				net.Expect(faulty.Fate{Loss: faulty.LostReply}.Always())
				if err := l.Extend(background, time.Hour); errors.Is(err, compat.ErrUnknown) || protocol.OutcomeOf(err) == protocol.Unknown {
					unknown++
				}
				net.Clear()
				if err := l.Extend(background, time.Hour); err != nil {
					w.Fatalf("Extend once more, the %d-th time: %v", n+1, err)
				}
			}
			if _, err := l.Detach(background); err != nil {
				t.Errorf("Detach after Extend once more, %d were unknown: %v", unknown, err)
			}
		})
	})
}

// The adopter's belief outlives the grant: a late extension of the one who detached.
func TestAdoptAfterADoubt(t *testing.T) {
	for name, a := range map[string]protocol.Algorithm{"set:lua": setlock.Lua{}, "set:watched": setlock.Watched{}, "tx:guarded": txlock.Guarded{}, "set:script": setlock.Script{}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, one("", "7.0", nil), func(w *world) {
				k, n := w.clientOf(a, compat.Options{NoRenew: true})
				k2, _ := w.clientOf(a, compat.Options{NoRenew: true})
				rival, _ := w.clientOf(a, compat.Options{NoRenew: true})
				l := must.Get(k.TryLock(background, "k", time.Minute))(t)
				n.Expect(faulty.Fate{Loss: faulty.LateRequest, Cut: true}.Of("EVAL", "EVALSHA", "MULTI"))
				ext := l.Extend(background, 5*time.Second)
				n.Clear()
				h, err := l.Detach(background)
				if errors.Is(err, compat.ErrUnknown) { // as its doc says: extend once more
					must.Do(t, l.Extend(background, time.Minute))
					h, err = l.Detach(background)
				}
				if err != nil {
					t.Fatal(err)
				}
				next := must.Get(k2.AdoptHandle(background, h, time.Minute))(t)
				next.Context()
				n.DeliverLate()
				pass(10 * time.Second)
				got, err := rival.TryLock(background, "k", time.Minute)
				if err == nil && believes(next) {
					t.Errorf("Extend: %v; the rival has it, and the adopter believes in it for another %v", ext, time.Until(next.Until()))
				}
				if got != nil {
					got.Release(background)
				}
				next.Release(background)
				for _, k := range []*compat.Locker{k, k2, rival} {
					k.Close(background)
				}
			})
		})
	}
}

// Inspect and ReleaseToken of a Patient with a Lease below a second.
func TestPatientInspect(t *testing.T) {
	inWorld(t, one("", "7.0", nil), func(w *world) {
		k, _ := w.clientOf(getsetlock.Patient{Lease: 500 * time.Millisecond}, compat.Options{NoRenew: true})
		l := must.Get(k.TryLock(background, "k", 400*time.Millisecond))(t)
		if _, err := k.Inspect(background, "k"); err != nil {
			t.Errorf("Inspect: %v", err)
		}
		if err := k.ReleaseHandle(background, l.Handle()); err != nil {
			t.Errorf("ReleaseHandle: %v", err)
		}
		k.Close(background)
	})
}

// A pool whose idle connections are stale by IdleTimeout dials in the foreground.
func TestIdleTimeout(t *testing.T) {
	inWorld(t, one("", "7.0", nil), func(w *world) {
		var hanging atomic.Bool
		hang := make(chan struct{})
		p := &redis.Pool{MaxIdle: 3, IdleTimeout: 50 * time.Millisecond, Dial: func() (redis.Conn, error) {
			if hanging.Load() {
				<-hang
				return nil, syscall.ECONNREFUSED
			}
			return w.servers[0].Dial(), nil
		}}
		const limit = 200 * time.Millisecond
		k := compat.New(p, setlock.Lua{}, compat.Options{NoRenew: true, Timeout: limit})
		l := w.try(k, time.Minute)
		pass(forgotten)
		hanging.Store(true)
		start := time.Now()
		if err := l.Extend(background, time.Minute); !errors.Is(err, compat.ErrTimeout) || time.Since(start) != limit {
			t.Errorf("Extend waits for a Dial: %v after %v, want ErrTimeout after %v", err, time.Since(start), limit)
		}
		close(hang)
		k.Close(background) //nolint:errcheck // it ends the lease's timer
	})
}

// A Token read while an extension is on its way is disclosed: the successor gets another.
func TestTokenReadOnTheWay(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			holder, net := w.client(compat.Options{NoRenew: true})
			l := w.try(holder, time.Minute)
			var known []string
			net.Expect(faulty.First(func() { known = append(known, l.Token()) }).Always())
			if err := l.Extend(background, time.Minute); err != nil || len(known) == 0 {
				t.Fatalf("extended by %d commands: %v", len(known), err)
			}
			net.Clear()
			next, err := l.Handoff(background, time.Minute)
			if errors.Is(err, errors.ErrUnsupported) { // it can't change its token, and says so
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(known, next.Token()) {
				t.Error("the successor's token is one that the holder before it knows")
			}
			next.Release(background) //nolint:errcheck // it is over anyway
		})
	})
}

// The same, at any moment.
func TestTokenRace(t *testing.T) {
	s := oldredis.MustNew("7.0", oldredis.Options{})
	k := compat.New(s.Pool(), getsetlock.Guarded{}, compat.Options{NoRenew: true})
	for n := range 2000 {
		l := must.Get(k.TryLock(background, "k", time.Minute))(t)
		var wg sync.WaitGroup
		known := make([]string, 2)
		for i := range known {
			wg.Go(func() {
				for range 1 + n%50 {
					known[i] = l.Token()
				}
			})
		}
		l.Extend(background, time.Minute) //nolint:errcheck // the embedded server answers
		wg.Wait()
		next := must.Get(l.Handoff(background, time.Minute))(t)
		for _, v := range known {
			if v == next.Token() {
				t.Fatalf("after %d tries: the successor's token is one that the holder before it knows", n)
			}
		}
		next.Release(background)
	}
	k.Close(background)
}

// a clock that can be ahead of its timers, as after a suspension.
type suspended struct {
	clock.Clock
	off atomic.Int64
}

func (c *suspended) Now() time.Time                  { return c.Clock.Now().Add(time.Duration(c.off.Load())) }
func (c *suspended) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// A lease that Detach finds run out: nobody learns of it, and a waiter of this process waits for ever.
func TestDetachTooLate(t *testing.T) {
	for _, how := range []string{"extend", "detach"} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, one("", "7.0", nil), func(w *world) {
				c := &suspended{Clock: clock.New()}
				lost := false
				k, _ := w.clientOf(setlock.Lua{}, compat.Options{NoRenew: true, Clock: c, Observer: compat.Observer(func(e compat.Event) { lost = lost || e.Kind == compat.EventLost })})
				l, err := k.TryLock(background, "k", 5*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				l.Context()
				ctx, cancel := context.WithTimeout(background, time.Hour)
				defer cancel()
				done := make(chan error, 1)
				go func() {
					next, err := k.Lock(ctx, "k", 5*time.Second)
					if next != nil {
						next.Release(background)
					}
					done <- err
				}()
				pass(100 * time.Millisecond)
				c.off.Store(int64(10 * time.Second))
				if how == "detach" {
					_, err = l.Detach(background)
				} else {
					err = l.Extend(background, 5*time.Second)
				}
				pass(time.Minute)
				select {
				case <-done:
				default:
					t.Errorf("%s: %v; EventLost: %v; a minute later the waiter of this process still waits", how, err, lost)
				}
				cancel()
				pass(time.Second)
			})
		})
	}
}

// Persistent is heeded by WATCH alone.
func TestPersistent(t *testing.T) {
	for name, by := range map[string]protocol.Condition{"watch": protocol.Watch, "script": protocol.Script, "unguarded": protocol.Unguarded} {
		s := oldredis.MustNew("7.0", oldredis.Options{})
		c := protocol.NewConn(s.Dial())
		c.Do("SET", "k", "v", "PX", 60000)
		_, err := c.Run(protocol.Change{If: by, Key: "k", Value: "v", Do: []protocol.Cmd{{"EXPIRE", "k", 1}}, Persistent: true})
		if !errors.Is(err, compat.ErrLost) {
			t.Errorf("%s: a key with a TTL: %v", name, err)
		}
	}
}

// What f gave away on purpose is an error of Do's.
func TestDoDetaches(t *testing.T) {
	s := oldredis.MustNew("7.0", oldredis.Options{})
	k := compat.New(s.Pool(), setlock.Lua{}, compat.Options{NoRenew: true})
	err := k.Do(background, "k", time.Minute, func(ctx context.Context) error {
		_, err := compat.FromContext(ctx).Detach(ctx)
		return err
	})
	if err != nil {
		t.Errorf("f detached the lock and returned nil: %v", err)
	}
	k.Close(background)
}

// The retry of a renewed lock comes after the end that is believed.
func TestShorterIsRetriedInTime(t *testing.T) {
	inWorld(t, one("", "7.0", nil), func(w *world) {
		k, n := w.clientOf(setlock.Lua{}, compat.Options{})
		l, err := k.TryLock(background, "k", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		l.Context()
		n.Expect(faulty.Fate{Loss: faulty.LostReply, Cut: true}.Always())
		err = l.Extend(background, 2*time.Second)
		n.Clear() // the network is well again at once
		pass(10 * time.Second)
		if !believes(l) {
			t.Errorf("Extend(2s): %v; lost, for the renewal was to be tried in 3 s", err)
		}
		k.Close(background)
	})
}

// Whatever is under way when Close is called: nothing is held after it, and no context lives on.
func TestCloseAmongMany(t *testing.T) {
	for seed := range 30 {
		what := ""
		inWorld(t, one("", "7.0", nil), func(w *world) {
			k, n := w.clientOf(setlock.Lua{}, compat.Options{})
			n.Expect(func(m faulty.Message) faulty.Fate {
				return faulty.Fate{Before: time.Duration((m.N*7+seed)%20) * time.Millisecond}
			})
			var mu sync.Mutex
			var locks []*compat.Lock
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					for {
						ctx, cancel := context.WithTimeout(background, time.Minute)
						l, err := k.Lock(ctx, "k", 5*time.Second)
						cancel()
						if err != nil {
							if !errors.Is(err, compat.ErrClosed) {
								mu.Lock()
								what = err.Error()
								mu.Unlock()
							}
							return
						}
						l.Context()
						mu.Lock()
						locks = append(locks, l)
						mu.Unlock()
						time.Sleep(3 * time.Millisecond)
						l.Release(background)
					}
				})
			}
			pass(time.Duration(200+7*seed) * time.Millisecond)
			k.Close(background)
			k.Close(background)
			wg.Wait()
			time.Sleep(20 * time.Second)
			for _, l := range locks {
				if l.Context().Err() == nil {
					what = "a context lives on"
				}
			}
		})
		if what != "" {
			t.Errorf("seed %d: %s", seed, what)
		}
	}
}

// Detached by a pinned lock, handed off, extended: no connection is left over, and pins are free again.
func TestPins(t *testing.T) {
	for _, version := range []string{"2.4", "7.0"} {
		inWorld(t, one("", version, nil), func(w *world) {
			n := new(faulty.Network)
			k := compat.NewOn(kept(2, []compat.Source{through(n, w.servers[0])})[0], txlock.Guarded{}, compat.Options{NoRenew: true, Rand: func() float64 { return 0 }})
			for i := 1; i < 40; i++ {
				l := must.Get(k.TryLock(background, "k", 10*time.Second))(t)
				n.Expect(faulty.Fate{Loss: faulty.LostReply}.At(i % 10))
				switch i % 4 {
				case 0:
					if next, err := l.Handoff(background, 20*time.Second); err == nil {
						l = next
					}
				case 1:
					l.Extend(background, 20*time.Second)
					l.Extend(background, 20*time.Second)
				case 2:
					l.Extend(background, 20*time.Second)
					l.Detach(background)
				case 3:
					l.Extend(background, 20*time.Second)
					if next, err := l.Handoff(background, 20*time.Second); err == nil {
						l = next
					}
				}
				n.Clear()
				l.Release(background)
				pass(time.Minute)
				if n.Open() != 0 {
					t.Fatalf("%s %d: %d connections are left open", version, i, n.Open())
				}
			}
			l, _ := k.TryLock(background, "k", 10*time.Second)
			if n.Open() != 1 {
				t.Errorf("%s: it does not pin any more", version)
			}
			l.Release(background)
			k.Close(background)
		})
	}
}

// Of releases at once each lock sees one. The others send nothing, and an Observer hears of one.
func TestReleasesAtOnce(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, k kind) {
		for _, hold := range []time.Duration{0, keptFor} {
			inWorld(t, k, func(w *world) {
				told := 0
				locker, net := w.client(compat.Options{Hold: hold, Observer: func(e compat.Event) {
					if e.Kind == compat.EventReleased {
						told++
					}
				}})
				l, alone := w.tryKey(locker, k.another(1)), w.tryKey(locker, k.another(2))
				sent := func(f func()) int { n := net.Count(); f(); return net.Count() - n }
				release := func(l *compat.Lock, want error) {
					if err := l.Release(background); !errors.Is(err, want) {
						w.Errorf("Release: %v, want %v", err, want)
					}
				}
				net.Expect(faulty.Fate{Before: 50 * time.Millisecond}.Always())
				one := sent(func() { release(alone, nil) })
				three := sent(func() {
					var all sync.WaitGroup
					for _, want := range []error{nil, compat.ErrReleased, compat.ErrReleased} {
						all.Go(func() { release(l, want) })
						pass(time.Millisecond)
					}
					all.Wait()
				})
				if told != 2 || three > one {
					w.Errorf("Hold %v: %d releases were told, want 2; one sent %d commands, three at once %d: %v", hold, told, one, three, net.Names())
				}
			})
		}
	})
}
