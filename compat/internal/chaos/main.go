//go:build linux

// Chaos starts real servers, runs clients in processes of their own, and breaks the servers, the
// clients and the network between them. Then an independent checker (porcupine) and the simulation's
// judge (history) judge the history of the clients' beliefs.
//
//	go run ./compat/internal/chaos -for 2m                    every lock on redis-server, and one on each kind of group
//	go run ./compat/internal/chaos -for 10m -lock tx:renamed  one lock
//	go run ./compat/internal/chaos -lock getset:classic       a lock that is known to break: chaos finds it broken
//	go run ./compat/internal/chaos -kind cluster -seed 7      one kind of group; the same runs with the same chances
//	SETNXLOCK_TEST_BINARIES=/opt/2.4/redis-server:… go run ./compat/internal/chaos
//
// Chaos prints one line for each lock and group of servers. For a broken lock, it writes the history and
// porcupine's picture into -out. Violations that the loss of a server or a failover may explain stand
// below that line. The status is 1 if anything is broken, else 0. The seed decides the faults and their
// moments; their effects also depend on the scheduler.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/locks"
)

// A run is one lock on one group of servers.
type run struct {
	Lock string
	Kind string // of the group of servers

	Binaries []binary // of the servers; only a group of kind five, or a mixed one, uses others than the first
	Version  string   // of the first

	For        time.Duration
	Clients    int
	Goroutines int
	Keys       int
	Seed       uint64
	Calm       bool // no faults
	Slots      bool // slots of a cluster move
	Mixed      bool // replicas are of the oldest version, and masters of the newest
	Dir        string
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "client" {
		client(os.Args[2])
		return
	}
	var each run // the settings of all runs
	total := flag.Duration("for", 2*time.Minute, "how long, all locks and servers together")
	only := flag.String("lock", "", "these locks alone, separated by commas")
	flag.IntVar(&each.Clients, "clients", 12, "processes")
	flag.IntVar(&each.Goroutines, "goroutines", 2, "in each of them")
	flag.IntVar(&each.Keys, "keys", 2, "that they fight for")
	flag.Uint64Var(&each.Seed, "seed", uint64(time.Now().UnixNano()), "of what goes wrong")
	flag.StringVar(&each.Dir, "out", "chaos", "where histories and pictures go")
	kind := flag.String("kind", "", "these kinds of servers alone, separated by commas: "+strings.Join(kinds, ", "))
	atOnce := flag.Int("at-once", 3, "so many runs")
	flag.BoolVar(&each.Calm, "calm", false, "nothing is broken: how long do they wait by themselves?")
	flag.BoolVar(&each.Mixed, "mixed", false, "replicas are of the oldest of the versions, their masters of the newest")
	flag.BoolVar(&each.Slots, "slots", false, "slots of a cluster move, too")
	flag.Parse()

	shared := isolate()
	runs, err := plan(each, *only, *kind)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	length := *total * time.Duration(min(*atOnce, len(runs))) / time.Duration(len(runs))
	fmt.Printf("-seed %d: %d runs of %v, %d at once\n", each.Seed, len(runs), length.Round(time.Second), *atOnce)
	if shared != nil {
		fmt.Printf("no server is parted from another, and no disk is filled: "+
			"this machine lets us have no namespaces of our own (%v); clients are cut off by their proxies\n", shared)
	} else {
		fmt.Println("servers are parted from each other in a network of our own, clients cut off by their proxies")
	}
	if broken := all(runs, length, *atOnce); broken {
		fmt.Println("histories:", each.Dir)
		os.Exit(1)
	}
}

// all executes runs, atOnce of them at the same time, and prints the verdict on each.
func all(runs []run, length time.Duration, atOnce int) (broken bool) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Print(heading)
	var mu sync.Mutex
	sections, faults := 0, map[string]int{}
	var wg sync.WaitGroup
	free := make(chan bool, atOnce)
	for i, r := range runs {
		free <- true
		if ctx.Err() != nil {
			break
		}
		r.For, r.Seed = length, r.Seed+uint64(i)
		r.Dir = filepath.Join(r.Dir, strings.NewReplacer(":", "-", "/", "-", " ", "-").Replace(r.Lock+"-"+r.Kind+"-"+r.Version))
		wg.Go(func() {
			defer func() { <-free }()
			v, err := r.run(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				v.broken("the run could not go on: %v", err)
			}
			fmt.Print(v.row(r))
			for _, what := range v.Broken[:min(len(v.Broken), 5)] {
				fmt.Println("   ", what)
			}
			for what, n := range v.Counts {
				faults[what] += n
			}
			broken, sections = broken || len(v.Broken) > 0, sections+v.Sections
		})
	}
	wg.Wait()
	fmt.Printf("%d sections; what was done:%s\n", sections, listed(faults))
	fmt.Printf("figure: %d sections, broken: %v\n", sections, broken)
	return broken
}

// kinds has the kinds of groups in the order of plan.
var kinds = []string{alone, saved, unsaved, five, sentinels, replicated, clustered}

// binaries returns the servers of SETNXLOCK_TEST_BINARIES, or redis-server, with their versions.
func binaries() (all []binary, err error) {
	for _, path := range filepath.SplitList(cmp.Or(os.Getenv("SETNXLOCK_TEST_BINARIES"), "redis-server")) {
		v, err := versionOf(path)
		if err != nil {
			return nil, err
		}
		all = append(all, binary{path, v})
	}
	return all, nil
}

// A planner makes the runs.
type planner struct {
	each     run      // the settings of all runs
	only     []string // the locks that the user named; nil: all
	kinds    []string
	binaries []binary
	newest   binary
	turn     int // the seed's choice among versions, kinds and locks
	runs     []run
}

// plan returns the runs: every safe lock, or every named one, on one server, and one lock on each other kind of
// group. The seed chooses the version of the server, its kind, and the lock of a group.
func plan(each run, only, kind string) ([]run, error) {
	p := planner{each: each, kinds: kinds, turn: int(each.Seed % 1000)}
	if only != "" {
		p.only = strings.Split(only, ",")
	}
	if kind != "" {
		p.kinds = strings.Split(kind, ",")
	}
	var err error
	if p.binaries, err = binaries(); err != nil {
		return nil, err
	}
	p.newest = slices.MaxFunc(p.binaries, func(a, b binary) int {
		if ability.Older(a.version, b.version) {
			return -1
		}
		return 1
	})
	names := p.alone()
	p.formed(true, "rw", alone, "2.2")
	for i, name := range []string{"set:lua", "tx:guarded"} {
		l, _ := locks.Get(name)
		p.formed(i == p.turn%2, "semaphore "+name, alone, l.Since)
	}
	sets := []string{"tx:renamed", "set:lua", "getset:guarded", "tx:guarded", "set:watch"}
	for i, name := range sets {
		l, _ := locks.Get(name)
		p.formed(i == p.turn%len(sets), "several "+name, alone, l.Since)
		p.formed(false, "in turn "+name, clustered, "3.0") // only if named: for -slots
	}
	p.groups(names)
	if len(p.runs) == 0 {
		return nil, fmt.Errorf("no lock %q on servers of kind %q", only, kind)
	}
	return p.runs, nil
}

// add adds a run of a lock on one kind of servers.
func (p *planner) add(lock, kind string, on ...binary) {
	r := p.each
	r.Lock, r.Kind, r.Binaries, r.Version = lock, kind, on, on[0].version
	p.runs = append(p.runs, r)
}

// alone plans every lock on one server, and returns the names of the locks.
func (p *planner) alone() (names []string) {
	for n, l := range locks.All() {
		named := slices.Contains(p.only, l.Name)
		if l.New == nil || l.Shared || l.Family() == "rw" || p.only != nil && !named {
			continue
		}
		if (l.Flaw != "" || l.Instead != "") && !named { // a named flawed lock shows that chaos finds the flaw
			continue
		}
		on := slices.DeleteFunc(slices.Clone(p.binaries), func(b binary) bool { return !works(l, b.version) })
		if len(on) == 0 {
			continue
		}
		names = append(names, l.Name)
		keeping := slices.DeleteFunc([]string{alone, saved, alone}, func(k string) bool { return !slices.Contains(p.kinds, k) })
		if len(keeping) > 0 {
			p.add(l.Name, keeping[(n+p.turn)%len(keeping)], on[(n+p.turn/9)%len(on)])
		}
	}
	return names
}

// formed plans a lock in a form of its own, if the seed drew it or the user named it.
func (p *planner) formed(drawn bool, name, kind, needs string) {
	switch {
	case !slices.Contains(p.kinds, kind), p.only == nil && !drawn, p.only != nil && !slices.Contains(p.only, name):
	case ability.Older(p.newest.version, needs):
		fmt.Printf("no %s on %s: it wants Redis %s\n", name, kind, needs)
	default:
		p.add(name, kind, p.newest)
	}
}

// groups plans one lock on each kind of group but those of alone.
func (p *planner) groups(names []string) {
	for _, k := range kinds[2:] {
		if !slices.Contains(p.kinds, k) || len(names) == 0 {
			continue
		}
		suitable := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			l, _ := locks.Get(name)
			// SORT has no GET in a cluster.
			return !works(l, p.newest.version) || k == clustered && strings.Contains(l.Name, "list")
		})
		if ability.Older(p.newest.version, cmp.Or(since[k], "0")) || len(suitable) == 0 {
			fmt.Printf("no %s: it wants Redis %s, and a lock that it can carry\n", k, since[k])
			continue
		}
		p.turn++
		on := []binary{p.newest}
		if k == five || p.each.Mixed {
			on = append(on, slices.DeleteFunc(slices.Clone(p.binaries), func(b binary) bool { return b == p.newest })...)
		}
		p.add(suitable[p.turn%len(suitable)], k, on...)
	}
}

// works reports whether a lock is safe on a version.
func works(l locks.Lock, version string) bool {
	return !ability.Older(version, l.Since) && !(l.Name == "set:script" && ability.Older(version, "2.6"))
}
