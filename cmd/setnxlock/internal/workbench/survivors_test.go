package workbench

import (
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/must"
)

// What each line of the survivors says is so: the schedules hold, and part where it is said.
func TestSurvivors(t *testing.T) {
	const broken = "getset:classic 2.4 2x3 check=exclusion : C1 C1 +10s +1ms C2 C2 C2 C1 C1"
	list, err := Question{Schedule: broken}.survivors(nil)
	if err != nil || len(list) < 3 {
		t.Fatal(list, err)
	}
	was := must.Get(race.ReplaySchedule(broken, nil))(t)
	for _, f := range list {
		is, err := race.ReplaySchedule(f.Schedule, nil)
		if err != nil {
			t.Errorf("%s: %v", f.Schedule, err)
			continue
		}
		if is.Verdict.Violated != f.Violated || f.Holds != (f.Violated == "") {
			t.Errorf("%s: %+v, replayed %q", f.Algorithm, f, is.Verdict.Violated)
		}
		for n := range f.Parts - 1 {
			if was.Events[n].Cmd != is.Events[n].Cmd {
				t.Errorf("%s parts before step %d", f.Algorithm, f.Parts)
			}
		}
		if a, b := was.Events[f.Parts-1], is.Events[f.Parts-1]; a.Cmd == b.Cmd && a.Reply == b.Reply {
			t.Errorf("%s does not part at step %d", f.Algorithm, f.Parts)
		}
	}
	if _, err := (Question{Schedule: "getset:classic 2.4 2x1 : C1"}).survivors(nil); err == nil {
		t.Error("what breaks nothing is survived")
	}
}

// The lock beside makes the same moves, where it can, and no more; the step at which the two part is the first that differs.
func TestSecond(t *testing.T) {
	const broken = "getset:classic 2.4 2x3 check=exclusion : C1 C1 +10s +1ms C2 C2 C2 C1 C1"
	p := must.Get(Question{Schedule: broken}.position())(t)
	s := p.second("")
	if s == nil || s.Algorithm != "getset:guarded" || s.Parts != 2 || s.Trace.Verdict.Violated != "" {
		t.Fatalf("%+v", s)
	}
	if a, b := len(s.Trace.Events), len(p.Trace.Events); a > b {
		t.Errorf("%d steps beside %d", a, b)
	}
	for _, name := range s.Others {
		if o := p.second(name); o == nil || o.Algorithm != name {
			t.Errorf("%s is offered, and is %+v", name, o)
		}
	}
	p = must.Get(Question{Schedule: "getset:classic 2.4 2x3 check=exclusion : C1"}.position())(t)
	if s := p.second("getset:guarded"); s.Parts != 2 || len(s.Trace.Events) != 1 {
		t.Errorf("after one step alike they part at %d, with %d steps", s.Parts, len(s.Trace.Events))
	}
}
