package catalogue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race"
)

// Trace runs the scenario.
func (s Scenario) Trace() (race.Trace, error) {
	return s.On(s.Run.Config.Server)
}

// On runs the scenario on another server. The file's reasons are shown up to the step at which the
// run differs from that on the scenario's own server; its argument only if no step differs.
func (s Scenario) On(server string) (race.Trace, error) {
	t, err := s.on(server)
	if err != nil {
		return t, err
	}
	home := t
	if server != s.Run.Config.Server {
		if home, err = s.on(s.Run.Config.Server); err != nil {
			return t, err
		}
	}
	alike := common(t.Events, home.Events)
	for n, why := range s.Whys {
		if n > len(home.Events) {
			return t, fmt.Errorf("%s: a reason for step %d of %d", s.Name, n, len(home.Events))
		}
		if n <= alike {
			t.Events[n-1].Why = why
		}
	}
	if t.Verdict != home.Verdict {
		t.Argument.So = s.otherwise(t, home, alike)
		return t, nil
	}
	if s.Fix != "" {
		t.Argument.Fix = s.Fix
	}
	if alike < t.Verdict.Step {
		return t, nil
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
	return t, nil
}

// on runs the scenario on a server, with nothing said about it yet.
func (s Scenario) on(server string) (race.Trace, error) {
	run := s.Run
	run.Config.Server = server
	if s.Expect.Violated != "" {
		run.Config.Invariants = []string{s.Expect.Violated}
	}
	t, err := run.trace()
	if err != nil {
		return t, fmt.Errorf("%s on %s: %w", s.Name, run.Config.Server, err)
	}
	t.Scenario, t.Title, t.Objective, t.Text = s.Name, s.Title, s.Objective, s.Text
	t.Servers, t.Sources, t.Instead = s.Servers, s.Sources, s.Instead
	return t, nil
}

// common counts the steps in common from the beginning of two runs.
func common(a, b []race.Event) int {
	n := 0
	for n < len(a) && n < len(b) && a[n].Who == b[n].Who && a[n].Cmd == b[n].Cmd && a[n].Reply == b[n].Reply &&
		a[n].Note == b[n].Note && a[n].Lost == b[n].Lost && a[n].Server.Value == b[n].Server.Value && a[n].Server.Dead == b[n].Server.Dead {
		n++
	}
	return n
}

// otherwise describes the end of a run unlike the scenario's.
func (s Scenario) otherwise(t, home race.Trace, alike int) string {
	ends := "it keeps " + s.Expect.Violated
	if t.Verdict.Violated != "" {
		ends = fmt.Sprintf("it breaks %s at step %d", t.Verdict.Violated, t.Verdict.Step)
	}
	if alike == len(t.Events) || alike == len(home.Events) {
		return fmt.Sprintf("on %s %s, with the same answers as on %s", t.Server, ends, home.Server)
	}
	at := func(e race.Event) string {
		switch {
		case e.Cmd == "":
			return e.Note
		case e.Reply == "":
			return e.Cmd
		}
		reply, _, _ := strings.Cut(e.Reply, ",") // of an error what follows repeats the command
		return e.Cmd + " → " + reply
	}
	is, was := at(t.Events[alike]), at(home.Events[alike])
	if is == was { // what it left on the key differs
		return fmt.Sprintf("on %s %s: after step %d the key holds something else than on %s", t.Server, ends, alike+1, home.Server)
	}
	return fmt.Sprintf("on %s %s: step %d is %s, and on %s it is %s", t.Server, ends, alike+1, is, home.Server, was)
}

// Survivor runs the guarded variant.
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

// Breaking returns all violations of the scenario, in the order of race.Invariants.
func (s Scenario) Breaking() []race.Verdict {
	list := append([]race.Verdict{s.Expect}, s.Also...)
	place := func(v race.Verdict) int { return slices.Index(race.Invariants(), v.Violated) }
	slices.SortFunc(list, func(a, b race.Verdict) int { return cmp.Compare(place(a), place(b)) })
	return list
}

// Check judges an answer to the scenario's exercise: a schedule of its words. The
// trace is what the answer brings about; the error says what it lacks.
func (s Scenario) Check(schedule string) (race.Trace, error) {
	e := s.Exercise
	if e == nil {
		return race.Trace{}, fmt.Errorf("%s has no exercise", s.Name)
	}
	shown, err := race.ParseWords(s.Run.Schedule)
	if err != nil {
		return race.Trace{}, err
	}
	run := s.Run
	run.Schedule = schedule
	run.Config.Invariants = []string{s.Expect.Violated}
	t, err := run.trace()
	if err != nil {
		return t, err
	}
	_, made, err := race.ParseSchedule(t.Schedule)
	if err != nil {
		return t, err
	}
	if race.Words(made) == race.Words(shown) {
		return t, errors.New("that is the schedule that the scenario shows: find another")
	}
	a := &attempt{t, made, race.Words(shown)}
	var lacks []string
	for _, g := range e.Goals {
		if says := g.missing(a); says != "" && !slices.Contains(lacks, says) {
			lacks = append(lacks, says)
		}
	}
	if lacks != nil {
		return t, errors.New(strings.Join(lacks, "; "))
	}
	return t, nil
}

// Groups returns the first parts of the names, in the order of teaching.
func Groups() []string {
	var list []string
	for _, s := range catalogue() {
		if g := s.Group(); !slices.Contains(list, g) {
			list = append(list, g)
		}
	}
	return list
}

// Where names the race's lock and servers, and the locks with the same race elsewhere.
func (s Scenario) Where() string {
	on := " on "
	if s.Elsewhere != "" {
		on = ", which runs on "
	}
	return strings.TrimSpace("Shown with " + strings.ReplaceAll(s.Run.Config.Algorithm, "+", " and ") + on + span(s.Servers) + ". " + s.Elsewhere)
}

// span lists servers, and successive versions as a range.
func span(servers []string) string {
	versions := oldredis.Versions()
	var list []string
	n := 0
	for i := 0; i < len(servers); i += n {
		at := slices.Index(versions, servers[i])
		for n = 1; at >= 0 && i+n < len(servers) && at+n < len(versions) && servers[i+n] == versions[at+n]; n++ {
		}
		if n > 2 {
			list = append(list, servers[i]+" to "+servers[i+n-1])
		} else {
			list, n = append(list, servers[i]), 1
		}
	}
	text := strings.Join(list, ", ")
	if len(servers) == len(versions)+len(oldredis.Profiles()) {
		return "every server (" + text + ")"
	}
	return text
}
