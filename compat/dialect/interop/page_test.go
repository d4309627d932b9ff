package interop

import (
	"sync"
	"testing"
)

type results struct {
	mu   sync.Mutex
	rows []row
}

func newResults() *results { return &results{} }

func (s *results) add(t *testing.T, r row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = append(s.rows, r)
	t.Logf("%d of theirs, %d of ours, %d turns; their death %v, ours %v; to us %v, to them %v", r.theirs, r.ours, r.turns, r.theirDeath, r.ourDeath, r.toUs, r.toThem)
}

func (s *results) write(t *testing.T) {}
