package race

import "context"

// A TB is what Check needs of a test; *testing.T and *testing.B are one.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// Check explores c and fails the test if an invariant breaks, with the shortest
// way to it as a timeline and the line that replays it; or if there was no room
// to explore all of it. All client code is run twice, to catch what is not
// deterministic.
func Check(t TB, c Config) {
	t.Helper()
	c.Verify = true
	r, err := Explore(context.Background(), c)
	if err != nil {
		t.Fatalf("%v", err)
	}
	switch r.Verdict {
	case Violated:
		t.Fatalf("%s is violated in %d steps (%d states explored)\n\n%s", r.Trace.Verdict.Violated, len(r.Trace.Events), r.States,
			Timeline(*r.Trace, TimelineOptions{}))
	case BoundReached:
		t.Fatalf("explored %d states and nothing broke, but there was no room for more %s: nothing is proved", r.States, r.Bound)
	}
	t.Logf("%v (%s)", r, r.Bounds())
}
