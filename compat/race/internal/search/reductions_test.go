package search

import (
	"context"
	"fmt"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// searched searches c to its end and returns the search.
func searched(t *testing.T, c plan.Config, change func(*search)) *search {
	t.Helper()
	return searchedWith(t, c, false, change)
}

// searchedWith is searched with histories told apart, or not.
func searchedWith(t *testing.T, c plan.Config, keepHistory bool, change func(*search)) *search {
	t.Helper()
	c.Locks = plan.Broken()
	full := must.Get(plan.Complete(c))(t)
	full.KeepHistory = keepHistory
	for _, relearn := range []bool{false, true} {
		rs := NewRuns(full)
		if relearn {
			rs.relearn()
		}
		x, err := newSearch(full, rs, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(x.close)
		if change != nil {
			change(x)
		}
		if !caught(func() { _, err = x.explore(context.Background()) }) {
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
	}
	t.Fatal("an operation reads the time although none was taken to ignore it")
	return nil
}

func caught(f func()) (yes bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, yes = r.(readsTime); !yes {
				panic(r)
			}
		}
	}()
	f()
	return false
}

// small are the configurations on which the reductions are compared.
var small = []plan.Config{
	{Algorithm: "tx:classic", Ticks: 3, Each: true, Faults: plan.Faults{Crash: true, LostReplies: 1, Late: -1}},
	{Algorithm: "tx:classic/published", Ticks: 3, Each: true, Faults: plan.Faults{Unreaped: true, Late: 1}},
	{Algorithm: "tx:renamed", Clients: 3, Attempts: 1, Ticks: 2, Each: true, Faults: plan.Faults{Cuts: 1, LostRequests: 1, Late: -1}},
	{Algorithm: "getset:classic", Attempts: 1, Ticks: 4, Each: true, Extend: true, Faults: plan.Faults{Late: -1}},
	{Algorithm: "getset:guarded", Ticks: 3, Each: true, Write: true, Fence: true, Faults: plan.Faults{Late: -1}},
	{Algorithm: "tx:guarded", Ticks: 2, Each: true, Write: true, Faults: plan.Faults{Restart: 1, Failover: 1, Late: -1}},
	{Algorithm: "broken/get-del", Clients: 3, Attempts: 1, Ticks: 2, Each: true},
	{Algorithm: "broken/del-setnx", Clients: 3, Attempts: 1, Ticks: 3, Each: true, Faults: plan.Faults{Late: -1}},
	{Algorithm: "broken/bare-del", Ticks: 1, Each: true, Faults: plan.Faults{LostReplies: 1}},
	{Algorithm: "tx:renamed/pinned", Ticks: 2, Each: true, Extend: true,
		Faults: plan.Faults{Cuts: 1, Crash: true, Late: 1}},
	{Algorithm: "getset:guarded/pinned", Ticks: 3, Each: true, Faults: plan.Faults{LostReplies: 1, Evict: 1, Late: -1}},
	{Algorithm: "broken/unverified-watch", Attempts: 1, Ticks: 3, Each: true, Extend: true, Faults: plan.Faults{Late: 1}},
	{Algorithm: "getset:guarded/pinned", Attempts: 1, Ticks: 3, Each: true, Handoff: true, Fence: true, Faults: plan.Faults{LostReplies: 1, Late: -1}},
	{Algorithm: "getset:guarded/pinned", Attempts: 1, Ticks: 2, Each: true, ExtendTo: toBoth,
		Faults: plan.Faults{LostReplies: 2, Late: -1}},
	{Algorithm: "tx:renamed", Attempts: 1, Ticks: 2, Each: true, Extend: true, Detach: true, Fence: true, Faults: plan.Faults{LostReplies: 1, Late: -1}},
	{Algorithm: "getset:listed", Attempts: 1, Ticks: 3, Each: true, Handoff: true, StaleHandle: true, Faults: plan.Faults{LostReplies: 1, Late: -1}},
	{Algorithm: "tx:guarded", Attempts: 1, Ticks: 2, Each: true, Batch: true,
		Faults: plan.Faults{LostReplies: 1, Late: -1}},
	{Algorithm: "tx:guarded/pinned", Attempts: 1, Ticks: 2, Each: true,
		Faults: plan.Faults{Cuts: 1, Late: -1}},
	{Algorithm: "set:lua", Server: "7.0", Ticks: 2, Each: true, Faults: plan.Faults{Restart: 1, LostReplies: 1, Late: -1}},
	{Algorithm: "rw:read+rw:read+rw:write", Clients: 3, Attempts: 1, Ticks: 1, Each: true, Faults: plan.Faults{LostReplies: 1, Evict: 1, Late: -1}},
	{Algorithm: "rw:read/published+rw:write/published", Attempts: 1, Ticks: 2, Each: true, Extend: true, Faults: plan.Faults{Late: 1}},
	{Algorithm: "redlock", Server: "7.0", Attempts: 1, Ticks: 1, Each: true, Faults: plan.Faults{Down: 1, LostReplies: 1, Late: -1}},
}

// A weak fingerprint takes new states for seen ones, silently: the set of the
// states themselves is as large.
func TestLongFingerprints(t *testing.T) {
	realredis.Long(t)
	for _, c := range small {
		prints := searched(t, c, nil)
		exact := searched(t, c, func(x *search) { x.exact = map[state]bool{} })
		if len(prints.links) != len(exact.links) || len(exact.exact) < len(exact.links) {
			t.Errorf("%s: %d fingerprints, %d states", plan.Line(c), len(prints.links), len(exact.exact))
		}
	}
}

// What is taken for one state because it will go on alike does: with clients
// told apart, and with histories told apart, the same invariants break, and at
// the same depth.
func TestLongReductionsLoseNothing(t *testing.T) {
	realredis.Long(t)
	for _, c := range small {
		falls := func(x *search) string {
			depth := func(l link) (n int) {
				for ; l.choice != 0; l = x.links[l.parent] {
					n++
				}
				return n
			}
			at := map[string]int{}
			for _, b := range x.broken {
				at[b.breach.How.Invariant()] = depth(b.link)
			}
			return fmt.Sprint(at)
		}
		want := searched(t, c, nil)
		apart := c
		apart.NoSymmetry = true
		named := searched(t, apart, nil)
		split := searchedWith(t, c, true, nil)
		if falls(named) != falls(want) || falls(split) != falls(want) {
			t.Errorf("%s: breaks %s; clients told apart %s; histories told apart %s", plan.Line(c), falls(want), falls(named),
				falls(split))
		}
		if len(named.links) < len(want.links) || len(split.links) < len(want.links) {
			t.Errorf("%s: %d states; %d and %d with more told apart", plan.Line(c), len(want.links), len(named.links),
				len(split.links))
		}
	}
}

// With clients told apart there are as many states for each of those without as there are ways to call
// their clients: every class of states that differ in names only is one state, and none is two. (When each
// client's own code was run, 13,343 were found here in place of 13,324.)
func TestSymmetryHasOneStateOfEach(t *testing.T) {
	c := plan.Config{Algorithm: "tx:classic", Clients: 3, Attempts: 1, Ticks: 3,
		Faults: plan.Faults{LostReplies: 1, Late: -1}}
	want := searched(t, c, nil)
	c.NoSymmetry = true
	apart := searched(t, c, func(x *search) { x.exact = map[state]bool{} })
	together := *apart.c
	together.NoSymmetry = false
	apart.c = &together
	names := newSymmetry(apart)
	classes, met := 0, map[state]bool{}
	for s := range apart.exact {
		if met[s] {
			continue
		}
		classes++
		for i := range names.renames {
			t := names.apply(&s, &names.renames[i])
			met[t] = true
		}
	}
	for s := range met {
		if !apart.exact[s] {
			t.Fatalf("%+v is a state under other names only", s)
		}
	}
	if classes != len(want.links) {
		t.Errorf("%d states; with clients told apart %d, of %d classes", len(want.links), len(apart.exact), classes)
	}
}

// A look at a key with a timestamp reads the time it is given: the search finds out that it
// was wrong to take it to ignore that.
func TestDeafness(t *testing.T) {
	full := must.Get(plan.Complete(plan.Config{Algorithm: "getset:classic", Ticks: 3, Poll: true}))(t)
	x := must.Get(newSearch(full, NewRuns(full), nil))(t)
	defer x.close()
	if !caught(func() { x.explore(context.Background()) }) { //nolint:errcheck
		t.Error("it was not")
	}
}
