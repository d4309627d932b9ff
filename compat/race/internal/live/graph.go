package live

import (
	"errors"
	"fmt"
	"slices"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/trace"
)

// A Graph is the states around a run, and where each choice leads. States[0] is the beginning.
type Graph struct {
	States []GraphState `json:"states"`
	Cut    bool         `json:"cut,omitempty"` // more can happen than the graph has
}

// A GraphState is one state of a Graph.
type GraphState struct {
	To     map[string]int `json:"to"`               // by a word of a schedule: the index of a state
	Broken string         `json:"broken,omitempty"` // the invariant that is; no choice leads on from there
}

// Times are jumps of time that can be made after a run.
type Times func([]plan.Choice, trace.Trace) []plan.Choice

// Around returns the graph around a schedule: from each reachable state, every client's next step, the
// schedule's faults as often as they stand in it, and as many jumps of time: the schedule's, and those of
// times (nil: none), which takes the run so far. Of more than limit states it has those of the schedule and
// the nearest to them. The algorithms are this module's, or of locks.
func Around(schedule string, limit int, locks plan.Locks, times Times) (Graph, error) {
	c, choices, err := plan.ParseSchedule(schedule)
	if err != nil {
		return Graph{}, err
	}
	c.Locks = locks
	full, err := plan.Complete(c)
	if err != nil {
		return Graph{}, err
	}
	g := &grapher{c: full, limit: limit, known: map[string]int{}, times: times}
	g.offer(choices)
	err = g.explore(choices)
	return g.graph, err
}

var errTooLarge = errors.New("race: the graph has more states than were asked for")

// A grapher explores breadth first with the engine that replays.
type grapher struct {
	c     *plan.Setup
	limit int
	graph Graph
	known map[string]int // a state's number, by all that it is
	extra []plan.Choice  // the faults and jumps of time that are offered, each once
	often []int          // how often each may be chosen; of all jumps of time together, where the first stands
	times Times
}

// offer finds the choices beside each client's next step.
func (g *grapher) offer(choices []plan.Choice) {
	for _, c := range choices {
		if c.Verb == plan.Step || c.Verb == plan.Run {
			continue
		}
		n := g.budget(c)
		if n < 0 || g.extra[n] != c {
			g.extra, g.often = append(g.extra, c), append(g.often, 0)
			n = g.budget(c)
		}
		g.often[n]++
	}
}

// budget is the index in often of what a choice is taken from; -1: a client's step is taken from nothing.
func (g *grapher) budget(c plan.Choice) int {
	for n, e := range g.extra {
		if e == c || e.Verb == plan.Pass && c.Verb == plan.Pass {
			return n
		}
	}
	return -1
}

// A junction is a state that is still to be expanded, and the way to it.
type junction struct {
	path []plan.Choice
	left []int // of the extra choices
}

// explore goes breadth first from all states of the trace.
func (g *grapher) explore(choices []plan.Choice) error {
	at := junction{left: g.often}
	if _, _, _, err := g.visit(at); err != nil {
		return err
	}
	next := []junction{at}
	for _, c := range choices {
		at = junction{append(slices.Clone(at.path), c), g.without(at.left, c)}
		switch _, _, fresh, err := g.visit(at); {
		case errors.Is(err, errTooLarge): // a schedule of its own length
			g.graph.Cut = true
		case err != nil:
			return err
		case fresh:
			next = append(next, at)
		}
	}
	for ; len(next) > 0; next = next[1:] {
		if err := g.expand(next[0], &next); err != nil {
			return err
		}
	}
	return nil
}

// without returns the remaining extra choices after one of them, or after a client's step.
func (g *grapher) without(left []int, c plan.Choice) []int {
	n := g.budget(c)
	if n < 0 {
		return left
	}
	left = slices.Clone(left)
	left[n]--
	return left
}

// expand finds the ways on from a junction.
func (g *grapher) expand(j junction, next *[]junction) error {
	from, run, _, err := g.visit(j)
	if err != nil || g.graph.States[from].Broken != "" {
		return err
	}
	try := func(c plan.Choice, left []int) error {
		to := junction{append(j.path[:len(j.path):len(j.path)], c), left}
		n, _, fresh, err := g.visit(to)
		if errors.As(err, new(Disabled)) {
			return nil
		}
		if errors.Is(err, errTooLarge) {
			g.graph.Cut = true
			return nil
		}
		if err != nil {
			return err
		}
		g.graph.States[from].To[c.String()] = n
		if fresh {
			*next = append(*next, to)
		}
		return nil
	}
	for i := range g.c.Clients {
		if err := try(plan.Choice{Client: i}, j.left); err != nil {
			return err
		}
	}
	more := g.extra
	if g.times != nil {
		more = append(more[:len(more):len(more)], g.times(j.path, run)...)
	}
	for _, c := range more {
		if n := g.budget(c); n < 0 || j.left[n] == 0 {
			continue
		}
		if err := try(c, g.without(j.left, c)); err != nil {
			return err
		}
	}
	return nil
}

// visit goes to a junction and returns its state's number, the run there, and whether it is new.
func (g *grapher) visit(j junction) (n int, run trace.Trace, fresh bool, err error) {
	w, err := NewWorld(g.c)
	if err != nil {
		return 0, run, false, err
	}
	defer w.Close()
	s := newNarrator(w)
	var d = &Outcome{}
	for _, c := range j.path {
		if d, err = w.Apply(c); err != nil {
			return 0, run, false, err
		}
		s.add(d)
	}
	state := GraphState{To: map[string]int{}}
	storage := s.trace.Start.Storage
	if k := len(s.trace.Events); k > 0 {
		e := s.trace.Events[k-1]
		storage = e.Server.Storage
		if e.Violation != nil {
			state.Broken = e.Violation.Invariant
		}
	}
	key := fmt.Sprint(w.Identity(true), j.left, state.Broken, s.beliefs(d), storage)
	if n, ok := g.known[key]; ok {
		return n, s.trace, false, nil
	}
	if len(g.graph.States) == g.limit {
		return 0, run, false, errTooLarge
	}
	g.graph.States = append(g.graph.States, state)
	g.known[key] = len(g.graph.States) - 1
	return len(g.graph.States) - 1, s.trace, true, nil
}

// Identity tells worlds apart: the server's content and connections, the clients' histories, the
// invariants' memory; and, if a client may come back to it, the server's content before its last
// write.
func (w *World) Identity(before bool) string {
	s := fmt.Sprintf("%q %v", w.Server.Snapshot().Key(), w.ghost)
	if before {
		s += fmt.Sprintf("%q", w.Before.ContentKey())
	}
	if f := w.late; f != nil {
		conn := oldredis.ConnState{}.Key()
		if f.conn != nil {
			conn = f.conn.State().Key()
		}
		s += fmt.Sprintf(" late %d %q %q", f.client, f.write, conn)
	}
	for _, p := range w.Players {
		conn := fmt.Sprint(p.cut)
		if p.conn != nil {
			conn = p.conn.State().Key()
		}
		s += fmt.Sprintf(" %d.%x%s", p.Attempt, p.heard, conn)
	}
	return s
}
