package workbench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
)

// A Found is the answer to "find".
type Found struct {
	race.Report
	Answer string `json:"answer"` // in a line
	Says   string `json:"says"`   // what was looked for, with which faults, and what was not
}

// room is how many states "find" looks at.
const room = 5_000_000

// graphStates is how many states around a race are known: by a level's hints, and where the explorer can't go.
const graphStates = 400

// openingStates are more than the opening has: a beginner goes anywhere.
const openingStates = 3000

// furtherJumps are more than a race's schedule has: a word lets as much time pass as it says, and a jump ends where
// something does.
const furtherJumps = 3

// exclusion is looked at first: a reader asks whether two can hold the lock.
const exclusion = "exclusion"

// find searches for a violation from the beginning: of a race of the catalogue for its own, by its own faults,
// elsewhere by the faults and jumps of time of the question.
func (q Question) find(ctx context.Context, progress func(Progress)) (Found, error) {
	if q.Race != "" {
		return q.findRace(ctx, progress)
	}
	c, _, err := q.read()
	if err != nil {
		return Found{}, err
	}
	c.Faults, c.Ticks, c.Invariants = q.Faults, q.Ticks, []string{q.Check}
	if q.Check != "" {
		return explored(ctx, c, progress)
	}
	c.Invariants = []string{exclusion}
	first, err := explored(ctx, c, progress)
	if err == nil && first.Verdict == race.Violated {
		return first, nil
	}
	c.Invariants = nil // and a lock without exclusion, of readers, has others
	f, err := explored(ctx, c, progress)
	if first.Verdict == race.Safe && f.Verdict == race.Violated {
		f.Answer = "No two clients hold it at once within these bounds. But " + f.Answer
	}
	return f, err
}

// findRace does find for a race of the catalogue.
func (q Question) findRace(ctx context.Context, progress func(Progress)) (Found, error) {
	c, choices, most, err := recorded(q.Race)
	if err != nil {
		return Found{}, err
	}
	within, err := race.Within(c, choices)
	jumps := slices.ContainsFunc(choices, func(c race.Choice) bool { return c.Verb == race.Jump })
	for further := furtherJumps; err == nil && !jumps && further >= 0; further-- {
		f, broke := explored(ctx, within, progress)
		if ctx.Err() != nil {
			return f, broke
		}
		if broke == nil && f.Verdict == race.Violated && f.Steps <= most {
			return f, nil
		}
		if within.Ticks == 0 || f.Verdict == race.Violated {
			break
		}
		within.Ticks++
	}
	return nearby(c, choices) // it needs a fault, or a moment, that the explorer has not
}

// recorded returns the configuration of a race of the catalogue, or of the opening, a schedule that breaks it, and the
// number of its steps.
func recorded(name string) (c race.Config, choices []race.Choice, steps int, err error) {
	if name == openingName {
		c, choices, err = race.ParseSchedule(opening)
		steps = len(choices)
	} else if s, ok := catalogue.Find(name); ok && s.Expect.Violated != "" {
		c, steps = s.Run.Config, s.Expect.Step
		c.Invariants = []string{s.Expect.Violated}
		choices, err = race.ParseWords(s.Run.Schedule)
	} else {
		err = fmt.Errorf("race: %q is no race that breaks a lock", name)
	}
	c.Anyway, c.Locks = true, Locks()
	return c, choices, steps, err
}

// The game that the page begins with is the lock of the SETNX page.
const (
	openingName = "opening"
	opening     = "getset:classic 2.4 2x3 check=exclusion : C1 C1 +10.001s C2 C2 C2 C1 C1"
)

// explored runs every order.
func explored(ctx context.Context, c race.Config, progress func(Progress)) (Found, error) {
	c.MaxStates, c.MaxMemory = room, 1<<30
	if progress != nil {
		c.Progress = func(s race.Stats) { progress(Progress{s.States, s.Depth, s.Elapsed.Seconds()}) }
	}
	r, err := race.Explore(ctx, c)
	if err != nil {
		return Found{}, err
	}
	if r.Trace != nil {
		r.Trace, err = joined(c, *r.Trace)
	}
	return found(c, r, r.Looked.Says()), err
}

// nearby searches the states around a race that can be replayed and not explored: what goes wrong in it goes wrong
// at any other of its moments, and nothing else does.
func nearby(c race.Config, choices []race.Choice) (Found, error) {
	g, err := race.Around(race.Schedule(c, choices), graphStates, c.Locks, nil)
	if err != nil {
		return Found{}, err
	}
	way, err := race.ParseWords(strings.Join(shortest(g, c.Invariants[0]), " "))
	if err != nil {
		return Found{}, err
	}
	at, err := At(c, way)
	var faults []string
	for _, c := range choices {
		if c.Verb != race.Step && c.Verb != race.Run {
			faults = append(faults, c.String())
		}
	}
	says := "Looked for " + c.Invariants[0] + " near this race, with its own " + strings.Join(faults, ", ") +
		" at any moment, and nothing else that goes wrong."
	return found(c, race.Result{Verdict: race.Violated, States: len(g.States), Trace: &at.Trace}, says), err
}

// joined turns a run into a reader's steps: jumps of time without a step in between become one card. The explorer stops
// time wherever something changes.
func joined(c race.Config, t race.Trace) (*race.Trace, error) {
	_, choices, err := race.ParseSchedule(t.Schedule)
	if err != nil {
		return &t, err
	}
	made := choices[:0]
	for _, c := range choices {
		if n := len(made); n > 0 && c.Verb == race.Pass && made[n-1].Verb == race.Pass {
			made[n-1].By += c.By
		} else {
			made = append(made, c)
		}
	}
	at, err := At(c, made)
	if err != nil || at.Trace.Verdict.Violated != t.Verdict.Violated {
		return &t, nil // what it needs is a moment in between
	}
	return &at.Trace, nil
}

// shortest is a shortest way through a graph to where an invariant is broken, in words; nil: there is none.
func shortest(g race.Graph, broken string) []string {
	type place struct {
		state int
		words []string
	}
	seen := make([]bool, len(g.States))
	for next := []place{{}}; len(next) > 0; next = next[1:] {
		at := next[0]
		if g.States[at.state].Broken == broken {
			return at.words
		}
		for _, word := range slices.Sorted(maps.Keys(g.States[at.state].To)) {
			if to := g.States[at.state].To[word]; !seen[to] {
				seen[to] = true
				next = append(next, place{to, append(at.words[:len(at.words):len(at.words)], word)})
			}
		}
	}
	return nil
}

// named is the name of an algorithm for a reader, without the lines of a lock of his own.
func named(algorithm string) string {
	list := strings.Split(algorithm, "+")
	for i, name := range list {
		if strings.HasPrefix(name, catalogue.Form) {
			list[i] = "a lock of your own"
		}
	}
	return strings.Join(list, " with ")
}

// steps counts.
func steps(n int) string {
	if n == 1 {
		return "1 step"
	}
	return fmt.Sprint(n, " steps")
}

// found words the result of a search.
func found(c race.Config, r race.Result, says string) Found {
	f := Found{Report: r.Report(), Says: says}
	who := named(c.Algorithm)
	switch r.Verdict {
	case race.Violated:
		f.Answer = fmt.Sprintf("%s breaks %s in %s.", who, f.Violated, steps(f.Steps))
	case race.Safe:
		f.Answer = fmt.Sprintf("Nothing breaks within these bounds: %s.", who)
	default:
		f.Answer = fmt.Sprintf("Nothing broke before there was no room for more %s: this proves nothing.", r.Bound)
	}
	return f
}
