package compat_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
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

// A succession is a Source of servers of which each may replace the one
// before.
type succession struct {
	faulty.Network
	servers []*oldredis.Server
	epoch   uint64
}

func (s *succession) source() compat.Source {
	source := compat.Pooled(s.Pool(s))
	source.Epoch = func() uint64 { return s.epoch }
	return source
}

func (s *succession) GetContext(context.Context) (redis.Conn, error) {
	return s.servers[s.epoch].Dial(), nil
}

// lose has something happen instead of the next command of that name; "": of the next connection.
func (s *succession) lose(name string, instead func()) (done func() bool) {
	happened := false
	once := sync.OnceFunc(func() { happened = true; instead() })
	if name == "" {
		s.OnDial(func(context.Context) error { s.OnDial(nil); once(); return net.ErrClosed })
	} else {
		s.Expect(func(m faulty.Message) faulty.Fate {
			if m.Name != name || happened {
				return faulty.Fate{}
			}
			once()
			return faulty.Fate{Loss: faulty.LostRequest, Err: net.ErrClosed}
		})
	}
	return func() bool { return happened }
}

// A release that broke off is a success if the key is gone in time, but not
// on a server that may never have had the key (any/failover), and not if
// nothing was sent at all.
func TestReleaseThatIsNotKnown(t *testing.T) {
	for _, c := range []struct {
		name string
		lose string
		then func(*succession)
		want error
	}{
		{"it got through, the same server", "MULTI", func(s *succession) { s.servers[0].Dial().Do("DEL", "k") }, nil}, //nolint:errcheck
		{"the server was replaced", "MULTI", func(s *succession) { s.epoch++ }, compat.ErrLost},
		{"and another has it there", "MULTI", func(s *succession) {
			s.epoch++
			s.servers[1].Dial().Do("SET", "k", "another's") //nolint:errcheck
		}, compat.ErrLost},
		{"never sent", "", func(s *succession) { s.servers[0].Dial().Do("DEL", "k") }, compat.ErrLost}, //nolint:errcheck
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &succession{servers: []*oldredis.Server{oldredis.Run(t, "2.6"), oldredis.Run(t, "2.6")}}
			lock, err := compat.NewOn(s.source(), txlock.Renamed{}, compat.Options{NoRenew: true}).TryLock(t.Context(), "k", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			lost := s.lose(c.lose, func() { c.then(s) })
			if err := lock.Release(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("Release: %v, want %v", err, c.want)
			}
			if !lost() {
				t.Error("nothing was lost")
			}
		})
	}
}

// A server that is replaced while a step is under way may pass that on to its successor, as a proxy
// does: the lock is there. Its release, which is not answered, got through.
func TestStepThatFollows(t *testing.T) {
	for _, step := range []string{"acquired", "extended", "renewed"} {
		for _, answered := range []bool{true, false} {
			t.Run(fmt.Sprint(step, ", answered ", answered), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &follower{servers: [2]*oldredis.Server{oldredis.Run(t, "7.0"), oldredis.Run(t, "7.0")}}
					source := compat.Pooled(f)
					source.Epoch = f.epoch.Load
					k := compat.NewOn(source, setlock.Lua{}, compat.Options{NoRenew: step != "renewed"})
					f.follow.Store(step == "acquired")
					f.cut.Store(!answered)
					var locks [2]*compat.Lock // renewed together
					for i, key := range []string{"k", "l"} {
						var err error
						if locks[i], err = k.TryLock(t.Context(), key, time.Minute); err != nil {
							t.Fatal(err)
						}
						if step != "acquired" {
							f.servers[1].Dial().Do("SET", key, locks[i].Token()) //nolint:errcheck
						}
					}
					if step != "acquired" {
						f.follow.Store(true)
						f.cut.Store(!answered)
					}
					if time.Sleep(25 * time.Second); step == "extended" {
						must.Do(t, locks[0].Extend(t.Context(), time.Minute))
					}
					synctest.Wait()
					if f.epoch.Load() != 1 || f.cut.Load() {
						t.Fatal("the server was not replaced, or has answered")
					}
					f.cut.Store(true)
					if err := locks[0].Release(t.Context()); err != nil {
						t.Errorf("Release: %v", err)
					}
					if f.cut.Load() {
						t.Error("the release was answered")
					}
					k.Close(t.Context()) //nolint:errcheck // of the other's renewal no matter
				})
			})
		}
	}
}

// A follower is a Source of two servers, of which the second replaces the first when the next step
// is sent, and runs it.
type follower struct {
	servers [2]*oldredis.Server
	epoch   atomic.Uint64
	follow  atomic.Bool // the next step does
	cut     atomic.Bool // … or its reply is not had
}

func (f *follower) GetContext(context.Context) (redis.Conn, error) {
	to := f.servers[f.epoch.Load()].Dial()
	return faulty.Over(to, func(m faulty.Message) faulty.Fate {
		about := m.Name != "GET" && slices.Contains(m.Args, any("k"))
		if about && f.follow.Swap(false) {
			f.epoch.Store(1)
			to = f.servers[1].Dial()
		}
		return faulty.Fate{Serve: func(func(...any) any) any {
			reply, err := to.Do(m.Name, m.Args...)
			switch {
			case err != nil:
				return err // NOSCRIPT, of the successor
			case about && f.cut.Swap(false):
				return io.EOF
			}
			return reply
		}}
	}), nil
}

// One of a lock that was found, and whose time is up, has proved nothing by finding the key gone:
// somebody else may have had it since.
func TestReleaseAfterItsTimeThatIsNotKnown(t *testing.T) {
	for _, after := range []time.Duration{time.Second, 2 * time.Minute} {
		mock := clock.NewMock()
		s := &succession{servers: []*oldredis.Server{oldredis.Run(t, "2.6")}}
		k := compat.NewOn(s.source(), getsetlock.Guarded{}, compat.Options{NoRenew: true, Clock: mock})
		lock, err := k.TryLock(t.Context(), "k", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		token := lock.Token()
		mock.Add(after)
		happened := s.lose("MULTI", func() { s.servers[0].Dial().Do("DEL", "k") }) //nolint:errcheck
		err = k.ReleaseToken(t.Context(), "k", token)
		if lost := after > time.Minute; errors.Is(err, compat.ErrLost) != lost || !happened() {
			t.Errorf("released %v after it was taken: %v", after, err)
		}
	}
}

// The server that replaces another may be an older one: the algorithm is asked
// again, before it writes.
func TestCheckInEachEpoch(t *testing.T) {
	s := &succession{servers: []*oldredis.Server{oldredis.Run(t, "2.4"), oldredis.Run(t, "2.2"), oldredis.Run(t, "2.6")}}
	k := compat.NewOn(s.source(), txlock.Renamed{}, compat.Options{NoRenew: true})
	must.Get(k.TryLock(t.Context(), "k", time.Minute))(t)
	s.epoch = 1
	if _, err := k.TryLock(t.Context(), "k", time.Minute); !errors.Is(err, compat.ErrUnsafeServer) {
		t.Errorf("on a 2.2 that replaced a 2.4: %v, want ErrUnsafeServer", err)
	}
	// Replaced between the check and the acquisition: asked again.
	s.epoch = 0
	must.Get(k.TryLock(t.Context(), "other", time.Minute))(t)
	s.OnDial(func(context.Context) error { s.OnDial(nil); s.epoch = 1; return nil })
	if _, err := k.TryLock(t.Context(), "another", time.Minute); !errors.Is(err, compat.ErrUnsafeServer) {
		t.Errorf("replaced by a 2.2 after the check: %v, want ErrUnsafeServer", err)
	}
	if n, err := redis.Int(s.servers[1].Dial().Do("DBSIZE")); n != 0 || err != nil {
		t.Errorf("%d keys on the server that was refused, %v", n, err)
	}
}

// A hundred that begin at once, on a server that takes its time, don't check it a hundred times: if
// they did, on a busy one, no check would ever end in time. One that hangs holds up nobody else.
func TestFewCheckAtOnce(t *testing.T) {
	for _, hang := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &succession{servers: []*oldredis.Server{oldredis.Run(t, "2.4")}}
			a := &slowCheck{Renamed: txlock.Renamed{}, hang: hang}
			k := compat.NewOn(s.source(), a, compat.Options{NoRenew: true})
			var wg sync.WaitGroup
			var late atomic.Int32
			for i := range 100 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
					defer cancel()
					began := time.Now()
					_, err := k.TryLock(ctx, fmt.Sprint(i), time.Minute)
					switch {
					case err != nil && errors.Is(err, compat.ErrUnknown), time.Since(began) > 150*time.Millisecond:
						t.Errorf("after %v: %v", time.Since(began), err)
					case err != nil:
						late.Add(1)
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Second) // the one that hangs goes on
			if n := a.n.Load(); n > 2 {
				t.Errorf("%d checks, 2 at most are wanted", n)
			}
			if n := late.Load(); n > 1 || n == 1 && !hang {
				t.Errorf("%d had no lock in time", n)
			}
		})
	}
}

// A slowCheck takes its time to check a server, in a bubble of virtual time, and the first time hangs.
type slowCheck struct {
	txlock.Renamed
	hang bool
	n    atomic.Int32
}

func (a *slowCheck) Traits() protocol.Traits {
	traits := a.Renamed.Traits()
	check := traits.Check
	traits.Check = func(c *protocol.Conn, key string) error {
		if a.n.Add(1) == 1 && a.hang {
			time.Sleep(150 * time.Millisecond)
			return context.DeadlineExceeded
		}
		time.Sleep(100 * time.Millisecond)
		return check(c, key)
	}
	return traits
}
