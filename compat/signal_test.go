package compat_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/internal/simulate"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// signalled is a process that signals and, so that nothing else can wake it,
// hardly ever polls.
func signalled(source compat.Pool, a protocol.Algorithm, o compat.Options) *compat.Locker {
	o.Poll = 50 * time.Hour
	s := compat.Pooled(source)
	s.Keep = 16
	return compat.NewOn(s, a, o)
}

// still is a server on which no time passes: a client listens for as long as it wants.
func still(t *testing.T, version string) *oldredis.Server {
	t.Helper()
	return newWorld(t, version).server
}

// listening waits until n clients of s have registered for key and listen.
func listening(t *testing.T, s *oldredis.Server, key string, n int) {
	t.Helper()
	c := s.Dial()
	defer c.Close()
	eventually(t, fmt.Sprintf("%d listen", n), func() bool {
		got := must.Get(redis.Int(c.Do("LLEN", protocol.Aux(key, "waiters"))))(t)
		info, err := redis.String(c.Do("INFO"))
		return err == nil && got == n && strings.Contains(info, fmt.Sprintf("blocked_clients:%d\r\n", n))
	})
}

// empty fails if anything is left on s for good.
func empty(t *testing.T, s *oldredis.Server) {
	t.Helper()
	c := s.Dial()
	defer c.Close()
	defer func() {
		if t.Failed() {
			t.Log(redis.Strings(c.Do("KEYS", "*")))
		}
	}()
	eventually(t, "nothing is left", func() bool {
		keys, err := redis.Strings(c.Do("KEYS", "*"))
		for _, key := range keys {
			if err == nil && key == protocol.Aux("k", "wake") { // a word that nobody heard
				_, err = redis.Int(c.Do("TTL", key))
				continue
			}
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		return true
	})
}

// signalling are locks of every kind with the first version that has them; each
// removes the key by another command.
var signalling = map[string]struct {
	a     protocol.Algorithm
	since string
	o     compat.Options
}{
	"getset:classic": {getsetlock.Classic{}, "2.2.5", compat.Options{NoRenew: true}},
	"getset:guarded": {getsetlock.Guarded{}, "2.2.5", compat.Options{NoRenew: true}},
	"getset:listed":  {getsetlock.ListCAS{}, "2.2.5", compat.Options{NoRenew: true}},
	"tx:classic":     {txlock.Classic{}, "2.2.5", compat.Options{NoRenew: true}},
	"tx:renamed":     {txlock.Renamed{}, "2.4", compat.Options{NoRenew: true}},
	"set:lua":        {setlock.Lua{}, "2.6.12", compat.Options{NoRenew: true}},
	"set:watch":      {setlock.Watched{}, "2.6.12", compat.Options{NoRenew: true}},
	"set:script":     {setlock.Script{}, "2.6", compat.Options{NoRenew: true}},
}

// A release wakes a client in another process that does nothing but listen, on
// every version whose lists can have an end, and leaves nothing behind.
func TestSignal(t *testing.T) {
	for name, c := range signalling {
		versions := oldredis.Versions()
		for _, v := range versions[slices.Index(versions, c.since):] {
			t.Run(name+"/"+v, func(t *testing.T) {
				t.Parallel()
				s := still(t, v)
				one, two := signalled(s.Pool(), c.a, c.o), signalled(s.Pool(), c.a, c.o)
				ctx, cancel := context.WithTimeout(background, time.Minute)
				defer cancel()
				l, err := one.Lock(ctx, "k", time.Minute)
				for range 3 {
					if err != nil {
						t.Fatal(err)
					}
					var next *compat.Lock
					waiting := inBackground(func() { next, err = two.Lock(ctx, "k", time.Minute) })
					listening(t, s, "k", 1)
					must.Do(t, l.Release(ctx))
					<-waiting
					l, one, two = next, two, one
				}
				must.Do(t, l.Release(ctx))
				empty(t, s)
			})
		}
	}
}

// Real servers wake a client that blocks when RPOPLPUSH pushes, those before 2.6
// too.
func TestSignalOnARealServer(t *testing.T) {
	addr := realredis.Start(t)
	pool := func() *redis.Pool {
		p := &redis.Pool{MaxIdle: 4, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
		t.Cleanup(func() { p.Close() })
		return p
	}
	for name, c := range signalling {
		o := c.o
		one, two := compat.New(pool(), c.a, o), compat.New(pool(), c.a, o)
		turns := 0
		var wg sync.WaitGroup
		for _, k := range []*compat.Locker{one, two} {
			for range 4 {
				wg.Go(func() {
					for range 5 {
						if err := k.Do(background, name, time.Minute, func(context.Context) error { turns++; return nil }); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		if turns != 40 {
			t.Errorf("%s: %d turns, want 40", name, turns)
		}
	}
}

// Processes are woken in the order in which they began to wait, one for each
// release.
func TestSignalsAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := still(t, "2.4")
		l, err := signalled(s, txlock.Renamed{}, compat.Options{NoRenew: true}).TryLock(background, "k", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		const all = 5
		got := make(chan int)
		for i := range all {
			k := signalled(s, txlock.Renamed{}, compat.Options{NoRenew: true})
			go func() {
				l, err := k.Lock(background, "k", time.Minute)
				if err != nil {
					t.Error(err)
				}
				got <- i
				release(t, l)
			}()
			synctest.Wait() // it listens, and has looked once more
		}
		listening(t, s, "k", all)
		release(t, l)
		for i := range all {
			if n := <-got; n != i {
				t.Errorf("woken as number %d: %d", i, n)
			}
		}
		synctest.Wait()
		empty(t, s)
	})
}

// Of two processes, in each of which three wait again and again, each serves its three and then lets the other go first.
func TestTurnsAlternate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := still(t, "2.4")
		var mu sync.Mutex
		order := ""
		var wg sync.WaitGroup
		for _, name := range []string{"A", "B"} {
			source := compat.Pooled(s.Pool())
			k := compat.NewOn(source, txlock.Renamed{}, compat.Options{NoRenew: true})
			defer k.Close(background) //nolint:errcheck // it ends the moment that a release may leave to others
			for range 3 {
				wg.Go(func() {
					for range 4 {
						if err := k.Do(background, "k", time.Minute, func(context.Context) error {
							mu.Lock()
							order += name
							mu.Unlock()
							time.Sleep(5 * time.Millisecond)
							return nil
						}); err != nil {
							t.Error(err)
						}
					}
				})
				synctest.Wait()
			}
		}
		wg.Wait()
		if want := strings.Repeat("AAABBB", 4); order != want {
			t.Errorf("%s, want %s", order, want)
		}
	})
}

// A client that gives up takes its name off the list, and the one behind it
// hears the release.
func TestCancelledListenersLeaveNoTrace(t *testing.T) {
	s := still(t, "2.4")
	l, err := signalled(s, txlock.Renamed{}, compat.Options{NoRenew: true}).TryLock(background, "k", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(background)
	gone := inBackground(func() {
		if _, err := signalled(s, txlock.Renamed{}, compat.Options{NoRenew: true}).Lock(ctx, "k", time.Minute); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want context.Canceled", err)
		}
	})
	listening(t, s, "k", 1)
	had := inBackground(func() {
		l, err := signalled(s, txlock.Renamed{}, compat.Options{NoRenew: true}).Lock(background, "k", time.Minute)
		if err != nil {
			t.Error(err)
			return
		}
		release(t, l)
	})
	listening(t, s, "k", 2)
	cancel()
	<-gone // without any time passing
	listening(t, s, "k", 1)
	release(t, l)
	<-had
	empty(t, s)
}

// A client that is woken and gives up at that moment passes the word on, or what
// it took back.
func TestWokenAndCancelled(t *testing.T) {
	for name, loss := range map[string]faulty.Loss{"before it asks": faulty.LostRequest, "when it has the lock": faulty.None} {
		t.Run(name, func(t *testing.T) {
			s := still(t, "7.0")
			l, err := signalled(s, setlock.Lua{}, compat.Options{NoRenew: true}).TryLock(background, "k", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(background)
			net := new(faulty.Network)
			gone := inBackground(func() {
				_, err := signalled(net.Pool(s), setlock.Lua{}, compat.Options{NoRenew: true}).Lock(ctx, "k", time.Minute)
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%v, want context.Canceled", err)
				}
			})
			listening(t, s, "k", 1)
			had := inBackground(func() {
				l, err := signalled(s, setlock.Lua{}, compat.Options{NoRenew: true}).Lock(background, "k", time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				release(t, l)
			})
			listening(t, s, "k", 2)
			net.Expect(func(m faulty.Message) (f faulty.Fate) {
				if m.Name == "SET" { // it asks
					cancel()
					f.Loss = loss
				}
				return f
			})
			release(t, l)
			<-gone
			<-had
			empty(t, s)
		})
	}
}

// A thousand waiters use three connections at most: one listens, one is a step's own, and one is shared by steps that come at once.
func TestManyListenAsOne(t *testing.T) {
	s := still(t, "2.4")
	l, err := signalled(s, txlock.Renamed{}, compat.Options{NoRenew: true}).TryLock(background, "k", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	p := s.Pool()
	k := signalled(p, txlock.Renamed{}, compat.Options{NoRenew: true})
	release(t, try(t, k, "checked"))
	ctx, cancel := context.WithCancel(background)
	const all = 1000
	var wg sync.WaitGroup
	for range all {
		wg.Go(func() {
			if _, err := k.Lock(ctx, "k", time.Minute); !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want context.Canceled", err)
			}
		})
	}
	eventually(t, "all wait", func() bool { return k.Waiting("k") == all-1 })
	listening(t, s, "k", 1)
	if n := p.ActiveCount(); n > 3 {
		t.Errorf("%d connections", n)
	}
	cancel()
	wg.Wait()
	release(t, l)
	empty(t, s)
	if k.Queues() != 0 {
		t.Errorf("%d lines are left", k.Queues())
	}
}

// The lists end by themselves.
func TestListsExpire(t *testing.T) {
	for _, v := range []string{"2.2.5", "2.4", "7.0"} {
		s := still(t, v)
		l, err := signalled(s, getsetlock.ListCAS{}, compat.Options{NoRenew: true}).TryLock(background, "k", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(background)
		var waiting []<-chan struct{}
		for i := range 2 { // the second finds the list of the first
			k := signalled(s, getsetlock.ListCAS{}, compat.Options{NoRenew: true})
			waiting = append(waiting, inBackground(func() { k.Lock(ctx, "k", time.Minute) })) //nolint:errcheck // it is cancelled
			listening(t, s, "k", i+1)
		}
		c := s.Dial()
		eventually(t, "it has its TTL", func() bool {
			ttl, err := redis.Int(c.Do("TTL", protocol.Aux("k", "waiters")))
			if err != nil || ttl > 60 {
				t.Fatalf("%s: a TTL of %d, %v", v, ttl, err)
			}
			return ttl > 50
		})
		c.Close()
		cancel()
		for _, w := range waiting {
			<-w
		}
		release(t, l)
		empty(t, s)
	}
}

// Where the lists can't be had, because there are none, or because the server or what
// is before it does not let us, waiters poll, and a release is what it was.
func TestSignalsThatAreRefused(t *testing.T) {
	for _, v := range []string{"1.2", "twemproxy"} {
		s := still(t, v)
		o := compat.Options{NoRenew: true, Poll: 5 * time.Millisecond}
		one, two := compat.New(s, getsetlock.Classic{}, o), compat.New(s, getsetlock.Classic{}, o)
		for range 3 {
			l, err := one.TryLock(background, "k", time.Minute)
			if err != nil {
				t.Fatalf("%s: %v", v, err)
			}
			var next *compat.Lock
			waiting := inBackground(func() { next, err = two.Lock(background, "k", time.Minute) })
			eventually(t, "two waits", func() bool { return two.Queues() == 1 })
			if err := l.Release(background); err != nil {
				t.Errorf("%s: %v", v, err)
			}
			<-waiting
			if err != nil {
				t.Fatalf("%s: %v", v, err)
			}
			release(t, next)
		}
	}
}

// A release whose connection breaks at any command, the signal's included, is
// settled as every other.
func TestSignalOverABrokenNetwork(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		for _, f := range []faulty.Loss{faulty.LostRequest, faulty.LostReply} {
			for n := 1; ; n++ {
				net := new(faulty.Network)
				k := compat.NewOn(w.through(net), a, compat.Options{NoRenew: true, Clock: ahead{w.clock, 0}}) // with a clock that stands nobody is woken
				l := try(t, k, "k")
				w.do("LPUSH", protocol.Aux("k", "waiters"), "somebody")
				net.Expect(faulty.Fate{Loss: f}.At(n))
				if err := l.Release(background); err != nil || w.value("k") != "" {
					t.Errorf("fault %v at command %d of %q: %v, the key holds %q", f, n, net.Sent(), err, w.value("k"))
				}
				if ttl := w.do("TTL", protocol.Aux("k", "wake")); w.do("EXISTS", protocol.Aux("k", "wake")) == int64(1) && ttl.(int64) < 0 {
					t.Errorf("fault %v at command %d of %q: a wake-up without an end is left", f, n, net.Sent())
				}
				w.do("DEL", protocol.Aux("k", "waiters"))
				w.do("DEL", protocol.Aux("k", "wake"))
				if net.Count() < n {
					break
				}
			}
		}
	})
}

// What a server says of the moment, or a connection that ends, silences no later release: the next one wakes who waits,
// also after the wall clock was set back. What a user may not do is not asked again.
func TestRefusalsThatPassSilenceNobody(t *testing.T) {
	for reply, again := range map[redis.Error]bool{
		"READONLY You can't write against a read only replica.":             true,
		"LOADING Redis is loading the dataset in memory":                    true,
		"BUSY Redis is busy running a script.":                              true,
		"OOM command not allowed when used memory > 'maxmemory'.":           true,
		"WRONGTYPE Operation against a key holding the wrong kind of value": true,
		"": true, // the connection ends
		"NOPERM this user has no permissions to run the 'rpoplpush' command": false,
		"ERR unknown command 'RPOPLPUSH'":                                    false,
	} {
		t.Run(string(reply), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, net := still(t, "7.0"), new(faulty.Network)
				source := compat.Pooled(&redis.Pool{MaxIdle: 8, Dial: func() (redis.Conn, error) { return net.Conn(s.Dial()), nil }})
				c := simulate.NewClock()
				holder := compat.NewOn(source, txlock.Renamed{}, compat.Options{NoRenew: true, Clock: c})
				defer holder.Close(background) //nolint:errcheck // nothing is held
				net.Expect(func(m faulty.Message) (f faulty.Fate) {
					switch {
					case m.Name != "RPOPLPUSH":
					case reply == "":
						f.Loss = faulty.LostRequest
					default:
						f = faulty.Answer(reply)
					}
					return f
				})
				release(t, try(t, holder, "another"))
				c.Set(-24 * time.Hour)
				time.Sleep(2 * time.Second)
				net.Expect(nil)
				l := try(t, holder, "k")
				waiter := signalled(s.Pool(), txlock.Renamed{}, compat.Options{NoRenew: true})
				ctx, cancel := context.WithTimeout(background, time.Minute)
				defer cancel()
				got := inBackground(func() {
					next, err := waiter.Lock(ctx, "k", time.Minute)
					if (err == nil) != again {
						t.Errorf("who waited for the next release: %v", err)
					}
					if err == nil {
						release(t, next)
					}
				})
				time.Sleep(time.Second)
				release(t, l)
				<-got
				if asked := slices.ContainsFunc(net.Sent(), func(m faulty.Message) bool { return m.Name == "RPOPLPUSH" }); asked != again {
					t.Errorf("the next release asked who waits: %v", asked)
				}
				waiter.Close(background) //nolint:errcheck // nothing is held
			})
		})
	}
}

// A reader's release wakes the writer that waits for it.
func TestReadersWakeWriters(t *testing.T) {
	s := still(t, "2.4")
	reader, writer := signalled(s, rwlock.Read{}, compat.Options{NoRenew: true}), signalled(s, rwlock.Write{}, compat.Options{NoRenew: true})
	l := try(t, reader, "k")
	had := inBackground(func() {
		l, err := writer.Lock(background, "k", time.Minute)
		if err != nil {
			t.Error(err)
			return
		}
		release(t, l)
	})
	listening(t, s, "k", 1)
	release(t, l)
	<-had
}

// What a Release does behind the end of its context takes Options.Cleanup at most, its wake-up included.
func TestReleaseAndWakeUpShareTheirTime(t *testing.T) {
	const cleanup = time.Second
	synctest.Test(t, func(t *testing.T) {
		s := must.Get(oldredis.New("7.0", oldredis.Options{}))(t)
		defer s.Close()
		net := new(faulty.Network)
		k := compat.New(net.Pool(s), setlock.Lua{}, compat.Options{NoRenew: true, Cleanup: cleanup})
		l := try(t, k, "k")
		ctx, cancel := context.WithCancel(background)
		net.Expect(func(m faulty.Message) (f faulty.Fate) {
			f.Before = cleanup * 3 / 4
			return f
		})
		cancel()
		start := time.Now()
		must.Do(t, l.Release(ctx))
		if took := time.Since(start); took > cleanup {
			t.Errorf("it took %v of %v", took, cleanup)
		}
		net.Clear()
		must.Do(t, k.Close(background))
	})
}

// A proxy that hangs up on MULTI is asked for a wake-up again and again, but ever less often: each time costs a connection.
func TestWakeUpsBehindAProxyBecomeRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must.Get(oldredis.New("twemproxy", oldredis.Options{}))(t)
		defer s.Close()
		net := new(faulty.Network)
		k := compat.New(net.Pool(s), setlock.Script{}, compat.Options{NoRenew: true})
		release(t, try(t, k, "checked"))
		net.Expect(nil)
		for range 600 {
			l := try(t, k, "k")
			time.Sleep(time.Second)
			release(t, l)
		}
		asked := 0
		for _, m := range net.Sent() {
			if m.Name == "MULTI" {
				asked++
			}
		}
		if asked < 2 || asked > 12 {
			t.Errorf("%d of 600 releases asked who waits", asked)
		}
		must.Do(t, k.Close(background))
	})
}

// One that was woken in vain, because another client was faster, registers as the next.
func TestWokenInVainIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := must.Get(oldredis.New("7.0", oldredis.Options{Clock: clock.New()}))(t)
		defer server.Close()
		pool := &redis.Pool{Dial: func() (redis.Conn, error) { return server.Dial(), nil }}
		defer pool.Close()
		other := server.Dial()
		defer other.Close()
		must.Get(other.Do("SET", "k", "first", "PX", 60000))(t)
		k := compat.New(pool, txlock.Renamed{}, compat.Options{})
		defer k.Close(background) //nolint:errcheck // it holds nothing
		ctx, cancel := context.WithCancel(background)
		waits := make(chan error)
		go func() { _, err := k.Lock(ctx, "k", time.Minute); waits <- err }()
		time.Sleep(5 * time.Second)
		var pushed atomic.Value
		server.SetTrace(func(_ int, args []string, _ any) {
			if strings.HasSuffix(args[0], "PUSH") {
				pushed.Store(args[0])
			}
		})
		must.Get(other.Do("SET", "k", "second", "PX", 60000))(t)
		must.Get(other.Do("RPOPLPUSH", protocol.Aux("k", "waiters"), protocol.Aux("k", "wake")))(t)
		time.Sleep(5 * time.Second)
		if by := pushed.Load(); by != "RPUSH" {
			t.Errorf("it registered by %v, want RPUSH: as the next", by)
		}
		cancel()
		if err := <-waits; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
