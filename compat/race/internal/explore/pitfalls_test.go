package explore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/search"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// Each of these once cost an explorer a wrong result.

// Without a place to stop before the clock is read, a lease that is counted
// from the reply passes for one that is not.
func TestLateReadingIsNeeded(t *testing.T) {
	c := plan.Config{Algorithm: "broken/late-lease", Ticks: 3, Invariants: []string{"exclusion"}}
	if r := explored(t, c); r.Verdict != search.Violated {
		t.Errorf("%v, want it caught", r)
	}
	c.Faults.Late = -1
	if r := explored(t, c); r.Verdict != search.Safe {
		t.Errorf("%v: nobody is late, and it is caught: then this test shows nothing", r)
	}
}

// Each invariant is broken alone as well as behind another.
func TestEachInvariantAlone(t *testing.T) {
	c := plan.Config{Algorithm: "broken/del-setnx", Ticks: 3, Each: true, Faults: plan.Faults{Late: -1}}
	all := explored(t, c)
	found := map[string]int{}
	for _, b := range all.Breaks {
		found[b.Verdict.Violated] = len(b.Events)
	}
	for _, v := range []string{"exclusion", "ownership"} {
		alone := c
		alone.Invariants = []string{v}
		r := explored(t, alone)
		if r.Verdict != search.Violated || len(r.Trace.Events) != found[v] {
			t.Errorf("%s alone: %v; with the others in %d steps", v, r, found[v])
		}
	}
}

// A bound that was reached proves nothing, and says so.
func TestBoundIsNotSafe(t *testing.T) {
	r, err := Explore(context.Background(), plan.Config{Algorithm: "tx:classic", Clients: 3, Ticks: 4, MaxStates: 1000})
	if err != nil || r.Verdict != search.BoundReached || r.Bound != "states" ||
		!strings.Contains(r.String(), "proves nothing") {
		t.Errorf("%v, %v", r, err)
	}
	r, err = Explore(context.Background(), plan.Config{Algorithm: "tx:classic", Clients: 3, Ticks: 4, MaxMemory: 1 << 20})
	if err != nil || r.Verdict != search.BoundReached || r.Bound != "memory" {
		t.Errorf("%v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r, err := Explore(ctx, plan.Config{Algorithm: "tx:classic"}); err == nil {
		t.Errorf("cancelled, it says %v", r)
	}
}

// moody does not do the same twice.
type moody struct {
	txlock.Guarded
	mood *int
}

func (m moody) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	if *m.mood++; *m.mood%3 == 0 {
		c.Do("PING") //nolint:errcheck
	}
	return m.Guarded.Acquire(c, now, key, ttl)
}

// stubborn recovers from being stopped.
type stubborn struct{ txlock.Guarded }

func (s stubborn) Release(l protocol.Lease) protocol.Change {
	return protocol.Change{Key: l.Key, Value: l.Value, Custom: func(c *protocol.Conn) ([]any, error) {
		defer func() { recover() }()
		return c.Run(s.Guarded.Release(l))
	}}
}

func TestUnfitCodeIsNoticed(t *testing.T) {
	mood := 0
	for want, make := range map[string]func(func() string) protocol.Algorithm{
		"not deterministic": func(token func() string) protocol.Algorithm {
			return moody{txlock.Guarded{Options: txlock.Options{Token: token}}, &mood}
		},
		"recovers from every p": func(token func() string) protocol.Algorithm {
			return stubborn{txlock.Guarded{Options: txlock.Options{Token: token}}}
		},
	} {
		func() {
			defer func() {
				if r := fmt.Sprint(recover()); !strings.Contains(r, want) {
					t.Errorf("%q, want %q", r, want)
				}
			}()
			Explore(context.Background(), plan.Config{New: make, Verify: true, Ticks: 1}) //nolint:errcheck
		}()
	}
}

// What a cell takes over from another server's proof, and from what servers did in other cells, is
// what a search of its own finds.
func TestProofsCarryOver(t *testing.T) { proofsCarryOver(t, "unreaped") }

func proofsCarryOver(t *testing.T, fault string) {
	f := filler{archive: search.NewArchive()}
	for _, v := range []string{"2.2", "2.4", "2.6", "2.6.12", "2.8", "7.0"} {
		c := Cell{Algorithm: "tx:classic/published", Server: v, Fault: fault, Clients: 2}
		must.Do(t, f.fill(context.Background(), &c))
		own := Cell{Algorithm: "tx:classic/published", Server: v, Fault: fault, Clients: 2}
		must.Do(t, new(filler).fill(context.Background(), &own))
		if c.States != own.States || fmt.Sprint(c.Breaks) != fmt.Sprint(own.Breaks) {
			t.Errorf("%s on %s: %d states %v\nby itself: %d states %v", fault, v, c.States, c.Breaks, own.States, own.Breaks)
		}
	}
	if n := len(f.proofs[fault]); n < 2 || n > 5 {
		t.Errorf("%s: %d proofs for six servers", fault, n)
	}
}
