// Package interop makes the locks of this module and the real clients of other languages contend
// for one key of a real Redis server.
//
//	make interop      fetches the clients, runs all tests, and writes docs/interop.md
//
// install.sh installs the clients into .clients, each from its registry; small programs in drivers
// run them. Without SETNXLOCK_INTEROP only the tests that need no client run, and the output says
// so. With "installed" the installed clients run, and stderr names the others. With "all", as in
// CI, a missing client is a failure.
package interop

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const variable = "SETNXLOCK_INTEROP"

var update = flag.Bool("update", false, "write docs/interop.md, if all clients ran and passed")

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "6") //nolint:errcheck // the flag exists; most of the time is spent waiting for leases to end
	switch mode := os.Getenv(variable); mode {
	case "", "installed", "all":
		for _, line := range notRun() {
			fmt.Fprintln(os.Stderr, "INTEROP: NOT RUN: "+line)
		}
	default:
		fmt.Fprintf(os.Stderr, "%s=%q: want installed or all\n", variable, mode)
		os.Exit(2)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		for _, line := range notRun() { // also at the end, where it is noticed
			fmt.Fprintln(os.Stderr, "INTEROP: NOT RUN: "+line)
		}
		os.Exit(code)
	}))
}

// notRun lists what this run leaves out.
func notRun() []string {
	if os.Getenv(variable) == "" {
		return []string{"the real clients, all of them: run make interop"}
	}
	var lines []string
	for _, c := range append([]client{redisson}, clients...) {
		if why := c.missing(); why != "" {
			lines = append(lines, why+": run make interop")
		}
	}
	for driver := range phpClients {
		if why := phpMissing(driver); why != "" {
			lines = append(lines, why)
		}
	}
	return lines
}

// needs skips a test whose client is missing, or fails it in mode "all".
func (c client) needs(t *testing.T) {
	t.Helper()
	why := c.missing()
	switch mode := os.Getenv(variable); {
	case mode == "":
		t.Skip("not run: " + variable + " is not set; run make interop")
	case why != "" && mode == "all" && !c.extra:
		t.Fatal(why)
	case why != "":
		t.Skip("not run: " + why)
	}
}

// find returns the client of a name.
func find(t testing.TB, name string) client {
	t.Helper()
	for _, c := range clients {
		if c.name == name {
			return c
		}
	}
	t.Fatal("no client " + name)
	return client{}
}

// Each real client and each of our algorithms in its dialect on one key: critical sections,
// crashes, releases. Then, with the algorithm to use, what happens when the client is late. The
// results go into docs/interop.md.
func TestInterop(t *testing.T) {
	seen := newResults()
	t.Run("clients", func(t *testing.T) {
		for _, c := range clients {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.needs(t)
				for _, a := range c.algorithms(t) {
					t.Run(strings.ReplaceAll(a.name, ", ", "-"), func(t *testing.T) {
						t.Parallel()
						r := row{c: c, a: a}
						r.run(t)
						seen.add(t, r)
					})
				}
				if c.name == "rueidislock" {
					t.Run("alone", func(t *testing.T) {
						t.Parallel()
						seen.alone = c.alone(t)
					})
				}
				for _, s := range c.scenarios(t) {
					t.Run(s.name, func(t *testing.T) { t.Parallel(); s.run(t) })
				}
			})
		}
	})
	seen.write(t)
}

// deadline is when a stage has taken too long.
func deadline() time.Time { return time.Now().Add(stepLimit) }
