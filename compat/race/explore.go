package race

import (
	"context"
	"errors"
	"fmt"

	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/live"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/search"
)

// Explore runs every schedule of c, breadth-first, and returns the first that breaks an invariant,
// which is then a shortest one, or the verdict that none does.
//
// Every schedule means: within c's clients, attempts, faults and jumps of time; for one lock; as
// the embedded server behaves. States are identified by 64-bit fingerprints: for n states, the
// chance that two different ones have the same is n²/2⁶⁵. Time jumps to the moments at which
// something changes for a client. A client does not pause between two readings of its clock if it
// sends nothing in between.
//
// A lock that refuses the server is an error: exploring it would show nothing.
func Explore(ctx context.Context, c Config) (Result, error) {
	full, err := plan.Complete(c)
	if err != nil {
		return Result{}, err
	}
	if err := client.Refuses(full); err != nil {
		return Result{}, err
	}
	return explore(ctx, full, search.NewRuns(full))
}

// explore is Explore with what was found out about the clients' code before.
func explore(ctx context.Context, c *plan.Setup, rs *search.Runs) (Result, error) {
	r, ways, err := search.Find(ctx, c, rs)
	if err != nil {
		return r, err
	}
	for _, w := range ways {
		t, err := retrace(c, w)
		if err != nil {
			return r, err
		}
		r.Breaks = append(r.Breaks, t)
	}
	if len(r.Breaks) > 0 {
		r.Trace = &r.Breaks[0]
	}
	return r, nil
}

// retrace replays a way to break an invariant, on live code.
func retrace(of *plan.Setup, w search.Way) (Trace, error) {
	c := *of
	if c.Each {
		c.Invariants = []string{w.Invariant}
	}
	t, err := live.Replay(&c, w.Choices)
	if err != nil {
		return t, fmt.Errorf("race: the search found what the replay does not: %w", err)
	}
	if t.Verdict.Violated != w.Invariant {
		return t, fmt.Errorf("race: the search found %s violated and the replay %q, by %s", w.Invariant, t.Verdict.Violated, t.Schedule)
	}
	return t, nil
}

// Replay runs the choices, step by step, on a live server, and records
// what happens. A choice that can't be made where it stands is an error; an
// invariant that breaks is not: the trace goes on to the end of the choices, and
// Trace.Verdict says where it broke first.
func Replay(c Config, choices []Choice) (Trace, error) {
	full, err := plan.Complete(c)
	if err != nil {
		return Trace{}, err
	}
	return live.Replay(full, choices)
}

// ReplaySchedule runs a whole line, as Schedule writes it. Its algorithms are this
// module's, or of locks.
func ReplaySchedule(line string, locks Locks) (Trace, error) {
	c, choices, err := ParseSchedule(line)
	c.Locks = locks
	if err != nil {
		return Trace{}, err
	}
	if c.Algorithm == "" {
		return Trace{}, errors.New("race: a schedule begins with algorithm, server and clients x attempts, and a colon")
	}
	return Replay(c, choices)
}
