package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/workload"
)

// A part can be measured by itself.
type part struct {
	name  string
	what  string
	took  time.Duration // about, on one server
	done  func(m *Measured) bool
	run   func(ctx context.Context, b *bench, s *server, m *Measured) error
	clear func(m *Measured)
}

// parts are all, in the order of the document.
var parts = []part{
	{"latency", "acquire and release, alone", 38 * time.Second,
		func(m *Measured) bool { return m.Latency != nil }, latency, func(m *Measured) { m.Latency = nil }},
	{"distant", "the same, with a network in between", 28 * time.Second,
		func(m *Measured) bool { return m.Distant != nil }, distant, func(m *Measured) { m.Distant = nil }},
	{"together", "the same, client and server on any core", 18 * time.Second,
		func(m *Measured) bool { return m.Together != nil }, together, func(m *Measured) { m.Together = nil }},
	{"throughput", "64 goroutines, 64 keys", 42 * time.Second,
		func(m *Measured) bool { return m.Throughput != nil }, throughput, func(m *Measured) { m.Throughput = nil }},
	{"crowd", "512 goroutines, 512 keys", 30 * time.Second,
		func(m *Measured) bool { return m.Crowd != nil }, crowd, func(m *Measured) { m.Crowd = nil }},
	{"one-key", "64 goroutines, one key", 80 * time.Second,
		func(m *Measured) bool { return m.OneKey != nil }, oneKey, func(m *Measured) { m.OneKey = nil }},
	{"sweep", "1 to 1000 goroutines, one key", 80 * time.Second,
		func(m *Measured) bool { return m.Sweep != nil }, sweep, func(m *Measured) { m.Sweep = nil }},
	{"waiter", "one waiter in another process", 50 * time.Second,
		func(m *Measured) bool { return m.Waiter != nil }, waiter, func(m *Measured) { m.Waiter = nil }},
	{"held", "up to 100000 locks held and renewed", 40 * time.Second,
		func(m *Measured) bool { return m.Held != nil }, held, func(m *Measured) { m.Held = nil }},
	{"allocs", "what is allocated", 5 * time.Second,
		func(m *Measured) bool { return m.Allocs != nil }, allocations, func(m *Measured) { m.Allocs = nil }},
	{"command", "the command beside redis-cli", 12 * time.Second,
		func(m *Measured) bool { return m.Command != nil }, command, func(m *Measured) { m.Command = nil }},
}

// prefix begins all keys.
var prefix = "setnxlock:bench:" + compat.NewToken()[:8] + ":"

// alone is one goroutine that takes and releases a lock, in turns so
// short that whatever else the machine does meets all alike.
func alone(ctx context.Context, b *bench, s *server, d time.Duration, dial dialer) ([]workload.Result, error) {
	subjects := append([]workload.Subject{workload.Pings(s.Address)}, single(s)...)
	subjects = append(subjects, cancellable(locker(s.name, s.Address, s.best, noOptions)))
	subjects = append(subjects, peers(s)...)
	w := workload.Workload{Duration: b.scale(d), Turns: b.turns(40), WarmUp: 2 * time.Millisecond, Dial: dial, Server: s.cpu(), Prefix: prefix}
	return w.Run(ctx, subjects, b.progress)
}

// latency is that with the server on its own core.
func latency(ctx context.Context, b *bench, s *server, m *Measured) error {
	defer b.separate(s, m)()
	var err error
	m.Latency, err = alone(ctx, b, s, 1500*time.Millisecond, nil)
	return err
}

// distant is that with a network in between.
func distant(ctx context.Context, b *bench, s *server, m *Measured) error {
	defer b.separate(s, m)()
	var err error
	m.Distant, err = alone(ctx, b, s, time.Second, dialFar)
	for i := range m.Distant {
		m.Distant[i].CPU = 0 // it is the distance that was computed
	}
	return err
}

// together is that with the server where the kernel wants it.
func together(ctx context.Context, b *bench, s *server, m *Measured) (err error) {
	m.Together, err = alone(ctx, b, s, 600*time.Millisecond, nil)
	return err
}

// throughput is 64 goroutines that don't meet.
func throughput(ctx context.Context, b *bench, s *server, m *Measured) (err error) {
	m.Throughput, err = apart(ctx, b, s, m, 64, single(s))
	return err
}

// crowd is 512 of them: what needs no connection of its own for each.
func crowd(ctx context.Context, b *bench, s *server, m *Measured) (err error) {
	ours := slices.DeleteFunc(single(s), func(o workload.Subject) bool { return !strings.HasSuffix(o.Name, shared) })
	m.Crowd, err = apart(ctx, b, s, m, crowdSize, ours)
	return err
}

const crowdSize = 512

// apart is many goroutines, each with a key of its own.
func apart(ctx context.Context, b *bench, s *server, m *Measured, goroutines int, ours []workload.Subject) ([]workload.Result, error) {
	defer b.separate(s, m)()
	subjects := append([]workload.Subject{workload.Pings(s.Address)}, ours...)
	subjects = append(subjects, peers(s)...)
	w := workload.Workload{Goroutines: goroutines, Duration: max(b.scale(1600*time.Millisecond), 160*time.Millisecond), Turns: b.turns(8), WarmUp: 25 * time.Millisecond, Server: s.cpu(), Prefix: prefix}
	return w.Run(ctx, subjects, b.progress)
}

// separate gives the server its own core for a while, if that is possible.
func (b *bench) separate(s *server, m *Measured) (back func()) {
	back, err := s.apart()
	if err != nil {
		m.NotApart = err.Error()
		return func() {}
	}
	m.NotApart = ""
	return back
}

// section is how long a contended key is held.
const section = time.Millisecond

// oneKey is 64 goroutines that all want the same key, in one process and in eight.
func oneKey(ctx context.Context, b *bench, s *server, m *Measured) error {
	var all []Contest
	for n, c := range []Contest{{Processes: 1, Goroutines: 64}, {Processes: 8, Goroutines: 8}} {
		w := workload.Workload{Processes: c.Processes, Goroutines: c.Goroutines, Keys: 1, Section: section,
			Duration: b.scale(3 * time.Second), WarmUp: b.scale(300 * time.Millisecond), Prefix: prefix}
		var err error
		c.Results, err = w.Run(ctx, append(waiting(s), waitingPeers(s)...), b.within(n, 2))
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	m.OneKey = all
	return nil
}

// sizes are the numbers of goroutines in the sweep.
var sizes = []int{1, 4, 16, 64, 256, 1000}

// sweep is more and more goroutines of one process at one key.
func sweep(ctx context.Context, b *bench, s *server, m *Measured) error {
	var all []Contest
	sizes := sizes
	if b.quick {
		sizes = []int{1, 8, 100}
	}
	for n, size := range sizes {
		w := workload.Workload{Goroutines: size, Keys: 1, Section: section,
			Duration: b.scale(time.Second), WarmUp: b.scale(200 * time.Millisecond), Prefix: prefix}
		results, err := w.Run(ctx, append(waiting(s), waitingPeers(s)...), b.within(n, len(sizes)))
		if err != nil {
			return err
		}
		all = append(all, Contest{Processes: 1, Goroutines: size, Results: results})
	}
	m.Sweep = all
	return nil
}

// waiter is one goroutine in another process than the holder's.
func waiter(ctx context.Context, b *bench, s *server, m *Measured) (err error) {
	m.Waiter, err = workload.LoneWaiter{Count: b.turns(100), Prefix: prefix}.Run(ctx, append(waiting(s), waitingPeers(s)...), b.progress)
	return err
}

// held is ever more locks that are renewed every third of their ttl. Many have a longer
// one, so that the server is asked for no more than it can do.
func held(ctx context.Context, b *bench, s *server, m *Measured) error {
	var all []workload.Footprint
	loads := []struct {
		locks int
		ttl   time.Duration
	}{{1, 3 * time.Second}, {1000, 6 * time.Second}, {100_000, 18 * time.Second}}
	if b.quick {
		loads[1].locks, loads[1].ttl = 100, 3*time.Second
		loads[2].locks, loads[2].ttl = 300, 3*time.Second
	}
	for n, l := range loads {
		k := workload.Keep{Locks: l.locks, Takers: 64, Watch: l.ttl/3 + 50*time.Millisecond, Prefix: prefix}
		if !b.quick {
			k.Watch += l.ttl / 3
		}
		f, err := k.Run(ctx, renewing(s.name, s.Address, s.best, l.ttl), b.within(n, len(loads)))
		if err != nil {
			return err
		}
		all = append(all, f)
	}
	m.Held = all
	return nil
}

// allocations are counted one by one, with nothing else going on.
func allocations(ctx context.Context, b *bench, s *server, m *Measured) error {
	var all []Allocs
	subjects := append(append([]workload.Subject{workload.Pings(s.Address)}, single(s)...), peers(s)...)
	for n, subject := range subjects {
		b.progress(float64(n)/float64(len(subjects)), subject.Name)
		a, err := countAllocs(ctx, subject, b.turns(1000))
		if err != nil {
			a = Allocs{Name: subject.Name, Err: err.Error()}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		all = append(all, a)
	}
	m.Allocs = all
	return nil
}

func countAllocs(ctx context.Context, s workload.Subject, n int) (Allocs, error) {
	c, err := s.Open(workload.NewMeter(nil))
	if err != nil {
		return Allocs{}, err
	}
	defer c.Close()          //nolint:errcheck
	key := prefix + "allocs" // made once: it is not the lock's
	once := func() error {
		held, err := c.Lock(context.Background(), key)
		if err != nil {
			return err
		}
		return held.Release(context.Background())
	}
	for range 100 {
		if err := once(); err != nil {
			return Allocs{}, err
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range n {
		if err := once(); err != nil {
			return Allocs{}, err
		}
	}
	runtime.ReadMemStats(&after)
	if ctx.Err() != nil {
		return Allocs{}, context.Cause(ctx)
	}
	return Allocs{Name: s.Name, Allocs: float64(after.Mallocs-before.Mallocs) / float64(n), Bytes: float64(after.TotalAlloc-before.TotalAlloc) / float64(n)}, nil
}

// find is the part of that name.
func find(name string) (part, error) {
	for _, p := range parts {
		if p.name == name {
			return p, nil
		}
	}
	return part{}, fmt.Errorf("there is no part %q", name)
}
