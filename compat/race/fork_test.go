package race

import (
	"slices"
	"testing"
)

// The graph around a trace holds the trace, and other ways; of a large one the nearest part.
func TestFork(t *testing.T) {
	trace, err := ReplaySchedule(`broken/del-setnx 2.4 2x1 given="SET {key} t=-2s" check=exclusion : C1 C2 C1 C2 C1 C1 C2 C2`, brokenLocks())
	if err != nil {
		t.Fatal(err)
	}
	forked, err := WithFork(trace, ForkStates, brokenLocks())
	if err != nil || forked.Fork == nil {
		t.Fatalf("no fork: %v", err)
	}
	at, broken, branches := 0, 0, 0
	_, choices, err := ParseSchedule(trace.Schedule)
	if err != nil {
		t.Fatal(err)
	}
	for n, c := range choices {
		to := -1
		for _, g := range forked.Fork.States[at].Choices {
			e := trace.Events[n]
			if g.Token == c.String() && g.Step.Cmd == e.Cmd && g.Step.Reply == e.Reply {
				to = g.To
			}
		}
		if to < 0 {
			t.Fatalf("the graph loses the trace at step %d, %v", n+1, c)
		}
		at = to
	}
	if forked.Fork.States[at].Broken == nil {
		t.Error("the trace's end is not broken in the graph")
	}
	for _, s := range forked.Fork.States {
		if s.Broken != nil {
			broken++
		}
		if len(s.Choices) > 1 {
			branches++
		}
	}
	if broken < 2 || branches < 10 {
		t.Errorf("%d states, %d broken, %d with a choice: too few to play with", len(forked.Fork.States), broken, branches)
	}
	t.Logf("%d states, %d broken", len(forked.Fork.States), broken)
	few, err := WithFork(trace, 12, brokenLocks())
	if err != nil || few.Fork == nil || len(few.Fork.States) != 12 {
		t.Fatalf("a part of a graph: %+v %v", few.Fork, err)
	}
	if !slices.ContainsFunc(few.Fork.States, func(s GraphState) bool { return s.Cut }) {
		t.Error("what was left out is not said")
	}
}
