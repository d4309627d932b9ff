package search

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/judge"
	"github.com/setnxlock/setnxlock/compat/race/internal/live"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/internal/must"
)

// walker explores by replaying every schedule from the beginning, on live
// servers. It knows nothing of the search but which states there are.
type walker struct {
	t           *testing.T
	c           *plan.Setup
	seen        map[string]bool
	breaks      map[judge.BreachKind]int
	transitions int
	trans       *transitions // to read contents with
}

// A stand is a way to a state, and what may still go wrong there.
type stand struct {
	path   []plan.Choice
	budget budget
	late   int // how many writes may be late
}

func (k *walker) world(path []plan.Choice) *live.World {
	w := must.Get(live.NewWorld(k.c))(k.t)
	w.Crashes = k.c.Faults.Crash
	for _, c := range path {
		if _, err := w.Apply(c); err != nil {
			k.t.Fatalf("%v, once made, can't be made again: %v", path, err)
		}
	}
	return w
}

// key is all of a state.
func (k *walker) key(w *live.World, b budget, late int) string {
	return fmt.Sprint(b, late, w.Identity(k.c.Faults.Failover > 0))
}

func (k *walker) walk() {
	level := []stand{{budget: newBudget(k.c), late: k.c.Faults.LateRequests}}
	w := k.world(nil)
	k.seen[k.key(w, level[0].budget, level[0].late)] = true
	w.Close()
	for len(level) > 0 {
		var next []stand
		for _, s := range level {
			for _, m := range k.macros(s) {
				if n := k.take(s, m); n != nil {
					next = append(next, *n)
				}
			}
		}
		level = next
	}
}

// A macro is what the search does at once.
type macro struct {
	choices []plan.Choice
	cost    func(budget) budget
}

func free(b budget) budget { return b }

func (k *walker) macros(s stand) (list []macro) {
	spend := func(kind int) func(budget) budget {
		return func(b budget) budget { return b.less(kind) }
	}
	for i := range k.c.Clients {
		list = append(list, macro{[]plan.Choice{{Verb: plan.Arrive, Client: i}}, free})
		step := k.write(s, i)
		if step == nil {
			continue
		}
		if s.late > 0 {
			list = append(list, macro{[]plan.Choice{{Verb: plan.Delay, Client: i}}, free})
		}
		last := func(v plan.Verb) []plan.Choice {
			l := append([]plan.Choice{}, step...)
			l[len(l)-1].Verb = v
			return l
		}
		list = append(list, macro{step, free})
		if s.budget.has(ofTicks) && s.budget.late() > 0 {
			list = append(list, macro{last(plan.Stall), func(b budget) budget { return b.lessLate(1) }})
		}
		if s.budget.has(ofReplies) {
			list = append(list, macro{last(plan.Drop), spend(ofReplies)})
		}
		if s.budget.has(ofRequests) {
			list = append(list, macro{[]plan.Choice{{Verb: plan.Sever, Client: i}}, spend(ofRequests)})
		}
		for n := 1; s.budget.has(ofCuts) && n < len(step); n++ {
			l := append([]plan.Choice{}, step[:n+1]...)
			l[n].Verb = plan.Cut
			list = append(list, macro{l, spend(ofCuts)})
		}
		if s.budget.has(ofRefusals) {
			for n, cmds := range k.sends(s, step) {
				for nth := range cmds {
					l := append([]plan.Choice{}, step...)
					l[n] = plan.Choice{Verb: plan.Refuse, Client: i, Nth: nth}
					list = append(list, macro{l, spend(ofRefusals)})
				}
			}
		}
	}
	list = append(list, k.time(s)...)
	for _, v := range []struct {
		verb plan.Verb
		kind int
		on   bool
	}{
		{plan.Evict, ofEvict, true}, {plan.Restart, ofRestart, true}, {plan.Failover, ofFailover, true},
		{plan.Down, ofDown, true},
	} {
		for n := min(1, k.c.Servers()); s.budget.has(v.kind) && n <= k.c.Servers(); n++ {
			list = append(list, macro{[]plan.Choice{{Verb: v.verb, Server: n}}, spend(v.kind)})
		}
	}
	if k.c.Faults.Unreaped {
		list = append(list, macro{[]plan.Choice{{Verb: plan.Reap}}, free})
	}
	return list
}

// write is the steps of a client's whole next write.
func (k *walker) write(s stand, i int) []plan.Choice {
	w := k.world(s.path)
	defer w.Close()
	var list []plan.Choice
	for {
		if _, err := w.Apply(plan.Choice{Client: i}); err != nil {
			return nil
		}
		list = append(list, plan.Choice{Client: i})
		if p := w.Players[i].Pending; p.Kind != client.Sends || p.First {
			return list
		}
	}
}

// sends is what is sent in each step of a write, and along with it.
func (k *walker) sends(s stand, step []plan.Choice) (list [][][]string) {
	w := k.world(s.path)
	defer w.Close()
	for _, c := range step {
		d := must.Get(w.Apply(c))(k.t)
		list = append(list, d.Cmds)
	}
	return list
}

func (k *walker) time(s stand) (list []macro) {
	if !s.budget.has(ofTicks) {
		return nil
	}
	w := k.world(s.path)
	snap := w.Server.Snapshot()
	ct := k.trans.describe(snap, k.trans.probeServer.deaths(snap))
	until := moment(k.c, w.States(), &w.Judge.Skew, int32(w.Now), &ct)
	by := plan.Choice{Verb: plan.Pass}
	if until < 1<<20 {
		by.By = plan.Instant(int64(until)).Sub(plan.Instant(w.Now))
	}
	w.Close()
	if by.By == 0 {
		return nil
	}
	for looks := range 1 << k.c.Clients {
		var l []plan.Choice
		for i := range k.c.Clients {
			if looks&(1<<i) != 0 {
				l = append(l, plan.Choice{Verb: plan.Look, Client: i})
			}
		}
		if len(l) > s.budget.late() {
			continue
		}
		cost := func(b budget) budget { return b.less(ofTicks).lessLate(len(l)) }
		list = append(list, macro{append(l[:len(l):len(l)], by), cost})
		if k.c.Faults.Unreaped && len(ct.deaths) > 0 && ct.deaths[0] <= until {
			lazy := by
			lazy.Verb = plan.PassUnreaped
			list = append(list, macro{append(l[:len(l):len(l)], lazy), cost})
		}
	}
	return list
}

// take makes the choices; it returns where they lead if that is new.
func (k *walker) take(s stand, m macro) *stand {
	w := k.world(s.path)
	defer w.Close()
	was := w.Server.Snapshot().ContentKey()
	before := w.Before.ContentKey()
	var first judge.Breach
	path := append(s.path[:len(s.path):len(s.path)], m.choices...)
	for n, c := range m.choices {
		d, err := w.Apply(c)
		if errors.As(err, new(live.Disabled)) {
			return nil
		}
		if err != nil {
			k.t.Fatal(err)
		}
		// In the midst of what the search does at once it does not look.
		if n == len(m.choices)-1 || d.Breach.How != judge.Stuck && d.Breach.How != judge.TwoHold && d.Breach.How != judge.TooMany {
			if first.How == judge.None {
				first = d.Breach
			}
		}
	}
	if v := m.choices[0].Verb; v == plan.Reap && was == w.Server.Snapshot().ContentKey() ||
		v == plan.Failover && before == was {
		return nil
	}
	k.transitions++
	if first.How != judge.None && first.How != judge.Stuck {
		k.breaks[first.How]++
		return nil
	}
	b, late := m.cost(s.budget), s.late
	if m.choices[0].Verb == plan.Delay {
		late--
	}
	key := k.key(w, b, late)
	if k.seen[key] {
		return nil
	}
	k.seen[key] = true
	if first.How == judge.Stuck {
		k.breaks[judge.Stuck]++
		return nil
	}
	return &stand{path: path, budget: b, late: late}
}

// Both engines find the same states, the same number of transitions and the
// same ways to break.
func TestOracle(t *testing.T) { oracle(t, false) }

func oracle(t *testing.T, rest bool) {
	f := plan.Faults{LostReplies: 1, Crash: true}
	for n, c := range []plan.Config{
		{Algorithm: "tx:classic", Attempts: 1, Ticks: 1, Faults: f, Bare: true},
		{Algorithm: "tx:classic", Attempts: 1, Ticks: 1, Faults: plan.Faults{LostReplies: 1, Crash: true, Late: -1}},
		{Algorithm: "tx:classic/published", Attempts: 1, Ticks: 2, Faults: plan.Faults{Unreaped: true}},
		{Algorithm: "tx:renamed", Attempts: 1, Ticks: 1, Faults: plan.Faults{Cuts: 1, Late: -1}},
		{Algorithm: "tx:guarded", Server: "7.0", Attempts: 1, Ticks: 2, Write: true, Fence: true},
		{Algorithm: "tx:guarded", Attempts: 1, Faults: plan.Faults{Restart: 1, Failover: 1, Evict: 1}},
		{Algorithm: "getset:guarded", Attempts: 1, Ticks: 1, Extend: true, Faults: plan.Faults{Late: 1}},
		{Algorithm: "getset:classic", Attempts: 2, Bare: true, Faults: plan.Faults{LostRequests: 1, Crash: true}},
		{Algorithm: "getset:classic+tx:guarded", Attempts: 1, Ticks: 2},
		{Algorithm: "broken/del-setnx", Attempts: 1, Ticks: 3, Given: []string{"SET {key} t=-2s"},
			Faults: plan.Faults{Late: 1}},
		{Algorithm: "broken/get-del", Attempts: 1, Ticks: 2, Skew: []time.Duration{0, 3 * time.Second}},
		{Algorithm: "broken/bare-del", Attempts: 1, Ticks: 1, Faults: f},
		{Algorithm: "broken/multi-setnx-expire", Attempts: 1, Ticks: 2, Server: "2.6", Faults: plan.Faults{Late: 1}},
		{Algorithm: "getset:classic", Server: "twemproxy", Attempts: 1, Ticks: 1},
		{Algorithm: "set:lua", Server: "7.0", Attempts: 1, Faults: plan.Faults{Restart: 1, Failover: 1}},
		{Algorithm: "getset:listed", Server: "2.0", Attempts: 1, Ticks: 3, Keep: true,
			Faults: plan.Faults{Refusals: 1, Late: -1}},
		{Algorithm: "tx:renamed/listcas", Server: "2.4", Attempts: 1, Ticks: 1, Faults: plan.Faults{Refusals: 1, Late: -1}},
		{Algorithm: "tx:guarded", Server: "2.6", Attempts: 1, Ticks: 1, Extend: true,
			Faults: plan.Faults{Refusals: 1, Late: -1}},
		{Algorithm: "rw:read+rw:write", Attempts: 1, Ticks: 2, Write: true, Fence: true, Faults: plan.Faults{Late: -1}},
		{Algorithm: "rw:read/published+rw:write/published", Attempts: 1, Ticks: 1, Faults: plan.Faults{Late: -1}},
		{Algorithm: "tx:renamed/pinned", Attempts: 2, Ticks: 1, Faults: plan.Faults{Restart: 1, Late: -1}},
		{Algorithm: "tx:guarded/pinned+tx:classic/pinned", Attempts: 1, Ticks: 2, Extend: true, Faults: plan.Faults{LostReplies: 1, Late: 1}},
		{Algorithm: "getset:guarded/pinned", Attempts: 2, Ticks: 2, Keep: true, Faults: plan.Faults{Late: -1}},
		{Algorithm: "broken/unverified-watch", Attempts: 1, Ticks: 2, Extend: true},
		{Algorithm: "getset:guarded", Attempts: 1, Ticks: 1, ExtendTo: toBoth, Faults: plan.Faults{LostReplies: 1, Late: -1}},
		{Algorithm: "tx:guarded/pinned", Attempts: 1, Ticks: 1, ExtendTo: toShorter, OneConn: true,
			Faults: plan.Faults{LostReplies: 1, Late: -1}},
		{Algorithm: "tx:guarded", Attempts: 1, Extend: true, Detach: true, Faults: plan.Faults{LostReplies: 1, Crash: true}},
		{Algorithm: "tx:guarded/pinned", Attempts: 1, Handoff: true, StaleHandle: true, Faults: plan.Faults{LostReplies: 1}},
		{Algorithm: "set:lua", Server: "7.0", Attempts: 1, Ticks: 1, Batch: true, Faults: plan.Faults{Late: -1}},
		{Algorithm: "getset:listed", Attempts: 1, Faults: plan.Faults{Cuts: 1}},
		{Algorithm: "broken/keeps-the-longer-end", Attempts: 1, Ticks: 2, ExtendTo: toShorter,
			Faults: plan.Faults{LostReplies: 1, Late: -1}},
		{Algorithm: "broken/stale-handle", Attempts: 1, Handoff: true, StaleHandle: true,
			Faults: plan.Faults{LostReplies: 1}},
		{Algorithm: "tx:renamed", Attempts: 1, Faults: plan.Faults{LateRequests: 1, Late: -1}},
		{Algorithm: "set:lua", Server: "7.0", Attempts: 1, Faults: plan.Faults{LateRequests: 1, Restart: 1, Late: -1}},
		{Algorithm: "tx:guarded/pinned", Attempts: 1, Faults: plan.Faults{LateRequests: 1, Late: -1}},
		{Algorithm: "set:published", Server: "7.0", Attempts: 1, Faults: plan.Faults{LateRequests: 1, Failover: 1, Late: -1}},
		{Algorithm: "redlock", Server: "7.0", Attempts: 1, Clients: 1, Faults: plan.Faults{Restart: 1, Down: 1}},
		{Algorithm: "redlock", Server: "7.0", Attempts: 1, Keep: true, Faults: plan.Faults{Late: -1}},
	} {
		if (n%5 == 2) == rest {
			continue
		}
		t.Run(plan.Line(c), func(t *testing.T) {
			t.Parallel()
			c.NoSymmetry, c.Locks = true, plan.Broken()
			full := must.Get(plan.Complete(c))(t)
			full.KeepHistory = true
			x := must.Get(newSearch(full, NewRuns(full), nil))(t)
			defer x.close()
			x.tally, x.exact = map[judge.BreachKind]int{}, map[state]bool{}
			must.Get(x.explore(context.Background()))(t)
			k := &walker{t: t, c: full, seen: map[string]bool{}, breaks: map[judge.BreachKind]int{}, trans: x.trans}
			k.walk()
			if len(k.seen) != len(x.links) || k.transitions != x.transitions || !maps.Equal(k.breaks, x.tally) {
				t.Errorf("the search found %d states, %d transitions, breaks %v\nthe oracle %d, %d, %v",
					len(x.links), x.transitions, x.tally, len(k.seen), k.transitions, k.breaks)
			}
			t.Logf("%d states, %d transitions, breaks %v", len(k.seen), k.transitions, k.breaks)
		})
	}
}
