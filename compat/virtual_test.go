package compat_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// A world is an embedded server and any number of clients on one mock clock:
// no time passes in it but what a test lets pass.
type world struct {
	t      *testing.T
	clock  *clock.Mock
	server *oldredis.Server
}

func newWorld(t *testing.T, version string) *world {
	m := clock.NewMock()
	m.Set(time.Date(2012, 3, 4, 5, 6, 7, 0, time.UTC))
	s := must.Get(oldredis.New(version, oldredis.Options{Clock: m}))(t)
	t.Cleanup(func() { s.Close() })
	return &world{t, m, s}
}

// source is the server, which answers at once: no goroutine comes between a step and its clock.
func (w *world) source() compat.Source {
	s := compat.Pooled(w.server)
	s.Bounded = true
	return s
}

// through is w.source behind net.
func (w *world) through(net *faulty.Network) compat.Source {
	s := w.source()
	s.Get = net.Get(s.Get)
	return s
}

// client returns a client with its own network.
func (w *world) client(a protocol.Algorithm) (*compat.Locker, *faulty.Network) {
	return w.skewed(a, 0)
}

// skewed returns a client whose clock is ahead by skew.
func (w *world) skewed(a protocol.Algorithm, skew time.Duration) (*compat.Locker, *faulty.Network) {
	net := new(faulty.Network)
	o := compat.Options{Timeout: time.Minute, NoRenew: true, Clock: ahead{w.clock, skew}, Rand: func() float64 { return 0 }}
	return compat.NewOn(w.through(net), a, o), net
}

// ahead is a clock that runs with the mock but shows another time.
type ahead struct {
	*clock.Mock
	by time.Duration
}

func (a ahead) Now() time.Time                  { return a.Mock.Now().Add(a.by) }
func (a ahead) Since(t time.Time) time.Duration { return a.Now().Sub(t) }
func (a ahead) Until(t time.Time) time.Duration { return t.Sub(a.Now()) }

// until lets time pass in steps of 50 ms until done is closed, an hour at most, and returns how much passed. One more step
// ends the moment that a last release leaves to others. The test runs in a bubble of synctest.
func (w *world) until(done <-chan struct{}) time.Duration {
	w.t.Helper()
	start := w.clock.Now()
	for w.clock.Since(start) < time.Hour {
		select {
		case <-done:
			took := w.clock.Since(start)
			w.clock.Add(50 * time.Millisecond)
			synctest.Wait()
			return took
		default:
			w.clock.Add(50 * time.Millisecond)
			synctest.Wait() // a client that was woken has its turn before time goes on
		}
	}
	w.t.Fatal("an hour has passed and nothing happened")
	return 0
}

// inBackground runs f beside the test and returns a channel that is closed when it has returned.
func inBackground(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	return done
}

// do sends one command of an onlooker, and fails the test if it fails.
func (w *world) do(name string, args ...any) any {
	w.t.Helper()
	c := w.server.Dial()
	defer c.Close()
	reply, err := c.Do(name, args...)
	if err != nil {
		w.t.Fatalf("%s %v: %v", name, args, err)
	}
	return reply
}

// value is what the key holds, "" for nothing.
func (w *world) value(key string) string {
	w.t.Helper()
	v, _ := redis.String(w.do("GET", key), nil)
	return v
}

var background = context.Background()

const ttl = 10 * time.Second

// safe are the variants that a loser or a latecomer can't do harm with, with
// the oldest version of each.
var safe = map[string]protocol.Algorithm{
	"getset:guarded": getsetlock.Guarded{},
	"getset:listed":  getsetlock.ListCAS{},
	"tx:classic":     txlock.Classic{},
	"tx:guarded":     txlock.Guarded{},
	"tx:renamed":     txlock.Renamed{},

	"tx:renamed/listed": txlock.Renamed{Options: txlock.Options{ListCAS: true}},

	"set:lua":    setlock.Lua{},
	"set:watch":  setlock.Watched{},
	"set:script": setlock.Script{},
}

// since is the first embedded version that a safe variant is safe on.
func since(name string) string {
	switch name {
	case "getset:listed":
		return "2.0"
	case "tx:renamed", "tx:renamed/listed":
		return "2.4"
	case "set:script":
		return "2.6"
	case "set:lua", "set:watch":
		return "2.6.12"
	}
	return "2.2.5"
}

// from is v, or the first version that the safe variant is safe on if that is newer.
func from(name, v string) string {
	versions := oldredis.Versions()
	return versions[max(slices.Index(versions, v), slices.Index(versions, since(name)))]
}

// everywhere runs f for each of the safe variants on each version that has it.
func everywhere(t *testing.T, f func(t *testing.T, w *world, a protocol.Algorithm)) {
	for name, a := range safe {
		versions := oldredis.Versions()
		for _, v := range versions[slices.Index(versions, since(name)):] {
			t.Run(name+"/"+v, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, v), a) })
			})
		}
	}
}

func try(t *testing.T, k *compat.Locker, key string) *compat.Lock {
	t.Helper()
	return must.Get(k.TryLock(background, key, ttl))(t)
}
