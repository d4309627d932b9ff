package sentinel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/sentinel"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

const aLongTime = time.Hour // of patience, in tests where waiting would be wrong

func sentinels(t *testing.T, names ...string) (all []*fakeSentinel, addrs []string) {
	for _, n := range names {
		f := runSentinel(t, n)
		all, addrs = append(all, f), append(addrs, f.addr)
	}
	return all, addrs
}

func source(t *testing.T, addrs []string, n *network, o sentinel.Options) *sentinel.Source {
	o.Dial = n.dial
	s := sentinel.New("m", addrs, o)
	t.Cleanup(func() { s.Close() })
	return s
}

// What goes over the wire to find a master: one question, in one write.
func TestWire(t *testing.T) {
	n, _ := newNetwork(t, "2.6")
	all, addrs := sentinels(t, addr(0))
	s := source(t, addrs, n, sentinel.Options{Recheck: aLongTime})
	for range 3 {
		if m, err := s.Master(t.Context()); m != addr(0) || err != nil {
			t.Fatal(m, err)
		}
	}
	want := []string{"INFO", "SENTINEL get-master-addr-by-name m", "SENTINEL sentinels m"}
	if got := all[0].commands(); !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q once", got, want)
	}
	if s.Epoch() != 1 {
		t.Errorf("epoch %d after the first master", s.Epoch())
	}
}

// Who is the master when Sentinels name these.
func TestVotes(t *testing.T) {
	a, b := addr(0), addr(1)
	for _, c := range []struct {
		name   string
		say    []string
		agree  int
		master string // "": ErrNoMaster
		words  string // in its error
		now    bool   // without patience: asking again would be no use
	}{
		{"all one", []string{a, a, a}, 0, a, "", true},
		{"one is stale", []string{b, a, a}, 0, a, "", true},
		{"one is dead", []string{"", a, a}, 0, a, "", true},
		{"one says nothing", []string{nothing, a, a}, 0, a, "", true},
		{"one knows nothing yet", []string{dontKnow, a, a}, 0, a, "", true},
		{"one watches others", []string{nobody, a, a}, 0, a, "", true},
		{"one is not a Sentinel", []string{aNumber, a, a}, 0, a, "", true},
		{"a stale one, and one dead", []string{b, a, ""}, 0, "", "takes 2 sentinels", false},
		{"one alone, of three", []string{a, "", ""}, 0, "", "takes 2 sentinels", false},
		{"one alone, and one is enough", []string{a, "", ""}, 1, a, "", true},
		{"all disagree with themselves", []string{a, b}, 0, "", "1 named " + b, false},
		{"all dead", []string{"", ""}, 0, "", "refused", false},
		{"none answers", []string{nothing}, 0, "", "takes 1 sentinels", false},
		{"not yet", []string{dontKnow, dontKnow}, 0, "", "IDONTKNOW", false},
		{"of two numbers", []string{threeWord}, 0, "", `["127.0.0.1" "6379" "master"]`, false},
		{"of none", []string{aNumber}, 0, "", "unexpected type", false},
		{"none knows it", []string{nobody, nobody}, 0, "", "knows no master of this name", true},
		{"a password is wanted", []string{noAuth, noAuth}, 0, "", "NOAUTH", true},
		{"none knows it, or says so", []string{nobody, ""}, 0, "", "knows no master of this name", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n, _ := newNetwork(t, "2.6", "2.6")
			_, addrs := sentinels(t, c.say...)
			o := sentinel.Options{Agree: c.agree, Timeout: 10 * time.Second, Patience: time.Nanosecond, DialSentinel: toLiving(addrs, c.say)}
			if c.now {
				o.Patience = aLongTime
			} else if c.say[0] == nothing {
				o.Timeout = 20 * time.Millisecond
			}
			m, err := source(t, addrs, n, o).Master(t.Context())
			if m != c.master || (err == nil) != (m != "") {
				t.Fatalf("%q, %v; want %q", m, err, c.master)
			}
			if err != nil && (!errors.Is(err, sentinel.ErrNoMaster) || !strings.Contains(err.Error(), c.words)) {
				t.Errorf("%v, want ErrNoMaster with %q", err, c.words)
			}
		})
	}
}

// Get goes on asking until there is a master.
func TestGetWaitsForAMaster(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(*fakeSentinel, *fakeServer)
		then   func(*fakeSentinel, *fakeServer)
	}{
		{"the Sentinel does not know yet",
			func(f *fakeSentinel, _ *fakeServer) { f.name(dontKnow) }, func(f *fakeSentinel, _ *fakeServer) { f.name(addr(0)) }},
		{"the server is not there",
			func(f *fakeSentinel, _ *fakeServer) { f.name(addr(7)) }, func(f *fakeSentinel, _ *fakeServer) { f.name(addr(0)) }},
		{"it is a replica still, says ROLE",
			func(_ *fakeSentinel, s *fakeServer) {
				s.answer("ROLE", []any{[]byte("slave"), []byte("10.0.0.9"), int64(6379)})
			},
			func(_ *fakeSentinel, s *fakeServer) { s.answer("ROLE", []any{[]byte("master"), int64(0), []any{}}) }},
		{"it is a replica still, says INFO",
			func(_ *fakeSentinel, s *fakeServer) { s.answer("INFO", []byte("# Replication\r\nrole:slave\r\n")) },
			func(_ *fakeSentinel, s *fakeServer) { s.answer("INFO", nil) }},
		{"it answers another question",
			func(_ *fakeSentinel, s *fakeServer) { s.answer("ROLE", int64(0)) },
			func(_ *fakeSentinel, s *fakeServer) { s.answer("ROLE", []any{[]byte("master"), int64(0), []any{}}) }},
		{"its role is no word",
			func(_ *fakeSentinel, s *fakeServer) { s.answer("ROLE", []any{int64(1)}) },
			func(_ *fakeSentinel, s *fakeServer) { s.answer("ROLE", []any{[]byte("master"), int64(0), []any{}}) }},
		{"it is loading",
			func(_ *fakeSentinel, s *fakeServer) {
				s.answer("EXISTS", redis.Error("LOADING Redis is loading the dataset in memory"))
			},
			func(_ *fakeSentinel, s *fakeServer) { s.answer("EXISTS", nil) }},
		{"it tells no role",
			func(_ *fakeSentinel, s *fakeServer) {
				s.answer("ROLE", redis.Error("LOADING Redis is loading the dataset in memory"))
			},
			func(_ *fakeSentinel, s *fakeServer) {
				s.answer("ROLE", redis.Error("ERR unknown command 'ROLE'"))
				s.answer("INFO", redis.Error("NOPERM this user has no permissions to run the 'info' command"))
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n, servers := newNetwork(t, "2.6")
			all, addrs := sentinels(t, addr(0))
			c.before(all[0], servers[0])

			if _, err := source(t, addrs, n, sentinel.Options{Patience: time.Nanosecond}).Get(t.Context()); !errors.Is(err, sentinel.ErrNoMaster) || errors.Is(err, net.ErrClosed) {
				t.Errorf("without patience: %v, want ErrNoMaster, and no closed connection for the Locker to repeat at once", err)
			}
			s := source(t, addrs, n, sentinel.Options{Patience: aLongTime})
			cause := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			waiting := make(chan error)
			go func() {
				_, err := s.Get(ctx)
				waiting <- err
			}()
			all[0].again(t)
			cancel(cause)
			if err := <-waiting; !errors.Is(err, sentinel.ErrNoMaster) || limit.Brought(err) != cause {
				t.Errorf("cancelled: %v, want ErrNoMaster and the cause", err)
			}

			go func() {
				m, err := s.Master(t.Context())
				if m != addr(0) && err == nil {
					err = errors.New("found " + m)
				}
				waiting <- err
			}()
			all[0].again(t)
			c.then(all[0], servers[0])
			if err := <-waiting; err != nil {
				t.Error(err)
			}
		})
	}
}

// again waits until f has been asked twice more.
func (f *fakeSentinel) again(t *testing.T) {
	t.Helper()
	f.commands()
	deadline := time.Now().Add(time.Minute)
	for n := 0; n < 4; n += len(f.commands()) {
		if time.Now().After(deadline) {
			t.Fatal("not asked again within a minute")
		}
		<-time.After(time.Millisecond)
	}
}

// A step that its caller cancels says nothing about the master: no Sentinel is asked.
func TestCancelledStepsAskNobody(t *testing.T) {
	n, _ := newNetwork(t, "2.6")
	all, addrs := sentinels(t, addr(0))
	s := source(t, addrs, n, sentinel.Options{Clock: clock.NewMock()})
	c := must.Get(s.Get(t.Context()))(t)
	all[0].commands()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	if _, err := redis.DoContext(c, ctx, "BLPOP", "list", 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	wire.Close(c)
	must.Get(s.Get(t.Context()))(t).Close()
	if asked := all[0].commands(); len(asked) > 0 {
		t.Errorf("the Sentinel was asked %q", asked)
	}
}

// A password that the server refuses will be refused the next time.
func TestServerRefuses(t *testing.T) {
	for _, c := range []struct{ command, word string }{{"AUTH", "WRONGPASS"}, {"ROLE", "NOAUTH"}} {
		n, servers := newNetwork(t, "2.6")
		_, addrs := sentinels(t, addr(0))
		servers[0].answer(c.command, redis.Error(c.word+" no"))
		_, err := source(t, addrs, n, sentinel.Options{Patience: aLongTime}).Get(t.Context())
		var said redis.Error
		if !errors.Is(err, sentinel.ErrNoMaster) || !errors.As(err, &said) || !strings.HasPrefix(string(said), c.word) {
			t.Errorf("%v, want ErrNoMaster with the server's %s", err, c.word)
		}
	}
}

// One Sentinel is enough to learn of the others, which take its place.
func TestOthersAreLearnt(t *testing.T) {
	n, _ := newNetwork(t, "2.6", "2.6")
	all, addrs := sentinels(t, addr(0), addr(0), addr(0))
	all[0].knows = addrs[1:]
	m := clock.NewMock()
	s := source(t, addrs[:1], n, sentinel.Options{Clock: m})
	must.Get(s.Get(t.Context()))(t)
	all[0].s.Close()
	all[1].name(addr(1))
	all[2].name(addr(1))
	m.Add(time.Second)
	if named, err := master(t, s, m); err != nil || named != addr(1) {
		t.Errorf("%q, %v; want what the others name, now that the first is gone", named, err)
	}
}

// The Sentinels' idle connections may all be dead.
func TestSentinelRestarts(t *testing.T) {
	n, _ := newNetwork(t, "2.6")
	all, addrs := sentinels(t, addr(0))
	m := clock.NewMock()
	dials := 0
	var last redis.Conn
	s := source(t, addrs, n, sentinel.Options{Clock: m, DialSentinel: func(ctx context.Context, addr string) (redis.Conn, error) {
		dials++
		c, err := redis.DialContext(ctx, "tcp", all[0].addr)
		last = c
		return c, err
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range 3 {
		must.Get(s.Master(ctx))(t)
		if dials != 1+i/2 {
			t.Errorf("connected %d times in round %d", dials, i)
		}
		if i == 1 {
			last.Close()
		}
		m.Add(time.Second)
	}
}

// However many want a connection, one asks.
func TestOneAsks(t *testing.T) {
	n, _ := newNetwork(t, "2.6")
	all, addrs := sentinels(t, addr(0))
	s := source(t, addrs, n, sentinel.Options{Recheck: aLongTime})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			c, err := s.Get(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			c.Close()
		})
	}
	wg.Wait()
	if got := all[0].commands(); len(got) != 3 {
		t.Errorf("asked %q", got)
	}
}

// A switch closes the connections to the old master: idle ones at once, lent
// ones when they are returned.
func TestSwitch(t *testing.T) {
	n, servers := newNetwork(t, "2.6", "2.6")
	all, addrs := sentinels(t, addr(0))
	m := clock.NewMock()
	s := source(t, addrs, n, sentinel.Options{Clock: m})
	var conns []redis.Conn
	for range 3 {
		conns = append(conns, must.Get(s.Get(t.Context()))(t))
	}
	conns[0].Close()
	all[0].name(addr(1))
	m.Add(time.Second)
	c := must.Get(s.Get(t.Context()))(t)
	defer c.Close()
	if open := servers[0].net.Open(); open != 2 {
		t.Errorf("%d connections to the old master after the switch, want the two that are lent", open)
	}
	if _, err := conns[1].Do("GET", "k"); !errors.Is(err, sentinel.ErrNotMaster) || !errors.Is(err, net.ErrClosed) || conns[1].Err() == nil {
		t.Errorf("a read over one of them: %v, want ErrNotMaster", err)
	}
	conns[1].Close()
	conns[2].Close()
	if open := servers[0].net.Open(); open != 0 {
		t.Errorf("%d connections to the old master are left", open)
	}
	if s.Epoch() != 2 {
		t.Errorf("epoch %d, want 2", s.Epoch())
	}
}

// An idle connection is asked for its role again after Recheck, and after any
// connection to its server seemed to lead to no master.
func TestRoleAgain(t *testing.T) {
	slave := []any{[]byte("slave"), []byte("10.0.0.9"), int64(6379)}
	for _, c := range []struct {
		name string
		then func(*testing.T, *clock.Mock, []redis.Conn)
	}{
		{"after a while", func(t *testing.T, m *clock.Mock, conns []redis.Conn) { m.Add(time.Second) }},
		{"after a refused write", func(t *testing.T, _ *clock.Mock, conns []redis.Conn) {
			if _, err := conns[1].Do("SET", "k", "v"); !errors.Is(err, sentinel.ErrNotMaster) {
				t.Errorf("a refused write: %v, want ErrNotMaster", err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, servers := newNetwork(t, "2.6")
			_, addrs := sentinels(t, addr(0))
			m := clock.NewMock()
			s := source(t, addrs, n, sentinel.Options{Clock: m, Patience: time.Nanosecond})
			var conns []redis.Conn
			for range 2 {
				c := must.Get(s.Get(t.Context()))(t)
				defer c.Close()
				conns = append(conns, c)
			}
			conns[0].Close()
			servers[0].answer("ROLE", slave)
			servers[0].answer("SET", redis.Error("READONLY You can't write against a read only slave."))
			c.then(t, m, conns)
			done := make(chan error)
			go func() {
				_, err := s.Get(t.Context())
				done <- err
			}()
			err := <-moving(m, done)
			if !errors.Is(err, sentinel.ErrNoMaster) || !strings.Contains(err.Error(), "is a slave") {
				t.Errorf("%v, want ErrNoMaster: the Sentinel names a replica", err)
			}
		})
	}
}

// moving moves m on until there is an error.
func moving(m *clock.Mock, done chan error) chan error {
	moved := make(chan error, 1)
	for {
		select {
		case err := <-done:
			moved <- err
			return moved
		default:
			m.Add(10 * time.Millisecond)
		}
	}
}

// A lock's step on a server that is not the master any more goes on at the new one,
// and tells the truth.
func TestStepOnOldMaster(t *testing.T) {
	readOnly := redis.Error("READONLY You can't write against a read only slave.")
	down := redis.Error("MASTERDOWN Link with MASTER is down and slave-serve-stale-data is set to 'no'.")
	down24 := redis.Error("ERR link with MASTER is down and slave-serve-stale-data is set to no")
	for _, c := range []struct {
		name string
		demo func(old *fakeServer)
	}{
		{"writes are refused", func(old *fakeServer) {
			for _, w := range []string{"SETEX", "RENAMENX", "DEL", "EXPIRE", "SETNX"} {
				old.answer(w, readOnly)
			}
		}},
		{"an EXEC is refused in its reply", func(old *fakeServer) {
			old.answer("EXEC", []any{readOnly})
			old.answer("SETEX", readOnly)
		}},
		{"nothing is answered without its master", func(old *fakeServer) { everything(old, down) }},
		{"nor is on 2.4", func(old *fakeServer) { everything(old, down24) }},
		{"it is loading", func(old *fakeServer) {
			everything(old, redis.Error("LOADING Redis is loading the dataset in memory"))
		}},
	} {
		for _, pinned := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s/pinned=%d", c.name, pinned), func(t *testing.T) {
				t.Parallel()
				n, servers := newNetwork(t, "2.6", "2.6")
				all, addrs := sentinels(t, addr(0))
				s := source(t, addrs, n, sentinel.Options{Recheck: aLongTime}) // nothing but the refusal tells
				from := s.Source()
				from.Keep = pinned
				k := compat.NewOn(from, txlock.Renamed{}, compat.Options{NoRenew: true})
				var locks []*compat.Lock
				for _, key := range []string{"extended", "released", "read"} {
					locks = append(locks, must.Get(k.TryLock(t.Context(), key, time.Minute))(t))
				}
				replace := func() {
					all[0].name(addr(1))
					c.demo(servers[0])
				}
				back := func() { // the old one is the master again, for the next step
					servers[0].mu.Lock()
					clear(servers[0].says)
					servers[0].mu.Unlock()
					all[0].name(addr(0))
					for old := s.Named(); old != addr(0); old = s.Named() {
						conn, err := s.Get(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						servers[1].answer("GET", readOnly)
						conn.Do("GET", "k") //nolint:errcheck // has it ask the Sentinel
						servers[1].answer("GET", nil)
						conn.Close()
						if conn, err = s.Get(t.Context()); err == nil {
							conn.Close()
						}
					}
				}

				replace()
				lock, err := k.TryLock(t.Context(), "taken", time.Minute)
				if err != nil {
					t.Fatalf("TryLock: %v; want the lock, from the new master", err)
				}
				if v, _ := redis.String(servers[1].Dial().Do("GET", "taken")); v != lock.Token() {
					t.Errorf("the new master has %q, the lock's token is %q", v, lock.Token())
				}
				back()
				replace()
				if err := locks[0].Extend(t.Context(), time.Minute); !errors.Is(err, compat.ErrLost) || locks[0].Context().Err() == nil {
					t.Errorf("Extend of a lock that the new master never had: %v, want ErrLost", err)
				}
				back()
				replace()
				if err := locks[1].Release(t.Context()); !errors.Is(err, compat.ErrLost) {
					t.Errorf("Release of a lock that the new master never had: %v, want ErrLost", err)
				}
				if strings.HasPrefix(c.name, "nothing") {
					back()
					replace()
					if st, err := k.Inspect(t.Context(), "read"); err != nil || st.Status != compat.StatusFree {
						t.Errorf("Inspect: %+v, %v; want what the new master has: nothing", st, err)
					}
				}
			})
		}
	}
}

func everything(s *fakeServer, reply any) {
	for _, name := range []string{"EXISTS", "GET", "TTL", "WATCH", "UNWATCH", "MULTI", "EXEC", "SETEX", "RENAMENX", "DEL", "EXPIRE"} {
		s.answer(name, reply)
	}
}

// The server stood still, and was replaced. When it goes on it gives the lock
// that it was asked for, as a master would: nobody believes it.
func TestLateReply(t *testing.T) {
	for _, c := range []struct {
		name string
		late time.Duration
		want int // the server that the lock is on
	}{
		{"later than Recheck", time.Second, 1},
		{"sooner", time.Second - time.Nanosecond, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, servers := newNetwork(t, "2.6", "2.6")
			all, addrs := sentinels(t, addr(0))
			m := clock.NewMock()
			s := source(t, addrs, n, sentinel.Options{Clock: m})
			k := compat.NewOn(s.Source(), txlock.Renamed{}, compat.Options{NoRenew: true, Clock: m})
			first, err := k.TryLock(t.Context(), "first", time.Minute) // so that the server is known, and checked
			if err != nil {
				t.Fatal(err)
			}
			servers[0].ran = func(name string) {
				if name == "RENAMENX" {
					all[0].name(addr(1))
					m.Add(c.late)
				}
			}
			lock := must.Get(k.TryLock(t.Context(), "k", time.Minute))(t)
			for i, server := range servers {
				if v, _ := redis.String(server.Dial().Do("GET", "k")); v == lock.Token() != (i == c.want) {
					t.Errorf("server %d has %q; the lock, %q, is to be on server %d", i, v, lock.Token(), c.want)
				}
			}
			servers[0].ran = nil
			m.Add(time.Second)
			if err := first.Release(t.Context()); !errors.Is(err, compat.ErrLost) {
				t.Errorf("Release of a lock of the old master's: %v, want ErrLost", err)
			}
		})
	}
}

// Without the Sentinels nothing that is answered counts.
func TestSentinelsGone(t *testing.T) {
	n, servers := newNetwork(t, "2.6")
	all, addrs := sentinels(t, addr(0))
	m := clock.NewMock()
	s := source(t, addrs, n, sentinel.Options{Clock: m, Patience: time.Nanosecond})
	c := must.Get(s.Get(t.Context()))(t)
	defer c.Close()
	all[0].s.Close()
	m.Add(time.Second)
	if _, err := c.Do("GET", "k"); !errors.Is(err, sentinel.ErrNotMaster) || !strings.Contains(err.Error(), "takes 1 sentinels") {
		t.Errorf("a reply that no Sentinel stands for: %v, want ErrNotMaster and why", err)
	}
	if open := servers[0].net.Open(); open != 0 {
		t.Errorf("%d connections open", open)
	}
}

// A reply over any way that redigo has is looked at.
func TestEveryWayToAsk(t *testing.T) {
	var names []string
	for range 2 {
		at := must.Get(oldredis.Run(t, "2.6").Listen("127.0.0.1:0"))(t)
		names = append(names, at.String())
	}
	all, addrs := sentinels(t, names[0])
	m := clock.NewMock()
	s := sentinel.New("m", addrs, sentinel.Options{Clock: m})
	t.Cleanup(func() { s.Close() })
	for name, ask := range map[string]func(c redis.Conn) (any, error){
		"Do":            func(c redis.Conn) (any, error) { return c.Do("GET", "k") },
		"DoContext":     func(c redis.Conn) (any, error) { return redis.DoContext(c, t.Context(), "GET", "k") },
		"DoWithTimeout": func(c redis.Conn) (any, error) { return redis.DoWithTimeout(c, time.Minute, "GET", "k") },
		"Receive":       sent(func(c redis.Conn) (any, error) { return c.Receive() }),
		"ReceiveContext": sent(func(c redis.Conn) (any, error) {
			return redis.ReceiveContext(c, t.Context())
		}),
		"ReceiveWithTimeout": sent(func(c redis.Conn) (any, error) {
			return redis.ReceiveWithTimeout(c, time.Minute)
		}),
	} {
		c := must.Get(s.Get(t.Context()))(t)
		reply, err := ask(c)
		if reply != nil || err != nil {
			t.Errorf("%s of nothing: %v, %v", name, reply, err)
		}
		names[0], names[1] = names[1], names[0]
		all[0].name(names[0])
		m.Add(time.Second)
		if reply, err := ask(c); reply != nil || !errors.Is(err, sentinel.ErrNotMaster) {
			t.Errorf("%s of a server that was replaced: %v, %v", name, reply, err)
		}
		c.Close()
	}
}

func sent(receive func(redis.Conn) (any, error)) func(redis.Conn) (any, error) {
	return func(c redis.Conn) (any, error) {
		if err := c.Send("GET", "k"); err != nil {
			return nil, err
		}
		if err := c.Flush(); err != nil {
			return nil, err
		}
		return receive(c)
	}
}

// After Close there are no connections, and nobody waits for one.
func TestClose(t *testing.T) {
	n, servers := newNetwork(t, "2.6")
	all, addrs := sentinels(t, addr(0), dontKnow)
	s := source(t, addrs, n, sentinel.Options{Agree: 1, Patience: aLongTime})
	idle := must.Get(s.Get(t.Context()))(t)
	idle.Close()
	waits := source(t, addrs[1:], n, sentinel.Options{Patience: aLongTime})
	done := make(chan error)
	go func() {
		_, err := waits.Get(t.Context())
		done <- err
	}()
	all[1].again(t)
	waits.Close()
	if err := <-done; !errors.Is(err, sentinel.ErrNoMaster) || !strings.Contains(err.Error(), "closed") {
		t.Errorf("Get that waited at Close: %v", err)
	}
	s.Close()
	s.Close()
	if open := servers[0].net.Open(); open != 0 {
		t.Errorf("%d connections open after Close", open)
	}
	if c, err := s.Get(t.Context()); err == nil {
		t.Errorf("a connection after Close: %v", c)
	}
}
