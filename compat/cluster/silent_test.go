package cluster_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/cluster"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// A master whose packets are dropped answers no Dial, not even with a refusal. It is found out
// however short a step is, and whether Dial heeds its context or not.
func TestDroppedPackets(t *testing.T) {
	for name, heedless := range map[string]bool{"heeds its context": false, "heeds nothing": true} {
		for _, limit := range []time.Duration{20 * time.Millisecond, time.Minute} {
			t.Run(name+"/"+limit.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFake(t, false)
					gone, over := make(chan struct{}), make(chan struct{})
					t.Cleanup(func() { close(over) })
					s := cluster.New([]string{a, b}, cluster.Options{IdleTimeout: 1, Dial: func(ctx context.Context, addr string) (redis.Conn, error) {
						select {
						case <-gone:
							if addr != a {
								break
							}
							if heedless {
								ctx = context.Background()
							}
							select {
							case <-ctx.Done():
								return nil, ctx.Err()
							case <-over:
								return nil, errSilent
							}
						default:
						}
						return f.dial(ctx, addr)
					}})
					t.Cleanup(func() { s.Close() })
					locks := compat.NewOn(s.Source(), getsetlock.Guarded{}, compat.Options{NoRenew: true, Timeout: limit})
					if l, err := locks.TryLock(t.Context(), "k", time.Second); err != nil {
						t.Fatal(err)
					} else if err := l.Release(t.Context()); err != nil {
						t.Fatal(err)
					}
					close(gone)
					const ttl = 5 * time.Second
					start := time.Now()
					promote := time.AfterFunc(300*time.Millisecond, func() {
						f.mu.Lock()
						defer f.mu.Unlock()
						f.owner = b
					})
					defer promote.Stop()
					for {
						_, err := locks.TryLock(t.Context(), "k", ttl)
						if err == nil {
							break
						}
						if time.Since(start) > ttl {
							t.Fatalf("not found out in %v: %v", ttl, err)
						}
						time.Sleep(time.Millisecond)
					}
				})
			})
		}
	}
}

// A Lock that is called while nobody serves the slot waits for the election; one whose servers
// can't be reached at all does not.
func TestLockWaitsForElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, false)
		s := f.source()
		f.conn(s, "k")
		f.mu.Lock()
		f.silent[a] = true
		f.mu.Unlock()
		locks := compat.NewOn(s.Source(), getsetlock.Guarded{}, compat.Options{NoRenew: true})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		_, err := locks.TryLock(ctx, "k", 10*time.Second)
		if !errors.Is(err, compat.ErrElection) || limit.Brought(err) != errSilent || protocol.OutcomeOf(err) != protocol.NotSent {
			t.Errorf("TryLock: %v, want ErrElection, and the reason", err)
		}
		got := make(chan error, 1)
		go func() {
			_, err := locks.Lock(ctx, "k", 10*time.Second)
			got <- err
		}()
		f.mu.Lock()
		asked := f.maps
		f.mu.Unlock()
		deadline := time.Now().Add(time.Minute)
		for more := 0; more < 5; { // it goes on asking who is master
			select {
			case err := <-got:
				t.Fatalf("Lock, before there is a master: %v", err)
			case <-time.After(time.Millisecond):
			}
			f.mu.Lock()
			more = f.maps - asked
			f.mu.Unlock()
			if time.Now().After(deadline) {
				t.Fatal("nobody asks for the map")
			}
		}
		f.mu.Lock()
		f.owner = b
		f.mu.Unlock()
		if err := <-got; err != nil {
			t.Errorf("Lock, after the election: %v", err)
		}

		f.mu.Lock()
		f.silent[b] = true
		f.mu.Unlock()
		if _, err := locks.Lock(ctx, "other", 10*time.Second); errors.Is(err, compat.ErrElection) || err == nil || ctx.Err() != nil {
			t.Errorf("Lock, with nobody left: %v, want that at once, and no election", err)
		}
	})
}

// A step that its caller cancels, before it is sent or after that, says nothing about the master: nobody is asked for
// the map.
func TestCancelledStepsAskNobody(t *testing.T) {
	var dials atomic.Int32
	s := cluster.New(realredis.RunCluster(t).Addrs(), cluster.Options{Dial: func(ctx context.Context, addr string) (redis.Conn, error) {
		dials.Add(1)
		return redis.DialContext(ctx, "tcp", addr)
	}})
	defer s.Close()
	for _, sent := range []bool{false, true} {
		c := must.Get(s.Get(t.Context(), "list"))(t)
		must.Get(c.Do("DEL", "list"))(t)
		dials.Store(0)
		ctx, cancel := context.WithCancel(t.Context())
		if sent {
			time.AfterFunc(10*time.Millisecond, cancel)
		} else {
			cancel()
		}
		if _, err := redis.DoContext(c, ctx, "BLPOP", "list", 0); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		c.Close()
		must.Get(s.Get(t.Context(), "list"))(t).Close()
		if n := dials.Load(); n != 1 {
			t.Errorf("sent %v: %d connections, one to the master and the others for its map", sent, n)
		}
	}
}

// A master that wants another password answers: nobody is elected in its place, and a Lock does not wait for that.
func TestPasswordIsNoElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, false)
		s := f.source()
		f.wants = a
		locks := compat.NewOn(s.Source(), getsetlock.Guarded{}, compat.Options{NoRenew: true})
		start := time.Now()
		_, err := locks.Lock(t.Context(), "k", 10*time.Second)
		if errors.Is(err, compat.ErrElection) || !errors.As(err, new(redis.Error)) || protocol.OutcomeOf(err) != protocol.NotSent || time.Since(start) > time.Second {
			t.Errorf("Lock, after %v: %v, want what the server said", time.Since(start), err)
		}
	})
}

// A redirection to a server that can't be reached is an answer: the command did not run.
func TestMovedToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, false)
		s := f.source()
		f.conn(s, "k")
		f.mu.Lock()
		f.owner, f.silent[b] = b, true // a has heard of the election already, and we can't reach b
		f.mu.Unlock()
		locks := compat.NewOn(s.Source(), getsetlock.Guarded{}, compat.Options{NoRenew: true})
		if _, err := locks.TryLock(t.Context(), "k", time.Second); err == nil || errors.Is(err, compat.ErrUnknown) || protocol.OutcomeOf(err) != protocol.NotSent {
			t.Errorf("TryLock: %v, want an error, and that nothing ran", err)
		}
	})
}

// Close ends what asks for the map, whatever the servers do.
func TestCloseWhileAsking(t *testing.T) {
	asked := make(chan struct{}, 10)
	s := cluster.New([]string{a, b}, cluster.Options{Dial: func(ctx context.Context, _ string) (redis.Conn, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	got := make(chan error)
	go func() {
		_, err := s.Get(context.Background(), "k")
		got <- err
	}()
	<-asked
	s.Close()
	if err := <-got; !errors.Is(err, cluster.ErrClosed) {
		t.Errorf("Get during Close: %v, want ErrClosed", err)
	}
}

// deaf listens at addr and takes no connection: its queue is full, and the kernel drops every SYN.
func deaf(t *testing.T, addr string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n := must.Get(strconv.Atoi(port))(t)
	at := &syscall.SockaddrInet4{Port: n, Addr: [4]byte(net.ParseIP(host).To4())}
	fd := must.Get(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0))(t)
	t.Cleanup(func() { syscall.Close(fd) })
	must.Do(t, errors.Join(syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1), syscall.Bind(fd, at), syscall.Listen(fd, 0)))
	for range 10 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatalf("%s takes any number of connections", addr)
}

// Real masters die: one refuses connections from then on, the packets to another are dropped. A
// Lock that is called at once waits through the election, and one with short steps too.
func TestLockThroughElection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		limit  time.Duration // of a step
		master int
		then   func(addr string)
	}{
		{"killed", 0, 0, func(string) {}},
		{"dropped packets", 300 * time.Millisecond, 1, func(addr string) { deaf(t, addr) }},
		{"dropped packets, a long step", time.Minute, 2, func(addr string) { deaf(t, addr) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			nodes := realredis.RunCluster(t)
			s := cluster.New(nodes.Addrs(), cluster.Options{})
			defer s.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			locks := compat.NewOn(s.Source(), setlock.Lua{}, compat.Options{NoRenew: true, Timeout: c.limit})
			l := must.Get(locks.Lock(ctx, tag(c.master)+"a", time.Minute))(t)
			must.Do(t, l.Release(ctx))
			nodes.Nodes[c.master].Kill()
			c.then(nodes.Nodes[c.master].Addr)
			l = must.Get(locks.Lock(ctx, tag(c.master)+"b", time.Minute))(t)
			if err := l.Release(ctx); err != nil && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		})
	}
}
