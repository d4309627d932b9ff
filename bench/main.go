// Bench measures setnxlock's locks beside two PINGs and beside other Go libraries, all in turns
// within one run, and writes docs/performance.md with its pictures. It is a separate module, so
// that the locks don't depend on those libraries.
//
//	make bench                                      on a redis-server that it starts
//	SETNXLOCK_TEST_REDIS=host:port,... make bench   on these
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// The workloads of the page, in the order of its pictures.
const (
	alone = iota
	distant
	many
	oneKey
)

var workloads = []workload{
	alone:   {goroutines: 1, keys: 1, length: 150 * time.Millisecond},
	distant: {goroutines: 1, keys: 1, distance: 250 * time.Microsecond, length: 250 * time.Millisecond},
	many:    {goroutines: 64, keys: 64, length: time.Second},
	oneKey:  {goroutines: 64, keys: 1, section: time.Millisecond, length: time.Second},
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	docs := flags.String("docs", "../docs", "the `directory` that gets performance.md and performance/")
	turns := flags.Int("turns", 5, "how often each lock has its turn; the median counts")
	quick := flags.Bool("quick", false, "each turn for a moment only, to see that it works: the numbers say nothing")
	flags.Parse(args) //nolint:errcheck // it exits

	servers, stop, err := servers(ctx, os.Getenv("SETNXLOCK_TEST_REDIS"))
	if err != nil {
		return err
	}
	defer stop()
	began := time.Now()
	p := newPage(*turns, *quick)
	for _, s := range servers {
		results := make([][]result, len(workloads))
		for i, w := range workloads {
			if *quick {
				w.length /= 10
			}
			fmt.Fprintf(os.Stderr, "%s: %+v\n", s.version, w)
			if results[i], err = w.run(ctx, s, *turns); err != nil {
				return err
			}
		}
		s.clean()
		p.servers = append(p.servers, measured{s, results})
	}
	p.took = time.Since(began)
	return p.write(*docs)
}
