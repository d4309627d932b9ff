package search

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/memo"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A node is how far a client's code has come within one attempt: the history
// of what it has received since the attempt began, and what of it can still matter.
// The code is deterministic, so that this says all. What it received in earlier
// attempts is forgotten.
type node struct {
	kind     client.RequestKind
	first    bool // see request
	last     bool
	along    bool // see request
	toLearn  bool // it reads its clock to learn whether what it was given still lasts
	local    client.Locality
	client   uint8
	orphan   bool   // a root
	req      uint32 // number of the request, if kind is sends
	sameNode uint32 // 1 + the node of the first client that is alike; 0: this client's own code was run
	client.State
	shape  uint64 // equal for nodes that differ in who is called what
	parent uint32
	input  uint32
}

// An edge leads from a node by an input to the next.
type edge struct {
	to      uint32
	closed  bool            // a connection was closed on the way
	results []client.Result // and operations ended
}

// results are those of edges on which operations ended, by number; 0: on which none did.
type results [][]client.Result

func (e *edge) packed(rs *results) hop {
	h := hop{to: e.to, rest: uint32(memo.Truth(e.closed))}
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

// Runs remembers what the clients' code did. It runs each piece of it once:
// from the beginning of the attempt, fed with what it received then, up to the
// first thing it has not received yet.
type Runs struct {
	c         *plan.Setup
	nodes     []node
	children  memo.Table[memo.Word, hop] // by node and input
	ended     results
	sameNodes map[[2]uint32]uint32      // client, node of its sameNode → node
	swapped   []memo.Names[uint32]      // of each client, input → what its sameNode receives
	roots     [plan.MaxClients][]uint32 // by attempt; the last one is the end
	requests  []client.Request
	byText    map[string]uint32
	replies   *replies
	known     map[identity]uint32
	timeless  [client.OpAgain]bool // operations that were found to ignore the time
	ran       int
	feed      []uint32
	frozen    memo.Frozen
}

// An identity is what makes two nodes the same.
type identity struct {
	client      uint8
	kind        client.RequestKind
	first, last bool
	along       bool
	req         uint32
	issued      int
	open        int
	clientState client.State
	past, now   uint64
}

// NewRuns returns empty Runs. Most looks ignore the time: all are taken to, until one is found to read
// it.
func NewRuns(c *plan.Setup) *Runs {
	rs := &Runs{c: c, byText: map[string]uint32{}, replies: newReplies(), known: map[identity]uint32{}, ended: results{nil},
		sameNodes: map[[2]uint32]uint32{}, swapped: make([]memo.Names[uint32], c.Clients)}
	if !c.KeepHistory {
		rs.timeless = [client.OpAgain]bool{client.OpInspect: true}
	}
	for i := range c.Clients {
		for k := range c.Attempts {
			n := node{State: client.State{Attempt: k, Asked: -1}, kind: client.ReadsClock, client: uint8(i), orphan: true,
				shape: memo.Mix(uint64(k), uint64(rs.sort(i)))}
			rs.roots[i] = append(rs.roots[i], rs.add(n))
		}
		end := node{State: client.State{Phase: client.Finished, Attempt: c.Attempts, Asked: -1}, kind: client.Ends, client: uint8(i), orphan: true,
			shape: memo.Mix(uint64(c.Attempts), uint64(rs.sort(i)))}
		rs.roots[i] = append(rs.roots[i], rs.add(end))
	}
	return rs
}

// sort returns the first client of the same kind.
func (rs *Runs) sort(client int) int {
	for i := range client {
		if rs.c.Alike(i, client) {
			return i
		}
	}
	return client
}

func (rs *Runs) add(n node) uint32 {
	rs.nodes = append(rs.nodes, n)
	return uint32(len(rs.nodes) - 1)
}

// child returns the client's node after node n and an input.
func (rs *Runs) child(n, input uint32) hop {
	return rs.children.Find(memo.Word(uint64(n+1)<<32|uint64(input)), &rs.frozen, func() hop {
		var e edge
		if i := rs.nodes[n].client; rs.c.NoSymmetry || rs.c.KeepHistory || rs.sort(int(i)) == int(i) {
			e = rs.run(n, input)
		} else {
			e = rs.mirror(n, input)
		}
		return e.packed(&rs.ended)
	})
}

// history lists the client's inputs from the attempt's beginning.
func (rs *Runs) history(n, input uint32) []uint32 {
	rs.feed = append(rs.feed[:0], input)
	for ; !rs.nodes[n].orphan; n = rs.nodes[n].parent {
		rs.feed = append(rs.feed, rs.nodes[n].input)
	}
	return rs.feed // last one first
}

// run runs the client's code.
func (rs *Runs) run(n, input uint32) edge {
	from := rs.nodes[n]
	p := rs.proceed(n, input)
	e := edge{closed: p.Closed}
	if len(p.Results) > 0 {
		e.results = append(e.results, p.Results...)
	}
	if !p.stopped {
		e.to = rs.roots[from.client][from.Attempt+1]
		return e
	}
	next := node{State: p.State, kind: p.at.Kind, first: p.at.First, last: p.at.Last, client: from.client,
		parent: n, input: input, along: p.at.Along, toLearn: p.at.Kind == client.ReadsClock && p.Got}
	if p.at.Kind == client.Sends {
		next.req, next.local = rs.request(p.at), p.at.Local()
	}
	id := identity{client: next.client, kind: next.kind, first: next.first, last: next.last, along: next.along, req: next.req,
		issued: p.Issued, open: p.Open, clientState: p.State, past: p.Memory.Past.Exact, now: p.Memory.Now.Exact}
	to, ok := rs.known[id]
	if !ok || rs.c.KeepHistory {
		next.shape = rs.shape(&p)
		to = rs.add(next)
		rs.known[id] = to
	}
	e.to = to
	return e
}

// proceed runs the code from a node with an input.
func (rs *Runs) proceed(n, input uint32) played {
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

// shape maps clients with different names only to one value.
func (rs *Runs) shape(p *played) uint64 {
	who := p.ID
	f := client.Fact{}
	st := &p.State
	for _, n := range [...]uint64{
		uint64(rs.sort(who)), uint64(st.Phase), uint64(st.Attempt), memo.Truth(st.Holds), uint64(st.Until),
		uint64(st.Fence), uint64(st.Asked), memo.Truth(st.Lossy), memo.Truth(st.Got),
		uint64(p.Issued), uint64(p.Open), memo.Truth(p.at.Along), p.Memory.Past.Shape, p.Memory.Now.Shape,
	} {
		f.Number(n)
	}
	f.Text(st.Value, who)
	f.Text(p.at.Text(), who)
	return f.Shape
}

// relearn begins anew and takes nothing to ignore the time.
func (rs *Runs) relearn() {
	*rs = *NewRuns(rs.c)
	rs.timeless = [client.OpAgain]bool{}
}

// readsTime is the panic of a search that took an operation to ignore the time.
type readsTime struct{}

// A played is a client's code after it was run up to somewhere.
type played struct {
	client.Agent
	stopped  bool // at a request; else the attempt is over
	at       client.Request
	timeless bool // an operation that ignores the time ran meanwhile
}

func (p *played) same(q *played) bool {
	return p.stopped == q.stopped && p.State == q.State && p.Memory == q.Memory && p.Closed == q.Closed && p.Open == q.Open && p.Issued == q.Issued &&
		slices.Equal(p.Results, q.Results) && (!p.stopped || p.at.Text() == q.at.Text())
}

// play runs one attempt, fed with a history, until it asks for more or ends.
// There its code is unwound, and what it is doing kept as it was before.
func (rs *Runs) play(from node, feed []uint32, shift time.Duration) (p played) {
	a := &client.Agent{Setup: rs.c, ID: int(from.client), Timeless: &rs.timeless, Shift: shift}
	left := len(feed)
	rs.ran++
	a.Ask = func(r client.Request) client.Answer {
		if left > 0 {
			left--
			if left == 0 {
				a.Results, a.Closed = nil, false
				p.timeless = rs.timeless[a.Memory.Op]
			}
			if m := &a.Memory; m.Op != client.OpNone {
				m.Now.Exact = memo.Mix(m.Now.Exact, uint64(feed[left]))
				m.Now.Shape = memo.Mix(m.Now.Shape, rs.replies.shape(a.ID, feed[left]))
			}
			return rs.answer(feed[left])
		}
		if rs.c.Faults.LateRequests == 0 {
			r.Rest = nil
		}
		p.at, p.stopped, p.Agent = r, true, *a
		p.timeless = p.timeless || rs.timeless[a.Memory.Op]
		a.Leaving = true
		panic(client.Crashed{})
	}
	defer func() {
		if !p.stopped {
			p.Agent = *a
			return
		}
		if r := recover(); r == nil {
			panic("race: a client's code went on after it was stopped: it recovers from every panic")
		} else if _, ok := r.(client.Crashed); !ok {
			panic(r)
		}
	}()
	a.Run(from.Attempt)
	return p
}

func (rs *Runs) answer(in uint32) client.Answer {
	switch {
	case in == inputLost:
		return client.Answer{Lost: true}
	case in == inputWrote:
		return client.Answer{}
	case isClock(in):
		return client.Answer{Now: clockOf(in)}
	}
	return client.Answer{Replies: rs.replies.values[in]}
}

// write returns the requests of a write by its first.
func (rs *Runs) write(first uint32) []uint32 {
	list := []uint32{first}
	for _, cmds := range rs.requests[first].Rest {
		list = append(list, rs.request(client.Request{Kind: client.Sends, Cmds: cmds, Server: plan.Addressed(cmds)}))
	}
	return list
}

func (rs *Runs) request(r client.Request) uint32 {
	text := r.Text()
	id, ok := rs.byText[text]
	if !ok {
		rs.frozen.Check()
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
