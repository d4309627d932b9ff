package race

import (
	"context"
	"reflect"
	"testing"
)

// One worker and many find the same: states, transitions, breaches, ways to them, and what they
// asked.
func TestWorkersFindTheSame(t *testing.T) { workersFindTheSame(t, false) }

func workersFindTheSame(t *testing.T, rest bool) {
	defer func(n int) { togetherFrom = n }(togetherFrom)
	togetherFrom = 1
	for n, c := range []Config{
		{Algorithm: "tx:classic", Clients: 3, Attempts: 1, Ticks: 1, Faults: Faults{LostReplies: 1, Crash: true, Late: -1}},
		{Algorithm: "tx:classic", Attempts: 1, Ticks: 3, Extend: true, Faults: Faults{LateRequests: 1, Late: -1}},
		{Algorithm: "tx:classic", Attempts: 1, Ticks: 3, Each: true, ExtendTo: toLonger, Faults: Faults{LateRequests: 1, Late: -1}},
		{Algorithm: "tx:classic/published", Server: "2.4", Attempts: 1, Ticks: 3, Faults: Faults{Unreaped: true, Crash: true}, Invariants: []string{"progress"}},
		{Algorithm: "tx:classic/never", Clients: 3, Attempts: 2, Faults: Faults{Crash: true}},
		{Algorithm: "getset:classic", Attempts: 3, Ticks: 6, Keep: true, Invariants: []string{"exclusion"}},
		{Algorithm: "getset:classic", Attempts: 1, Ticks: 4, Each: true, Faults: Faults{LostReplies: 1, Late: 2}},
		{Algorithm: "getset:guarded/pinned", Clients: 3, Attempts: 1, Ticks: 3, Keep: true, Faults: Faults{Late: -1}},
		{Algorithm: "rw:read+rw:read+rw:write", Server: "7.0", Clients: 3, Attempts: 1, Ticks: 1, Faults: Faults{Late: -1}},
		{Algorithm: "redlock", Server: "7.0", Attempts: 1, Faults: Faults{Restart: 1, Late: -1}},
		{Algorithm: "tx:renamed", Attempts: 2, Ticks: 3, MaxStates: 5000, Faults: Faults{LostReplies: 1}},
		{Algorithm: "tx:renamed", Attempts: 1, Ticks: 2, NoSymmetry: true, Write: true, Each: true},
	} {
		if (n%3 == 1) == rest {
			continue
		}
		var alone Result
		var first []way
		for _, workers := range []int{1, 2, 7} {
			c.Workers = workers
			full, err := complete(c)
			if err != nil {
				t.Fatal(err)
			}
			r, ways, err := find(context.Background(), full, newRuns(full))
			if err != nil {
				t.Fatal(err)
			}
			r.Elapsed = 0
			if workers == 1 {
				alone, first = r, ways
				continue
			}
			if !reflect.DeepEqual(r, alone) || !reflect.DeepEqual(ways, first) {
				t.Errorf("%s: %d workers found\n%v\n%d runs, %d commands; one\n%v\n%d runs, %d commands", line(c), workers, r, r.Runs, r.Commands, alone, alone.Runs, alone.Commands)
			}
		}
		t.Logf("%s: %v", line(c), alone.Verdict)
	}
}
