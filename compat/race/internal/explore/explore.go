// Package explore finds what a lock promises: it has a Config searched, replays each way to break an invariant on
// live code, and computes the guarantees and the remedies.
package explore

import (
	"context"
	"fmt"

	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/live"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/search"
	"github.com/setnxlock/setnxlock/compat/race/internal/trace"
)

// Explore searches c, and replays a violation. Package race says what every schedule means.
func Explore(ctx context.Context, c plan.Config) (search.Result, error) {
	full, err := plan.Complete(c)
	if err != nil {
		return search.Result{}, err
	}
	if err := client.Refuses(full); err != nil && !c.Anyway {
		return search.Result{}, err
	}
	return explore(ctx, full, search.NewRuns(full))
}

// explore does Explore with earlier runs of the clients' code.
func explore(ctx context.Context, c *plan.Setup, rs *search.Runs) (search.Result, error) {
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
func retrace(of *plan.Setup, w search.Way) (trace.Trace, error) {
	c := *of
	if c.Each {
		c.Invariants = []string{w.Invariant}
	}
	t, err := live.Replay(&c, w.Choices)
	if err != nil {
		return t, fmt.Errorf("race: the search found what the replay does not: %w", err)
	}
	if t.Verdict.Violated != w.Invariant {
		return t, fmt.Errorf("race: the search found %s violated and the replay %q, by %s", w.Invariant,
			t.Verdict.Violated, t.Schedule)
	}
	return t, nil
}
