package explore

import (
	"slices"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/internal/must"
)

// A lock on a pinned connection promises what the same lock promises without
// one: under each fault the same invariants hold, and the same servers are refused.
func TestPinnedPromisesTheSame(t *testing.T) { pinnedPromisesTheSame(t, false) }

func pinnedPromisesTheSame(t *testing.T, rest bool) {
	for _, name := range plan.Pinnable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := []string{"2.0", "2.4"}
			if name == "set:watch" {
				servers = []string{"2.4", "7.0"}
			}
			for n, x := range FaultsOf(name) {
				both := func(y Fault) bool { return y.Name == x.Name }
				if (n%4 == 0) == rest || !slices.ContainsFunc(FaultsOf(name+"/pinned"), both) {
					continue
				}
				var plain, pinned filler
				for _, server := range servers {
					a := &Cell{Algorithm: name, Server: server, Fault: x.Name, Clients: 2}
					b := &Cell{Algorithm: name + "/pinned", Server: server, Fault: x.Name, Clients: 2}
					must.Do(t, plain.fill(t.Context(), a))
					must.Do(t, pinned.fill(t.Context(), b))
					if breaks := invariants(a); a.Refused != b.Refused || a.Bound+b.Bound != "" || !slices.Equal(breaks, invariants(b)) {
						t.Errorf("on %s, %s: breaks %q, pinned %q; refused %q, pinned %q", server, x.Name, breaks, invariants(b), a.Refused, b.Refused)
					}
				}
			}
		})
	}
}

// invariants are those that are broken in c.
func invariants(c *Cell) (list []string) {
	for _, b := range c.Breaks {
		list = append(list, b.Invariant)
	}
	slices.Sort(list)
	return list
}
