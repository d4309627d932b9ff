package search

import (
	"sync"
	"sync/atomic"

	"github.com/setnxlock/setnxlock/compat/race/internal/judge"
	"github.com/setnxlock/setnxlock/compat/race/internal/memo"
)

// A team expands a batch of states at once. What one choice leads to is looked up, and looking does not
// change what is known: so all workers look at the same, which is frozen meanwhile. States whose
// expansion asks what nobody has asked yet are left over; when the workers are done, the team expands
// them, in their order. While the search admits what all of them lead to, the workers expand the next
// batch. So every number is given, every state entered and every breach found in the same order,
// however many workers there are.
type team struct {
	x       *search
	workers []search
	asks    search     // expands what is left over
	shares  [2][]share // those that are being filled, and those that are being admitted
	turn    int
	done    sync.WaitGroup
}

const (
	shareSize = 64   // states that a worker takes at once
	batchSize = 4096 // states that are expanded before the next are begun; as often the bounds are looked at
)

// A share holds the findings of some states of the frontier.
type share struct {
	findings
	left  []int32  // the states that were left over
	asked findings // and what they lead to
}

// Findings are arrivals, ends and breaks of states, in order.
type findings struct {
	arrivals []arrival
	ends     []int32 // of each state, the number of arrivals up to its last one
	moves    []int32 // of each state, its transitions
	broken   []broke
}

// A broke is what an arrival breaks, or what would have been the one at that place.
type broke struct {
	state    int32 // of the findings
	at       int32 // arrivals before it
	link     link
	breaches breaches
}

func newTeam(x *search) *team {
	t := &team{x: x, workers: make([]search, x.workers), asks: x.worker()}
	for i := range t.workers {
		t.workers[i] = x.worker()
	}
	for i := range t.shares {
		t.shares[i] = make([]share, batchSize/shareSize)
	}
	return t
}

// worker makes a search with its findings on a findings.
func (x *search) worker() search {
	return search{c: x.c, judge: x.judge, runs: x.runs, trans: x.trans, names: x.names, tally: x.tally}
}

// begin has the workers expand the batch from the frontier's n-th state on. One alone does it in end.
func (t *team) begin(n int) {
	t.turn = 1 - t.turn
	if len(t.workers) == 1 {
		return
	}
	t.x.freeze(true)
	var next atomic.Int32
	shares := t.batch(n)
	for i := range t.workers {
		w := &t.workers[i]
		t.done.Go(func() {
			for k := int(next.Add(1)) - 1; k < len(shares); k = int(next.Add(1)) - 1 {
				w.fill(&shares[k], n+k*shareSize, t.x)
			}
		})
	}
}

// end returns the results of all states of the batch.
func (t *team) end(n int) []share {
	t.done.Wait()
	t.x.freeze(false)
	shares := t.batch(n)
	for k := range shares {
		l, first := &shares[k], n+k*shareSize
		if len(t.workers) == 1 {
			t.asks.fill(l, first, t.x)
		}
		l.asked.clear()
		t.asks.findings = &l.asked
		for _, i := range l.left {
			t.asks.put(t.x, first+int(i))
		}
	}
	return shares
}

// batch cuts a batch into shares.
func (t *team) batch(n int) []share {
	states := min(batchSize, len(t.x.frontier)-n)
	return t.shares[t.turn][:(states+shareSize-1)/shareSize]
}

func (x *search) freeze(on bool) {
	x.runs.frozen, x.trans.frozen, x.names.frozen = memo.Frozen(on), memo.Frozen(on), memo.Frozen(on)
}

func (s *findings) clear() {
	s.arrivals, s.ends, s.moves, s.broken = s.arrivals[:0], s.ends[:0], s.moves[:0], s.broken[:0]
}

// fill expands the states of a share, from of's n-th on.
func (w *search) fill(l *share, n int, of *search) {
	l.clear()
	l.left = l.left[:0]
	w.findings = &l.findings
	for i := range min(shareSize, len(of.frontier)-n) {
		arrivals, broken := len(l.arrivals), len(l.broken)
		if !w.knows(of, n+i) {
			l.arrivals, l.broken = l.arrivals[:arrivals], l.broken[:broken]
			l.left = append(l.left, int32(i))
		}
	}
}

// put expands of's n-th state.
func (w *search) put(of *search, n int) {
	w.transitions = 0
	w.expand(&of.frontier[n], uint32(of.base+n))
	w.findings.ends = append(w.findings.ends, int32(len(w.findings.arrivals)))
	w.findings.moves = append(w.findings.moves, int32(w.transitions))
}

// knows does put, if all answers are known.
func (w *search) knows(of *search, n int) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, is := r.(memo.Missing); !is {
				panic(r)
			}
			ok = false
		}
	}()
	w.put(of, n)
	return true
}

// note records a choice's result, for the search to admit later.
func (s *findings) note(x *search, t *state, b breaches, from link) {
	if b[0].How != judge.None {
		s.broken = append(s.broken, broke{int32(len(s.ends)), int32(len(s.arrivals)), from, b})
		if !x.goesOn() {
			return
		}
	}
	x.names.canonical(t)
	s.arrivals = append(s.arrivals, arrival{*t, from, t.print(x.c.Clients)})
}

// A reading is how far a findings has been admitted.
type reading struct {
	*findings
	state, arrivals, broken int
}

// take admits the results of the next state on the findings.
func (r *reading) take(x *search) {
	end := int(r.ends[r.state])
	x.transitions += int(r.moves[r.state])
	for ; r.broken < len(r.findings.broken) && int(r.findings.broken[r.broken].state) == r.state; r.broken++ {
		b := &r.findings.broken[r.broken]
		x.add(r.findings.arrivals[r.arrivals:b.at])
		r.arrivals = int(b.at)
		x.breaks(b.breaches, b.link)
	}
	x.add(r.findings.arrivals[r.arrivals:end])
	r.arrivals = end
	r.state++
}

// take admits the results of a share's states, in their order.
func (x *search) take(l *share) {
	x.seen.fetch(l.arrivals)
	known, asked, left := reading{findings: &l.findings}, reading{findings: &l.asked}, l.left
	for i := range int32(len(l.ends) + len(left)) {
		if len(left) > 0 && left[0] == i {
			left = left[1:]
			asked.take(x)
		} else {
			known.take(x)
		}
		if x.over() {
			return
		}
	}
}

// expandTogether expands the frontier on all workers. It reports whether a bound is reached.
func (x *search) expandTogether(looked func() (bound, error)) (bound, error) {
	if x.team == nil {
		x.team = newTeam(x)
	}
	t := x.team
	t.begin(0)
	for n := 0; n < len(x.frontier); n += batchSize {
		shares := t.end(n)
		if b, err := looked(); b != "" || err != nil {
			return b, err
		}
		begun := n+batchSize < len(x.frontier)
		if begun {
			t.begin(n + batchSize)
		}
		for k := range shares {
			if x.take(&shares[k]); x.over() {
				break
			}
		}
		if x.over() {
			if begun {
				t.done.Wait()
				x.freeze(false)
			}
			break
		}
	}
	return "", nil
}
