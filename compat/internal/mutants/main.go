// Package main breaks the code in one place after another, and requires a fast test to fail for each mutant. A test that
// misses a mutant would miss the same mistake of a programmer.
//
//	go run ./compat/internal/mutants                 kill every mutant of the table: make mutants
//	go run ./compat/internal/mutants -check          only check that each mutant has its place in the code
//	go run ./compat/internal/mutants -matrix FILE    try every net on every mutant of the engine: make matrix
//
// The table (table.go) gives each mutant its function, its edits (edit.go), and the nets that must fail. Comments, moved
// lines and reworded neighbours do not affect a mutant. The program does not change the tree, and compiles it once for
// all mutants: by go test -overlay, each function with mutants begins by asking the environment for the number of the
// mutant to run in its place (build.go).
//
// We tried Gremlins (github.com/go-gremlins/gremlins v0.6.0) first. It negates conditions and swaps operators wherever
// it finds some, but leaves out no call, names a mutant by its line and column, and compiles the tests anew for each.
// Gremlins can't express most mistakes of the table.
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
	check      = flag.Bool("check", false, "only look whether each mutant has its place")
	only, with regexp.Regexp
	matrix     = flag.String("matrix", "", "try every net on every mutant of the engine; this `file` keeps what was tried")
	limit      = flag.Duration("limit", 2*time.Minute, "with -matrix: stop a net; one that was stopped earlier is tried again")
)

// A mutant is one mistake in one function.
type mutant struct {
	name  string // says the effect of the mistake
	in    string // the function: "package.Func" or "package.Type.Method"
	edits []edit
	nets  []net // at least one must fail
}

// asked returns the nets that the command line asks for.
func (m mutant) asked() []net {
	return slices.DeleteFunc(slices.Clone(m.nets), func(n net) bool { return !with.MatchString(n.String()) })
}

// A net selects tests of one package.
type net struct {
	dir  string
	run  string // -run; "" for all
	args []string

	first bool   // stop at the first failure
	ran   string // the file for the names of called functions; "": none
}

func (n net) String() string {
	s := "./" + n.dir
	if n.run != "" {
		s += " -run " + n.run
	}
	return strings.Join(append([]string{s}, n.args...), " ")
}

func main() {
	flag.TextVar(&only, "only", regexp.MustCompile(""), "only the mutants whose names match this `regexp`")
	flag.TextVar(&with, "nets", regexp.MustCompile(""), "only the nets whose commands match this `regexp`")
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
		return kept.fill(ctx, b)
	}
	return kill(ctx, b)
}

// kill requires a net of each mutant to fail.
func kill(ctx context.Context, b *builder) error {
	var nets []net
	var mutants []int
	for i, m := range table {
		if mine := m.asked(); len(mine) > 0 && only.MatchString(m.name) {
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
		for _, n := range table[i].asked() {
			n.first = true
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

// unbroken returns an error for a net that fails without a mutant: its failures prove nothing.
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
	timeout  = "timeout" // no kill: the machine may be busy
	unclear  = "unclear" // the tests ended with neither success nor a failure
	apart    = "apart"   // no test of the net calls the mutant's function
)

// noTests is the testing package's warning about a -run without a match.
const noTests = "no tests to run"

// A cell of the matrix is the verdict of a net on a mutant.
type cell struct {
	Mutant  string // "" for the code without a mutant
	Net     string
	Verdict string
	Saw     string `json:",omitempty"` // the last failure
	Seconds float64
	By      []string            `json:",omitempty"` // the failed tests
	Tests   map[string][]string `json:",omitempty"` // without a mutant: the tests of the net that call a function with mutants
}

// failure matches the output of a failed test, or of a simulation with a finding.
var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: \S+|^panic: .*|^fatal error: .*|_test.go:\d+: seed .*\n.*at \d.*`)

// failed matches the names of failed tests, without their subtests.
var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\w+)`)

// try runs the net on the mutant with this index in the table, -1 for none.
func (n net) try(ctx context.Context, b *builder, mutant int, limit time.Duration) cell {
	c := cell{Net: n.String()}
	if mutant >= 0 {
		c.Mutant = table[mutant].name
	}
	ctx, end := context.WithTimeout(ctx, limit)
	defer end()
	args := append([]string{"-test.count=1", "-test.timeout=0", "-test.run", n.run}, n.args...)
	if n.first {
		args = append(args, "-test.failfast")
	}
	cmd := exec.CommandContext(ctx, b.bins[n.dir], args...)
	cmd.Dir, cmd.WaitDelay = n.dir, 10*time.Second
	servers := "embedded"
	if strings.Contains(n.run, "Long") { // make test leaves these tests out
		servers = "all"
	}
	cmd.Env = append(os.Environ(), "SETNXLOCK_TEST="+servers, fmt.Sprint(numberVar, "=", mutant+1), ranVar+"="+n.ran)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	c.Seconds = time.Since(began).Seconds()
	seen := failure.FindAllString(string(out), -1)
	for _, m := range failed.FindAllStringSubmatch(string(out), -1) {
		c.By = append(c.By, m[1])
	}
	slices.Sort(c.By)
	c.By = slices.Compact(c.By)
	switch {
	case ctx.Err() != nil && len(c.By) == 0:
		c.Verdict = timeout
	case err == nil && strings.Contains(string(out), noTests):
		c.Verdict, c.Saw = unclear, noTests
	case err == nil:
		c.Verdict = survived
	case len(seen) == 0:
		c.Verdict, c.Saw = unclear, fmt.Sprintf("%v: %s", err, out[max(0, len(out)-200):])
	default:
		c.Verdict, c.Saw = killed, strings.Join(strings.Fields(seen[len(seen)-1]), " ")
	}
	return c
}
