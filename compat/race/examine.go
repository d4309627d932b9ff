package race

import (
	"context"
	"time"
)

// find searches c, with what was found out about the clients' code before. It returns the ways to break it, too.
func find(ctx context.Context, c *setup, rs *runs) (Result, []way, error) {
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

// A way is a schedule that breaks an invariant.
type way struct {
	invariant string
	choices   []Choice
}

// ways are the shortest ones to each breach.
func (x *search) ways() []way {
	var all []way
	for _, w := range x.broken {
		all = append(all, way{w.breach.how.invariant(), x.schedule(w)})
	}
	return all
}

// examine searches all there is. The search returned is to be closed.
func examine(ctx context.Context, c *setup, rs *runs, a *archive, logs bool) (*search, bound, error) {
	x, b, err := search1(ctx, c, rs, a, logs)
	if x == nil && err == nil {
		rs.relearn()
		x, b, err = search1(ctx, c, rs, a, logs)
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

// search1 searches once; it returns nil if an operation that was taken to ignore the time reads it.
func search1(ctx context.Context, c *setup, rs *runs, a *archive, logs bool) (x *search, b bound, err error) {
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
	x.workers = c.workers()
	b, err = x.explore(ctx)
	if err != nil {
		x.close()
		return nil, "", err
	}
	return x, b, nil
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
