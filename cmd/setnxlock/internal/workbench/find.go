package workbench

import (
	"context"
	"errors"
	"fmt"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
)

// A Found is the answer to "find".
type Found struct {
	race.Report
	Says string `json:"says"` // what was looked for, with which faults, and what was not
}

// roomOf is how many states "find" looks at, if the page does not say.
const roomOf = 5_000_000

// furtherJumps are more than a level's schedule has: a word lets as much time pass as it says, and a jump ends where
// something does.
const furtherJumps = 3

// find searches for a violation: in a level, of its invariant by its faults; elsewhere of every
// invariant, with two jumps of time, one lost reply, and crashes.
func (q Question) find(ctx context.Context, progress func(Progress)) (Found, error) {
	c, _, err := race.ParseSchedule(q.Schedule)
	var choices []race.Choice
	if q.Race != "" {
		c, choices, err = level(q.Race)
	} else if err == nil && c.Algorithm == "" {
		err = errors.New("race: a schedule begins with algorithm, server and clients x attempts, and a colon")
	}
	if err != nil {
		return Found{}, err
	}
	if c.Locks, err = catalogue.With(Locks(), c.Algorithm); err != nil {
		return Found{}, err
	}
	if c.MaxStates, c.MaxMemory = q.States, 1<<30; q.States == 0 {
		c.MaxStates = roomOf
	}
	if progress != nil {
		c.Progress = func(s race.Stats) { progress(Progress{s.States, s.Depth, s.Elapsed.Seconds()}) }
	}
	if q.Race == "" {
		c.Invariants, c.Ticks, c.Faults = nil, 2, race.Faults{LostReplies: 1, Crash: true}
		return found(race.Explore(ctx, c))
	}
	if c, err = race.Within(c, choices); err != nil {
		return Found{}, err
	}
	var f Found
	for range furtherJumps + 1 {
		if f, err = found(race.Explore(ctx, c)); err != nil || f.Verdict != race.Safe || c.Ticks == 0 {
			break
		}
		c.Ticks++
	}
	return f, err
}

// level returns the configuration and the choices of a race.
func level(name string) (race.Config, []race.Choice, error) {
	s, ok := catalogue.Find(name)
	if !ok || s.Expect.Violated == "" {
		return race.Config{}, nil, fmt.Errorf("race: %q is no level", name)
	}
	choices, err := race.ParseWords(s.Run.Schedule)
	c := s.Run.Config
	c.Invariants, c.Anyway = []string{s.Expect.Violated}, true
	return c, choices, err
}

func found(r race.Result, err error) (Found, error) {
	return Found{r.Report(), r.Looked.Says()}, err
}
