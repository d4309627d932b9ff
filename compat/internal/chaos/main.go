//go:build linux

// Chaos runs clients in processes of their own against real servers that it starts, breaks the
// servers, the clients and everything between them, and has the history of what the clients
// believed judged: by a checker that is not ours (porcupine), and by the simulation's judge (history).
//
//	go run ./compat/internal/chaos -for 2m                    every lock on redis-server, and one on each kind of group
//	go run ./compat/internal/chaos -for 10m -lock tx:renamed  one of them
//	go run ./compat/internal/chaos -lock getset:classic       one that is known to break: it is found broken
//	go run ./compat/internal/chaos -kind cluster -seed 7      on one kind; the same runs, the same chances
//	SETNXLOCK_TEST_BINARIES=/opt/2.4/redis-server:… go run ./compat/internal/chaos
//
// It writes one line a lock and group of servers, and, if something is broken, the history and
// porcupine's picture of it into -out. What a server or a failover may lose by its nature stands below
// that line, apart. Status: 0, or 1 if anything is broken. The seed decides what is done and when; what
// comes of it is the scheduler's as well.
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
	Lock    string
	Variant string // "", "pinned", "signal"
	Kind    string // of the group of servers

	Binaries []binary // of the servers; the first is that of all but five's
	Version  string   // of the first

	For        time.Duration
	Clients    int
	Goroutines int
	Keys       int
	Seed       uint64
	Calm       bool // nothing is broken
	Slots      bool // slots of a cluster are moved
	Dir        string
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "client" {
		client(os.Args[2])
		return
	}
	total := flag.Duration("for", 2*time.Minute, "how long, all locks and servers together")
	only := flag.String("lock", "", "these locks alone, separated by commas")
	clients := flag.Int("clients", 12, "processes")
	goroutines := flag.Int("goroutines", 2, "in each of them")
	keys := flag.Int("keys", 2, "that they fight for")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of what goes wrong")
	out := flag.String("out", "chaos", "where histories and pictures go")
	kind := flag.String("kind", "", "these kinds of servers alone, separated by commas: "+strings.Join(kinds, ", "))
	atOnce := flag.Int("at-once", 3, "so many runs")
	calm := flag.Bool("calm", false, "nothing is broken: how long do they wait by themselves?")
	slots := flag.Bool("slots", false, "slots of a cluster move, too")
	flag.Parse()

	shared := isolate()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	runs, err := plan(*only, *kind, *seed)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	each := *total * time.Duration(min(*atOnce, len(runs))) / time.Duration(len(runs))
	fmt.Printf("-seed %d: %d runs of %v, %d at once\n", *seed, len(runs), each.Round(time.Second), *atOnce)
	if shared != nil {
		fmt.Printf("no server is parted from another, and no disk is filled: "+
			"this machine lets us have no namespaces of our own (%v); clients are cut off by their proxies\n", shared)
	} else {
		fmt.Println("servers are parted from each other in a network of our own, clients cut off by their proxies")
	}
	fmt.Print(heading)
	var mu sync.Mutex
	broken, sections, faults := false, 0, map[string]int{}
	var wg sync.WaitGroup
	free := make(chan bool, *atOnce)
	for i, r := range runs {
		free <- true
		if ctx.Err() != nil {
			break
		}
		r.For, r.Clients, r.Goroutines, r.Keys, r.Seed = each, *clients, *goroutines, *keys, *seed+uint64(i)
		r.Calm, r.Slots = *calm, *slots
		r.Dir = filepath.Join(*out, strings.NewReplacer(":", "-", "/", "-", " ", "-").Replace(r.Lock+r.Variant+"-"+r.Kind+"-"+r.Version))
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
	if broken {
		fmt.Println("histories:", *out)
		os.Exit(1)
	}
}

// kinds are all, in the order of plan.
var kinds = []string{alone, saved, unsaved, five, sentinels, replicated, clustered}

// plan is every safe lock, or each that is named, on one server, of one of the versions that there are, in turn, which
// writes a log or saves, in turn; and one lock, in turn, on each other kind of servers. The seed says whose turn it is.
func plan(only, kind string, seed uint64) ([]run, error) {
	var binaries []binary
	for _, path := range filepath.SplitList(cmp.Or(os.Getenv("SETNXLOCK_TEST_BINARIES"), "redis-server")) {
		v, err := versionOf(path)
		if err != nil {
			return nil, err
		}
		binaries = append(binaries, binary{path, v})
	}
	newest := slices.MaxFunc(binaries, func(a, b binary) int {
		if ability.Older(a.version, b.version) {
			return -1
		}
		return 1
	})
	wanted := func(k string) bool { return kind == "" || slices.Contains(strings.Split(kind, ","), k) }
	var runs []run
	var names []string // of the locks on one server
	turn := int(seed % 1000)
	for n, l := range locks.All() {
		named := slices.Contains(strings.Split(only, ","), l.Name)
		if l.New == nil || l.Shared || l.Family() == "rw" || only != "" && !named {
			continue
		}
		if (l.Flaw != "" || l.Instead != "") && !named { // named, they show what is found
			continue
		}
		on := slices.DeleteFunc(slices.Clone(binaries), func(b binary) bool { return !works(l, b.version) })
		if len(on) == 0 {
			continue
		}
		names = append(names, l.Name)
		variants := []string{"", "signal"}
		if !strings.Contains(l.Name, "list") && !strings.Contains(l.Name, "script") && l.Name != "set:lua" {
			variants = append(variants, "pinned")
		}
		keeping := slices.DeleteFunc([]string{alone, saved, alone}, func(k string) bool { return !wanted(k) })
		if len(keeping) > 0 {
			b := on[(n+turn/9)%len(on)]
			kind, variant := keeping[(n+turn)%len(keeping)], variants[(n+turn/3)%len(variants)]
			runs = append(runs, run{Lock: l.Name, Variant: variant, Kind: kind, Binaries: []binary{b}, Version: b.version})
		}
	}
	formed := func(drawn bool, name, kind, needs string) {
		switch {
		case !wanted(kind), only == "" && !drawn, only != "" && !slices.Contains(strings.Split(only, ","), name):
		case ability.Older(newest.version, needs):
			fmt.Printf("no %s on %s: it wants Redis %s\n", name, kind, needs)
		default:
			runs = append(runs, run{Lock: name, Kind: kind, Binaries: []binary{newest}, Version: newest.version})
		}
	}
	formed(true, "rw", alone, "2.2")
	sets := []string{"tx:renamed", "set:lua", "getset:guarded", "tx:guarded", "set:watch"}
	for i, name := range sets {
		l, _ := locks.Get(name)
		formed(i == turn%len(sets), "several "+name, alone, l.Since)
		formed(false, "in turn "+name, clustered, "3.0") // when it is named: see -slots
	}
	for _, k := range kinds[2:] {
		if !wanted(k) || len(names) == 0 {
			continue
		}
		suitable := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			l, _ := locks.Get(name)
			// SORT has no GET in a cluster
			return !works(l, newest.version) || k == clustered && strings.Contains(l.Name, "list")
		})
		if ability.Older(newest.version, cmp.Or(since[k], "0")) || len(suitable) == 0 {
			fmt.Printf("no %s: it wants Redis %s, and a lock that it can carry\n", k, since[k])
			continue
		}
		turn++
		r := run{Lock: suitable[turn%len(suitable)], Kind: k, Binaries: []binary{newest}, Version: newest.version}
		if k == five {
			r.Binaries = append(r.Binaries, slices.DeleteFunc(slices.Clone(binaries), func(b binary) bool { return b == newest })...)
		}
		runs = append(runs, r)
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("no lock %q on servers of kind %q", only, kind)
	}
	return runs, nil
}

// works reports whether a lock is safe on a version.
func works(l locks.Lock, version string) bool {
	return !ability.Older(version, l.Since) && !(l.Name == "set:script" && ability.Older(version, "2.6"))
}
