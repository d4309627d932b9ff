// Command bench measures setnxlock's locks beside two PINGs and beside other Go
// libraries, in turns within one run, and writes docs/performance.md. It is a
// separate module, so that the locks don't depend on those libraries.
//
//	make bench                                      on a redis-server that it starts
//	SETNXLOCK_TEST_REDIS=host:port,... make bench   on these
//
// What was measured is kept after each part: a run that was interrupted goes on
// with -resume.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/setnxlock/setnxlock/compat"
	"golang.org/x/term"
)

// noOptions are a Locker's as it comes.
var noOptions compat.Options

// A bench is one run.
type bench struct {
	quick bool
	docs  string // the directory that gets performance.md
	part  string // that runs now
	bar   *progressbar.ProgressBar
	from  float64 // where the part begins on the bar, of 1
	share float64 // its share of it
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	b := &bench{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&b.quick, "quick", false, "every part for a moment only, to see that it works: the numbers say nothing")
	flags.StringVar(&b.docs, "docs", "../docs", "the `directory` that gets performance.md and performance/")
	only := flags.String("only", "", "measure these `parts` alone, with commas between, and keep the others' numbers: "+names())
	resume := flags.Bool("resume", false, "keep what results.json has, and measure what it lacks")
	write := flags.Bool("write", false, "measure nothing: write the document anew from results.json")
	if err := flags.Parse(args); err != nil {
		return err
	}
	path := filepath.Join(b.docs, "performance", "results.json")
	var report *Report
	if *resume || *write || *only != "" {
		var err error
		if report, err = load(path); err != nil {
			return err
		}
	}
	if *write {
		if report == nil {
			return fmt.Errorf("there is no %s", path)
		}
		return b.document(report)
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	if report == nil {
		report = newReport(b.quick, "make bench")
	}
	report.Quick = report.Quick || b.quick
	if now := commit(); !strings.HasSuffix(report.Commit, now) { // the others' numbers are an earlier one's
		report.Commit += ", " + now
	}
	if err := b.measure(ctx, report, path, chosen, *only != ""); err != nil {
		return err
	}
	if report, err = load(path); err != nil { // as it was kept: the document can be written from that again
		return err
	}
	return b.document(report)
}

func names() string {
	var all []string
	for _, p := range parts {
		all = append(all, p.name)
	}
	return strings.Join(all, ", ")
}

func choose(only string) ([]part, error) {
	if only == "" {
		return parts, nil
	}
	var chosen []part
	for name := range strings.SplitSeq(only, ",") {
		p, err := find(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, p)
	}
	return chosen, nil
}

// measure runs what is wanted and not there yet, on each server.
func (b *bench) measure(ctx context.Context, report *Report, path string, chosen []part, anew bool) error {
	list := os.Getenv("SETNXLOCK_TEST_REDIS")
	all, stop, err := servers(ctx, list)
	if err != nil {
		return err
	}
	defer stop()
	type job struct {
		part
		*server
	}
	var jobs []job
	var total time.Duration
	for _, s := range all {
		m := report.server(s)
		m.Best = s.name
		for _, p := range chosen {
			if anew {
				p.clear(m)
			}
			if !p.done(m) {
				jobs = append(jobs, job{p, s})
				total += p.took
			}
		}
	}
	fmt.Fprintf(os.Stderr, "parts: %d; servers: %d; keys begin with %s", len(jobs), len(all), prefix)
	if !b.quick {
		fmt.Fprintf(os.Stderr, ", about %d minutes", int(total.Minutes()+1))
	}
	fmt.Fprintln(os.Stderr)
	began, before := time.Now(), report.Took
	var gone time.Duration
	for _, j := range jobs {
		b.part, b.from, b.share = j.Version+" "+j.what, float64(gone)/float64(total), float64(j.took)/float64(total)
		partBegan := time.Now()
		err := j.run(ctx, b, j.server, report.server(j.server))
		b.wipe()
		if err != nil {
			return fmt.Errorf("%s on %s: %w (-resume goes on from here)", j.part.name, j.Version, err)
		}
		fmt.Fprintf(os.Stderr, "%-8s %-40s %5.1f s\n", j.Version, j.what, time.Since(partBegan).Seconds())
		gone += j.took
		report.Took = before + time.Since(began).Seconds()
		if err := report.save(path); err != nil {
			return err
		}
	}
	return nil
}

// scale is how long something takes.
func (b *bench) scale(d time.Duration) time.Duration {
	if b.quick {
		return max(d/30, 20*time.Millisecond)
	}
	return d
}

// turns is how often.
func (b *bench) turns(n int) int {
	if b.quick {
		return max(n/25, 2)
	}
	return n
}

// progress shows how far the part has come, if there is a terminal to show it on.
func (b *bench) progress(share float64, name string) {
	if b.bar == nil && term.IsTerminal(int(os.Stderr.Fd())) {
		b.bar = progressbar.NewOptions(1000, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetWidth(24),
			progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false), progressbar.OptionClearOnFinish())
	}
	if b.bar != nil {
		b.bar.Describe(fmt.Sprintf("%-44s %-24.24s", b.part, name))
		b.bar.Set(int(1000 * (b.from + b.share*share))) //nolint:errcheck // what can't be shown is not
	}
}

// within is progress of the nth of several runs.
func (b *bench) within(n, of int) func(float64, string) {
	return func(share float64, name string) { b.progress((float64(n)+share)/float64(of), name) }
}

func (b *bench) wipe() {
	if b.bar != nil {
		b.bar.Clear() //nolint:errcheck
	}
}
