package search

import (
	"context"
	"time"

	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/judge"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// Find searches c, with earlier runs of the clients' code. It returns the ways to break it, too.
func Find(ctx context.Context, c *plan.Setup, rs *Runs) (Result, []Way, error) {
	ran := rs.ran
	x, b, err := examine(ctx, c, rs, nil, false)
	if err != nil {
		return Result{}, nil, err
	}
	defer x.close()
	r := x.result(b)
	r.Runs = rs.ran - ran
	return r, x.ways(), nil
}

// A Way is a schedule that breaks an invariant.
type Way struct {
	Invariant string
	Choices   []plan.Choice
}

// ways returns the shortest ones to each breach.
func (x *search) ways() []Way {
	var all []Way
	for _, w := range x.broken {
		all = append(all, Way{w.breach.How.Invariant(), x.schedule(w)})
	}
	return all
}

// examine searches all there is. The search returned is to be closed.
func examine(ctx context.Context, c *plan.Setup, rs *Runs, a *Archive, logs bool) (*search, bound, error) {
	x, b, err := search1(ctx, c, rs, a, logs)
	if x == nil && err == nil {
		rs.relearn()
		x, b, err = search1(ctx, c, rs, a, logs)
	}
	return x, b, err
}

// result returns the findings, without the traces.
func (x *search) result(b bound) Result {
	r := Result{Verdict: Safe, Bound: string(b), States: len(x.links), Transitions: x.transitions, Depth: x.depth,
		Elapsed: time.Since(x.began), Commands: x.trans.ran, Bounds: x.c.Bounds(), Looked: x.c.Looked()}
	if b != "" {
		r.Verdict = BoundReached
	}
	if len(x.broken) > 0 {
		r.Verdict = Violated
	}
	return r
}

// search1 searches once; it returns nil if an operation reads the time against its declaration.
func search1(ctx context.Context, c *plan.Setup, rs *Runs, a *Archive, logs bool) (x *search, b bound, err error) {
	x, err = newSearch(c, rs, a)
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
	x.workers = c.Processors()
	b, err = x.explore(ctx)
	if err != nil {
		x.close()
		return nil, "", err
	}
	return x, b, nil
}

// schedule returns the way to the breach, in a world's choices.
func (x *search) schedule(w finding) []plan.Choice {
	var moves []move
	for l := w.link; l.choice != 0; l = x.links[l.parent] {
		moves = append(moves, l.choice-1)
	}
	s := x.first0()
	var real [plan.MaxClients]int // who stands behind a name
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
	var choices []plan.Choice
	for n := len(moves) - 1; n >= 0; n-- {
		m := moves[n]
		now := s.now
		s = x.make(&s, m)
		choices = append(choices, m.choices(now, x.words, &real)...)
		rename()
	}
	if w.breach.How == judge.Stuck {
		for i := range x.c.Clients {
			for k, r := range real {
				if p := x.runs.nodes[s.cells[k].node].Phase; r == i && k < x.c.Clients && p != client.Idle && p != client.Finished {
					choices = append(choices, plan.Choice{Verb: plan.Crash, Client: i})
				}
			}
		}
	}
	return choices
}

// make makes one move.
func (x *search) make(s *state, m move) (t state) {
	switch v := m.verb(); {
	case v == plan.Arrive:
		t, _ = x.arrive(s)
	case v == plan.Pass || v == plan.PassUnreaped:
		t, _ = x.pass(s, m)
	case v > plan.PassUnreaped:
		t, _ = x.serve(s, v, m.server())
	default:
		t, _, _ = x.step(s, v, m.client(), m.ran())
	}
	return t
}

// choices turns a move into a schedule's words: a client's takes as many as it has commands.
func (m move) choices(now int32, words int, real *[plan.MaxClients]int) []plan.Choice {
	var list []plan.Choice
	switch v := m.verb(); {
	case v == plan.Pass || v == plan.PassUnreaped:
		for i, r := range real {
			if m.looks()&(1<<i) != 0 {
				list = append(list, plan.Choice{Verb: plan.Look, Client: r})
			}
		}
		list = append(list, plan.Choice{Verb: v, By: time.Duration(m.until()-now) * time.Millisecond})
	case v > plan.PassUnreaped:
		list = append(list, plan.Choice{Verb: v, Server: m.server()})
	default:
		last := plan.Choice{Verb: v, Client: real[m.client()]}
		if v == plan.Refuse {
			last.Verb = plan.Step
		}
		for ; words > 1; words-- {
			list = append(list, plan.Choice{Verb: plan.Step, Client: last.Client})
		}
		list = append(list, last)
		if v == plan.Refuse {
			list[m.at()].Verb, list[m.at()].Nth = plan.Refuse, m.nth()
		}
	}
	return list
}
