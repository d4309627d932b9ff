package compat_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// pinnable are the variants that can pin their connections.
var pinnable = []string{"getset:guarded", "tx:classic", "tx:guarded", "tx:renamed", "set:watch"}

// keeping is p, of which so many connections may be kept. They are not shared, as none of a cluster's are.
func keeping(n int, p compat.Pool) compat.Source {
	s := compat.Pooled(p)
	s.Keep, s.Bounded = n, true
	return s
}

// pinningOn runs f for each of them, on each version that has it, with a Locker
// that pins up to two connections of a pool.
func pinningOn(t *testing.T, f func(t *testing.T, w *world, k *compat.Locker, p *redis.Pool)) {
	for _, name := range pinnable {
		versions := oldredis.Versions()
		for _, v := range versions[slices.Index(versions, since(name)):] {
			t.Run(name+"/"+v, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, v)
					p := w.server.Pool()
					f(t, w, compat.NewOn(keeping(2, p), safe[name], compat.Options{NoRenew: true, Clock: w.clock}), p)
				})
			})
		}
	}
}

// took returns the round trips and the commands since it was last asked, or the network began to count.
func took(n *faulty.Network) (trips int, cmds string) {
	defer n.Expect(nil)
	return n.Writes(), n.Names()
}

// What each variant sends, and in how many round trips: a lock that was extended is no longer pinned.
func TestPinnedRoundTrips(t *testing.T) {
	const keep, release = " WATCH GET", "MULTI GET DEL EXEC"
	for _, c := range []struct {
		name, version   string
		acquire, extend string
		trips           int // of the acquisition
	}{
		{"getset:guarded", "2.2", "SETNX" + keep, "WATCH GET MULTI GETSET EXEC", 1},
		{"tx:classic", "2.2", "SETNX EXPIRE" + keep, "WATCH GET MULTI EXPIRE EXEC", 2},
		{"tx:guarded", "2.2", "WATCH GET MULTI SETEX EXEC" + keep, "WATCH GET MULTI EXPIRE EXEC", 2},
		{"tx:renamed", "2.4", "SETEX RENAMENX DEL" + keep, "WATCH GET MULTI EXPIRE EXEC", 1},
		{"set:watch", "2.6.12", "SET" + keep, "WATCH GET MULTI PEXPIRE EXEC", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.version)
			m := new(faulty.Network)
			k := compat.NewOn(keeping(1, m.Pool(w.server.Pool())), safe[c.name], compat.Options{NoRenew: true, Clock: w.clock})
			if err := try(t, k, "k").Release(background); err != nil { // asks, once, whether the server is safe
				t.Fatal(err)
			}
			took(m)
			for range 2 {
				l := try(t, k, "k")
				if trips, cmds := took(m); trips != c.trips || cmds != c.acquire {
					t.Errorf("acquired in %d round trips by %q, want %d by %q", trips, cmds, c.trips, c.acquire)
				}
				must.Do(t, l.Release(background))
				if trips, cmds := took(m); trips != 1 || cmds != release {
					t.Errorf("released in %d round trips by %q, want 1 by %q", trips, cmds, release)
				}
			}
			l := try(t, k, "k")
			took(m)
			for range 2 {
				w.clock.Add(time.Second)
				must.Do(t, l.Extend(background, ttl))
				if _, cmds := took(m); cmds != c.extend {
					t.Errorf("extended by %q, want %q", cmds, c.extend)
				}
			}
			must.Do(t, l.Release(background))
			if trips, cmds := took(m); trips != 2 {
				t.Errorf("released in %d round trips by %q, want 2", trips, cmds)
			}
		})
	}
}

// A takeover pins its connection too.
func TestPinnedTakeover(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "2.2")
	m := new(faulty.Network)
	k := compat.NewOn(keeping(1, m.Pool(w.server.Pool())), getsetlock.Guarded{}, compat.Options{NoRenew: true, Clock: w.clock})
	w.do("SET", "k", "1330837560")
	l := try(t, k, "k")
	took(m)
	if err := l.Release(background); err != nil || l.Lease().How != protocol.TakenOver {
		t.Fatal(l.Lease().How, err)
	}
	if trips, cmds := took(m); trips != 1 {
		t.Errorf("released in %d round trips by %s, want 1", trips, cmds)
	}
}

// What is kept is never more than Source.Keep, and the locks taken last are pinned; so is one that comes later.
func TestPinnedAtMost(t *testing.T) {
	pinningOn(t, func(t *testing.T, w *world, k *compat.Locker, p *redis.Pool) {
		var held []*compat.Lock
		for _, key := range []string{"a", "b", "c", "d"} {
			held = append(held, try(t, k, key))
		}
		synctest.Wait()
		if n := p.ActiveCount() - p.IdleCount(); n != 2 {
			t.Errorf("4 locks pin %d connections, want 2", n)
		}
		must.Do(t, held[0].Release(background))
		held[0] = try(t, k, "e")
		synctest.Wait()
		if n := p.ActiveCount() - p.IdleCount(); n != 2 {
			t.Errorf("again %d connections, want 2", n)
		}
		for _, l := range held {
			if err := l.Extend(background, ttl); err != nil {
				t.Error(err)
			}
			must.Do(t, l.Release(background))
		}
		returned(t, p)
	})
}

// returned checks that all connections are back and clean: nothing is under
// WATCH or in MULTI.
func returned(t *testing.T, p *redis.Pool) {
	t.Helper()
	time.Sleep(2 * time.Second) // in which what is kept goes back
	synctest.Wait()
	if p.ActiveCount() != p.IdleCount() {
		t.Fatalf("%d of %d connections did not come back", p.ActiveCount()-p.IdleCount(), p.ActiveCount())
	}
	var all []redis.Conn
	for range p.IdleCount() {
		c := p.Get()
		all = append(all, c)
		for _, key := range []string{"a", "b", "c", "d", "e", "k"} { // a WATCH that was left would see it
			c.Do("SET", key, "x") //nolint:errcheck
			c.Do("DEL", key)      //nolint:errcheck
		}
		c.Send("MULTI")            //nolint:errcheck
		c.Send("EXISTS", "nobody") //nolint:errcheck
		if done, err := c.Do("EXEC"); done == nil || err != nil {
			t.Errorf("EXEC on a connection that came back: %v, %v", done, err)
		}
	}
	for _, c := range all {
		c.Close()
	}
}

// A refused attempt leaves no WATCH and no connection.
func TestPinnedRefusal(t *testing.T) {
	pinningOn(t, func(t *testing.T, w *world, k *compat.Locker, p *redis.Pool) {
		held := try(t, k, "k")
		for range 3 {
			if _, err := k.TryLock(background, "k", ttl); !errors.Is(err, compat.ErrHeld) {
				t.Fatalf("%v, want ErrHeld", err)
			}
		}
		w.clock.Add(time.Millisecond) // in which they come back
		synctest.Wait()
		if n := p.ActiveCount() - p.IdleCount(); n != 2 {
			t.Fatalf("%d connections are kept, want that of the lock and the next step's", n)
		}
		another := try(t, k, "free")
		if n := p.ActiveCount() - p.IdleCount(); n != 2 {
			t.Errorf("%d connections are kept for two locks", n)
		}
		release(t, another)
		if err := held.Release(background); err != nil {
			t.Errorf("Release after contenders were refused (tx/contender-aborts-release): %v", err)
		}
		w.do("RPUSH", "k", "a list")
		if _, err := k.TryLock(background, "k", ttl); !errors.Is(err, compat.ErrForeign) && !errors.Is(err, compat.ErrHeld) {
			t.Errorf("a key that is not a string: %v", err)
		}
		w.do("DEL", "k")
		w.clock.Add(time.Millisecond)
		returned(t, p)
	})
}

// Whatever happened to the key while the connection was pinned, the holder learns
// as it would be without: done, if the value is still its own; else ErrLost.
func TestPinnedAndTouched(t *testing.T) {
	for what, c := range map[string]struct {
		do   func(w *world, value string)
		lost bool
	}{
		"an EXPIRE, as a renewal's":       {func(w *world, _ string) { w.do("EXPIRE", "k", 30) }, false},
		"the same value once more":        {func(w *world, v string) { w.do("SET", "k", v); w.do("EXPIRE", "k", 30) }, false},
		"another's value":                 {func(w *world, _ string) { w.do("SET", "k", "1330837700.000000000000001") }, true},
		"deleted":                         {func(w *world, _ string) { w.do("DEL", "k") }, true},
		"deleted and taken":               {func(w *world, _ string) { w.do("DEL", "k"); w.do("SETNX", "k", "1330837700.000000000000001") }, true},
		"evicted":                         {func(w *world, _ string) { w.server.Evict("k") }, true},
		"the server restarted empty":      {func(w *world, _ string) { w.server.Restart(oldredis.Empty) }, true},
		"the server restarted with it":    {func(w *world, _ string) { w.server.Restart(oldredis.Keeping) }, false},
		"the server closed it":            {func(w *world, _ string) { cutAll(w.server) }, false},
		"the server closed it, and taken": {func(w *world, _ string) { cutAll(w.server); w.do("SET", "k", "1330837700.000000000000001") }, true},
	} {
		t.Run(what, func(t *testing.T) {
			pinningOn(t, func(t *testing.T, w *world, k *compat.Locker, p *redis.Pool) {
				for _, step := range []string{"extend", "release"} {
					l := try(t, k, "k")
					c.do(w, l.Token())
					var err error
					if step == "extend" {
						if err = l.Extend(background, ttl); err == nil && w.value("k") != l.Token() {
							t.Errorf("extended, and the key holds %q", w.value("k"))
						}
						if err == nil {
							err = l.Release(background)
						}
					} else {
						before := w.value("k")
						err = l.Release(background)
						if c.lost && w.value("k") != before {
							t.Errorf("the release made %q of %q", w.value("k"), before)
						}
						if c.lost && err == nil && (strings.Contains(what, "restart") || strings.Contains(what, "closed")) {
							err = compat.ErrLost // a release that broke off: what is gone in time is taken for released
						}
					}
					if what == "evicted" && strings.HasPrefix(t.Name(), "TestPinnedAndTouched/evicted/getset") && err == nil {
						err = compat.ErrLost // GETSET made it anew, and nobody had it in between
					}
					if c.lost != errors.Is(err, compat.ErrLost) || !c.lost && err != nil {
						t.Errorf("%s: %v, want lost %v", step, err, c.lost)
					}
					if !c.lost && w.value("k") != "" {
						t.Errorf("%s: the key holds %q, want it released", step, w.value("k"))
					}
					w.do("DEL", "k")
				}
				returned(t, p)
			})
		})
	}
}

// cutAll ends every connection, as a server does with a client list or a
// timeout.
func cutAll(s *oldredis.Server) {
	for n := range 64 {
		s.Cut(n)
	}
}

// A key that expires while its connection is pinned, unnoticed by WATCH before
// 6.0.9 and counted by DEL before 2.8, was lost.
func TestPinnedAndExpired(t *testing.T) {
	pinningOn(t, func(t *testing.T, w *world, k *compat.Locker, p *redis.Pool) {
		if strings.HasPrefix(t.Name(), "TestPinnedAndExpired/getset") {
			return // its keys have no TTL
		}
		l := try(t, k, "k")
		w.server.AdvanceLazy(2 * ttl) // on the server alone: the client's clock stands still
		if err := l.Release(background); !errors.Is(err, compat.ErrLost) {
			t.Errorf("Release of a key that has expired: %v, want ErrLost", err)
		}
		returned(t, p)
	})
}

// A lock that ends by itself, or is detached, returns its connection, and
// a release that comes late harms nobody.
func TestPinnedIsReturned(t *testing.T) {
	pinningOn(t, func(t *testing.T, w *world, k *compat.Locker, p *redis.Pool) {
		late := try(t, k, "k")
		w.clock.Add(ttl + time.Second)
		synctest.Wait()
		if late.Context().Err() == nil {
			t.Fatal("the lock's end has passed and it is held")
		}
		w.clock.Add(time.Millisecond) // in which the connection is let go
		returned(t, p)
		second := try(t, k, "k")
		if err := late.Release(background); !errors.Is(err, compat.ErrLost) || w.value("k") != second.Token() {
			t.Errorf("a late release: %v, the key holds %q, want %q", err, w.value("k"), second.Token())
		}
		h := must.Get(second.Detach(background))(t)
		w.clock.Add(time.Millisecond)
		third := must.Get(k.AdoptHandle(background, h, ttl))(t)
		must.Do(t, third.Release(background))
		returned(t, p)
	})
}

// A release whose context has ended gives the lock and the connection back.
func TestPinnedAndCancelled(t *testing.T) {
	pinningOn(t, func(t *testing.T, w *world, k *compat.Locker, p *redis.Pool) {
		done, cancel := context.WithCancel(background)
		cancel()
		l := try(t, k, "k")
		if err := l.Extend(done, ttl); !errors.Is(err, context.Canceled) {
			t.Errorf("Extend: %v", err)
		}
		if err := l.Extend(background, 1); !errors.Is(err, compat.ErrInvalid) && err != nil {
			t.Errorf("Extend to a nanosecond: %v", err)
		}
		if out(p) != 1 {
			t.Error("the connection was returned")
		}
		if err := l.Release(done); err != nil || w.value("k") != "" {
			t.Errorf("Release: %v, the key holds %q", err, w.value("k"))
		}
		returned(t, p)
	})
}

// Whichever message of an extension or a release over a pinned connection is lost,
// nothing stays unknown.
func TestPinnedLostMessages(t *testing.T) {
	pinningOn(t, func(t *testing.T, w *world, _ *compat.Locker, p *redis.Pool) {
		name := strings.Split(t.Name(), "/")[1]
		for _, f := range []faulty.Loss{faulty.LostRequest, faulty.LostReply} {
			for n := 1; n <= 5; n++ {
				net := new(faulty.Network)
				source := keeping(1, p)
				source.Get = net.Get(source.Get)
				k := compat.NewOn(source, safe[name], compat.Options{NoRenew: true, Clock: w.clock})
				l := try(t, k, "k")
				lost := faulty.Fate{Loss: f}.At(n)
				net.Expect(lost)
				if err := l.Extend(background, ttl); err != nil {
					t.Errorf("Extend that lost message %d: %v", n, err)
				}
				net.Expect(nil)
				if l.Token() != w.value("k") {
					t.Errorf("Extend that lost message %d: the token is %q, the key holds %q", n, l.Token(), w.value("k"))
				}
				must.Do(t, l.Release(background))
				l = try(t, k, "k")
				net.Expect(lost)
				if err := l.Release(background); err != nil || w.value("k") != "" {
					t.Errorf("Release that lost message %d: %v, the key holds %q", n, err, w.value("k"))
				}
			}
		}
		returned(t, p)
	})
}

// A pinned connection of a server that was replaced is not asked any more.
func TestPinnedInEachEpoch(t *testing.T) {
	s := &succession{servers: []*oldredis.Server{oldredis.Run(t, "2.6"), oldredis.Run(t, "2.6")}}
	source := s.source()
	source.Keep, source.Bounded = 2, true
	k := compat.NewOn(source, txlock.Renamed{}, compat.Options{NoRenew: true})
	for _, stands := range []bool{false, true} {
		s.epoch = 0
		l := must.Get(k.TryLock(t.Context(), "k", time.Minute))(t)
		s.epoch = 1
		if stands {
			s.servers[1].Dial().Do("SETEX", "k", 60, l.Token()) //nolint:errcheck
		}
		asked := 0
		s.servers[0].SetTrace(func(_ int, cmd []string, _ any) {
			if cmd[0] != "UNWATCH" {
				asked++
			}
		})
		if err := l.Release(t.Context()); stands == (err != nil) || !stands && !errors.Is(err, compat.ErrLost) {
			t.Errorf("Release on the server that replaced it, which has the lock: %v, %v", stands, err)
		}
		if asked != 0 {
			t.Errorf("the replaced server was asked %d times", asked)
		}
		s.servers[0].SetTrace(nil)
		s.servers[0].Dial().Do("DEL", "k") //nolint:errcheck
	}
}

// A pinned connection that hangs costs half of the step's time, and then another
// one does it.
func TestPinnedConnectionHangs(t *testing.T) {
	addr := realredis.Start(t)
	for _, ctx := range []context.Context{background, t.Context()} {
		var dialled []*hanging
		p := &redis.Pool{MaxIdle: 4, Dial: func() (redis.Conn, error) {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				return nil, err
			}
			dialled = append(dialled, &hanging{Conn: c})
			return redis.NewConn(dialled[len(dialled)-1], 0, 0), nil
		}}
		defer p.Close()
		k := compat.New(p, txlock.Renamed{}, compat.Options{NoRenew: true, Timeout: time.Second})
		l := must.Get(k.TryLock(ctx, "k", time.Minute))(t)
		for _, c := range dialled {
			c.stuck.Store(true)
		}
		if err := l.Release(ctx); err != nil {
			t.Errorf("Release over a connection that hangs: %v", err)
		}
	}
}

// A server that ends the pinned connection, on command or for having idled, costs
// the advantage and nothing else.
func TestPinnedConnectionIsClosed(t *testing.T) {
	t.Parallel()
	addr := realredis.Start(t)
	p := &redis.Pool{MaxIdle: 4, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
	defer p.Close()
	admin := must.Get(redis.Dial("tcp", addr))(t)
	defer admin.Close()
	do := func(name string, args ...any) string {
		t.Helper()
		return must.Get(redis.String(admin.Do(name, args...)))(t)
	}
	others := func() (addrs []string) {
		for _, client := range strings.Split(do("CLIENT", "LIST"), "\n") {
			for _, field := range strings.Fields(client) {
				if a, ok := strings.CutPrefix(field, "addr="); ok && !strings.Contains(client, "cmd=client") {
					addrs = append(addrs, a)
				}
			}
		}
		return addrs
	}
	for how, end := range map[string]func(){
		"CLIENT KILL": func() {
			for _, a := range others() {
				do("CLIENT", "KILL", a)
			}
		},
		"timeout": func() {
			do("CONFIG", "SET", "timeout", 1)
			for deadline := time.Now().Add(time.Minute); len(others()) > 0; {
				if time.Now().After(deadline) {
					t.Fatal("the server closes no idle connection")
				}
				time.Sleep(10 * time.Millisecond)
			}
			do("CONFIG", "SET", "timeout", 0)
		},
	} {
		for _, name := range pinnable {
			if how == "timeout" && name != "tx:renamed" {
				continue // which takes its second
			}
			k := compat.New(p, safe[name], compat.Options{NoRenew: true})
			l := try(t, k, "k")
			if len(others()) == 0 {
				t.Fatal("nothing is pinned")
			}
			end()
			if err := l.Extend(background, ttl); err != nil {
				t.Errorf("%s, %s: Extend: %v", name, how, err)
			}
			if err := l.Release(background); err != nil {
				t.Errorf("%s, %s: Release: %v", name, how, err)
			}
			l = try(t, k, "k")
			end()
			if err := l.Release(background); err != nil {
				t.Errorf("%s, %s: Release: %v", name, how, err)
			}
			if n, err := redis.Int(admin.Do("EXISTS", "k")); n != 0 || err != nil {
				t.Errorf("%s, %s: the key is left, %v", name, how, err)
			}
		}
	}
}

// A pool that lets no more connections be open than are pinned, and one: all steps
// that are not the holders' take turns on that.
func TestPinnedOfSmallPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "2.4")
		p := w.server.Pool()
		p.MaxActive, p.Wait = 3, true
		source := compat.Pooled(p)
		source.Keep = 2
		k := compat.NewOn(source, txlock.Renamed{}, compat.Options{NoRenew: true, Clock: w.clock})
		a, b := try(t, k, "a"), try(t, k, "b")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				l, err := k.Lock(background, "k", time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Release(background); err != nil {
					t.Error(err)
				}
			})
		}
		w.until(inBackground(wg.Wait))
		for _, l := range []*compat.Lock{a, b} {
			if err := l.Release(background); err != nil && w.clock.Now().Before(l.Until()) {
				t.Error(err)
			}
		}
		returned(t, p)
	})
}

// A lock that is handed off in this process leaves no connection behind.
func TestPinnedIsHandedOff(t *testing.T) {
	pinningOn(t, func(t *testing.T, w *world, k *compat.Locker, p *redis.Pool) {
		l := try(t, k, "k")
		for range 3 {
			w.clock.Add(5 * time.Second)
			next := must.Get(l.Handoff(background, ttl))(t)
			if n := p.ActiveCount() - p.IdleCount(); n != 2 {
				t.Errorf("%d connections are kept, want that of the lock and the next step's", n)
			}
			l = next
		}
		if err := l.Release(background); err != nil || w.value("k") != "" {
			t.Errorf("Release: %v, the key holds %q", err, w.value("k"))
		}
		returned(t, p)
	})
}

// hanging is a network connection on which at some time nothing arrives any more.
type hanging struct {
	net.Conn
	stuck atomic.Bool
}

func (c *hanging) Write(b []byte) (int, error) {
	if c.stuck.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Only what another client can't write is pinned.
func TestAmbiguousIsNotPinned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "2.4")
	m := new(faulty.Network)
	k := compat.NewOn(keeping(1, m.Pool(w.server.Pool())), getsetlock.Guarded{Options: getsetlock.Options{Dialect: getsetlock.Seconds}}, compat.Options{NoRenew: true, Clock: w.clock})
	l := try(t, k, "k")
	took(m)
	must.Do(t, l.Release(background))
	if _, cmds := took(m); cmds != "WATCH GET MULTI DEL EXEC" {
		t.Errorf("a lease that is no proof of itself was released by %q", cmds)
	}
}
