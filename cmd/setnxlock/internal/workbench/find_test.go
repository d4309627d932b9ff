package workbench

import (
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/internal/must"
)

// headOf is what stands before the words of a schedule.
func headOf(schedule string) string { head, _, _ := strings.Cut(schedule, " :"); return head }

// "Find it" finds what each level breaks.
func TestFind(t *testing.T) {
	for _, s := range catalogue.All() {
		if s.Star == 0 || s.Expect.Violated == "" {
			continue
		}
		f, refused := asked[Found](t, Question{Do: "find", Race: s.Name})
		if refused != "" || f.Violated != s.Expect.Violated {
			t.Errorf("%s: %s %q, want %s in %d steps: %s", s.Name, refused, f.Violated, s.Expect.Violated, s.Expect.Step, f.Says)
			continue
		}
		home := must.Get(s.Trace())(t)
		if a, b := headOf(f.Schedule), headOf(home.Schedule); a != b {
			t.Errorf("%s: it leads to %s, and the level is %s", s.Name, a, b)
		}
		if state, refused := asked[State](t, Question{Do: "at", Schedule: f.Schedule}); refused != "" || state.Trace.Verdict.Violated != f.Violated {
			t.Errorf("%s: %s does not replay: %s %+v", s.Name, f.Schedule, refused, state.Trace.Verdict)
		}
	}
}

// Elsewhere it looks for everything, by the faults of the question, and says so, and what it has not tried.
func TestIsItSafe(t *testing.T) {
	for _, x := range []struct{ schedule, breaks string }{
		{"other/forgetful 2.4 2x2 :", "progress"}, {"other/endless 2.4 2x2 check=exclusion :", "progress"}, {"tx:classic/never 2.4 2x1 : C1", "progress"},
		{"tx:guarded 2.4 2x1 :", ""},
	} {
		f, refused := asked[Found](t, Question{Do: "find", Schedule: x.schedule, Faults: race.Faults{LostReplies: 1, Crash: true}, Ticks: 2})
		if refused != "" || f.Violated != x.breaks {
			t.Errorf("%s: %s %q, want %q", x.schedule, refused, f.Violated, x.breaks)
		}
		for _, want := range []string{"Looked for exclusion, ownership, progress, accuracy, in every order", "2 jumps of time, 1 lost reply, crashes",
			"Not tried: a lost request", "a failover", "Not looked for: fencing (needs a client that writes)"} {
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
