package search

import (
	"cmp"

	"github.com/setnxlock/setnxlock/compat/race/internal/judge"
	"github.com/setnxlock/setnxlock/compat/race/internal/memo"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A symmetry takes states for one that differ only in who is called what.
// Clients that run the same algorithm by clocks that are equally wrong may be
// renamed: their code compares tokens and does nothing else with them.
type symmetry struct {
	x       *search
	renames []rename   // the first one changes nothing
	numbers [256]uint8 // of a renaming, by packed
	alike   [plan.MaxClients][plan.MaxClients]bool
	frozen  memo.Frozen
}

func newSymmetry(x *search) *symmetry {
	y := &symmetry{x: x}
	if x.c.NoSymmetry {
		return y
	}
	for i := range x.c.Clients {
		for k := range x.c.Clients {
			y.alike[i][k] = x.c.Alike(i, k)
		}
	}
	var to [plan.MaxClients]uint8
	var taken [plan.MaxClients]bool
	var permute func(i int)
	permute = func(i int) {
		if i == x.c.Clients {
			y.numbers[packed(to)] = uint8(len(y.renames))
			y.renames = append(y.renames, rename{to: to})
			return
		}
		for k := range x.c.Clients {
			if !taken[k] && y.alike[i][k] {
				taken[k], to[i] = true, uint8(k)
				permute(i + 1)
				taken[k] = false
			}
		}
	}
	permute(0)
	if len(y.renames) == 1 {
		y.renames = nil
	}
	return y
}

// order returns a client's sort key in a state, without its name.
func (y *symmetry) order(s *state, i int) uint64 {
	m := s.ghost.Mark[i]
	if s.late.req > 0 && int(s.late.client) == i {
		m.Bits |= 1 << 7
	}
	return memo.Mix(y.x.runs.nodes[s.cells[i].node].shape, uint64(s.cells[i].conn)|uint64(m.Rank)<<16|uint64(m.Bits)<<24)
}

// canonical renames the clients of a state, so states with other names only become one. It returns the
// renaming.
func (y *symmetry) canonical(s *state) *rename {
	if y.renames == nil {
		return nil
	}
	n := y.x.c.Clients
	var order [plan.MaxClients]uint64
	for i := range n {
		order[i] = y.order(s, i)
	}
	to, tied := y.places(&order, n)
	if !tied {
		r := &y.renames[y.numbers[packed(to)]]
		*s = y.apply(s, r)
		return r
	}
	var best state
	var by *rename
	for k := range y.renames {
		r := &y.renames[k]
		if !y.sorts(r, &order) {
			continue
		}
		if t := y.apply(s, r); by == nil || t.less(&best, n) {
			best, by = t, r
		}
	}
	*s = best
	return by
}

// places orders the clients' names, each within its kind. It reports whether two of them could change
// places.
func (y *symmetry) places(order *[plan.MaxClients]uint64, n int) (to [plan.MaxClients]uint8, tied bool) {
	for i := range n {
		first, place := true, uint8(0)
		for k := range n {
			if !y.alike[i][k] {
				continue
			}
			if first {
				first, place = false, place+uint8(k)
			}
			if k != i && order[k] < order[i] {
				place++
			} else if k != i && order[k] == order[i] {
				tied = true
			}
		}
		to[i] = place
	}
	return to, tied
}

// sorts reports whether clients of a kind stand in order after the renaming.
func (y *symmetry) sorts(r *rename, order *[plan.MaxClients]uint64) bool {
	n := y.x.c.Clients
	for i := range n {
		for k := range n {
			if y.alike[i][k] && r.to[i] < r.to[k] && order[i] > order[k] {
				return false
			}
		}
	}
	return true
}

// apply returns the state with its clients renamed.
func (y *symmetry) apply(s *state, r *rename) state {
	t := *s
	if r == &y.renames[0] {
		return t
	}
	t.content = y.content(r, s.content)
	if y.x.c.Faults.Failover > 0 {
		t.prev = y.content(r, s.prev)
	}
	for i := range y.x.c.Clients {
		k := r.to[i]
		t.cells[k] = cell{node: y.node(r, s.cells[i].node), conn: y.conn(r, s.cells[i].conn)}
		t.ghost.Mark[k] = s.ghost.Mark[i]
	}
	if f := s.late; f.req > 0 {
		t.late = flight{req: 1 + y.request(r, f.req-1), conn: y.conn(r, f.conn), client: r.to[f.client], left: f.left}
	}
	t.ghost.Writer, t.ghost.PrevWriter, t.ghost.Late = y.writer(r, s.ghost.Writer), y.writer(r, s.ghost.PrevWriter), y.writer(r, s.ghost.Late)
	return t
}

// less orders states with the same clients under other names.
func (s *state) less(t *state, n int) bool {
	order := cmp.Or(cmp.Compare(s.content, t.content), cmp.Compare(s.prev, t.prev),
		cmp.Compare(s.ghost.Writer, t.ghost.Writer), cmp.Compare(s.ghost.PrevWriter, t.ghost.PrevWriter),
		cmp.Compare(s.late.req, t.late.req), cmp.Compare(s.late.client, t.late.client), cmp.Compare(s.late.conn, t.late.conn))
	for i := range n {
		order = cmp.Or(order, cmp.Compare(s.cells[i].node, t.cells[i].node), cmp.Compare(s.cells[i].conn, t.cells[i].conn))
	}
	return order < 0
}

func (y *symmetry) writer(r *rename, w uint8) uint8 {
	if w == judge.Nobody || w == judge.Somebody {
		return w
	}
	return 1 + r.to[w-1]
}

func (y *symmetry) content(r *rename, n uint32) uint32 {
	return r.contents.Find(n, &y.frozen, func() uint32 { return y.x.trans.renamed(n, r) })
}

func (y *symmetry) conn(r *rename, n uint16) uint16 {
	if n <= newConn {
		return n
	}
	return r.conns.Find(n, &y.frozen, func() uint16 { return y.x.trans.connRenamed(n, r) })
}

// request renames a delayed write.
func (y *symmetry) request(r *rename, n uint32) uint32 {
	return r.requests.Find(n, &y.frozen, func() uint32 { return y.x.runs.request(r.request(y.x.runs.requests[n])) })
}

// node renames a node: the same code with the same history under other names.
func (y *symmetry) node(r *rename, n uint32) uint32 {
	return r.nodes.Find(n, &y.frozen, func() uint32 {
		rs := y.x.runs
		from := rs.nodes[n]
		if from.orphan {
			return rs.roots[r.to[from.client]][from.Attempt]
		}
		return rs.child(y.node(r, from.parent), y.input(r, from.input)).to
	})
}

func (y *symmetry) input(r *rename, in uint32) uint32 {
	if in == inputLost || in == inputWrote || isClock(in) {
		return in
	}
	return r.inputs.Find(in, &y.frozen, func() uint32 { return y.x.runs.replies.rename(in, r) })
}
