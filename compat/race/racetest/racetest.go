// Package racetest explores a lock in a test.
//
//	racetest.Check(t, race.Config{New: newMyLock, Server: "2.4", Ticks: 3})
package racetest

import (
	"context"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/view"
)

// A TB is what Check needs of a test; *testing.T and *testing.B are one.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// Check explores c. It fails the test if an invariant breaks, with a shortest way as a timeline and
// the line that replays it, or if there was no room to explore all of c. It runs all client code
// twice, to catch what is not deterministic.
func Check(t TB, c race.Config) {
	t.Helper()
	c.Verify = true
	r, err := race.Explore(context.Background(), c)
	if err != nil {
		t.Fatalf("%v", err)
	}
	switch r.Verdict {
	case race.Violated:
		t.Fatalf("%s is violated in %d steps (%d states explored)\n\n%s", r.Trace.Verdict.Violated, len(r.Trace.Events), r.States,
			view.Timeline(*r.Trace, view.TimelineOptions{}))
	case race.BoundReached:
		t.Fatalf("explored %d states and nothing broke, but there was no room for more %s: nothing is proved", r.States, r.Bound)
	}
	t.Logf("%v (%s)", r, r.Bounds)
}
