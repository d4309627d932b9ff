// Package simulate runs complete processes of Lockers through faults on virtual time, and compares
// the clients' beliefs and the results of their calls with the keys on the servers.
//
// The seed, a number, determines a run: the lock, the versions of the servers, the processes, their
// Lockers and goroutines, their calls and the moments of these, and every fault. The servers are
// oldredis, and the clock is testing/synctest's: a run of an hour takes milliseconds, and no
// goroutine sleeps in real time.
//
// A run uses the shipping code through its public API. Only the network, the clock and the servers
// are simulated.
//
// A message is a write and its replies. The network may lose a message or its reply, deliver it after
// the sender has given up, cut it in two between two commands, or swallow it, so that the sender
// waits until its patience ends. Servers cut their connections, restart with and without their
// keys, and fill up. Processes crash and stand still. Their clocks may disagree, their pools may have
// one connection, and their Observers may block. Callers give up at any moment. A replica may take
// a server's place, with or without the last writes. A process's wall clock may jump ahead, as after
// the suspension of its machine, or back, while its monotonic clock goes on (clock.go). Programs may
// also end by themselves while their goroutines work, and start again, possibly as clients of the
// lock that their fleet moves to (fleets.go). For a lock that waits for the replica, the replica has
// every acknowledged command, and possibly later ones (replica.go).
//
// The judge looks after each write on each server and after each call (judge.go).
package simulate

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// A Config describes one run. FromSeed makes a Config from a seed, and a test may change it before Run.
type Config struct {
	Seed uint64
	Kind Kind
	At   []string // the version of each server

	Processes, Lockers, Workers, Keys, Sections int

	Pool    int // the limit of a process's connections to a server; 0: none
	Keep    int // of the Sources
	Options compat.Options
	Millis  bool          // TTLs in milliseconds, where the lock has the choice
	Skew    time.Duration // the largest difference between the clocks of two processes
	Elects  bool          // a replica may take a server's place: the Sources have epochs
	Faults  Faults

	Skip  map[string]bool // faults to leave out, by their names in Report.Faults
	Trace bool            // fill Report.Lines
}

// FromSeed returns the run of a seed.
func FromSeed(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 0x5e7))
	c := Config{Seed: seed, Processes: 2 + r.IntN(3), Lockers: 1 + r.IntN(2), Workers: 1 + r.IntN(3), Keys: []int{1, 1, 2, 2, 6}[r.IntN(5)], Sections: 12}
	kinds := Kinds()
	if c.Kind = kinds[r.IntN(len(kinds))]; r.IntN(3) == 0 { // most programs use one lock on one key
		owned := slices.DeleteFunc(kinds, func(k Kind) bool { return !k.Owned })
		c.Kind = owned[r.IntN(len(owned))]
	}
	for range c.Kind.Servers {
		c.At = append(c.At, c.Kind.Versions[r.IntN(len(c.Kind.Versions))])
	}
	c.Pool = []int{0, 0, 1, 2, 4}[r.IntN(5)]
	c.Options = compat.Options{
		NoRenew: r.IntN(2) == 0,
		Timeout: []time.Duration{0, 300 * time.Millisecond, time.Second}[r.IntN(3)],
	}
	if c.Keep = []int{16, 4, 1, 0}[r.IntN(4)]; c.Pool > 0 {
		c.Pool += 2 * c.Lockers * ((c.Keep + 1) / 2) // an empty pool does not get shared connections back
	}
	if c.Pool > 0 && c.Keep > 0 {
		c.Pool += c.Keys * c.Lockers // each key with waiters listens on a connection
	}
	if c.Kind.AnyClock && r.IntN(2) == 0 {
		c.Skew = time.Duration(r.IntN(100)) * time.Second
	}
	c.Faults = profiles[r.IntN(len(profiles))]
	c.Elects = r.IntN(3) == 0
	c.Millis = r.IntN(3) == 0
	c.Options.Prefix = []string{"", "", "app-"}[r.IntN(3)]
	c.Options.Cleanup = []time.Duration{0, 0, time.Second}[r.IntN(3)]
	c.Options.Poll = []time.Duration{0, 0, time.Second}[r.IntN(3)]
	c.Options.Hold = []time.Duration{0, 0, 0, 0, time.Second, 6 * time.Second}[r.IntN(6)]
	return c.fitting()
}

// fitting returns c without settings that do not suit its lock or its servers.
func (c Config) fitting() Config {
	if !c.Kind.AnyClock {
		c.Skew = 0
	}
	c.Elects = c.Elects || c.Kind.Replicated // a replicated lock is for elections
	milliseconds := since("2.6")
	for _, v := range c.At {
		c.Millis = c.Millis && slices.Contains(milliseconds, v)
	}
	return c
}

func (c Config) String() string {
	return fmt.Sprintf("seed %d: %s on %s, %d processes × %d Lockers × %d goroutines, %d keys, pool %d, %s; renew %v, keeps %d, timeout %v, prefix %q, hold %v, millis %v, skew %v, elects %v",
		c.Seed, c.Kind.Name, strings.Join(c.At, "+"), c.Processes, c.Lockers, c.Workers, c.Keys, c.Pool, c.Faults.Name,
		!c.Options.NoRenew, c.Keep, c.Options.Timeout, c.Options.Prefix, c.Options.Hold, c.Millis, c.Skew, c.Elects)
}

// A Report is the result of one run or of many.
type Report struct {
	Runs     int
	Sections int            // the number of held locks
	Counts   map[string]int // of each kind of event: "message: arrives", "Extend: ErrLost", …
	Broken   []string       // the violations in their order
	Excused  int            // the number of violations that a server's loss of keys may explain
	Faults   []string       // in their order; of one run
	Lines    []string       // the trace with Config.Trace; of one run
	Virtual  time.Duration
}

// Add adds o to r.
func (r *Report) Add(o Report) {
	if r.Counts == nil {
		r.Counts = map[string]int{}
	}
	r.Runs, r.Sections, r.Excused, r.Virtual = r.Runs+o.Runs, r.Sections+o.Sections, r.Excused+o.Excused, r.Virtual+o.Virtual
	for k, n := range o.Counts {
		r.Counts[k] += n
	}
	r.Broken = append(r.Broken, o.Broken...)
}

// Table formats the number and the share of each kind of event. It shows a run without events.
func (r Report) Table() string {
	sums := map[string]int{}
	for name, n := range r.Counts {
		group, _, _ := strings.Cut(name, ": ")
		sums[group] += n
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs, %d critical sections, %v of virtual time; %d broken promises, %d excused by a server that forgot its keys\n",
		r.Runs, r.Sections, r.Virtual.Round(time.Second), len(r.Broken), r.Excused)
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		group, _, _ := strings.Cut(name, ": ")
		fmt.Fprintf(&b, "  %-44s %9d  %5.2f %%\n", name, r.Counts[name], 100*float64(r.Counts[name])/float64(sums[group]))
	}
	return b.String()
}

// A world is one run under way.
type world struct {
	Config
	t       *testing.T
	start   time.Time
	servers []*server
	all     []*process
	judge   *judge
	mailbox []given        // detached locks, for any process to adopt
	old     []given        // handles of locks that are over
	calm    bool           // no more faults
	under   sync.WaitGroup // late messages
	mu      sync.Mutex     // guards the changing fields of processes and servers
}

// A server is a Redis server and its faults.
type server struct {
	*oldredis.Server
	epoch   atomic.Uint64
	full    bool
	down    bool
	replica replica
}

// Run runs c inside t.
func Run(t *testing.T, c Config) (r Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { r = run(t, c) })
	return r
}

func run(t *testing.T, c Config) Report {
	w := &world{Config: c, t: t, start: time.Now()}
	for _, v := range c.At {
		s, err := oldredis.New(v, oldredis.Options{Clock: clock.New()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		w.servers = append(w.servers, &server{Server: s, replica: replica{follows: c.Kind.Replicated}})
	}
	w.judge = newJudge(w)
	w.judge.count("lock: " + c.Kind.Name)
	for i := range c.Processes {
		w.all = append(w.all, newProcess(w, i))
	}
	stopped := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() { w.misfortunes(stopped) })
	beside.Go(func() { w.judge.watch(stopped) })

	var work sync.WaitGroup
	for _, p := range w.all {
		for i := range c.Lockers {
			for j := range c.Workers {
				work.Go(newWorker(p, i, i*c.Workers+j).work)
			}
		}
	}
	working := make(chan struct{})
	go func() { work.Wait(); close(working) }()
	select {
	case <-working:
	case <-time.After(24 * time.Hour):
		w.judge.broken("a goroutine has waited for a day")
		return w.judge.report()
	}
	close(stopped)
	beside.Wait()
	w.finale()
	return w.judge.report()
}

// finale ends the faults. Then every Locker must get every key, and after that no key, connection and
// goroutine may be left. (synctest finds the goroutines.)
func (w *world) finale() {
	w.set(func() {
		w.calm = true
		for _, p := range w.all {
			p.stands = time.Time{}
		}
	})
	synctest.Wait() // a connection without a caller may just make its message late
	w.under.Wait()
	time.Sleep(patience) // until slow replies have come, and senders have given up swallowed messages
	for _, p := range w.all {
		for i := range p.lockers {
			for _, key := range w.keys() {
				began := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
				l, err := p.lockers[i].Lock(ctx, key, time.Second)
				cancel()
				switch took := time.Since(began); {
				case err != nil:
					w.judge.broken("nothing goes wrong any more, and Lock of %s says after %v: %v", key, took, err)
				case took > 2*longest+10*time.Second:
					w.judge.broken("nothing goes wrong any more, and Lock of %s took %v", key, took)
				default:
					if err := l.Release(context.Background()); err != nil {
						w.judge.broken("nothing goes wrong any more, and Release of %s: %v", key, err)
					}
				}
			}
		}
	}
	for _, p := range w.all {
		p.end()
	}
	time.Sleep(3 * time.Minute) // scratch keys live for two
	synctest.Wait()
	for _, p := range w.all {
		if n := len(p.conns); n != 0 {
			w.judge.broken("process %d has left %d connections open", p.id, n)
		}
	}
	w.judge.leftovers()
}

// keys returns the names of the run's locks.
func (w *world) keys() []string {
	keys := make([]string, w.Keys)
	for i := range keys {
		keys[i] = w.Kind.key(i)
	}
	return keys
}

// shortest and longest bound the ttls of a run.
const shortest, longest = time.Second, 8 * time.Second
