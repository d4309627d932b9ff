package explore

import (
	"testing"

	"github.com/setnxlock/setnxlock/compat/race/internal/live"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/search"
)

// Readers and writers that take turns are served within as many turns of others as there are
// clients, whoever is slow; where one side goes first the other may starve, and so it may under the
// published lock. Writers have no turns among themselves.
func TestFairness(t *testing.T) {
	for _, c := range []struct {
		algorithm         string
		clients, attempts int
		starves           int // in how many steps; 0: nobody does
	}{
		{"rw:read+rw:write", 2, 9, 0},
		{"rw:read+rw:read+rw:write", 3, 4, 0},
		{"rw:read/readers-first+rw:write/readers-first", 2, 4, 71},
		{"rw:read/writers-first+rw:write/writers-first", 2, 4, 77},
		{"rw:read/published+rw:write/published", 2, 4, 23},
		{"rw:write", 2, 4, 81},
	} {
		r := explored(t, plan.Config{Algorithm: c.algorithm, Clients: c.clients, Attempts: c.attempts, Wait: true, Faults: plan.Faults{Late: -1}, Invariants: []string{"fairness"}})
		steps := 0
		if r.Verdict == search.Violated {
			steps = len(r.Trace.Events)
			if again, err := live.ReplaySchedule(r.Trace.Schedule, plan.Broken()); err != nil ||
				again.Verdict != r.Trace.Verdict {
				t.Errorf("%s: replayed as %+v, %v", r.Trace.Schedule, again.Verdict, err)
			}
		}
		if steps != c.starves {
			t.Errorf("%s, %d clients: %v in %d steps, want %d", c.algorithm, c.clients, r.Verdict, steps, c.starves)
		}
	}
}

// A writer that goes on as a reader excludes writers, and no readers, whichever answer is lost.
func TestDowngrade(t *testing.T) {
	for _, c := range []plan.Config{
		{Algorithm: "rw:read+rw:write", Fence: true},
		{Algorithm: "rw:write", Fence: true},
		{Algorithm: "rw:read/server-clock+rw:write/server-clock", Server: "2.6"},
	} {
		c.Attempts, c.Downgrade, c.Faults = 1, true, plan.Faults{LostReplies: 1, Late: -1}
		if r := explored(t, c); r.Verdict != search.Safe {
			t.Errorf("%v", r)
		}
	}
}
