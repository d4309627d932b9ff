// Package simulate runs whole processes of Lockers through faults on virtual time, and judges
// what they believed and what they were told against what was true on the servers.
//
// A run is made from a number, its seed: the lock, the versions of the servers, the processes,
// their Lockers and goroutines, what they call, when, and every fault. The servers are
// oldredis, the clock is testing/synctest's: a run of an hour takes milliseconds, and nothing
// in it sleeps in real time.
//
// The code that runs is the code that ships, through its public face. Only the network, the
// clock and the servers are ours.
//
// A message is a write and its replies. It can be lost on its way, lose its reply, arrive after
// its sender has given up, be cut in two between two commands, or be swallowed so that its sender
// waits until its patience ends. Servers cut their connections, restart with and without their
// keys, and fill up. Processes crash, stand still, have clocks that disagree, pools of one
// connection, Observers that block; callers give up at any moment.
// A replica may take a server's place, with or without its last writes; a process's wall clock may be
// set ahead, as it is when its machine was suspended, or back; its monotonic clock goes on (clock.go). Programs end well, too, in the middle of what their goroutines do, and start
// again, maybe as clients of the lock that their fleet moves to (fleets.go). Where a lock waits for the replica, that
// has what had reached it and nothing else (replica.go).
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

// A Config is one run. Draw makes one of a seed; a test may change it before it is Run.
type Config struct {
	Seed uint64
	Kind Kind
	At   []string // the version of each server

	Processes, Lockers, Workers, Keys, Sections int

	Pool    int // connections a process may have to a server; 0: as many as it wants
	Keep    int // of its Sources
	Options compat.Options
	Millis  bool          // TTLs are counted in milliseconds, where the lock has the choice
	Skew    time.Duration // by how much the clocks of two processes may disagree
	Elects  bool          // a server may be replaced by its replica: the Sources have epochs
	Faults  Faults

	Skip  map[string]bool // faults that do not happen: those of Report.Faults
	Trace bool            // write down what happens
}

// Draw is the run of a seed.
func Draw(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 0x5e7))
	c := Config{Seed: seed, Processes: 2 + r.IntN(3), Lockers: 1 + r.IntN(2), Workers: 1 + r.IntN(3), Keys: []int{1, 1, 2, 2, 6}[r.IntN(5)], Sections: 12}
	kinds := Kinds()
	if c.Kind = kinds[r.IntN(len(kinds))]; r.IntN(3) == 0 { // one lock, one key: most often what is in use
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
		c.Pool += 2 * c.Lockers * ((c.Keep + 1) / 2) // what is shared does not come back when a pool is empty
	}
	if c.Pool > 0 && c.Keep > 0 {
		c.Pool += c.Keys * c.Lockers // each key that is waited for listens on one
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

// fitting is c without what its lock and its servers can't have.
func (c Config) fitting() Config {
	if !c.Kind.AnyClock {
		c.Skew = 0
	}
	c.Elects = c.Elects || c.Kind.Replicated // which is there for that
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

// A Report is what came of a run, or of many.
type Report struct {
	Runs     int
	Sections int            // locks that were held
	Counts   map[string]int // of each kind of event: "message arrives", "Extend: lost", …
	Broken   []string       // what is wrong, the first thing first
	Excused  int            // what would be, had no server forgotten its keys
	Faults   []string       // in the order in which they happened; of one run
	Lines    []string       // the trace, if it was asked for; of one run
	Virtual  time.Duration
}

// Add sums up.
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

// Table is the share of each kind of event, so that a run in which nothing happened is seen.
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

// world is one run under way.
type world struct {
	Config
	t       *testing.T
	start   time.Time
	servers []*server
	all     []*process
	judge   *judge
	mailbox []given        // locks that were detached, for any process to adopt
	old     []given        // handles of locks that are over
	calm    bool           // no more faults
	under   sync.WaitGroup // messages that are still on their way
	mu      sync.Mutex     // of all fields of processes and servers that change
}

// A server is a Redis, and what happens to it.
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

// finale ends the faults, and looks at what is left: every key can be had by everybody again, and
// then there are no keys, no connections and (synctest sees to that) no goroutines.
func (w *world) finale() {
	w.set(func() {
		w.calm = true
		for _, p := range w.all {
			p.stands = time.Time{}
		}
	})
	w.under.Wait()
	time.Sleep(patience) // what is slow is answered, what was swallowed is given up
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

// onServer is what stands on the servers for a name that is locked.
func (w *world) onServer(key string) string { return w.Options.Prefix + key }

// keys are the names that are locked.
func (w *world) keys() []string {
	keys := make([]string, w.Keys)
	for i := range keys {
		keys[i] = w.Kind.key(i)
	}
	return keys
}

// shortest and longest are the ttls in use.
const shortest, longest = time.Second, 8 * time.Second
