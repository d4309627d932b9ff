// Chaos runs clients in processes of their own against real servers that it starts, breaks the
// servers, the clients and everything between them, and has the history of what the clients
// believed judged: by a checker that is not ours (porcupine), and by invariants of our own.
//
//	go run ./chaos -for 2m                       every lock on redis-server
//	go run ./chaos -for 10m -lock tx:renamed     one of them
//	SETNXLOCK_TEST_BINARIES=/opt/2.4/redis-server:… go run ./chaos
//
// It writes one line a lock and server, and, if something is broken, the history and porcupine's
// picture of it into -out. Status: 0, or 1 if anything is broken.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/setnxlock/setnxlock/compat/locks"
)

// A run is one lock on one server.
type run struct {
	Lock    string
	Variant string // "", "pinned", "signal"
	Binary  string // of the server
	Version string

	For        time.Duration
	Clients    int
	Goroutines int
	Keys       int
	Seed       uint64
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
	all := flag.Bool("all", false, "every lock on every server, not one server for each lock in turn")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	runs, err := plan(*only, *all)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	fmt.Printf("seed %d, %d runs of %v\n", *seed, len(runs), (*total / time.Duration(len(runs))).Round(time.Second))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, heading)
	broken := false
	for i, r := range runs {
		if ctx.Err() != nil {
			break
		}
		r.For, r.Clients, r.Goroutines, r.Keys, r.Seed = *total/time.Duration(len(runs)), *clients, *goroutines, *keys, *seed+uint64(i)
		r.Dir = filepath.Join(*out, strings.NewReplacer(":", "-", "/", "-").Replace(r.Lock+r.Variant+"-"+r.Version))
		v, err := r.run(ctx)
		if err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", r.Lock, "on", r.Version+":", err)
			broken = true
			continue
		}
		fmt.Fprintln(w, v.row(r))
		w.Flush()
		for _, what := range v.Broken[:min(len(v.Broken), 5)] {
			fmt.Println("   ", what)
		}
		broken = broken || len(v.Broken) > 0
	}
	w.Flush()
	if broken {
		fmt.Println("histories:", *out)
		os.Exit(1)
	}
}

// plan is every safe lock on the servers there are: each on all of them, or on one, in turn.
func plan(only string, all bool) ([]run, error) {
	binaries := filepath.SplitList(os.Getenv("SETNXLOCK_TEST_BINARIES"))
	if len(binaries) == 0 {
		binaries = []string{"redis-server"}
	}
	versions := make([]string, len(binaries))
	for i, b := range binaries {
		v, err := versionOf(b)
		if err != nil {
			return nil, err
		}
		versions[i] = v
	}
	var runs []run
	for n, l := range locks.All() {
		if l.New == nil || l.TwoHolders || l.Comparison || l.Shared || l.Instead != "" || l.Family() == "rw" {
			continue
		}
		if only != "" && !slices.Contains(strings.Split(only, ","), l.Name) {
			continue
		}
		var on []int
		for i, v := range versions {
			if !older(v, l.Since) && !(l.Name == "set:script" && older(v, "2.6")) {
				on = append(on, i)
			}
		}
		if !all && len(on) > 1 {
			on = on[n%len(on):][:1]
		}
		for _, i := range on {
			variants := []string{"", "signal"}
			if !strings.Contains(l.Name, "list") && !strings.Contains(l.Name, "script") && l.Name != "set:lua" {
				variants = append(variants, "pinned")
			}
			if !all {
				variants = variants[n%len(variants):][:1]
			}
			for _, variant := range variants {
				runs = append(runs, run{Lock: l.Name, Variant: variant, Binary: binaries[i], Version: versions[i]})
			}
		}
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("no lock %q", only)
	}
	return runs, nil
}
