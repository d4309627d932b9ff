package workbench

import (
	"context"
	"fmt"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
)

// A Found is the answer to "find".
type Found struct {
	race.Report
	Says string `json:"says"` // what was looked for, with which faults, and what was not
}

// room is how many states "find" looks at.
const room = 5_000_000

// furtherJumps are more than a level's schedule has: a word lets as much time pass as it says, and a jump ends where
// something does.
const furtherJumps = 3

// find searches for a violation from the beginning: in a level of its invariant by its faults, elsewhere by the
// faults and jumps of time of the question.
func (q Question) find(ctx context.Context, progress func(Progress)) (Found, error) {
	read := q.read
	if q.Race != "" {
		read = q.level
	}
	c, choices, err := read()
	if err != nil {
		return Found{}, err
	}
	c.MaxStates, c.MaxMemory = room, 1<<30
	if progress != nil {
		c.Progress = func(s race.Stats) { progress(Progress{s.States, s.Depth, s.Elapsed.Seconds()}) }
	}
	further := furtherJumps
	if q.Race == "" {
		c.Invariants, c.Faults, c.Ticks, further = nil, q.Faults, q.Ticks, 0
		if q.Check != "" {
			c.Invariants = []string{q.Check}
		}
	} else if c, err = race.Within(c, choices); err != nil {
		return Found{}, err
	}
	for {
		r, err := race.Explore(ctx, c)
		if further--; err != nil || r.Verdict != race.Safe || c.Ticks == 0 || further < 0 {
			return Found{r.Report(), r.Looked.Says()}, err
		}
		c.Ticks++
	}
}

// level returns the configuration and the choices of a race.
func (q Question) level() (race.Config, []race.Choice, error) {
	s, ok := catalogue.Find(q.Race)
	if !ok || s.Expect.Violated == "" {
		return race.Config{}, nil, fmt.Errorf("race: %q is no level", q.Race)
	}
	c := s.Run.Config
	c.Invariants, c.Anyway = []string{s.Expect.Violated}, true
	choices, err := race.ParseWords(s.Run.Schedule)
	if err == nil {
		c.Locks, err = catalogue.With(Locks(), c.Algorithm)
	}
	return c, choices, err
}
