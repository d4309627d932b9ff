package catalogue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race"
)

// Trace runs the scenario.
func (s Scenario) Trace() (race.Trace, error) {
	return s.On(s.Run.Config.Server)
}

// On runs the scenario on another server.
func (s Scenario) On(server string) (race.Trace, error) {
	run := s.Run
	run.Config.Server = server
	if s.Expect.Violated != "" {
		run.Config.Invariants = []string{s.Expect.Violated}
	}
	t, err := run.trace()
	if err != nil {
		return t, fmt.Errorf("%s on %s: %w", s.Name, run.Config.Server, err)
	}
	t.Scenario, t.Title, t.Objective = s.Name, s.Title, s.Objective
	t.Servers, t.Sources, t.Instead = s.Servers, s.Sources, s.Instead
	for n, why := range s.Whys {
		if n > len(t.Events) {
			return t, fmt.Errorf("%s: a reason for step %d of %d", s.Name, n, len(t.Events))
		}
		t.Events[n-1].Why = why
	}
	if s.Let != nil {
		t.Argument.Let = s.Let
	}
	if s.Then != nil {
		t.Argument.Then = s.Then
	}
	if s.So != "" {
		t.Argument.So = s.So
	}
	if s.Fix != "" {
		t.Argument.Fix = s.Fix
	}
	return t, nil
}

// Survivor runs the variant that is guarded against it.
func (s Scenario) Survivor() (race.Trace, error) {
	if s.Survives.Schedule == "" {
		return race.Trace{}, fmt.Errorf("%s has no survivor", s.Name)
	}
	t, err := s.Survives.trace()
	if err != nil {
		return t, fmt.Errorf("%s, survived: %w", s.Name, err)
	}
	t.Scenario, t.Title = s.Name, "survived by "+s.Survives.Config.Algorithm
	return t, nil
}

// trace runs the run.
func (r Run) trace() (race.Trace, error) {
	choices, err := race.ParseWords(r.Schedule)
	if err != nil {
		return race.Trace{}, err
	}
	t, err := race.Replay(r.Config, choices)
	if err != nil {
		return t, err
	}
	said := make(map[race.Violation]bool)
	for i, e := range t.Events { // that it is still broken is not said again
		if v := e.Violation; v != nil && said[*v] {
			t.Events[i].Violation = nil
		} else if v != nil {
			said[*v] = true
		}
	}
	for i, note := range r.Notes {
		if i < len(t.Clients) {
			t.Clients[i].Note = note
		}
	}
	return t, nil
}

// Happens returns the servers on which the scenario happens just so, by running
// it on all of them.
func (s Scenario) Happens() []string {
	var on []string
	for _, server := range append(oldredis.Versions(), oldredis.Profiles()...) {
		if breaks, err := s.Breaks(server); err == nil && slices.Equal(breaks, s.Breaking()) {
			on = append(on, server)
		}
	}
	return on
}

// Breaking is all that the scenario says it breaks, in the order of race.Invariants.
func (s Scenario) Breaking() []race.Verdict {
	list := append([]race.Verdict{s.Expect}, s.Also...)
	place := func(v race.Verdict) int { return slices.Index(race.Invariants(), v.Violated) }
	slices.SortFunc(list, func(a, b race.Verdict) int { return cmp.Compare(place(a), place(b)) })
	return list
}

// Breaks returns what the scenario's schedule breaks on a server, each invariant checked
// alone: checked together, the first one hides what another would show at the same step.
func (s Scenario) Breaks(server string) ([]race.Verdict, error) {
	var list []race.Verdict
	for _, invariant := range race.Invariants() {
		run := s.Run
		run.Config.Server = server
		switch c := run.Config; {
		case invariant == "fencing" && !c.Write, invariant == "fence-order" && !c.Fence, invariant == "fairness" && !c.Wait:
			continue
		case c.Invariants != nil && !slices.Contains(c.Invariants, invariant):
			continue
		}
		run.Config.Invariants = []string{invariant}
		t, err := run.trace()
		if err != nil {
			return list, fmt.Errorf("%s: %w", s.Name, err)
		}
		if t.Verdict.Violated != "" {
			list = append(list, t.Verdict)
		}
	}
	return list, nil
}

// Check judges an answer to the scenario's exercise: a schedule of its words. The
// trace is what the answer brings about; the error says why it is no answer yet.
func (s Scenario) Check(schedule string) (race.Trace, error) {
	e := s.Exercise
	if e == nil {
		return race.Trace{}, fmt.Errorf("%s has no exercise", s.Name)
	}
	choices, err := race.ParseWords(schedule)
	if err != nil {
		return race.Trace{}, err
	}
	shown, err := race.ParseWords(s.Run.Schedule)
	if err != nil {
		return race.Trace{}, err
	}
	run := s.Run
	run.Schedule = schedule
	run.Config.Invariants = []string{s.Expect.Violated}
	t, err := run.trace()
	switch v := t.Verdict; {
	case err != nil:
		return t, err
	case race.Words(choices) == race.Words(shown):
		return t, errors.New("that is the schedule that the scenario shows: find another")
	case e.Breaks == "" && v.Violated != "":
		return t, fmt.Errorf("it breaks %s at step %d: nothing may break", v.Violated, v.Step)
	case e.Breaks == "" && len(t.Events) < e.Steps:
		return t, fmt.Errorf("it has %d steps: let it run for %d", len(t.Events), e.Steps)
	case e.Breaks != "" && v.Violated == "":
		return t, fmt.Errorf("nothing breaks in its %d steps: break %s", len(t.Events), e.Breaks)
	case e.Breaks != "" && v.Violated != e.Breaks:
		return t, fmt.Errorf("it breaks %s at step %d: break %s", v.Violated, v.Step, e.Breaks)
	case e.Breaks != "" && v.Step > e.Steps:
		return t, fmt.Errorf("it breaks %s at step %d: find one that does by step %d", v.Violated, v.Step, e.Steps)
	}
	return t, nil
}

// Groups are the first parts of the names, in the order of teaching.
func Groups() []string {
	var list []string
	for _, s := range catalogue() {
		if g := s.Group(); !slices.Contains(list, g) {
			list = append(list, g)
		}
	}
	return list
}
