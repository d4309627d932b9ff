package race

import (
	"sync"
	"sync/atomic"
)

// A team expands many states at once. What one choice leads to is looked up, and looking does not
// change what is known: so all workers look at the same, which is frozen meanwhile. A state whose
// expansion asks what nobody has asked yet is left to the search itself, in its turn. So every
// number is given, every state entered and every breach found in the order in which a search
// alone would do it: the number of workers can't be told from the result.
type team struct {
	x       *search
	workers []search
	lots    [2][]lot // those that are being filled, and those that are being admitted
	turn    int
	done    sync.WaitGroup
}

const (
	lotSize   = 64   // states that a worker takes at once
	batchSize = 4096 // states that are expanded before the next are begun; as often the bounds are looked at
)

// A lot is what some states of the frontier lead to, in order.
type lot struct {
	arrivals []arrival
	ends     []int32 // of each state, the number of arrivals up to its last one; unknown: ask again
	moves    []int32 // of each state, its transitions
	broken   []broke
}

const unknownEnd = -1

// A broke is what an arrival breaks, or what would have been the one at that place.
type broke struct {
	state    int32 // of the lot
	at       int32 // arrivals before it
	link     link
	breaches breaches
}

// missing is the panic of a worker that asks what nobody has asked yet.
type missing struct{}

// frozen reports on what is known; see team.
type frozen bool

func (f *frozen) check() {
	if *f {
		panic(missing{})
	}
}

func newTeam(x *search, workers int) *team {
	t := &team{x: x, workers: make([]search, workers)}
	for i := range t.lots {
		t.lots[i] = make([]lot, batchSize/lotSize)
	}
	return t
}

// begin has the workers expand a batch that begins at the frontier's n-th state.
func (t *team) begin(n int) {
	x := t.x
	x.freeze(true)
	t.turn = 1 - t.turn
	lots, states := t.lots[t.turn], x.frontier[n:min(n+batchSize, len(x.frontier))]
	var next atomic.Int32
	for i := range t.workers {
		w := &t.workers[i]
		*w = search{c: x.c, judge: x.judge, runs: x.runs, trans: x.trans, names: x.names, tally: x.tally}
		t.done.Go(func() {
			for {
				k := int(next.Add(1)) - 1
				if k*lotSize >= len(states) {
					return
				}
				w.lot = &lots[k]
				w.fill(states[k*lotSize:min((k+1)*lotSize, len(states))], uint32(x.base+n+k*lotSize))
			}
		})
	}
}

// wait returns the lots of the batch.
func (t *team) wait() []lot {
	t.done.Wait()
	t.x.freeze(false)
	return t.lots[t.turn]
}

func (x *search) freeze(on bool) {
	x.runs.frozen, x.trans.frozen, x.names.frozen = frozen(on), frozen(on), frozen(on)
}

// fill expands states into the worker's lot.
func (w *search) fill(states []state, number uint32) {
	l := w.lot
	l.arrivals, l.ends, l.moves, l.broken = l.arrivals[:0], l.ends[:0], l.moves[:0], l.broken[:0]
	for i := range states {
		arrivals, broken := len(l.arrivals), len(l.broken)
		w.transitions = 0
		if w.knows(&states[i], number+uint32(i)) {
			l.ends = append(l.ends, int32(len(l.arrivals)))
		} else {
			l.arrivals, l.broken = l.arrivals[:arrivals], l.broken[:broken]
			l.ends = append(l.ends, unknownEnd)
		}
		l.moves = append(l.moves, int32(w.transitions))
	}
}

// knows expands a state if all that it asks has been asked before.
func (w *search) knows(s *state, number uint32) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, is := r.(missing); !is {
				panic(r)
			}
			ok = false
		}
	}()
	w.expand(s, number)
	return true
}

// put takes what a choice led to, for the search to admit in its turn.
func (l *lot) put(x *search, t *state, b breaches, from link) {
	if b[0].how != none {
		l.broken = append(l.broken, broke{int32(len(l.ends)), int32(len(l.arrivals)), from, b})
		if !x.goesOn() {
			return
		}
	}
	x.names.canonical(t)
	l.arrivals = append(l.arrivals, arrival{*t, from, x.seen.print(t.print(x.c.Clients))})
}

// whole reports whether all states of a batch were expanded.
func whole(lots []lot, states int) bool {
	for i := 0; i*lotSize < states; i++ {
		for _, end := range lots[i].ends {
			if end == unknownEnd {
				return false
			}
		}
	}
	return true
}

// take admits what the states of a batch led to, which begins at the frontier's n-th, and expands
// those that were left to it.
func (x *search) take(lots []lot, n, states int) {
	for k := 0; k*lotSize < states; k++ {
		l := &lots[k]
		x.seen.fetch(l.arrivals)
		at, broken := int32(0), 0
		for i, end := range l.ends {
			if end == unknownEnd {
				x.expand(&x.frontier[n+k*lotSize+i], uint32(x.base+n+k*lotSize+i))
				x.admit()
			} else {
				x.transitions += int(l.moves[i])
				for ; broken < len(l.broken) && l.broken[broken].state == int32(i); broken++ {
					b := &l.broken[broken]
					x.add(l.arrivals[at:b.at])
					at = b.at
					x.breaks(b.breaches, b.link)
				}
				x.add(l.arrivals[at:end])
				at = end
			}
			if x.over() {
				return
			}
		}
	}
}

// expandTogether expands the frontier on all workers. It reports whether a bound is reached.
func (x *search) expandTogether(looked func() (bound, error)) (bound, error) {
	t := x.team
	for n, begun := 0, false; n < len(x.frontier); n += batchSize {
		if !begun {
			t.begin(n)
		}
		lots, states := t.wait(), min(batchSize, len(x.frontier)-n)
		if b, err := looked(); b != "" || err != nil {
			return b, err
		}
		// The next are expanded meanwhile, if nothing is left to ask for these.
		if begun = n+batchSize < len(x.frontier) && whole(lots, states); begun {
			t.begin(n + batchSize)
		}
		x.take(lots, n, states)
		if x.over() {
			if begun {
				t.wait()
			}
			break
		}
	}
	x.admit()
	return "", nil
}
