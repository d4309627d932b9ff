package explore

import (
	"slices"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/internal/must"
)

// The server's own compare-and-set promises what a script promises: under each fault the same invariants hold.
func TestIfEqPromisesTheSame(t *testing.T) {
	for _, x := range FaultsOf("set:ifeq") {
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			scripted := &Cell{Algorithm: "set:lua", Server: "7.0", Fault: x.Name, Clients: 2}
			must.Do(t, new(filler).fill(t.Context(), scripted))
			for _, server := range []string{"8.6", "valkey-9.1"} {
				c := &Cell{Algorithm: "set:ifeq", Server: server, Fault: x.Name, Clients: 2}
				must.Do(t, new(filler).fill(t.Context(), c))
				if c.Refused+scripted.Refused+c.Bound+scripted.Bound != "" || !slices.Equal(invariants(c), invariants(scripted)) {
					t.Errorf("on %s: breaks %q, set:lua %q; refused %q, %q", server, invariants(c), invariants(scripted), c.Refused, c.Bound)
				}
			}
		})
	}
}

// A lock that is held when a server takes over that lacks the commands is extended and released there as by a script, or
// under WATCH where that is refused: nothing breaks but what breaks with those.
func TestIfEqOutlivesAFailover(t *testing.T) {
	for _, test := range []struct{ from, to string }{{"8.6", "8.2"}, {"valkey-9.1", "valkey-8.1"}, {"8.6", "noscript"}, {"valkey-9.1", "8.6"}} {
		for _, extra := range []func(*plan.Config){
			func(*plan.Config) {}, func(c *plan.Config) { c.Faults.LostReplies = 1 }, func(c *plan.Config) { c.Faults.Cuts = 1 },
			func(c *plan.Config) { c.Faults.LateRequests = 1 }, func(c *plan.Config) { c.Fence = true },
		} {
			broken := func(algorithm string) (list []string) {
				c := plan.Config{Algorithm: algorithm, Server: test.from, Successor: test.to, Attempts: 1, Ticks: 3, Extend: true, Each: true,
					Faults: plan.Faults{Failover: 1, Late: -1}}
				extra(&c)
				r := must.Get(Explore(t.Context(), c))(t)
				for _, b := range r.Breaks {
					list = append(list, b.Verdict.Violated)
				}
				slices.Sort(list)
				if r.States < 100 {
					t.Errorf("%s: %d states", algorithm, r.States)
				}
				return list
			}
			by := "set:lua"
			if test.to == "noscript" {
				by = "set:watch"
			}
			known := broken(by)
			for _, invariant := range broken("set:ifeq") {
				if !slices.Contains(known, invariant) {
					t.Errorf("from %s to %s: breaks %s, and %s breaks %q", test.from, test.to, invariant, by, known)
				}
			}
		}
	}
}
