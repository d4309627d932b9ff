package catalogue

import (
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
)

// forkStates is less than a page has: the nearest are enough to be judged.
const forkStates = 60

// From every step of every race but its last there is a way on beside the one that it takes, or
// it is said that the page has not got it.
func TestForks(t *testing.T) {
	for name, trace := range traces(t) {
		forked, err := race.WithFork(trace, forkStates, Locks())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		g := forked.Fork
		if g == nil || len(g.States) == 0 || len(g.States) > forkStates {
			t.Errorf("%s: no fork", name)
			continue
		}
		at, cut := 0, 0
		for _, e := range trace.Events {
			if g.States[at].Broken != nil {
				break
			}
			next := -1
			for _, c := range g.States[at].Choices {
				if c.Step.Who == e.Who && c.Step.Cmd == e.Cmd && c.Step.Reply == e.Reply && c.Step.Note == e.Note && c.Step.Lost == e.Lost {
					next = c.To
				}
			}
			if next < 0 {
				t.Errorf("%s: step %d, %s %s%s, is not in the fork", name, e.N, e.Who, e.Cmd, e.Note)
				break
			}
			at = next
		}
		for _, s := range g.States {
			if s.Cut {
				cut++
			}
		}
		t.Logf("%s: %d states, %d of them cut", name, len(g.States), cut)
	}
}
