package race

import (
	"testing"

	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/internal/must"
)

// The graph around a schedule holds its states, and other ways; of a large one the nearest part.
func TestAround(t *testing.T) {
	const schedule = `broken/del-setnx 2.4 2x1 given="SET {key} t=-2s" check=exclusion : C1 C2 C1 C2 C1 C1 C2 C2`
	g := must.Get(Around(schedule, 400, plan.Broken(), nil))(t)
	_, choices, err := ParseSchedule(schedule)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for n, c := range choices {
		if g.States[at].Broken != "" {
			t.Errorf("broken before step %d", n+1)
		}
		to, ok := g.States[at].To[c.String()]
		if !ok {
			t.Fatalf("the graph loses the schedule at step %d, %v", n+1, c)
		}
		at = to
	}
	if g.States[at].Broken != "exclusion" || len(g.States[at].To) > 0 {
		t.Errorf("the end of the schedule is %+v", g.States[at])
	}
	broken, branches := 0, 0
	for _, s := range g.States {
		if s.Broken != "" {
			broken++
		}
		if len(s.To) > 1 {
			branches++
		}
	}
	if broken < 2 || branches < 10 || g.Cut {
		t.Errorf("%d states, %d broken, %d with a choice, cut: %v", len(g.States), broken, branches, g.Cut)
	}
	few, err := Around(schedule, 12, plan.Broken(), nil)
	if err != nil || len(few.States) != 12 || !few.Cut {
		t.Errorf("a part of a graph: %+v %v", few, err)
	}
}
