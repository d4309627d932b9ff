// Package search is the fast engine: it goes breadth-first through all schedules of a Setup, over what the clients'
// code and the server were found to do.
package search

import (
	"context"
	"math/bits"
	"time"
	"unsafe"

	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/judge"
	"github.com/setnxlock/setnxlock/compat/race/internal/memo"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A search is the fast engine: breadth first through the product of what the
// clients' code and the server were found to do. It touches numbers only; the
// real code and the real server run once for each question that is new.
type search struct {
	c     *plan.Setup
	judge *judge.Judge
	runs  *Runs
	trans *transitions
	names *symmetry
	freed memo.Table[memo.Pair, bool] // content, now → whether a client can acquire

	seen     seen
	exact    map[state]bool // instead of seen, for tests
	links    []link         // of each state, in the order of discovery
	frontier []state
	next     []state
	arrivals []arrival
	levels   []int     // the sizes of the frontiers so far
	base     int       // number of the frontier's first state
	workers  int       // 0: large frontiers are expanded as small ones are
	team     *team     // nil: none was large yet
	findings *findings // of a worker: where it notes what it finds

	past        bool // of the last Refuse: it stood behind the write, or the commands of the request
	words       int  // of a schedule that the last step takes
	learned     bool // in the last step a client read its clock to learn whether its lease still lasts
	transitions int
	depth       int
	began       time.Time

	broken []finding                // the first breach of each invariant, in the order found
	tally  map[judge.BreachKind]int // for tests: go nowhere after a breach, and count how often there is one
}

// A finding is a broken invariant, and the way there.
type finding struct {
	breach judge.Breach
	link   link
}

// A link says from which state a choice led here.
type link struct {
	parent uint32
	choice move // 1 + the move; 0 for the first state
}

// A move is a choice as the search keeps it: the verb; the client, and the
// commands that run before a Cut; or which clients look at their clocks before
// a jump of time, and its target.
type move uint32

func clientMove(v plan.Verb, client, ran int) move {
	return move(v) | move(client)<<5 | move(ran)<<11
}

func timeMove(v plan.Verb, looks, until int) move {
	return move(v) | move(looks)<<7 | move(until)<<11
}

func (m move) verb() plan.Verb { return plan.Verb(m & 31) }
func (m move) client() int     { return int(m >> 5 & 3) }
func (m move) server() int     { return int(m >> 5 & 15) }
func (m move) looks() int      { return int(m >> 7 & 15) }
func (m move) ran() int        { return int(m >> 11) }
func (m move) at() int         { return int(m >> 11 & 255) } // the request of the write in which Refuse refuses
func (m move) nth() int        { return int(m >> 19) }       // and which of its commands
func (m move) until() int32    { return int32(m >> 11) }

func newSearch(c *plan.Setup, rs *Runs, a *Archive) (*search, error) {
	trans, err := newTransitions(c, rs.replies, a)
	if err != nil {
		return nil, err
	}
	x := &search{c: c, judge: judge.New(c), runs: rs, trans: trans}
	x.names = newSymmetry(x)
	return x, nil
}

func (x *search) close() { x.trans.close() }

// first returns the initial state.
func (x *search) first() state {
	s := x.first0()
	x.names.canonical(&s)
	return s
}

// first0 returns the initial state, before its clients are renamed.
func (x *search) first0() state {
	s := state{budget: newBudget(x.c), late: flight{left: uint8(x.c.Faults.LateRequests)}}
	for i := range x.c.Clients {
		s.cells[i].node = x.runs.roots[i][0]
	}
	if x.trans.contents[0].key.Present {
		s.ghost.Writer = judge.Somebody
	}
	if x.c.Faults.Failover > 0 {
		s.ghost.PrevWriter = s.ghost.Writer
	}
	return s
}

// clientStates returns the clients' states in a state.
func (x *search) clientStates(s *state) (st judge.States) {
	for i := range x.c.Clients {
		st[i] = &x.runs.nodes[s.cells[i].node].State
	}
	return st
}

// bound is why a search ended early.
type bound string

// explore walks until there is nothing new, something breaks, or a bound is reached.
func (x *search) explore(ctx context.Context) (bound, error) {
	x.began = time.Now()
	x.arrivals = make([]arrival, 0, 32)
	x.insert(x.first(), link{})
	x.admit()
	looked := func() (bound, error) {
		if x.c.Progress != nil {
			x.c.Progress(x.stats())
		}
		return x.reached(), ctx.Err()
	}
	for len(x.next) > 0 && !x.over() {
		x.frontier, x.next = x.next, x.frontier[:0]
		x.levels = append(x.levels, len(x.frontier))
		if b, err := x.expandAll(looked); b != "" || err != nil {
			return b, err
		}
		x.base += len(x.frontier)
		x.frontier = x.frontier[:0]
		x.depth++
		if x.c.Progress != nil {
			x.c.Progress(x.stats())
		}
	}
	return "", nil
}

// expandAll expands the frontier. It reports a bound that is reached.
func (x *search) expandAll(looked func() (bound, error)) (bound, error) {
	if x.workers > 0 && len(x.frontier) >= togetherFrom {
		return x.expandTogether(looked)
	}
	for n := range x.frontier {
		if n%batchSize == 0 {
			if b, err := looked(); b != "" || err != nil {
				return b, err
			}
		}
		x.expand(&x.frontier[n], uint32(x.base+n))
		if x.over() {
			break
		}
	}
	x.admit()
	return "", nil
}

// togetherFrom is how large a frontier is worth a team.
var togetherFrom = 2 * batchSize

func (x *search) stats() plan.Stats {
	s := plan.Stats{States: len(x.links), Transitions: x.transitions, Depth: x.depth, Elapsed: time.Since(x.began), Memory: x.memory(), Left: left(x.levels)}
	switch { // of the level that comes next some are found
	case len(x.frontier)+len(x.next) == 0:
		s.Left = 0
	case s.Left >= 0:
		s.Left = max(0, x.base+len(x.frontier)+s.Left-s.States)
	}
	return s
}

// memory estimates the search's bytes.
func (x *search) memory() int64 {
	const stateSize, linkSize, nodeSize = int64(unsafe.Sizeof(state{})), int64(unsafe.Sizeof(link{})), int64(unsafe.Sizeof(node{}))
	return int64(len(x.seen.Slots))*8 + int64(cap(x.links))*linkSize + int64(cap(x.frontier)+cap(x.next))*stateSize +
		int64(cap(x.runs.nodes))*nodeSize + int64(len(x.runs.children.Slots)*2/3+len(x.trans.done.Slots)+len(x.trans.acts.Slots))*24 +
		int64(len(x.trans.contents))*600
}

func (x *search) reached() bound {
	switch {
	case len(x.links) >= x.c.MaxStates:
		return "states"
	case x.memory() >= x.c.MaxMemory:
		return "memory"
	}
	return ""
}

// insert adds a state if it is new, and asks in it for progress.
func (x *search) insert(s state, l link) {
	if x.exact != nil {
		if !x.exact[s] {
			x.exact[s] = true
			x.enter(&s, l)
		}
		return
	}
	x.arrived(&arrival{s, l, s.print(x.c.Clients)})
}

func (x *search) arrived(a *arrival) {
	x.arrivals = append(x.arrivals, *a)
	if len(x.arrivals) == cap(x.arrivals) {
		x.admit()
	}
}

// An arrival is a state that was led to and has not been looked up yet. Almost
// every look into a large set misses the processor's cache; looks that are made
// in a row wait for their misses together.
type arrival struct {
	state state
	link  link
	print memo.Fingerprint
}

// admit looks up the arrived states, in their order, and enters the new ones.
func (x *search) admit() {
	x.seen.fetch(x.arrivals)
	x.add(x.arrivals)
	x.arrivals = x.arrivals[:0]
}

// add enters the new states.
func (x *search) add(arrivals []arrival) {
	for i := range arrivals {
		if a := &arrivals[i]; x.seen.Put(a.print, struct{}{}) {
			x.enter(&a.state, a.link)
		}
	}
}

func (x *search) enter(s *state, l link) {
	x.links = append(x.links, l)
	if x.judge.Progress && (x.c.Faults.Crash || x.atRest(s)) && !x.free(s.content, s.now) && !x.found(judge.Breach{How: judge.Stuck}, l) {
		return
	}
	x.next = append(x.next, *s)
}

func (x *search) atRest(s *state) bool {
	for i := range x.c.Clients {
		if p := x.runs.nodes[s.cells[i].node].Phase; p != client.Idle && p != client.Finished {
			return false
		}
	}
	return true
}

func (x *search) free(content uint32, now int32) bool {
	k := memo.PairOf(uint64(content), uint64(uint32(now)))
	free, ok := x.freed.Get(k)
	if !ok {
		free = x.trans.free(content, now)
		x.freed.Put(k, free)
	}
	return free
}

// over reports whether there is nothing more to be found.
func (x *search) over() bool {
	return len(x.broken) > 0 && (!x.c.Each || len(x.broken) == len(x.c.Invariants))
}

// found notes a breach; it reports whether the search goes on behind it.
func (x *search) found(b judge.Breach, l link) bool {
	if x.tally != nil {
		x.tally[b.How]++
		return false
	}
	for _, o := range x.broken {
		if o.breach.How.Invariant() == b.How.Invariant() {
			return x.c.Each
		}
	}
	x.broken = append(x.broken, finding{b, l})
	return x.c.Each
}

// goesOn reports whether the search goes on behind a breach.
func (x *search) goesOn() bool { return x.c.Each && x.tally == nil }

// breaks notes all breaches of a step.
func (x *search) breaks(b breaches, l link) {
	for _, f := range b {
		if f.How == judge.None || !x.found(f, l) {
			return
		}
	}
}

// emit takes a choice's result.
func (x *search) emit(t *state, b breaches, parent uint32, m move) {
	x.transitions++
	l := link{parent, m + 1}
	if x.findings != nil {
		x.findings.note(x, t, b, l)
		return
	}
	if b[0].How != judge.None {
		x.admit() // in their order: what arrived before may have broken something too
		if x.breaks(b, l); !x.goesOn() {
			return
		}
	}
	x.names.canonical(t)
	x.insert(*t, l)
}

// expand makes every possible choice of a state.
func (x *search) expand(s *state, number uint32) {
	for i := range x.c.Clients {
		if !x.try(s, number, plan.Step, i, 0) {
			continue // it can't go on at all
		}
		if x.learned && s.budget.has(ofTicks) && s.budget.late() > 0 {
			x.try(s, number, plan.Stall, i, 0)
		}
		if s.budget.has(ofReplies) {
			x.try(s, number, plan.Drop, i, 0)
		}
		if s.budget.has(ofRequests) {
			x.try(s, number, plan.Sever, i, 0)
		}
		if s.late.left > 0 && s.late.req == 0 {
			x.try(s, number, plan.Delay, i, 0)
		}
		if s.budget.has(ofCuts) {
			for ran := 1; x.try(s, number, plan.Cut, i, ran); ran++ {
			}
		}
		if s.budget.has(ofRefusals) {
			x.expandRefusals(s, number, i)
		}
	}
	if s.late.req > 0 {
		t, b := x.arrive(s)
		x.emit(&t, b, number, clientMove(plan.Arrive, int(s.late.client), 0))
	}
	if s.budget.has(ofTicks) {
		x.expandTime(s, number)
	}
	x.expandServer(s, number)
}

// expandRefusals refuses each command of a client's write.
func (x *search) expandRefusals(s *state, number uint32, i int) {
	for at := 0; ; at++ {
		for nth := 0; ; nth++ {
			if !x.try(s, number, plan.Refuse, i, at|nth<<8) && x.past {
				if nth == 0 {
					return
				}
				break
			}
		}
	}
}

// try makes a client's choice, if it can be made.
func (x *search) try(s *state, number uint32, verb plan.Verb, i, ran int) bool {
	t, b, ok := x.step(s, verb, i, ran)
	if ok {
		x.emit(&t, b, number, clientMove(verb, i, ran))
	}
	return ok
}

func (x *search) expandTime(s *state, number uint32) {
	st := x.clientStates(s)
	ct := &x.trans.contents[s.content]
	until := moment(x.c, &st, &x.judge.Skew, s.now, ct)
	if until >= 1<<20 {
		return // nothing is left to wait for; no run of ours goes on for a thousand seconds
	}
	lookers := 0
	for i := range x.c.Clients {
		if s.budget.late() > 0 && x.canLook(s, i, until) {
			lookers |= 1 << i
		}
	}
	dies := len(ct.deaths) > 0 && ct.deaths[0] <= until
	for looks := 0; ; looks = (looks - lookers) & lookers { // every subset, the empty one first
		for _, v := range [...]plan.Verb{plan.Pass, plan.PassUnreaped} {
			if bits.OnesCount(uint(looks)) > s.budget.late() || v == plan.PassUnreaped && !(x.c.Faults.Unreaped && dies) {
				continue
			}
			m := timeMove(v, looks, int(until))
			t, b := x.pass(s, m)
			x.emit(&t, b, number, m)
		}
		if looks == lookers {
			break
		}
	}
}

func (x *search) expandServer(s *state, number uint32) {
	try := func(ok bool, v plan.Verb, server int) {
		if ok {
			t, b := x.serve(s, v, server)
			x.emit(&t, b, number, clientMove(v, server, 0))
		}
	}
	ct := &x.trans.contents[s.content]
	try(x.c.Faults.Unreaped && len(ct.deaths) > 0 && ct.deaths[0] <= s.now, plan.Reap, 0)
	if several := x.judge.Servers; several > 0 {
		keys, down := ct.keys, ct.down // ct moves as contents are added
		for n := 1; n <= several; n++ {
			try(s.budget.has(ofEvict) && keys&(1<<n) != 0, plan.Evict, n)
			try(s.budget.has(ofRestart), plan.Restart, n)
			try(s.budget.has(ofDown) && down&(1<<n) == 0, plan.Down, n)
		}
		return
	}
	try(s.budget.has(ofEvict) && ct.key.Present, plan.Evict, 0)
	try(s.budget.has(ofRestart), plan.Restart, 0)
	try(s.budget.has(ofFailover) && s.prev != s.content, plan.Failover, 0)
}

// A seen is a set of the fingerprints of states.
type seen struct {
	memo.Table[memo.Fingerprint, struct{}]
	touched memo.Fingerprint // keeps fetch's loads from being left out
}

// fetch brings the slots of arrivals into the cache: the loads do not depend on each other, and the
// processor makes them at once.
func (s *seen) fetch(arrivals []arrival) {
	if len(s.Slots) == 0 {
		return
	}
	mask := uint64(len(s.Slots) - 1)
	for i := range arrivals {
		s.touched += s.Slots[uint64(arrivals[i].print)&mask].K
	}
}
