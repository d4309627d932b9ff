package explore

import (
	"context"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/search"
)

// BenchmarkExplore is the measure: txlock classic, three clients of two attempts each, all
// interleavings, one lost reply, four jumps of time, crashes. Alone and through
// the Locker, which adds what it does about the lost reply; there on one processor and on two, where
// clients may also stop between their clock and what they do on it.
func BenchmarkExplore(b *testing.B) {
	for _, bm := range []struct {
		name string
		c    plan.Config
	}{
		{"alone", plan.Config{Bare: true, Faults: plan.Faults{LostReplies: 1, Crash: true}}},
		{"alone-without-symmetry", plan.Config{Bare: true, NoSymmetry: true, Faults: plan.Faults{Crash: true}}},
		{"locker", plan.Config{Faults: plan.Faults{LostReplies: 1, Crash: true, Late: -1}}},
		{"late-on-1", plan.Config{Faults: plan.Faults{LostReplies: 1, Crash: true}, Workers: 1}},
		{"late-on-2", plan.Config{Faults: plan.Faults{LostReplies: 1, Crash: true}, Workers: 2}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			c := bm.c
			c.Algorithm, c.Clients, c.Attempts, c.Ticks = "tx:classic", 3, 2, 4
			states, transitions := 0, 0
			var last plan.Stats
			c.Progress = func(s plan.Stats) { last = s }
			for b.Loop() {
				r, err := Explore(context.Background(), c)
				if err != nil || r.Verdict != search.Safe {
					b.Fatal(r, err)
				}
				states, transitions = states+r.States, transitions+r.Transitions
			}
			b.ReportMetric(float64(states)/b.Elapsed().Seconds(), "states/s")
			b.ReportMetric(float64(transitions)/b.Elapsed().Seconds(), "transitions/s")
			b.ReportMetric(float64(states)/float64(b.N), "states")
			b.ReportMetric(float64(last.Memory)/float64(last.States), "B/state")
		})
	}
}
