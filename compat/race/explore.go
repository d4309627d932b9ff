package race

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// A Result is what an exploration found.
type Result struct {
	Verdict     Outcome       `json:"verdict"`
	Bounds      string        `json:"bounds"`          // within which the verdict holds
	Bound       string        `json:"bound,omitempty"` // of a BoundReached: "states" or "memory"
	States      int           `json:"states"`          // different ones; with symmetry, up to who is called what
	Transitions int           `json:"transitions"`
	Depth       int           `json:"depth"` // choices of the longest shortest way to a state
	Elapsed     time.Duration `json:"-"`
	Runs        int           `json:"-"` // pieces of client code that were run
	Commands    int           `json:"-"` // requests that the server was asked

	// Trace is a shortest way to break an invariant. nil if none is broken.
	Trace *Trace `json:"trace,omitempty"`

	// Breaks are, with Config.Each, the shortest ways to break each invariant that can be broken;
	// otherwise only Trace.
	Breaks []Trace `json:"-"`
}

// A Report is a Result as programs read it.
type Report struct {
	Result
	Seconds  float64 `json:"seconds"`
	Violated string  `json:"violated,omitempty"`
	Steps    int     `json:"steps,omitempty"`
	Schedule string  `json:"schedule,omitempty"`
}

// Report returns the Result with what its Trace says.
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
	full, err := c.complete()
	if err != nil {
		return Result{}, err
	}
	if err := refuses(full); err != nil {
		return Result{}, err
	}
	return explore(ctx, full, newRuns(full))
}

// explore is Explore with what was found out about the clients' code before.
func explore(ctx context.Context, c *Config, rs *runs) (Result, error) {
	ran := rs.ran
	x, b, err := examine(ctx, c, rs, false)
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

// examine searches all there is. The search returned is to be closed.
func examine(ctx context.Context, c *Config, rs *runs, logs bool) (*search, bound, error) {
	x, b, err := search1(ctx, c, rs, logs)
	if x == nil && err == nil {
		rs.relearn()
		x, b, err = search1(ctx, c, rs, logs)
	}
	return x, b, err
}

// result is what was found, without the traces.
func (x *search) result(b bound) Result {
	r := Result{Verdict: Safe, Bound: string(b), States: len(x.links), Transitions: x.transitions, Depth: x.depth,
		Elapsed: time.Since(x.began), Commands: x.trans.ran, Bounds: x.c.bounds()}
	if b != "" {
		r.Verdict = BoundReached
	}
	if len(x.broken) > 0 {
		r.Verdict = Violated
	}
	return r
}

// trace replays the way to a breach, on live code.
func (x *search) trace(w finding) (Trace, error) {
	return retrace(x.c, w.breach.how.invariant(), x.schedule(w))
}

// retrace replays a schedule that breaks an invariant.
func retrace(of *Config, want string, way []Choice) (Trace, error) {
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

// search1 searches once; it returns nil if an operation that was taken to ignore the time reads it.
func search1(ctx context.Context, c *Config, rs *runs, logs bool) (x *search, b bound, err error) {
	x, err = newSearch(c, rs)
	if err != nil {
		return nil, "", err
	}
	defer func() {
		r := recover()
		if r != nil {
			x.close()
			x = nil
			if _, ok := r.(readsTime); !ok {
				panic(r)
			}
		}
	}()
	x.trans.logs = logs
	x.workers = c.workers()
	b, err = x.explore(ctx)
	if err != nil {
		x.close()
		return nil, "", err
	}
	return x, b, nil
}

// String is the verdict in a line or two.
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

func (c *Config) bounds() string {
	f := &c.Faults
	list := []string{fmt.Sprintf("%d clients × %d attempts", c.Clients, c.Attempts)}
	add := func(n int, one, many string) {
		switch {
		case n == 1:
			list = append(list, "1 "+one)
		case n > 1:
			list = append(list, fmt.Sprintf("%d %s", n, many))
		}
	}
	add(c.Ticks, "jump of time", "jumps of time")
	add(f.LostReplies, "lost reply", "lost replies")
	add(f.LostRequests, "lost request", "lost requests")
	add(f.LateRequests, "late request", "late requests")
	add(f.Cuts, "cut", "cuts")
	add(f.Refusals, "refusal", "refusals")
	if f.Crash {
		list = append(list, "crashes")
	}
	add(f.Restart, "restart", "restarts")
	add(f.Failover, "failover", "failovers")
	add(f.Evict, "eviction", "evictions")
	add(f.Down, "server that goes", "servers that go")
	if f.Unreaped {
		list = append(list, "expired keys unreaped")
	}
	return strings.Join(list, ", ")
}

// schedule is the way to the breach, in choices that a world can make.
func (x *search) schedule(w finding) []Choice {
	var moves []move
	for l := w.link; l.choice != 0; l = x.links[l.parent] {
		moves = append(moves, l.choice-1)
	}
	s := x.first0()
	var real [maxClients]int // who stands behind a name
	for i := range real {
		real[i] = i
	}
	rename := func() {
		if r := x.names.canonical(&s); r != nil {
			was := real
			for i := range x.c.Clients {
				real[r.to[i]] = was[i]
			}
		}
	}
	rename()
	var choices []Choice
	for n := len(moves) - 1; n >= 0; n-- {
		m := moves[n]
		now := s.now
		s = x.make(&s, m)
		choices = append(choices, m.choices(now, x.words, &real)...)
		rename()
	}
	if w.breach.how == stuck {
		for i := range x.c.Clients {
			for k, r := range real {
				if p := x.runs.nodes[s.cells[k].node].phase; r == i && k < x.c.Clients && p != idle && p != finished {
					choices = append(choices, Choice{Verb: Crash, Client: i})
				}
			}
		}
	}
	return choices
}

// make makes one move.
func (x *search) make(s *state, m move) (t state) {
	switch v := m.verb(); {
	case v == Arrive:
		t, _ = x.arrive(s)
	case v == Pass || v == PassUnreaped:
		t, _ = x.pass(s, m)
	case v > PassUnreaped:
		t, _ = x.serve(s, v, m.client())
	default:
		t, _, _ = x.step(s, v, m.client(), m.ran())
	}
	return t
}

// choices are what a move is in a schedule: a client's takes as many words as
// it has commands.
func (m move) choices(now int32, words int, real *[maxClients]int) []Choice {
	var list []Choice
	switch v := m.verb(); {
	case v == Pass || v == PassUnreaped:
		for i, r := range real {
			if m.looks()&(1<<i) != 0 {
				list = append(list, Choice{Verb: Look, Client: r})
			}
		}
		list = append(list, Choice{Verb: v, By: time.Duration(m.until()-now) * time.Millisecond})
	case v > PassUnreaped:
		list = append(list, Choice{Verb: v, Server: m.client()})
	default:
		last := Choice{Verb: v, Client: real[m.client()]}
		if v == Refuse {
			last.Verb = Step
		}
		for ; words > 1; words-- {
			list = append(list, Choice{Verb: Step, Client: last.Client})
		}
		list = append(list, last)
		if v == Refuse {
			list[m.at()].Verb, list[m.at()].Nth = Refuse, m.nth()
		}
	}
	return list
}
