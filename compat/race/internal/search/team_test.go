package search

import (
	"context"
	"reflect"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/internal/must"
)

// One worker and many find the same: states, transitions, breaches, ways to them, and what they
// asked.
func TestWorkersFindTheSame(t *testing.T) { workersFindTheSame(t, false) }

func workersFindTheSame(t *testing.T, rest bool) {
	defer func(n int) { togetherFrom = n }(togetherFrom)
	togetherFrom = 1
	for n, c := range []plan.Config{
		{Algorithm: "tx:classic", Clients: 3, Attempts: 1, Ticks: 1,
			Faults: plan.Faults{LostReplies: 1, Crash: true, Late: -1}},
		{Algorithm: "tx:classic", Attempts: 1, Ticks: 3, Extend: true, Faults: plan.Faults{LateRequests: 1, Late: -1}},
		{Algorithm: "tx:classic", Attempts: 1, Ticks: 3, Each: true, ExtendTo: toLonger,
			Faults: plan.Faults{LateRequests: 1, Late: -1}},
		{Algorithm: "tx:classic/published", Server: "2.4", Attempts: 1, Ticks: 3, Faults: plan.Faults{Unreaped: true, Crash: true}, Invariants: []string{"progress"}},
		{Algorithm: "tx:classic/never", Clients: 3, Attempts: 2, Faults: plan.Faults{Crash: true}},
		{Algorithm: "getset:classic", Attempts: 3, Ticks: 6, Keep: true, Invariants: []string{"exclusion"}},
		{Algorithm: "getset:classic", Attempts: 1, Ticks: 4, Each: true, Faults: plan.Faults{LostReplies: 1, Late: 2}},
		{Algorithm: "getset:guarded/pinned", Clients: 3, Attempts: 1, Ticks: 3, Keep: true, Faults: plan.Faults{Late: -1}},
		{Algorithm: "rw:read+rw:read+rw:write", Server: "7.0", Clients: 3, Attempts: 1, Ticks: 1,
			Faults: plan.Faults{Late: -1}},
		{Algorithm: "redlock", Server: "7.0", Attempts: 1, Faults: plan.Faults{Restart: 1, Late: -1}},
		{Algorithm: "tx:renamed", Attempts: 2, Ticks: 3, MaxStates: 5000, Faults: plan.Faults{LostReplies: 1}},
		{Algorithm: "tx:renamed", Attempts: 1, Ticks: 2, NoSymmetry: true, Write: true, Each: true},
	} {
		if (n%3 == 1) == rest {
			continue
		}
		var alone Result
		var first []Way
		for _, workers := range []int{1, 2, 7} {
			c.Workers = workers
			full := must.Get(plan.Complete(c))(t)
			r, ways, err := Find(context.Background(), full, NewRuns(full))
			if err != nil {
				t.Fatal(err)
			}
			r.Elapsed = 0
			if workers == 1 {
				alone, first = r, ways
				continue
			}
			if !reflect.DeepEqual(r, alone) || !reflect.DeepEqual(ways, first) {
				t.Errorf("%s: %d workers found\n%v\n%d runs, %d commands; one\n%v\n%d runs, %d commands", plan.Line(c), workers,
					r, r.Runs, r.Commands, alone, alone.Runs, alone.Commands)
			}
		}
		t.Logf("%s: %v", plan.Line(c), alone.Verdict)
	}
}
