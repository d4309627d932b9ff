// Package racetest explores a lock in a test.
//
//	racetest.Check(t, race.Config{New: newMyLock, Server: "2.4", Ticks: 3})
package racetest

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"strings"

	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/view"
)

// A TB is what Check needs of a test; *testing.T and *testing.B are one.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// Check explores c. It fails the test if an invariant breaks, with a shortest way as a timeline and the line that replays it
// in a test ([Replay]), or if there was no room to explore all of c. It runs all client code twice, to catch what is not
// deterministic.
func Check(t TB, c race.Config) {
	t.Helper()
	c.Verify = true
	r, err := race.Explore(context.Background(), c)
	if err != nil {
		t.Fatalf("%v", err)
		return
	}
	switch r.Verdict {
	case race.Violated:
		t.Fatalf("%s is violated in %d steps (%d states explored)\n\n%s", r.Trace.Verdict.Violated, len(r.Trace.Events), r.States, shown(c, *r.Trace))
	case race.BoundReached:
		t.Fatalf("explored %d states and nothing broke, but there was no room for more %s: nothing is proved", r.States, r.Bound)
	}
	t.Logf("%v (%s)\n%s", r, r.Bounds, r.Looked.Says())
}

// Replay runs a schedule, as a failing Check prints it, and logs its timeline. It fails the test if an invariant breaks, or if
// the schedule can't be made. Of c it needs what the line can't say: New, or Locks.
//
//	racetest.Replay(t, race.Config{New: newMyLock}, "own 7.0 2x2 check=exclusion : C1 +9.901s C2 C1")
func Replay(t TB, c race.Config, line string) {
	t.Helper()
	of, choices, err := race.ParseSchedule(line)
	if err != nil {
		t.Fatalf("%v", err)
		return
	}
	of.New, of.Locks = c.New, c.Locks
	tr, err := race.Replay(of, choices)
	switch {
	case err != nil:
		t.Fatalf("the schedule can't be made: %v\n\n%s", err, view.Timeline(tr, view.TimelineOptions{}))
	case tr.Verdict.Violated != "":
		t.Fatalf("%s is violated at step %d\n\n%s", tr.Verdict.Violated, tr.Verdict.Step, shown(c, tr))
	default:
		t.Logf("%s", shown(c, tr))
	}
}

// shown writes a trace as a timeline. A lock that the command does not know is replayed by a line of
// Go.
func shown(c race.Config, t race.Trace) string {
	text := view.Timeline(t, view.TimelineOptions{})
	config := ""
	switch {
	case c.New != nil:
		config = "New: " + nameOf(c.New)
	case c.Locks != nil:
		config = "Locks: …"
	}
	line := fmt.Sprintf("racetest.Replay(t, race.Config{%s}, %q)", config, t.Schedule)
	if config == "" {
		return text + "\nin a test  " + line + "\n"
	}
	return strings.Replace(text, t.ReplayLine(), line, 1)
}

// nameOf returns a function's name in its package; of one without a name "…".
func nameOf(f func(token func() string) protocol.Algorithm) string {
	full := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
	name := full[strings.LastIndex(full, "/")+1:]
	if _, name, _ = strings.Cut(name, "."); name == "" || strings.ContainsAny(name, ".()") {
		return "…"
	}
	return name
}
