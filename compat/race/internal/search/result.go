package search

import (
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/trace"
)

// A Result is what an exploration found.
type Result struct {
	Verdict     Outcome       `json:"verdict"`
	Bounds      string        `json:"bounds"`          // within which the verdict holds
	Looked      plan.Looked   `json:"looked"`          // for what, and with what
	Bound       string        `json:"bound,omitempty"` // of a BoundReached: "states" or "memory"
	States      int           `json:"states"`          // different ones; with symmetry, up to who is called what
	Transitions int           `json:"transitions"`
	Depth       int           `json:"depth"` // choices of the longest shortest way to a state
	Elapsed     time.Duration `json:"-"`
	Runs        int           `json:"-"` // pieces of client code that were run
	Commands    int           `json:"-"` // requests that the server was asked

	// Trace is a shortest way to break an invariant. nil if none is broken.
	Trace *trace.Trace `json:"trace,omitempty"`

	// Breaks are, with Config.Each, the shortest ways to break each invariant that can be broken;
	// otherwise only Trace.
	Breaks []trace.Trace `json:"-"`
}

// A Report is a Result as programs read it.
type Report struct {
	Result
	Seconds  float64 `json:"seconds"`
	Violated string  `json:"violated,omitempty"`
	Steps    int     `json:"steps,omitempty"`
	Schedule string  `json:"schedule,omitempty"`
}

// Report returns the Result with its Trace's report.
func (r Result) Report() Report {
	p := Report{Result: r, Seconds: r.Elapsed.Seconds()}
	if t := r.Trace; t != nil {
		p.Violated, p.Steps, p.Schedule = t.Verdict.Violated, len(t.Events), t.Schedule
	}
	return p
}

// An Outcome is the verdict of an exploration.
type Outcome string

const (
	// Safe: every schedule within the bounds was run, and no invariant broke.
	Safe Outcome = "holds"
	// Violated: an invariant broke.
	Violated Outcome = "violated"
	// BoundReached: nothing broke until the states or the memory ran out. It proves nothing.
	BoundReached Outcome = "bound"
)

// String writes the verdict in a line or two.
func (r Result) String() string {
	s := fmt.Sprintf("%s: %d states, %d transitions, depth %d, %v", r.Verdict, r.States, r.Transitions, r.Depth, r.Elapsed.Round(time.Millisecond))
	if r.Bound != "" {
		s += " (no room for more " + r.Bound + "; this proves nothing)"
	}
	if r.Trace != nil {
		s += fmt.Sprintf("\n%s in %d steps\n%s", r.Trace.Verdict.Violated, len(r.Trace.Events), r.Trace.ReplayLine())
	}
	return s
}
