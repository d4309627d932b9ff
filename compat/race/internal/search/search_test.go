package search

import (
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

var (
	toShorter = []time.Duration{2 * time.Second}
	toLonger  = []time.Duration{20 * time.Second}
	toBoth    = []time.Duration{2 * time.Second, 20 * time.Second}
)

// The rest of what make test has a part of. A test that is called with rest takes what it leaves out without.
func TestLongSearch(t *testing.T) {
	realredis.Long(t)
	t.Run("Oracle", func(t *testing.T) { oracle(t, true) })
	t.Run("WorkersFindTheSame", func(t *testing.T) { workersFindTheSame(t, true) })
}

// An archive keeps what a server answered when a proof is carried over to it.
func TestArchiveKeepsAnswers(t *testing.T) {
	a := NewArchive()
	of := func(server string) *plan.Setup {
		full := must.Get(plan.Complete(plan.Config{Algorithm: "tx:classic/published", Server: server, Ticks: 3, Each: true,
			Faults: plan.Faults{Unreaped: true, Late: -1}}))(t)
		return full
	}
	c := of("2.2")
	p := must.Get(Prove(t.Context(), c, NewRuns(c), a))(t)
	must.Get(p.HoldsOn(of("2.4"), a))(t)
	if s := a.shelves["2.4 "+plan.DefaultKey]; s == nil || len(s.answers) == 0 {
		t.Error("nothing was kept of what 2.4 did")
	}
}
