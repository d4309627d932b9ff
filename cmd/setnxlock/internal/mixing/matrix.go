package mixing

import (
	"context"
	"fmt"
	"runtime"
	"sync"
)

// A Matrix is the verdict on every pair of parties.
type Matrix struct {
	Parties []Party
	States  int

	verdicts map[[2]string]Verdict
}

// Of returns the verdict on two parties, in either order.
func (m Matrix) Of(a, b string) Verdict {
	if v, ok := m.verdicts[[2]string{a, b}]; ok {
		return v
	}
	return m.verdicts[[2]string{b, a}]
}

// Compute explores every pair of the parties, on all processors. seen, if not nil, is called after
// each, one at a time.
func Compute(ctx context.Context, parties []Party, seen func()) (Matrix, error) {
	m := Matrix{Parties: parties, verdicts: map[[2]string]Verdict{}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	self := func(p Party) (Verdict, error) {
		mu.Lock()
		defer mu.Unlock()
		return m.verdicts[[2]string{p.Name, p.Name}], nil
	}
	run := func(pairs [][2]Party) {
		var wg sync.WaitGroup
		free := make(chan bool, runtime.GOMAXPROCS(0))
		for _, q := range pairs {
			free <- true
			wg.Go(func() {
				defer func() { <-free }()
				v, err := pair(ctx, q[0], q[1], self)
				if err != nil {
					cancel(fmt.Errorf("%s and %s: %w", q[0].Name, q[1].Name, err))
					return
				}
				mu.Lock()
				defer mu.Unlock()
				m.verdicts[[2]string{q[0].Name, q[1].Name}] = v
				m.States += v.States
				if seen != nil {
					seen()
				}
			})
		}
		wg.Wait()
	}
	var alone, pairs [][2]Party
	for i, a := range parties {
		alone = append(alone, [2]Party{a, a}) // first: a race inside one fleet does not count against the other
		for _, b := range parties[i+1:] {
			pairs = append(pairs, [2]Party{a, b})
		}
	}
	run(alone)
	run(pairs)
	return m, context.Cause(ctx)
}
