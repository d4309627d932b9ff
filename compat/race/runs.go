package race

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// A node is how far a client's code has come within one attempt: the history
// of what it has received since the attempt began, and what of it can still matter.
// The code is deterministic, so that this says all. What it received in earlier
// attempts is forgotten.
type node struct {
	kind    requestKind
	first   bool // see request
	last    bool
	along   bool // see request
	toLearn bool // it reads its clock to learn whether what it was given still lasts
	local   locality
	client  uint8
	orphan  bool   // a root
	req     uint32 // number of the request, if kind is sends
	twin    uint32 // 1 + the node of the first client that is alike; 0: this client's own code was run
	stance
	shape  uint64 // equal for nodes that differ in who is called what
	parent uint32
	input  uint32
}

// An edge leads from a node by an input to the next.
type edge struct {
	to      uint32
	closed  bool     // a connection was closed on the way
	results []result // and operations ended
}

// results are those of edges on which operations ended, by number; 0: on which none did.
type results [][]result

func (e *edge) packed(rs *results) hop {
	h := hop{to: e.to, rest: uint32(truth(e.closed))}
	if len(e.results) > 0 {
		h.rest |= uint32(len(*rs)) << 1
		*rs = append(*rs, e.results)
	}
	return h
}

func (h hop) closed() bool { return h.rest&1 != 0 }

// Inputs are numbers: a reply's, or one of these.
const (
	inputLost  uint32 = 0
	inputWrote uint32 = math.MaxUint32
	clockInput uint32 = 1 << 31
	clockZero         = 1 << 30
)

func clockIs(ms int64) uint32   { return clockInput | uint32(ms+clockZero) }
func clockOf(in uint32) int64   { return int64(in&^clockInput) - clockZero }
func isClock(input uint32) bool { return input&clockInput != 0 && input != inputWrote }

// runs remembers what the clients' code did. It runs each piece of it once:
// from the beginning of the attempt, fed with what it received then, up to the
// first thing it has not received yet.
type runs struct {
	c        *setup
	nodes    []node
	children table[word, hop] // by node and input
	ended    results
	twins    map[[2]uint32]uint32 // client, node of its twin → node
	swapped  []names[uint32]      // of each client, input → what its twin receives
	roots    [maxClients][]uint32 // by attempt; the last one is the end
	requests []request
	byText   map[string]uint32
	replies  *replies
	known    map[identity]uint32
	timeless [opAgain]bool // operations that were found to ignore the time
	ran      int
	feed     []uint32
	frozen   frozen
}

// An identity is what makes two nodes the same.
type identity struct {
	client      uint8
	kind        requestKind
	first, last bool
	along       bool
	req         uint32
	issued      int
	open        int
	stance      stance
	past, now   uint64
}

// newRuns has run nothing yet. Most looks ignore the time: all are taken to, until
// one is found to read it.
func newRuns(c *setup) *runs {
	rs := &runs{c: c, byText: map[string]uint32{}, replies: newReplies(), known: map[identity]uint32{}, ended: results{nil},
		twins: map[[2]uint32]uint32{}, swapped: make([]names[uint32], c.Clients)}
	if !c.keepHistory {
		rs.timeless = [opAgain]bool{opInspect: true}
	}
	for i := range c.Clients {
		for k := range c.Attempts {
			n := node{stance: stance{attempt: k, asked: -1}, kind: readsClock, client: uint8(i), orphan: true,
				shape: mix(uint64(k), uint64(rs.sort(i)))}
			rs.roots[i] = append(rs.roots[i], rs.add(n))
		}
		end := node{stance: stance{phase: finished, attempt: c.Attempts, asked: -1}, kind: ends, client: uint8(i), orphan: true,
			shape: mix(uint64(c.Attempts), uint64(rs.sort(i)))}
		rs.roots[i] = append(rs.roots[i], rs.add(end))
	}
	return rs
}

// sort is the first client that is alike.
func (rs *runs) sort(client int) int {
	for i := range client {
		if rs.c.alike(i, client) {
			return i
		}
	}
	return client
}

func (rs *runs) add(n node) uint32 {
	rs.nodes = append(rs.nodes, n)
	return uint32(len(rs.nodes) - 1)
}

// child is where the client at node n comes to by an input.
func (rs *runs) child(n, input uint32) hop {
	return rs.children.find(word(uint64(n+1)<<32|uint64(input)), &rs.frozen, func() hop {
		var e edge
		if i := rs.nodes[n].client; rs.c.NoSymmetry || rs.c.keepHistory || rs.sort(int(i)) == int(i) {
			e = rs.run(n, input)
		} else {
			e = rs.mirror(n, input)
		}
		return e.packed(&rs.ended)
	})
}

// history is what the client received from the attempt's beginning.
func (rs *runs) history(n, input uint32) []uint32 {
	rs.feed = append(rs.feed[:0], input)
	for ; !rs.nodes[n].orphan; n = rs.nodes[n].parent {
		rs.feed = append(rs.feed, rs.nodes[n].input)
	}
	return rs.feed // last one first
}

// run runs the client's code.
func (rs *runs) run(n, input uint32) edge {
	from := rs.nodes[n]
	p := rs.proceed(n, input)
	e := edge{closed: p.closed}
	if len(p.results) > 0 {
		e.results = append(e.results, p.results...)
	}
	if !p.stopped {
		e.to = rs.roots[from.client][from.attempt+1]
		return e
	}
	next := node{stance: p.stance, kind: p.at.kind, first: p.at.first, last: p.at.last, client: from.client,
		parent: n, input: input, along: p.at.along, toLearn: p.at.kind == readsClock && p.got}
	if p.at.kind == sends {
		next.req, next.local = rs.request(p.at), p.at.local()
	}
	id := identity{client: next.client, kind: next.kind, first: next.first, last: next.last, along: next.along, req: next.req,
		issued: p.issued, open: p.open, stance: p.stance, past: p.memory.past.exact, now: p.memory.now.exact}
	to, ok := rs.known[id]
	if !ok || rs.c.keepHistory {
		next.shape = rs.shape(&p)
		to = rs.add(next)
		rs.known[id] = to
	}
	e.to = to
	return e
}

// proceed is what the code does from a node by an input.
func (rs *runs) proceed(n, input uint32) played {
	from := rs.nodes[n]
	feed := rs.history(n, input)
	p := rs.play(from, feed, 0)
	if p.timeless {
		// It should ignore the time: give it another, by turns later and earlier.
		shift := time.Hour
		if len(rs.nodes)%2 == 0 {
			shift = -shift
		}
		if q := rs.play(from, feed, shift); !p.same(&q) {
			panic(readsTime{})
		}
	}
	if rs.c.Verify {
		if q := rs.play(from, feed, 0); !p.same(&q) {
			panic(fmt.Sprintf("race: %s is not deterministic: run twice on the same replies it did two things", rs.c.Algorithm))
		}
	}
	return p
}

// shape is equal for clients that differ only in who is called what.
func (rs *runs) shape(p *played) uint64 {
	who := p.id
	f := fact{}
	st := &p.stance
	for _, n := range [...]uint64{uint64(rs.sort(who)), uint64(st.phase), uint64(st.attempt), truth(st.holds), uint64(st.until),
		uint64(st.fence), uint64(st.asked), truth(st.lossy), truth(st.got), uint64(p.issued), uint64(p.open), truth(p.at.along), p.memory.past.shape, p.memory.now.shape} {
		f.number(n)
	}
	f.text(st.value, who)
	f.text(p.at.text(), who)
	return f.shape
}

// relearn begins anew and takes nothing to ignore the time.
func (rs *runs) relearn() {
	*rs = *newRuns(rs.c)
	rs.timeless = [opAgain]bool{}
}

// readsTime is the panic of a search that took an operation to ignore the time.
type readsTime struct{}

// A played is a client's code after it was run up to somewhere.
type played struct {
	agent
	stopped  bool // at a request; else the attempt is over
	at       request
	timeless bool // an operation that ignores the time ran meanwhile
}

func (p *played) same(q *played) bool {
	return p.stopped == q.stopped && p.stance == q.stance && p.memory == q.memory && p.closed == q.closed && p.open == q.open && p.issued == q.issued &&
		slices.Equal(p.results, q.results) && (!p.stopped || p.at.text() == q.at.text())
}

// play runs one attempt, fed with a history, until it asks for more or ends.
// There its code is unwound, and what it is doing kept as it was before.
func (rs *runs) play(from node, feed []uint32, shift time.Duration) (p played) {
	a := &agent{c: rs.c, id: int(from.client), timeless: &rs.timeless, shift: shift}
	left := len(feed)
	rs.ran++
	a.ask = func(r request) answer {
		if left > 0 {
			left--
			if left == 0 {
				a.results, a.closed = nil, false
				p.timeless = rs.timeless[a.memory.op]
			}
			if m := &a.memory; m.op != opNone {
				m.now.exact = mix(m.now.exact, uint64(feed[left]))
				m.now.shape = mix(m.now.shape, rs.replies.shape(a.id, feed[left]))
			}
			return rs.answer(feed[left])
		}
		if rs.c.Faults.LateRequests == 0 {
			r.rest = nil
		}
		p.at, p.stopped, p.agent = r, true, *a
		p.timeless = p.timeless || rs.timeless[a.memory.op]
		a.leaving = true
		panic(crashed{})
	}
	defer func() {
		if !p.stopped {
			p.agent = *a
			return
		}
		if r := recover(); r == nil {
			panic("race: a client's code went on after it was stopped: it recovers from every panic")
		} else if _, ok := r.(crashed); !ok {
			panic(r)
		}
	}()
	a.run(from.attempt)
	return p
}

func (rs *runs) answer(in uint32) answer {
	switch {
	case in == inputLost:
		return answer{lost: true}
	case in == inputWrote:
		return answer{}
	case isClock(in):
		return answer{ms: clockOf(in)}
	}
	return answer{replies: rs.replies.values[in]}
}

// write is the requests of the write that begins with one.
func (rs *runs) write(first uint32) []uint32 {
	list := []uint32{first}
	for _, cmds := range rs.requests[first].rest {
		list = append(list, rs.request(request{kind: sends, cmds: cmds, server: addressed(cmds)}))
	}
	return list
}

func (rs *runs) request(r request) uint32 {
	text := r.text()
	id, ok := rs.byText[text]
	if !ok {
		rs.frozen.check()
		id = uint32(len(rs.requests))
		rs.requests = append(rs.requests, r)
		rs.byText[text] = id
	}
	return id
}

// A hop is an edge, packed.
type hop struct {
	to   uint32
	rest uint32 // twice the number of its results; odd: a connection was closed
}
