package workbench

import (
	"slices"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/internal/must"
)

// headOf is what stands before the words of a schedule.
func headOf(schedule string) string { head, _, _ := strings.Cut(schedule, " :"); return head }

// "Find it" finds what each race breaks, by what its page names, in no more steps than a reader needs.
func TestFind(t *testing.T) {
	for _, s := range catalogue.All() {
		f, refused := asked[Found](t, Question{Do: "find", Race: s.Name})
		if refused != "" || f.Violated != s.Expect.Violated {
			t.Errorf("%s: %s %q, want %s in %d steps: %s", s.Name, refused, f.Violated, s.Expect.Violated, s.Expect.Step, f.Says)
			continue
		}
		home := must.Get(s.Trace())(t)
		if a, b := headOf(f.Schedule), headOf(home.Schedule); a != b {
			t.Errorf("%s: it leads to %s, and the race is %s", s.Name, a, b)
		}
		state, refused := asked[State](t, Question{Do: "at", Schedule: f.Schedule})
		if v := state.Trace.Verdict; refused != "" || v.Violated != f.Violated || v.Step != f.Steps {
			t.Errorf("%s: %s does not replay: %s %+v", s.Name, f.Schedule, refused, v)
		}
		if f.Steps > s.Expect.Step || !strings.HasSuffix(f.Answer, "breaks "+f.Violated+" in "+steps(f.Steps)+".") {
			t.Errorf("%s: %s The race has %d steps, and it is %s", s.Name, f.Answer, s.Expect.Step, f.Schedule)
		}
		_, own, err := race.ParseSchedule(home.Schedule)
		must.Do(t, err)
		_, made, err := race.ParseSchedule(f.Schedule)
		must.Do(t, err)
		for n, c := range made {
			if n > 0 && c.Verb == race.Pass && made[n-1].Verb == race.Pass {
				t.Errorf("%s: time passes twice in %s", s.Name, f.Schedule)
			}
			if c.Verb != race.Step && !slices.ContainsFunc(own, func(o race.Choice) bool { return o.Verb == c.Verb }) {
				t.Errorf("%s: %v is no fault of the race, %s", s.Name, c, home.Schedule)
			}
		}
	}
}

// A level's hints count as find it does; where they know not all they say so, and more steps. They know where the
// card of time leads, at whichever step.
func TestHints(t *testing.T) {
	for _, s := range append(catalogue.All(), catalogue.Scenario{Name: openingName, Star: 1}) {
		if s.Star == 0 {
			continue
		}
		schedule := opening
		if s.Run.Schedule != "" {
			schedule = must.Get(s.Trace())(t).Schedule
		}
		g := must.Get(race.Around(schedule, graphStates, Locks(), cardOf(schedule)))(t)
		f, refused := asked[Found](t, Question{Do: "find", Race: s.Name})
		if way := shortest(g, f.Violated); refused != "" || len(way) < f.Steps || len(way) > f.Steps && !g.Cut {
			t.Errorf("%s: the hints say %d steps, %q, and find it says %d: %s%s",
				s.Name, len(way), way, f.Steps, f.Schedule, refused)
		}
		if first, ok := g.States[0].To["C1"]; s.Name == openingName && (!ok || g.States[first].To["+9.899s"] == 0) {
			t.Errorf("after C1's first step the card of time leads nowhere: %v", g.States[first].To)
		}
	}
}

// Elsewhere it looks first whether two can hold the lock, then for everything, by the faults of the question, and
// says so, and what it has not tried.
func TestIsItSafe(t *testing.T) {
	const (
		two      = "Looked for exclusion, in every order"
		all      = "Looked for exclusion, ownership, progress, accuracy, in every order"
		textbook = "SET KEY TOKEN NX EX TTL\nOK = mine\nrelease\nCOMPARE-AND-DELETE KEY TOKEN"
	)
	for _, x := range []struct{ schedule, answer, says string }{
		{"other/forgetful 2.4 2x2 :",
			"No two clients hold it at once within these bounds. But other/forgetful breaks progress in 2 steps.", all},
		{"tx:classic/never 2.4 2x1 : C1", "But tx:classic/never breaks progress in 2 steps.", all},
		{"tx:guarded 2.4 2x1 :", "Nothing breaks within these bounds: tx:guarded.", all},
		{"getset:classic 2.4 2x3 :", "getset:classic breaks exclusion in 8 steps.", two}, // a jump of time is one step
		{catalogue.FormName(textbook) + " 7.0 2x2 :", "Nothing breaks within these bounds: a lock of your own.", all},
		{"other/endless 2.4 2x2 check=exclusion :", "other/endless breaks exclusion in ", two},
	} {
		f, refused := asked[Found](t, Question{Do: "find", Schedule: x.schedule, Faults: race.Faults{LostReplies: 1, Crash: true}, Ticks: 2})
		if refused != "" || !strings.Contains(f.Answer, x.answer) {
			t.Errorf("%s: %s %q, want %q", x.schedule, refused, f.Answer, x.answer)
		}
		for _, want := range []string{x.says, "2 jumps of time, 1 lost reply, crashes", "Not tried: a lost request",
			"a failover", "fencing (needs a client that writes)"} {
			if !strings.Contains(f.Says, want) {
				t.Errorf("%s: it does not say %q: %s", x.schedule, want, f.Says)
			}
		}
	}
	for _, wrong := range []Question{{Do: "find", Schedule: "C1 C2"}, {Do: "find", Race: "nix"}} {
		if _, refused := asked[Found](t, wrong); refused == "" {
			t.Errorf("%+v is answered", wrong)
		}
	}
}
