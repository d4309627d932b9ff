// Package main breaks the code in one place after another and demands that a fast test fails for each. A test that
// misses a mutant would miss the same mistake made by somebody.
//
//	go run ./compat/internal/mutants                 kill every mutant of the table: make mutants
//	go run ./compat/internal/mutants -check          only look whether each has its place in the code
//	go run ./compat/internal/mutants -matrix FILE    try every net on every mutant of the engine: make matrix
//
// The table (table.go) names a mutant's function, what is changed in it (edit.go), and the nets that must see it.
// Comments, moved lines and reworded neighbours don't concern it. The tree is not touched, and is compiled once for all
// mutants: each of their functions begins by asking the environment whether one of its mutants is to run in its place,
// and go test -overlay has the compiler read that (build.go).
//
// Gremlins (github.com/go-gremlins/gremlins v0.6.0) was tried first: it negates conditions and swaps operators wherever
// it finds some, but leaves out no call, names a mutant by its line and column, and compiles the tests anew for each.
// Most mistakes of the table can't be said in it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

var (
	check  = flag.Bool("check", false, "only look whether each mutant has its place")
	only   = flag.String("only", "", "only the mutants whose names match this `regexp`")
	with   = flag.String("nets", "", "only the nets whose commands match this `regexp`")
	matrix = flag.String("matrix", "", "try every net on every mutant of the engine; this `file` keeps what was tried")
	limit  = flag.Duration("limit", 2*time.Minute, "with -matrix: stop a net; one that was stopped earlier is tried again")
)

// A mutant is one mistake.
type mutant struct {
	name  string // what it breaks
	in    string // the function: "package.Func" or "package.Type.Method"
	edits []edit
	nets  []net // one of them must fail
}

// A net is tests of one package.
type net struct {
	dir  string
	run  string // -run; "" for all
	args []string
}

func (n net) String() string {
	s := "./" + n.dir
	if n.run != "" {
		s += " -run " + n.run
	}
	return strings.Join(append([]string{s}, n.args...), " ")
}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	names, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	nets, err := regexp.Compile(*with)
	if err != nil {
		return err
	}
	kept, err := read(*matrix)
	if err != nil {
		return err
	}
	files, err := overlay()
	if err != nil {
		return fmt.Errorf("these rows of compat/internal/mutants/table.go have lost their place:\n%w", err)
	}
	if fmt.Printf("%d mutants have their places\n", len(table)); *check {
		return nil
	}
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	b, err := newBuilder(files, tmp)
	switch {
	case err != nil:
		return err
	case *matrix != "":
		return kept.fill(ctx, b, names, nets)
	}
	return kill(ctx, b, names, nets)
}

// kill demands that each mutant's nets see it.
func kill(ctx context.Context, b *builder, names, with *regexp.Regexp) error {
	var nets []net
	var mutants []int
	for i, m := range table {
		mine := slices.DeleteFunc(slices.Clone(m.nets), func(n net) bool { return !with.MatchString(n.String()) })
		if len(mine) > 0 && names.MatchString(m.name) {
			nets, mutants = append(nets, mine...), append(mutants, i)
		}
	}
	slices.SortFunc(nets, func(a, b net) int { return strings.Compare(a.String(), b.String()) })
	nets = slices.CompactFunc(nets, func(a, b net) bool { return a.String() == b.String() })
	for _, n := range nets {
		if err := b.build(ctx, n.dir); err != nil {
			return err
		}
	}
	err := parallel(ctx, nets, func(n net) error { return unbroken(n.try(ctx, b, -1, 20*time.Minute)) })
	if err != nil {
		return err
	}
	err = parallel(ctx, mutants, func(i int) error {
		var why string
		for _, n := range table[i].nets {
			if !with.MatchString(n.String()) {
				continue
			}
			c := n.try(ctx, b, i, 20*time.Minute)
			if c.Verdict == killed {
				fmt.Printf("killed: %s\n\t%s: %s, after %.1f s\n", c.Mutant, n, c.Saw, c.Seconds)
				return nil
			}
			why += fmt.Sprintf("\n\t%s: %s %s", n, c.Verdict, c.Saw)
		}
		return fmt.Errorf("not killed: %s (%s)%s", table[i].name, table[i].in, why)
	})
	if err == nil {
		fmt.Printf("figure: %d mutants, all killed\n", len(mutants))
	}
	return err
}

// unbroken refuses a net that fails without a mutant: it would see nothing.
func unbroken(c cell) error {
	if c.Verdict == survived {
		return nil
	}
	return fmt.Errorf("fails without a mutant: %s: %s %s", c.Net, c.Verdict, c.Saw)
}

// parallel calls f with each, as many at a time as there are processors.
func parallel[T any](ctx context.Context, all []T, f func(T) error) error {
	var running sync.WaitGroup
	errs := make([]error, len(all))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, x := range all {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		running.Go(func() {
			errs[i] = f(x)
			<-slots
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(errs...)
}

// The verdicts of a net.
const (
	killed   = "killed"
	survived = "survived"
	timeout  = "timeout" // a busy machine kills nothing
	unclear  = "unclear" // it ended as no failing test ends
	apart    = "apart"   // the mutant's package is not in the tests' binary
)

// A cell of the matrix is what a net makes of a mutant.
type cell struct {
	Mutant  string // "" for the code as it is
	Net     string
	Verdict string
	Saw     string `json:",omitempty"` // what failed
	Seconds float64
}

// failure is said by a test that failed, and by the simulation that has found something.
var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: \S+|^panic: .*|^fatal error: .*|_test.go:\d+: seed .*\n.*at \d.*`)

// try runs the net on the mutant with this index in the table, -1 for none.
func (n net) try(ctx context.Context, b *builder, mutant int, limit time.Duration) cell {
	c := cell{Net: n.String()}
	if mutant >= 0 {
		c.Mutant = table[mutant].name
	}
	ctx, end := context.WithTimeout(ctx, limit)
	defer end()
	args := append([]string{"-test.count=1", "-test.failfast", "-test.timeout=0", "-test.run", n.run}, n.args...)
	cmd := exec.CommandContext(ctx, b.bins[n.dir], args...)
	cmd.Dir, cmd.WaitDelay = n.dir, 10*time.Second
	servers := "embedded"
	if strings.Contains(n.run, "Long") { // tests that make test leaves out
		servers = "all"
	}
	cmd.Env = append(os.Environ(), "SETNXLOCK_TEST="+servers, fmt.Sprint(which, "=", mutant+1))
	began := time.Now()
	out, err := cmd.CombinedOutput()
	c.Seconds = time.Since(began).Seconds()
	seen := failure.FindAllString(string(out), -1)
	switch {
	case ctx.Err() != nil:
		c.Verdict = timeout
	case err == nil && strings.Contains(string(out), "no tests to run"):
		c.Verdict, c.Saw = unclear, "no such test"
	case err == nil:
		c.Verdict = survived
	case len(seen) == 0:
		c.Verdict, c.Saw = unclear, fmt.Sprintf("%v: %s", err, out[max(0, len(out)-200):])
	default:
		c.Verdict, c.Saw = killed, strings.Join(strings.Fields(seen[len(seen)-1]), " ")
	}
	return c
}
