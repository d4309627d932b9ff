package explore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// What helps is derived from the run: leave out the restart, and the lock holds; a lock that
// compares by WATCH is no help against it. (Advice by the symptom said the opposite of both.)
func TestRemedies(t *testing.T) {
	for _, c := range []struct {
		plan.Config
		takes    string
		survives string // among others; "": none
	}{
		{plan.Config{Algorithm: "set:lua", Server: "7.0", Attempts: 1, Faults: plan.Faults{Restart: 1}}, "the restart", ""},
		{plan.Config{Algorithm: "tx:guarded", Server: "7.0", Attempts: 1, Faults: plan.Faults{Restart: 1}},
			"the restart", ""},
		{plan.Config{Algorithm: "tx:guarded", Attempts: 1, Faults: plan.Faults{Failover: 1}}, "the failover", ""},
		{plan.Config{Algorithm: "broken/get-del", Ticks: 3, Faults: plan.Faults{Late: -1}, Invariants: []string{"ownership"}}, "time that passes", "tx:renamed tx:guarded getset:guarded"},
		{plan.Config{Algorithm: "tx:guarded", Attempts: 1, Ticks: 3, Write: true, Faults: plan.Faults{Late: -1}, Invariants: []string{"fencing"}}, "time that passes", "tx:guarded+fence"},
		{plan.Config{Algorithm: "broken/no-repair", Faults: plan.Faults{Crash: true}}, "the crash", "tx:renamed tx:guarded"},
		{plan.Config{Algorithm: "broken/late-lease", Ticks: 3, Invariants: []string{"exclusion"}}, "the client that is late, time that passes", "tx:guarded"},
		{plan.Config{Algorithm: "getset:classic", Skew: []time.Duration{0, 11 * time.Second}, Attempts: 1, Ticks: 2, Faults: plan.Faults{Crash: true}, Invariants: []string{"exclusion"}}, "the clock that is wrong", "tx:guarded"},
	} {
		found := explored(t, c.Config)
		if found.Trace == nil {
			t.Errorf("%s: %v", plan.Line(c.Config), found)
			continue
		}
		trace := *found.Trace
		said := strings.Join(trace.Argument.Then, "\n")
		for _, e := range trace.Events { // what the server did to the key is in the argument
			if e.Who == "redis" && !strings.Contains(said, fmt.Sprintf("at step %d the server %s", e.N, e.Note)) {
				t.Errorf("%s: the argument does not mention step %d, %s:\n%s", trace.Schedule, e.N, e.Note, said)
			}
		}
		r, err := Remedies(context.Background(), trace, plan.Broken())
		if err != nil {
			t.Errorf("%s: %v", trace.Schedule, err)
			continue
		}
		t.Logf("%s", r)
		if got := strings.Join(r.Takes, ", "); got != c.takes {
			t.Errorf("%s: it takes %s, want %s", trace.Schedule, got, c.takes)
		}
		for _, name := range strings.Fields(c.survives) {
			if !slices.Contains(r.Survives, strings.Replace(name, "+fence", " with a fence", 1)) {
				t.Errorf("%s: %q survive, want %s", trace.Schedule, r.Survives, name)
			}
		}
		if c.survives == "" && len(r.Survives) > 0 {
			t.Errorf("%s: %q survive, want none", trace.Schedule, r.Survives)
		}
	}
}
