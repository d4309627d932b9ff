// Package mutants has tests only: they break the code in one place after another, and demand that
// a fast test fails for each. A net that lets a mutant through would let the same mistake through
// when somebody makes it.
//
// The table (table_test.go) has each mutant's file, what stands there, what is put in its place,
// what that breaks, and the nets that are to see it. The tree is not touched, and compiled once for
// all mutants: each function that has some gets a copy for each of them beside it, and begins by
// asking the environment which is to run (broken_test.go); go test -overlay has the compiler read
// that. TestTableIsTrue keeps the table beside the code; TestEveryMutantIsKilled is `make mutants`.
package mutants

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	kill = flag.Bool("kill", false, "break the code, and demand that the nets see it: minutes")
	only = flag.String("only", "", "with -kill: the mutants whose names match this")
)

// A mutant is one mistake.
type mutant struct {
	name  string // what it breaks
	file  string // from the top of the module
	old   string // stands there once
	new   string
	nets  []net  // one of them must fail
	found string // the finding that it is, of the second reading: the simulation must see it
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

// together makes one net of those of a package: it is compiled once for all of them.
func together(nets []net) []net {
	var all []net
	for _, n := range nets {
		i := slices.IndexFunc(all, func(o net) bool { return o.dir == n.dir && slices.Equal(o.args, n.args) })
		switch {
		case i < 0:
			all = append(all, n)
		case n.run == "" || all[i].run == "":
			all[i].run = ""
		case all[i].run != n.run:
			all[i].run += "|" + n.run
		}
	}
	return all
}

// root is the top of the module.
const root = "../.."

// The code has changed where this fails: the mutant is to be moved after it, or has lost its sense.
func TestTableIsTrue(t *testing.T) {
	names := map[string]bool{}
	found := map[string]bool{}
	for _, m := range table {
		t.Run(m.name, func(t *testing.T) {
			m.function(t)
			if names[m.name] || m.old == m.new || len(m.nets) == 0 {
				t.Error("the same again, no change, or no net")
			}
			names[m.name] = true
			for _, n := range m.nets {
				if files, _ := filepath.Glob(filepath.Join(root, n.dir, "*_test.go")); len(files) == 0 {
					t.Errorf("%s has no tests", n.dir)
				}
			}
			if m.found == "" {
				return
			}
			found[m.found] = true
			if !slices.ContainsFunc(m.nets, func(n net) bool { return n.dir == "compat/simulate" }) {
				t.Errorf("finding %s is the simulation's to see", m.found)
			}
		})
	}
	if len(table) < 50 {
		t.Errorf("%d mutants, want 50 at least", len(table))
	}
	if len(found) != 6 {
		t.Errorf("the findings that are mutants: %v, want the six", found)
	}
}

func TestEveryMutantIsKilled(t *testing.T) {
	if !*kill {
		t.Skip("make mutants: it takes minutes")
	}
	wanted := regexp.MustCompile(*only)
	var all []net
	for _, m := range table {
		if wanted.MatchString(m.name) {
			all = append(all, m.nets...)
		}
	}
	nets := together(all)
	bins := binaries(t, nets)
	t.Run("unbroken", func(t *testing.T) { // a net that fails anyway sees nothing
		for _, n := range nets {
			t.Run(n.String(), func(t *testing.T) {
				t.Parallel()
				if seen := n.sees(t, bins[n.dir], -1); seen != "" {
					t.Error(seen)
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	killed := make(chan string, len(table))
	t.Run("broken", func(t *testing.T) {
		for i, m := range table {
			if !wanted.MatchString(m.name) {
				continue
			}
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				for _, n := range together(m.nets) {
					if seen := n.sees(t, bins[n.dir], i); seen != "" {
						t.Logf("%s: %s, after %v", n, seen, time.Since(began).Round(time.Millisecond))
						killed <- m.name
						return
					}
				}
				t.Errorf("survived: %s\n%s\n=>\n%s", m.file, m.old, m.new)
			})
		}
	})
	t.Logf("%d mutants were killed", len(killed))
}

// failure is what tells a test that failed, and the simulation that has found something.
var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: \S+|^panic: .*|simulate_test.go:\d+: seed \d+.*\n.*at \d.*`)

// sees runs the net on the mutant of that number, -1 for none, and returns what it says if it fails.
func (n net) sees(t *testing.T, bin string, mutant int) string {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), 30*time.Minute)
	defer end()
	args := []string{"-test.count=1", "-test.failfast", "-test.timeout=20m"}
	if n.run != "" {
		args = append(args, "-test.run", n.run)
	}
	cmd := exec.CommandContext(ctx, bin, append(args, n.args...)...)
	cmd.Dir = filepath.Join(root, n.dir)
	cmd.Env = append(os.Environ(), "SETNXLOCK_TEST=embedded", fmt.Sprint(which, "=", mutant+1))
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	switch {
	case err == nil && bytes.Contains(out, []byte("no tests to run")):
		t.Fatalf("%s: no such test", n)
	case err == nil:
		return ""
	case !errors.As(err, &failed), ctx.Err() != nil:
		t.Fatalf("%s: %v\n%s", n, err, out)
	}
	seen := failure.FindAllString(string(out), -1)
	if len(seen) == 0 || bytes.Contains(out, []byte("panic: test timed out")) { // a machine that is busy kills nothing
		t.Fatalf("%s: %v\n%s", n, err, out)
	}
	return strings.Join(strings.Fields(seen[len(seen)-1]), " ")
}
