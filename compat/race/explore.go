package race

import (
	"context"
	"fmt"
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
	full, err := complete(c)
	if err != nil {
		return Result{}, err
	}
	if err := refuses(full); err != nil {
		return Result{}, err
	}
	return explore(ctx, full, newRuns(full))
}

// explore is Explore with what was found out about the clients' code before.
func explore(ctx context.Context, c *setup, rs *runs) (Result, error) {
	ran := rs.ran
	x, b, err := examine(ctx, c, rs, nil, false)
	if err != nil {
		return Result{}, err
	}
	defer x.close()
	r := x.result(b)
	r.Runs = rs.ran - ran
	for _, w := range x.broken {
		t, err := x.trace(w)
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

// retrace replays a schedule that breaks an invariant.
func retrace(of *setup, want string, way []Choice) (Trace, error) {
	c := *of
	if c.Each {
		c.Invariants = []string{want}
	}
	t, err := replay(&c, way)
	if err != nil {
		return t, fmt.Errorf("race: the search found what the replay does not: %w", err)
	}
	if t.Verdict.Violated != want {
		return t, fmt.Errorf("race: the search found %s violated and the replay %q, by %s", want, t.Verdict.Violated, t.Schedule)
	}
	return t, nil
}
