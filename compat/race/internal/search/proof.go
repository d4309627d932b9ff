package search

import (
	"context"

	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A Proof is one search with every question that it asked of the server. On
// another server that gives the same answers to all of them the search would
// have been the same, step by step: it need not be made.
type Proof struct {
	Result Result
	Ways   []Way
	first  uint32 // what the server held in the beginning
	log    []noted
}

// Prove searches c.
func Prove(ctx context.Context, c *plan.Setup, rs *Runs, a *Archive) (*Proof, error) {
	x, b, err := examine(ctx, c, rs, a, true)
	if err != nil {
		return nil, err
	}
	defer x.close()
	return &Proof{Result: x.result(b), Ways: x.ways(), first: x.trans.contents[0].id, log: x.trans.log}, nil
}

// HoldsOn reports whether c, with another server, gives the same answers. The archive is that of the
// search.
func (p *Proof) HoldsOn(c *plan.Setup, a *Archive) (bool, error) {
	s := a.shelf(c)
	var w *probeServer // made when it is needed
	defer func() {
		if w != nil {
			w.close()
		}
	}()
	call := func() (_ *probeServer, err error) {
		if w == nil {
			w, err = newProbeServer(c, a)
		}
		return w, err
	}
	first, err := s.begins(c, call)
	if err != nil || first != p.first {
		return false, err
	}
	unasked, ok := s.agrees(p.log)
	if !ok {
		return false, nil
	}
	for _, n := range unasked {
		w, err := call()
		if err != nil {
			return false, err
		}
		if _, got := s.ask(a.inquiry(n.inquiry), w); got != n {
			return false, nil
		}
	}
	return true, nil
}
