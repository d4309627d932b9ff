package explore

import (
	"context"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/internal/must"
)

// Once half of the states are found, it is known roughly how many there are.
func TestHowManyAreLeft(t *testing.T) {
	for _, c := range []plan.Config{
		{Algorithm: "tx:renamed", Clients: 3, Ticks: 2, Faults: plan.Faults{LostReplies: 1, Late: -1}},
		{Algorithm: "tx:classic", Clients: 3, Attempts: 1, Ticks: 3,
			Faults: plan.Faults{LostReplies: 1, Crash: true, Late: -1}},
		{Algorithm: "getset:guarded", Ticks: 3, Faults: plan.Faults{LostReplies: 1, Late: -1}},
		{Algorithm: "redlock", Server: "7.0", Attempts: 1, Ticks: 1, Faults: plan.Faults{Down: 1, Late: -1}},
		{Algorithm: "rw:read+rw:write", Server: "7.0", Attempts: 1, Ticks: 3, Faults: plan.Faults{LostReplies: 1, Late: -1}},
	} {
		var seen []plan.Stats
		c.Progress = func(s plan.Stats) { seen = append(seen, s) }
		r := must.Get(Explore(context.Background(), c))(t)
		if s := seen[0]; s.Left != -1 {
			t.Errorf("%s: %d states are left from the first", plan.Line(c), s.Left)
		}
		for _, s := range seen {
			if guess := s.States + s.Left; 2*s.States >= r.States && (s.Left < 0 || 2*guess > 3*r.States || 3*guess < 2*r.States) {
				t.Errorf("%s: with %d of %d states found, %d are left", plan.Line(c), s.States, r.States, s.Left)
			}
		}
		if s := seen[len(seen)-1]; s.Left > r.States/100 {
			t.Errorf("%s: in the end %d states are left of %d", plan.Line(c), s.Left, r.States)
		}
	}
}
