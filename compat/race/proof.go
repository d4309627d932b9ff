package race

import "context"

// A proof is one search with every question that it asked of the server. On
// another server that gives the same answers to all of them the search would
// have been the same, step by step: it need not be made.
type proof struct {
	result Result
	ways   []way
	first  uint32 // what the server held in the beginning
	log    []noted
}

// prove searches c.
func prove(ctx context.Context, c *setup, rs *runs, a *archive) (*proof, error) {
	x, b, err := examine(ctx, c, rs, a, true)
	if err != nil {
		return nil, err
	}
	defer x.close()
	return &proof{result: x.result(b), ways: x.ways(), first: x.trans.contents[0].id, log: x.trans.log}, nil
}

// holdsOn reports whether c, which differs from what was searched in its server
// only, gives the same answers. The archive is that of the search.
func (p *proof) holdsOn(c *setup, a *archive) (bool, error) {
	s := a.shelf(c)
	var w *witness // made when it is needed
	defer func() {
		if w != nil {
			w.close()
		}
	}()
	call := func() (_ *witness, err error) {
		if w == nil {
			w, err = newWitness(c, a)
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
