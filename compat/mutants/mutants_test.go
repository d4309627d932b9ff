// Package mutants has tests only: they break the code in one place after another, and demand that
// a fast test fails for each. A net that lets a mutant through would let the same mistake through
// when somebody makes it.
//
// The table (table_test.go) has each mutant's file, what stands there, what is put in its place,
// what that breaks, and the nets that are to see it. The tree is not touched: go test -overlay has
// the compiler read the mutant instead. TestTableIsTrue keeps the table beside the code;
// TestEveryMutantIsKilled is `make mutants`.
package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"go/parser"
	"go/token"
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

// root is the top of the module.
const root = "../.."

// mutated is m's file with the mistake in it.
func (m mutant) mutated(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Fatalf("%s has this %d times, want once:\n%s", m.file, n, m.old)
	}
	text = bytes.Replace(text, []byte(m.old), []byte(m.new), 1)
	if _, err := parser.ParseFile(token.NewFileSet(), m.file, text, 0); err != nil {
		t.Fatalf("not Go any more: %v", err)
	}
	return text
}

// The code has changed where this fails: the mutant is to be moved after it, or has lost its sense.
func TestTableIsTrue(t *testing.T) {
	names := map[string]bool{}
	found := map[string]bool{}
	for _, m := range table {
		t.Run(m.name, func(t *testing.T) {
			m.mutated(t)
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
	which := regexp.MustCompile(*only)
	nets := map[string]net{}
	for _, m := range table {
		if which.MatchString(m.name) {
			for _, n := range m.nets {
				nets[n.String()] = n
			}
		}
	}
	t.Run("unbroken", func(t *testing.T) { // a net that fails anyway sees nothing
		for _, n := range nets {
			t.Run(n.String(), func(t *testing.T) {
				t.Parallel()
				if seen := n.sees(t, nil); seen != "" {
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
		for _, m := range table {
			if !which.MatchString(m.name) {
				continue
			}
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				overlay := m.overlay(t)
				for _, n := range m.nets {
					if seen := n.sees(t, overlay); seen != "" {
						t.Logf("%s: %s", n, seen)
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

// overlay is the argument by which go reads the mutant.
func (m mutant) overlay(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	file, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	mutated, list := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{file: mutated}})
	if err == nil {
		err = errors.Join(os.WriteFile(mutated, m.mutated(t), 0o600), os.WriteFile(list, text, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return []string{"-overlay", list}
}

// failure is what tells a test that failed, and the simulation that has found something.
var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: \S+|^panic: .*|simulate_test.go:\d+: seed \d+.*\n.*at \d.*`)

// sees runs the net, and returns what it says if it fails.
func (n net) sees(t *testing.T, overlay []string) string {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), 10*time.Minute)
	defer end()
	args := append([]string{"test", "-vet=off", "-ldflags=-s -w", "-count=1", "-failfast", "-timeout", "5m"}, overlay...)
	if n.run != "" {
		args = append(args, "-run", n.run)
	}
	args = append(append(args, "./"+n.dir), n.args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "SETNXLOCK_TEST=embedded")
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	switch {
	case err == nil && bytes.Contains(out, []byte("no tests to run")):
		t.Fatalf("%s: no such test", n)
	case err == nil:
		return ""
	case !errors.As(err, &failed), ctx.Err() != nil, bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		t.Fatalf("%s: %v\n%s", n, err, out)
	}
	seen := failure.FindAllString(string(out), -1)
	if len(seen) == 0 {
		t.Fatalf("%s: %v\n%s", n, err, out)
	}
	return strings.Join(strings.Fields(seen[len(seen)-1]), " ")
}
