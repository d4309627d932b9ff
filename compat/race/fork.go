package race

import (
	"errors"
	"fmt"
	"slices"

	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// ForkStates is how many states fit well on a page: some 200 KB.
const ForkStates = 400

// WithFork returns t with the graph around it: from each state that can be
// reached, every client's next step, and the faults and jumps of time of t's
// own schedule as often as they stand in it. Of more than limit states it has those
// of t and the nearest to them; a state of which something was left out says so
// (GraphState.Cut). The algorithms are this module's, or of locks.
func WithFork(t Trace, limit int, locks Locks) (Trace, error) {
	c, choices, err := ParseSchedule(t.Schedule)
	c.Locks = locks
	if err != nil {
		return t, err
	}
	full, err := c.complete()
	if err != nil {
		return t, err
	}
	f := &forker{c: full, limit: limit, graph: &Graph{}, known: map[string]int{}}
	f.offer(choices)
	if err := f.explore(choices); err != nil {
		return t, err
	}
	f.follow(t, choices)
	t.Fork = f.graph
	return t, nil
}

var errTooLarge = errors.New("race: the graph is too large to embed")

// A forker explores breadth first with the engine that replays, because a page
// needs all that a trace says of each state.
type forker struct {
	c     *Config
	limit int
	graph *Graph
	known map[string]int // a state's number, by all that it is
	extra []Choice       // the faults and jumps of time that are offered, each once
	often []int          // how often each may be chosen
}

// offer finds the choices beside each client's next step.
func (f *forker) offer(choices []Choice) {
	for _, c := range choices {
		if c.Verb == Step || c.Verb == Run {
			continue
		}
		n := 0
		for n < len(f.extra) && f.extra[n] != c {
			n++
		}
		if n == len(f.extra) {
			f.extra, f.often = append(f.extra, c), append(f.often, 0)
		}
		f.often[n]++
	}
}

// A junction is a state that is still to be expanded, and the way to it.
type junction struct {
	path []Choice
	left []int // of the extra choices
}

// explore goes breadth first from all states of the trace.
func (f *forker) explore(choices []Choice) error {
	at := junction{left: f.often}
	if _, _, err := f.visit(at, nil); err != nil {
		return err
	}
	next := []junction{at}
	for _, c := range choices {
		at = junction{append(slices.Clone(at.path), c), f.without(at.left, c)}
		switch _, fresh, err := f.visit(at, nil); {
		case errors.Is(err, errTooLarge): // a trace of its own length
			f.graph.States[0].Cut = true
		case err != nil:
			return err
		case fresh:
			next = append(next, at)
		}
	}
	for ; len(next) > 0; next = next[1:] {
		if err := f.expand(next[0], &next); err != nil {
			return err
		}
	}
	return nil
}

// without is what is left of the extra choices after one of them, or after a client's step.
func (f *forker) without(left []int, c Choice) []int {
	n := slices.Index(f.extra, c)
	if n < 0 {
		return left
	}
	left = slices.Clone(left)
	left[n]--
	return left
}

// expand finds the ways on from a junction.
func (f *forker) expand(j junction, next *[]junction) error {
	from, _, err := f.visit(j, nil)
	if err != nil || f.graph.States[from].Broken != nil {
		return err
	}
	try := func(c Choice, left []int) error {
		to := junction{append(j.path[:len(j.path):len(j.path)], c), left}
		var step Event
		n, fresh, err := f.visit(to, &step)
		if errors.As(err, new(errDisabled)) {
			return nil
		}
		if errors.Is(err, errTooLarge) {
			f.graph.States[from].Cut = true
			return nil
		}
		if err != nil {
			return err
		}
		state := &f.graph.States[from]
		state.Choices = append(state.Choices, GraphChoice{Token: c.String(), Step: step, To: n})
		if fresh {
			*next = append(*next, to)
		}
		return nil
	}
	for i := range f.c.Clients {
		if err := try(Choice{Client: i}, j.left); err != nil {
			return err
		}
	}
	for n, c := range f.extra {
		if j.left[n] == 0 {
			continue
		}
		if err := try(c, f.without(j.left, c)); err != nil {
			return err
		}
	}
	return nil
}

// visit goes to a junction and returns its state's number, whether it is new,
// and in last the step that led there.
func (f *forker) visit(j junction, last *Event) (n int, fresh bool, err error) {
	w, err := newWorld(f.c)
	if err != nil {
		return 0, false, err
	}
	defer w.close()
	s := newNarrator(w)
	var d = &deed{}
	for _, c := range j.path {
		if d, err = w.apply(c); err != nil {
			return 0, false, err
		}
		s.add(d)
	}
	state := GraphState{Server: s.trace.Start, Belief: s.beliefs(d)}
	if k := len(s.trace.Events); k > 0 {
		e := s.trace.Events[k-1]
		state.Server, state.At, state.Broken = e.Server, e.At, e.Violation
		if last != nil {
			*last = Event{Who: e.Who, Cmd: e.Cmd, Reply: e.Reply, Note: e.Note, Lost: e.Lost, Why: e.Why}
		}
	}
	key := fmt.Sprint(w.identity(true), j.left, state.Broken, state.Belief, state.Server.Storage)
	if n, ok := f.known[key]; ok {
		return n, false, nil
	}
	if len(f.graph.States) == f.limit {
		return 0, false, errTooLarge
	}
	f.graph.States = append(f.graph.States, state)
	f.known[key] = len(f.graph.States) - 1
	return len(f.graph.States) - 1, true, nil
}

// identity is all that a world is: what the server holds and knows of its
// connections, what each client has received, what the invariants remember; and,
// if a client may come back to it, what the server held before its last write.
func (w *world) identity(before bool) string {
	s := fmt.Sprintf("%q %v", w.s.Snapshot().Key(), w.ghost)
	if before {
		s += fmt.Sprintf("%q", w.before.ContentKey())
	}
	if f := w.late; f != nil {
		conn := oldredis.ConnState{}.Key()
		if f.conn != nil {
			conn = f.conn.State().Key()
		}
		s += fmt.Sprintf(" late %d %q %q", f.client, f.write, conn)
	}
	for _, p := range w.players {
		conn := fmt.Sprint(p.cut)
		if p.conn != nil {
			conn = p.conn.State().Key()
		}
		s += fmt.Sprintf(" %d.%x%s", p.attempt, p.heard, conn)
	}
	return s
}

// follow gives the steps of the trace itself its own words: a scenario says
// some of them better than the engine can.
func (f *forker) follow(t Trace, choices []Choice) {
	at, seen := 0, 0
	for _, c := range choices {
		if seen == len(t.Events) {
			return
		}
		state := &f.graph.States[at]
		for i := range state.Choices {
			if g := &state.Choices[i]; g.Token == c.String() {
				e := t.Events[seen]
				if e.Who == g.Step.Who && e.Cmd == g.Step.Cmd {
					g.Step.Note, g.Step.Why = e.Note, e.Why
				}
				at, seen = g.To, seen+1
				break
			}
		}
	}
}
