package workload_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/compat/workload"
	"github.com/setnxlock/setnxlock/getsetlock"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen starts an embedded server and returns its address.
func listen(t *testing.T, version string) (string, *oldredis.Server) {
	t.Helper()
	s, err := oldredis.New(version, oldredis.Options{Clock: clock.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	a, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return a.String(), s
}

func ours(name, address string, a compat.Algorithm, o compat.Options) workload.Subject {
	return workload.Subject{Name: name, Open: func(m *workload.Meter) (*workload.Client, error) {
		pool := workload.Pool(m, address)
		c := workload.Locks(compat.New(pool, a, o), compat.Pooled(pool), 30*time.Second)
		c.Close = pool.Close
		return c, nil
	}}
}

// Two PINGs are two commands and two round trips; the next subject's turn is counted separately.
func TestCounts(t *testing.T) {
	address, server := listen(t, "7.0")
	asked := 0 // it is called before and after a turn, and reports 400 µs used in between
	used := func() time.Duration { asked++; return time.Duration(asked) * 400 * time.Microsecond }
	rs, err := workload.Workload{Goroutines: 4, Duration: time.Minute, WarmUp: 5 * time.Millisecond, Count: 400, Server: used}.
		Run(context.Background(), []workload.Subject{workload.Pings(address), ours("locks", address, setlock.Lua{}, compat.Options{})}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if r.Err != "" || r.Failed != 0 || r.Overlaps != 0 || r.Sections < 400 {
			t.Errorf("%s: %+v", r.Name, r)
		}
		if r.CPU <= 0 || r.ServerCPU <= 0 || r.ServerCPU > time.Microsecond || asked != 4 {
			t.Errorf("%s: %v of processor time, the server %v, asked %d times", r.Name, r.CPU, r.ServerCPU, asked)
		}
		for what, s := range map[string]workload.Spread{"acquire": r.Acquire, "release": r.Release, "pair": r.Pair, "pings": r.Pings} {
			if s.N == 0 || s.P50 <= 0 || s.P50 > s.P90 || s.P90 > s.P99 || s.P99 > s.Max || s.Mean <= 0 {
				t.Errorf("%s: %s %+v", r.Name, what, s)
			}
		}
		// Each of the four goroutines may be within a section when counting begins and ends.
		if r.Commands < 1.9 || r.Commands > 2.1 || r.Trips < 1.9 || r.Trips > 2.1 || r.Writes < 1.9 || r.Writes > 2.1 {
			t.Errorf("%s: %.3f commands, %.3f trips, %.3f writes for each section", r.Name, r.Commands, r.Trips, r.Writes)
		}
		if r.Connections != 4 || r.Rate <= 0 || r.PingRate <= 0 || r.OverPings() <= 0 || r.Bytes <= 0 {
			t.Errorf("%s: %+v", r.Name, r)
		}
	}
	if keys, err := redis.Strings(server.Dial().Do("KEYS", "*")); err != nil || len(keys) != 0 {
		t.Errorf("left behind: %q, %v", keys, err)
	}
}

// All measurements of a contended key; the waiters stop at the end of a turn.
func TestOneKey(t *testing.T) {
	address, server := listen(t, "7.0")
	w := workload.Workload{Processes: 2, Goroutines: 3, Keys: 1, Section: time.Millisecond, Duration: 100 * time.Millisecond, Turns: 2}
	var shares []float64
	rs, err := w.Run(context.Background(), []workload.Subject{ours("locks", address, setlock.Lua{}, compat.Options{MinPoll: time.Millisecond, MaxPoll: 2 * time.Millisecond})},
		func(share float64, name string) { shares = append(shares, share) })
	if err != nil {
		t.Fatal(err)
	}
	r := rs[0]
	if r.Err != "" || r.Failed != 0 || r.Overlaps != 0 || r.Sections == 0 {
		t.Fatalf("%+v", r)
	}
	if r.Section.P50 < time.Millisecond || r.Ideal <= 0 || r.Ideal > 1.05 {
		t.Errorf("sections of %v at %.0f a second: %.2f of the ideal", r.Section.P50, r.Rate, r.Ideal)
	}
	if r.HandOff.N == 0 || r.Other.N > r.HandOff.N || r.Least > r.Most || r.LeastProc > r.MostProc || r.MostProc < r.Most || r.LeastProc+r.MostProc != r.Sections {
		t.Errorf("%+v", r)
	}
	if r.Self < 0 || r.Self > r.SelfProc || r.SelfProc > 1 || r.Commands <= 0 {
		t.Errorf("%+v", r)
	}
	if fmt.Sprint(shares) != "[0 0.5]" {
		t.Errorf("progress: %v", shares)
	}
	if keys, err := redis.Strings(server.Dial().Do("KEYS", "*")); err != nil || len(keys) != 0 {
		t.Errorf("left behind: %q, %v", keys, err)
	}
}

// free is a lock that does not exclude other goroutines.
type free struct{}

func (free) Release(context.Context) error { return nil }

func noLock(name string) workload.Subject {
	return workload.Subject{Name: name, Open: func(*workload.Meter) (*workload.Client, error) {
		return &workload.Client{Lock: func(context.Context, string) (workload.Held, error) { return free{}, nil }}, nil
	}}
}

func TestOverlapsAreSeen(t *testing.T) {
	rs, err := workload.Workload{Goroutines: 4, Keys: 1, Section: time.Millisecond, Duration: time.Minute, WarmUp: 5 * time.Millisecond, Count: 20}.
		Run(context.Background(), []workload.Subject{noLock("none")}, nil)
	if err != nil || rs[0].Overlaps == 0 || rs[0].Sections < 20 {
		t.Errorf("%+v, %v", rs, err)
	}
}

// A greedy lock serves only one key at a time.
type greedy struct {
	mu    sync.Mutex
	first string
}

func (g *greedy) Release(context.Context) error { g.mu.Unlock(); return nil }

func TestUnfairnessIsSeen(t *testing.T) {
	open := func(m *workload.Meter) (*workload.Client, error) {
		g := &greedy{}
		return &workload.Client{Lock: func(ctx context.Context, key string) (workload.Held, error) {
			if strings.HasSuffix(key, "try") {
				g.mu.Lock()
				return g, nil
			}
			g.mu.Lock()
			if g.first == "" {
				g.first = key
			}
			if g.first != key {
				g.mu.Unlock()
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return g, nil
		}}, nil
	}
	// Two keys for three goroutines: the first and the third share one.
	rs, err := workload.Workload{Goroutines: 3, Keys: 2, Section: time.Millisecond, Duration: time.Minute, WarmUp: 5 * time.Millisecond, Count: 20}.
		Run(context.Background(), []workload.Subject{{Name: "greedy", Open: open}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := rs[0]; r.Least != 0 || r.Most == 0 || r.Fairness() != 0 || r.FairnessProc() != 1 || r.SelfProc < 0.9 {
		t.Errorf("%+v", r)
	}
}

// A subject that cannot run is reported by name, with the reason, and the others run.
func TestFailuresAreReported(t *testing.T) {
	address, _ := listen(t, "2.0")
	broken := workload.Subject{Name: "broken", Open: func(*workload.Meter) (*workload.Client, error) {
		return nil, errors.New("there is\nno such thing")
	}}
	half := workload.Subject{Name: "half", Open: func(*workload.Meter) (*workload.Client, error) {
		tried := false
		return &workload.Client{Lock: func(context.Context, string) (workload.Held, error) {
			if tried {
				return nil, errors.New("only once")
			}
			tried = true
			return free{}, nil
		}}, nil
	}}
	subjects := []workload.Subject{broken, ours("unsafe", address, setlock.Lua{}, compat.Options{}), half, ours("fine", address, getsetlock.Classic{}, compat.Options{})}
	rs, err := workload.Workload{Duration: time.Minute, WarmUp: 5 * time.Millisecond, Count: 10}.Run(context.Background(), subjects, nil)
	if err != nil {
		t.Fatal(err)
	}
	if rs[0].Err != "there is no such thing" || !strings.Contains(rs[1].Err, "not safe") || !strings.Contains(rs[2].Err, "only once") || rs[2].Failed == 0 {
		t.Errorf("%q\n%q\n%q", rs[0].Err, rs[1].Err, rs[2].Err)
	}
	if rs[3].Err != "" || rs[3].Sections < 10 {
		t.Errorf("%+v", rs[3])
	}
	lone, err := workload.LoneWaiter{Count: 1, Hold: time.Millisecond}.Run(context.Background(), subjects[:1], nil)
	if err != nil || lone[0].Err == "" {
		t.Errorf("%+v, %v", lone, err)
	}
	keep, err := workload.Keep{}.Run(context.Background(), broken, nil)
	if err != nil || keep.Err == "" {
		t.Errorf("%+v, %v", keep, err)
	}
}

func TestCancelled(t *testing.T) {
	address, _ := listen(t, "7.0")
	for _, keys := range []int{1, 4} {
		ctx, cancel := context.WithCancel(context.Background())
		_, err := workload.Workload{Goroutines: 4, Keys: keys, Duration: time.Hour}.Run(ctx, []workload.Subject{ours("locks", address, setlock.Lua{}, compat.Options{})},
			func(float64, string) { cancel() })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%d keys: %v", keys, err)
		}
	}
}

// Dial makes all connections.
func TestDial(t *testing.T) {
	address, _ := listen(t, "7.0")
	var dialled atomic.Int32
	rs, err := workload.Workload{Goroutines: 2, Duration: time.Minute, WarmUp: 5 * time.Millisecond, Count: 20,
		Dial: func(ctx context.Context, network, to string) (net.Conn, error) {
			dialled.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, to)
		}}.Run(context.Background(), []workload.Subject{workload.Pings(address)}, nil)
	if err != nil || rs[0].Err != "" || int64(dialled.Load()) != rs[0].Connections {
		t.Errorf("%d dialled: %+v, %v", dialled.Load(), rs, err)
	}
}

func TestNoWorkload(t *testing.T) {
	for _, w := range []workload.Workload{{Processes: -1}, {Keys: -1}, {Section: -1}, {Turns: -1}} {
		if rs, err := w.Run(context.Background(), nil, nil); err == nil {
			t.Errorf("%+v: %+v", w, rs)
		}
	}
	if _, err := (workload.LoneWaiter{Count: -1}).Run(context.Background(), nil, nil); err == nil {
		t.Error("no error")
	}
}

func TestLoneWaiter(t *testing.T) {
	address, server := listen(t, "7.0")
	rs, err := workload.LoneWaiter{Hold: 4 * time.Millisecond, Count: 5}.Run(context.Background(), []workload.Subject{
		ours("locks", address, setlock.Lua{}, compat.Options{MinPoll: time.Millisecond, MaxPoll: time.Millisecond}), noLock("none")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := rs[0]
	if r.Err != "" || r.Failure != "" || r.Sections != 5 || r.HandOff.N != 5 || r.Overlaps != 0 || r.Acquire.P50 < 4*time.Millisecond || r.Commands < 4 || r.Connections < 2 {
		t.Errorf("%+v", r)
	}
	if rs[1].Overlaps == 0 {
		t.Errorf("no lock at all: %+v", rs[1])
	}
	if keys, err := redis.Strings(server.Dial().Do("KEYS", "*")); err != nil || len(keys) != 0 {
		t.Errorf("left behind: %q, %v", keys, err)
	}
}

// Held locks are renewed while they are watched, and released.
func TestKeep(t *testing.T) {
	address, server := listen(t, "7.0")
	renewals := &counter{}
	f, err := workload.Keep{Locks: 20, Takers: 4, Watch: 1600 * time.Millisecond}.Run(context.Background(), workload.Subject{Name: "locks", Open: func(m *workload.Meter) (*workload.Client, error) {
		pool := workload.Pool(m, address)
		c := workload.Locks(compat.New(pool, setlock.Lua{}, compat.Options{Renew: true, Observer: renewals.Observe}), compat.Pooled(pool), 2400*time.Millisecond)
		c.Renewals, c.Close = renewals.read, pool.Close
		return c, nil
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	lapsed := f.Watched > 2*time.Second // the machine stood still, and the leases may have ended meanwhile
	renewed := f.Renewals > 0 && f.Rate() > 0 && f.Commands > 0 && f.Writes > 0 && f.Lost == 0 && f.CPU > 0
	if f.Err != "" || f.Locks != 20 || f.Heap+f.Stack <= 0 || f.PerLock() <= 0 || !renewed && !lapsed {
		t.Errorf("%+v", f)
	}
	if keys, err := redis.Strings(server.Dial().Do("KEYS", "*")); err != nil || len(keys) != 0 {
		t.Errorf("left behind: %q, %v", keys, err)
	}
}

type counter struct {
	mu sync.Mutex
	n  int64
}

func (c *counter) Observe(e compat.Event) {
	if e.Kind == compat.EventExtended {
		c.mu.Lock()
		c.n++
		c.mu.Unlock()
	}
}

func (c *counter) read() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}
