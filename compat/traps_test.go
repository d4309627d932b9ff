package compat_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// These are the traps of redigo and of old servers in which a lock, or the next
// user of its connection, gets caught.

// onePool is a pool of one connection, so that whatever a step leaves on it
// meets the next.
func onePool(s *oldredis.Server) *redis.Pool {
	return &redis.Pool{MaxIdle: 1, MaxActive: 1, Wait: true, Dial: func() (redis.Conn, error) { return s.Dial(), nil }}
}

// answersItself fails the test if the pool's next connection answers another
// question than the one it is asked.
func answersItself(t *testing.T, p *redis.Pool) {
	t.Helper()
	c := p.Get()
	defer c.Close()
	if got, err := redis.String(c.Do("ECHO", "me")); got != "me" || err != nil {
		t.Errorf("ECHO me on the next connection from the pool: %q, %v", got, err)
	}
}

// Redis 2.0–2.4 refuse EXEC itself over maxmemory and stay in MULTI, and
// redigo's pool does not know.
func TestExecRefusedOverMaxmemory(t *testing.T) {
	for _, v := range []string{"2.2", "2.4"} {
		s := oldredis.Run(t, v)
		p := onePool(s)
		k := compat.New(p, txlock.Guarded{}, compat.Options{NoRenew: true})
		held := try(t, k, "held")
		s.SetMaxMemoryReached(true)

		_, err := k.TryLock(background, "k", ttl)
		var refused redis.Error
		if !errors.As(err, &refused) || errors.Is(err, compat.ErrHeld) {
			t.Errorf("%s: TryLock over maxmemory: %v, want the server's words", v, err)
		}
		answersItself(t, p)
		if err := held.Release(background); !errors.Is(err, compat.ErrDenied) || errors.Is(err, compat.ErrLost) || !errors.As(err, &refused) {
			t.Errorf("%s: Release over maxmemory: %v, want the server's answer, and no loss", v, err)
		}
		answersItself(t, p)

		s.SetMaxMemoryReached(false)
		if err := held.Release(background); err != nil {
			t.Errorf("%s: Release once there is room again: %v", v, err)
		}
	}
}

// A bare Algorithm, without the engine, leaves MULTI too.
func TestExecDiscards(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	c := s.Dial()
	s.SetMaxMemoryReached(true)
	if _, err := protocol.NewConn(c).Exec(protocol.Cmd{"SET", "k", "v"}); err == nil {
		t.Fatal("EXEC ran over maxmemory")
	}
	if got, err := redis.String(c.Do("ECHO", "me")); got != "me" || err != nil {
		t.Errorf("ECHO me after a refused EXEC: %q, %v", got, err)
	}
}

// sloppy leaves on its connection what its name says.
type sloppy struct {
	txlock.Guarded
	leave []string
}

func (s sloppy) Inspect(c *protocol.Conn, now time.Time, key string) (compat.State, error) {
	for _, cmd := range s.leave {
		if cmd == "WATCH" {
			c.Do(cmd, key) //nolint:errcheck
		} else {
			c.Do(cmd) //nolint:errcheck
		}
	}
	return compat.State{Key: key}, nil
}

// Whatever an algorithm leaves on a connection, the pool's next user does not
// meet it: a MULTI would answer QUEUED, a WATCH would abort an EXEC.
func TestConnectionsComeBackClean(t *testing.T) {
	for _, leave := range [][]string{{"MULTI"}, {"WATCH"}, {"WATCH", "MULTI"}, {"MULTI", "EXEC"}} {
		s := oldredis.Run(t, "2.4")
		p := onePool(s)
		k := compat.New(p, sloppy{leave: leave}, compat.Options{NoRenew: true})
		if leave[len(leave)-1] == "EXEC" {
			s.SetMaxMemoryReached(true)
		}
		must.Get(k.Inspect(background, "k"))(t)
		s.SetMaxMemoryReached(false)
		answersItself(t, p)
		s.Dial().Do("SET", "k", "touched") //nolint:errcheck
		c := p.Get()
		c.Send("MULTI")         //nolint:errcheck
		c.Send("SET", "x", "1") //nolint:errcheck
		if done, err := c.Do("EXEC"); done == nil || err != nil {
			t.Errorf("after %v: the next user's EXEC: %v, %v; want it to run", leave, done, err)
		}
		c.Close()
	}
}

// A Conn without a Locker has nobody who cleans it: what is sent with it leaves it as it was, also
// where a change was not to be made, and where the server refuses EXEC and stays in MULTI.
func TestNewConnIsLeftClean(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, s *oldredis.Server, c *protocol.Conn){
		"a change of what is not ours": func(t *testing.T, _ *oldredis.Server, c *protocol.Conn) {
			if _, err := c.Run(protocol.Change{Key: "k", Value: "ours", Do: []protocol.Cmd{{"EXPIRE", "k", 60}}}); !errors.Is(err, compat.ErrLost) {
				t.Errorf("another's key: %v", err)
			}
		},
		"a write whose EXEC was refused": func(t *testing.T, s *oldredis.Server, c *protocol.Conn) {
			s.SetMaxMemoryReached(true)
			defer s.SetMaxMemoryReached(false)
			if _, err := c.Write("k", protocol.Write{Do: []protocol.Cmd{{"GET", "k"}}, Exec: true}); err == nil {
				t.Error("a server over its maxmemory ran an EXEC")
			}
		},
		"a transaction whose EXEC was refused": func(t *testing.T, s *oldredis.Server, c *protocol.Conn) {
			s.SetMaxMemoryReached(true)
			defer s.SetMaxMemoryReached(false)
			if _, err := c.Exec(protocol.Cmd{"GET", "k"}); err == nil {
				t.Error("a server over its maxmemory ran an EXEC")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := oldredis.Run(t, "2.4")
			own := s.Dial()
			must.Get(own.Do("SET", "k", "another's"))(t)
			c := s.Dial()
			use(t, s, protocol.NewConn(c))
			if got, err := redis.String(c.Do("ECHO", "me")); got != "me" || err != nil {
				t.Errorf("then ECHO me: %q, %v", got, err)
			}
			own.Do("SET", "k", "touched") //nolint:errcheck
			c.Send("MULTI")               //nolint:errcheck
			c.Send("SET", "x", "1")       //nolint:errcheck
			if done, err := c.Do("EXEC"); done == nil || err != nil {
				t.Errorf("then an EXEC of one's own: %v, %v; want it to run", done, err)
			}
		})
	}
}

// A context that was done before the call does not cost a healthy connection.
func TestDoneContextKillsNoConnection(t *testing.T) {
	addr := realredis.Start(t)
	dials := 0
	p := &redis.Pool{MaxIdle: 1, MaxActive: 1, Wait: true, Dial: func() (redis.Conn, error) {
		dials++
		return redis.Dial("tcp", addr)
	}}
	defer p.Close()
	k := compat.New(p, txlock.Guarded{}, compat.Options{NoRenew: true})
	held := try(t, k, "k")
	done, cancel := context.WithCancel(background)
	cancel()
	for name, err := range map[string]error{
		"TryLock": second(k.TryLock(done, "k", ttl)),
		"Lock":    second(k.Lock(done, "k", ttl)),
		"Extend":  held.Extend(done, ttl),
		"Inspect": second(k.Inspect(done, "k")),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a context that is done: %v", name, err)
		}
	}
	if dials != 1 {
		t.Errorf("%d connections were dialled, want the first one to have lived", dials)
	}
	if err := held.Release(done); err != nil {
		t.Errorf("Release with a context that is done: %v", err)
	}
	if held, err := k.Inspect(background, "k"); err != nil || held.Status != compat.StatusFree {
		t.Errorf("after it: %+v, %v; want the key free", held, err)
	}
}

func second[T any](_ T, err error) error { return err }

// Errors inside an EXEC are values: a fence that can't be drawn is an error, and
// the key that the same EXEC took is released.
func TestRepliesInsideExec(t *testing.T) {
	for _, v := range []string{"2.2", "2.4", "2.6", "7.0"} {
		for _, a := range []protocol.Algorithm{
			txlock.Guarded{Options: txlock.Options{Fence: true}},
			txlock.Classic{Options: txlock.Options{Fence: true}},
			getsetlock.Guarded{Options: getsetlock.Options{Fence: true}},
		} {
			s := oldredis.Run(t, v)
			s.Dial().Do("RPUSH", protocol.Aux("k", "fence"), "no number") //nolint:errcheck
			k := compat.New(s, a, compat.Options{NoRenew: true})
			_, err := k.TryLock(background, "k", ttl)
			var refused redis.Error
			if !errors.As(err, &refused) || !strings.Contains(string(refused), "wrong kind of value") {
				t.Errorf("%s, %T: %v, want the INCR's error", v, a, err)
			}
			if st, err := k.Inspect(background, "k"); err != nil || st.Status != compat.StatusFree {
				t.Errorf("%s, %T: the key is left %s, %v", v, a, st.Status, err)
			}
		}
	}
}

// A server that takes a request and never answers: Lock ends soon after its
// context, and says that the outcome is not known.
func TestServerThatDoesNotAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	asked := make(chan struct{}, 16)
	serving := make(chan struct{})
	go func() {
		defer close(serving)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				b := make([]byte, 4096)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
					asked <- struct{}{}
				}
			})
		}
	}()
	p := &redis.Pool{MaxIdle: 4, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", l.Addr().String()) }}
	// getsetlock has nothing to ask a server first: what hangs is the attempt.
	k := compat.New(p, getsetlock.Classic{}, compat.Options{NoRenew: true, Cleanup: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	result := make(chan error)
	go func() { result <- second(k.Lock(ctx, "k", ttl)) }()
	<-asked // the SETNX is on its way
	cancel()
	select {
	case err = <-result:
	case <-time.After(time.Minute):
		t.Fatal("Lock did not return after its context was cancelled")
	}
	if !errors.Is(err, context.Canceled) || !errors.Is(err, compat.ErrUnknown) {
		t.Errorf("%v, want context.Canceled and ErrUnknown", err)
	}
	l.Close()
	p.Close()
	<-serving
	conns.Wait()
}

// One connection serves a holder and any number of waiters: none is kept while
// sleeping.
func TestOneConnectionForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "2.4")
		p := onePool(w.server)
		k := compat.New(p, txlock.Renamed{}, compat.Options{NoRenew: true, Clock: w.clock})
		var wg sync.WaitGroup
		inside := 0
		for range 8 {
			wg.Go(func() {
				if err := k.Do(background, "k", ttl, func(context.Context) error {
					inside++ // the lock is what makes this safe: -race looks
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		w.until(inBackground(wg.Wait))
		if inside != 8 || p.ActiveCount() != 1 {
			t.Errorf("%d sections on %d connections, want 8 on 1", inside, p.ActiveCount())
		}
	})
}

// plainConn has neither context nor time limit, as somebody else's
// connection may be.
type plainConn struct{ redis.Conn }

type plainSource struct{ *oldredis.Server }

func (s plainSource) GetContext(context.Context) (redis.Conn, error) {
	return plainConn{s.Dial()}, nil
}

func TestAnySource(t *testing.T) {
	k := compat.New(plainSource{oldredis.Run(t, "2.4")}, txlock.Renamed{}, compat.Options{NoRenew: true})
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	for _, ctx := range []context.Context{background, ctx} {
		l := must.Get(k.TryLock(ctx, "k", ttl))(t)
		must.Do(t, l.Release(ctx))
	}
}

// A server that can't be reached is an error at once, not a wait.
func TestUnreachable(t *testing.T) {
	gone := errors.New("nobody there")
	p := &redis.Pool{Dial: func() (redis.Conn, error) { return nil, gone }}
	k := compat.New(p, txlock.Renamed{}, compat.Options{NoRenew: true})
	if _, err := k.Lock(background, "k", ttl); limit.Brought(err) != gone || errors.Is(err, compat.ErrUnknown) {
		t.Errorf("%v, want the dial's error, and no unknown outcome: nothing was sent", err)
	}
}

// A proxy closes the connection on what it does not know. A broken network does that too, so
// what is said is what was seen.
func TestProxyIsRefusedAsItWasSeen(t *testing.T) {
	s := oldredis.Run(t, "twemproxy")
	for _, a := range []protocol.Algorithm{txlock.Renamed{}, getsetlock.Guarded{}, getsetlock.Classic{Options: getsetlock.Options{Fence: true}}} {
		_, err := compat.New(s, a, compat.Options{NoRenew: true}).TryLock(background, "k", ttl)
		if !errors.Is(err, compat.ErrUnanswered) || errors.Is(err, compat.ErrUnsafeServer) || protocol.OutcomeOf(err) != protocol.NotSent {
			t.Errorf("%T behind twemproxy: %v", a, err)
		}
	}
	l := must.Get(compat.New(s, getsetlock.Classic{}, compat.Options{NoRenew: true}).TryLock(background, "k", ttl))(t)
	must.Do(t, l.Release(background))
}

// A pool whose idle connections were all closed by the server, for having idled
// or by a restart, does not fail a lock.
func TestStaleConnections(t *testing.T) {
	for name, a := range safe {
		s := oldredis.Run(t, from(name, "2.4"))
		p := s.Pool()
		p.MaxIdle = 8
		k := compat.New(p, a, compat.Options{NoRenew: true})
		stale := func() {
			var conns []redis.Conn
			for range 8 {
				c := p.Get()
				c.Do("ECHO", "x") //nolint:errcheck
				conns = append(conns, c)
			}
			for _, c := range conns {
				c.Close()
			}
			s.Restart(oldredis.Keeping)
		}
		stale()
		l, err := k.TryLock(background, "k", ttl)
		if err != nil {
			t.Fatalf("%s: TryLock over stale connections: %v", name, err)
		}
		stale()
		if err := l.Extend(background, ttl); err != nil {
			t.Errorf("%s: Extend over stale connections: %v", name, err)
		}
		stale()
		if err := l.Release(background); err != nil {
			t.Errorf("%s: Release over stale connections: %v", name, err)
		}
	}
}
