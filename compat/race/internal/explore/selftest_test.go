package explore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/race/internal/live"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/search"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// explored explores c and fails if there was no room.
func explored(t testing.TB, c plan.Config) search.Result {
	t.Helper()
	c.Locks = plan.Broken()
	r := must.Get(Explore(context.Background(), c))(t)
	if r.Verdict == search.BoundReached {
		t.Fatalf("no room for more %s", r.Bound)
	}
	t.Logf("%s: %d states, %v", plan.Line(c), r.States, r.Elapsed)
	return r
}

var (
	shorter = []time.Duration{2 * time.Second}
	longer  = []time.Duration{20 * time.Second}
	twice   = []time.Duration{10 * time.Second, 10 * time.Second}
	both    = []time.Duration{2 * time.Second, 20 * time.Second}
)

// An explorer that lets one of the broken locks pass is broken itself; so is
// one that finds a longer way than there is.
func TestBrokenLocksAreCaught(t *testing.T) {
	for _, c := range []struct {
		plan.Config
		invariant string
		steps     int
	}{
		{plan.Config{Algorithm: "broken/del-setnx", Ticks: 3}, "exclusion", 10},
		{plan.Config{Algorithm: "broken/get-del", Ticks: 3}, "ownership", 9},
		{plan.Config{Algorithm: "broken/late-lease", Ticks: 3}, "exclusion", 8},
		{plan.Config{Algorithm: "broken/no-repair", Faults: plan.Faults{Crash: true}}, "progress", 2},
		{plan.Config{Algorithm: "broken/bare-del", Ticks: 2, Faults: plan.Faults{LostReplies: 1}}, "ownership", 6},
		{plan.Config{Algorithm: "broken/multi-setnx-expire", Ticks: 4}, "ownership", 2},
		{plan.Config{Algorithm: "broken/unverified-watch", Ticks: 3, Attempts: 1, Extend: true}, "ownership", 12},
		{plan.Config{Algorithm: "broken/blind-handoff", Ticks: 3, Attempts: 1, Handoff: true}, "exclusion", 9},
		{plan.Config{Algorithm: "broken/keeps-the-longer-end", Ticks: 3, Attempts: 1, ExtendTo: shorter, Faults: plan.Faults{LostReplies: 1, Late: -1}}, "exclusion", 10},
		{plan.Config{Algorithm: "getset:guarded", Bare: true, Attempts: 1, ExtendTo: twice, Faults: plan.Faults{LostReplies: 1, Late: -1}}, "accuracy", 6},
		{plan.Config{Algorithm: "broken/stale-handle", Attempts: 1, Handoff: true, StaleHandle: true}, "ownership", 7},
		{plan.Config{Algorithm: "broken/list-release", Ticks: 3, Faults: plan.Faults{Refusals: 1}}, "ownership", 8},
		{plan.Config{Algorithm: "broken/older-successor", Server: "8.6", Successor: "8.2", Attempts: 1, ExtendTo: twice, Ticks: 1, Faults: plan.Faults{Failover: 1, Late: -1}}, "accuracy", 4},
		{plan.Config{Algorithm: "broken/second-connection", Attempts: 1, OneConn: true, Extend: true, Faults: plan.Faults{LostReplies: 1}}, "accuracy", 5},
	} {
		c.Config.Invariants = []string{c.invariant}
		r := explored(t, c.Config)
		if r.Verdict != search.Violated || r.Trace.Verdict.Violated != c.invariant || len(r.Trace.Events) != c.steps {
			t.Errorf("%s: %v; want %s violated in %d steps", c.Algorithm, r, c.invariant, c.steps)
			continue
		}
		again, err := live.ReplaySchedule(r.Trace.Schedule, plan.Broken())
		if err != nil || again.Verdict != r.Trace.Verdict {
			t.Errorf("%s: replayed as %+v, %v", r.Trace.Schedule, again.Verdict, err)
		}
	}
}

// The row of one connection finds what no other row does: it breaks a lock
// that under every other fault holds what the lock holds that it was made of.
func TestOnlyItsRowFindsIt(t *testing.T) {
	for name, row := range map[string]string{"broken/second-connection": "one connection"} {
		var found []string
		for _, x := range AllFaults() {
			if x.among == several {
				continue
			}
			if row := (Cell{Algorithm: name, Server: "2.4", Fault: x.Name, Clients: 2}).Config(); row.Downgrade || row.Wait {
				continue // rwlock's
			}
			breaks := func(algorithm string) string {
				c := Cell{Algorithm: algorithm, Server: "2.4", Fault: x.Name, Clients: 2}.Config()
				c.Bare, c.Each = true, true
				r := explored(t, c)
				var list []string
				for _, b := range r.Breaks {
					list = append(list, b.Verdict.Violated)
				}
				slices.Sort(list)
				return strings.Join(list, " ")
			}
			if breaks(name) != breaks("tx:guarded") {
				found = append(found, x.Name)
			}
		}
		if !slices.Equal(found, []string{row}) {
			t.Errorf("%s is found under %q, want %q alone", name, found, row)
		}
	}
}

// A refusal is what it takes to break the shorter list release, before 2.6.5; the
// longer one holds with each of its commands refused, in releases, extensions and takeovers.
func TestLongRefusals(t *testing.T) {
	realredis.Long(t)
	shorter := plan.Config{Algorithm: "broken/list-release", Ticks: 3, Faults: plan.Faults{Late: -1}, Invariants: []string{"exclusion", "ownership"}}
	if r := explored(t, shorter); r.Verdict != search.Safe {
		t.Errorf("without a refusal: %v", r)
	}
	shorter.Server, shorter.Faults.Refusals = "2.6", 1
	if r := explored(t, shorter); r.Verdict != search.Safe {
		t.Errorf("refused as a whole: %v", r)
	}
	for _, c := range []plan.Config{
		{Algorithm: "getset:listed", Server: "2.0", Extend: true, Attempts: 1, Ticks: 4, Faults: plan.Faults{Refusals: 1}},
		{Algorithm: "getset:guarded", Server: "2.2", Ticks: 4, Fence: true, Faults: plan.Faults{Refusals: 1, Late: -1}}, // INCR alone, too
		{Algorithm: "getset:listed", Server: "2.0", Ticks: 4, Fence: true, Faults: plan.Faults{Refusals: 1, Late: -1}},
		{Algorithm: "getset:listed", Server: "2.4", Clients: 3, Attempts: 1, Ticks: 4, Faults: plan.Faults{Refusals: 1, LostReplies: 1, Late: -1}},
		{Algorithm: "tx:renamed/listcas", Server: "2.4", Extend: true, Ticks: 3, Faults: plan.Faults{Refusals: 1, Late: -1}},
		{Algorithm: "tx:renamed/listcas", Server: "7.0", Ticks: 3, Faults: plan.Faults{Refusals: 1, Crash: true, Late: -1}},
	} {
		if r := explored(t, c); r.Verdict != search.Safe {
			t.Errorf("%s: %v", c.Algorithm, r)
		}
	}
}

// A write that arrives after its connection was given up, at any later time, takes the lock from
// nobody and changes no other's: it compares. The EXPIRE behind a SETNX does not; only this fault
// finds it.
func TestLateRequests(t *testing.T) {
	late := plan.Config{Attempts: 1, Ticks: 3, Extend: true, Faults: plan.Faults{LateRequests: 1, Late: -1}, Invariants: []string{"exclusion", "ownership", "progress"}}
	for _, name := range []string{"getset:listed", "tx:renamed", "set:lua", "tx:guarded", "tx:guarded/pinned", "getset:guarded/pinned"} {
		c := late
		c.Algorithm, c.Server = name, "2.4"
		if name == "set:lua" {
			c.Server = "7.0"
		}
		if r := explored(t, c); r.Verdict != search.Safe {
			t.Errorf("%s: %v", plan.Line(c), r)
		}
	}
	c := late
	c.Algorithm, c.Invariants = "tx:classic", []string{"ownership"}
	if r := explored(t, c); r.Verdict != search.Violated || len(r.Trace.Events) != 12 {
		t.Errorf("%s: %v, want ownership violated in 12 steps", plan.Line(c), r)
	} else if again, err := live.ReplaySchedule(r.Trace.Schedule, nil); err != nil || again.Verdict != r.Trace.Verdict {
		t.Errorf("%s: replayed as %+v, %v", r.Trace.Schedule, again.Verdict, err)
	}
	c.Faults = plan.Faults{LostRequests: 1, LostReplies: 1, Late: -1}
	if r := explored(t, c); r.Verdict != search.Safe {
		t.Errorf("%s: %v: then this test shows nothing", plan.Line(c), r)
	}
}

// A client whose own write arrives after it was given up, and after the client has begun anew, is
// told the truth when it is told that the lock is held: nobody can take it.
func TestRefusedByOwnLateRequest(t *testing.T) {
	for _, name := range []string{"getset:guarded", "getset:listed", "tx:renamed", "tx:guarded", "tx:guarded/pinned", "set:watch"} {
		for attempts := 1; attempts <= 2; attempts++ {
			c := plan.Config{Algorithm: name, Server: "7.0", Attempts: attempts, Ticks: 1, Faults: plan.Faults{LateRequests: 1, Late: -1}, Invariants: []string{"accuracy"}}
			if r := explored(t, c); r.Verdict != search.Safe {
				t.Errorf("%s: %v", plan.Line(c), r)
			}
		}
	}
	const own = "getset:guarded 7.0 2x1 check=accuracy : C1.delay C1 C1 C1.arrive C1 C1 C1"
	if r, err := live.ReplaySchedule(own, nil); err != nil || r.Verdict.Violated != "" {
		t.Errorf("%s: %+v, %v", own, r.Verdict, err)
	}
}

// What the Locker promises of a lease that is made shorter or longer, detached, handed off while
// somebody has an old handle, renewed in a batch, released with a wake-up, and of a client with
// one connection. The broken locks beside it show that each of these is seen.
func TestLongLockerHolds(t *testing.T) {
	realredis.Long(t)
	lossy := plan.Faults{LostReplies: 1, Late: -1}
	for _, c := range []plan.Config{
		{Attempts: 1, Ticks: 3, ExtendTo: shorter, Faults: lossy},
		{Attempts: 1, Ticks: 3, ExtendTo: longer, Faults: lossy},
		{Attempts: 1, Ticks: 3, ExtendTo: both, Faults: plan.Faults{LostReplies: 1, Late: -1}},
		{Attempts: 1, Ticks: 3, Extend: true, Detach: true, Fence: true, Faults: lossy},
		{Attempts: 1, Ticks: 3, Handoff: true, StaleHandle: true, Faults: lossy},
		{Attempts: 1, Ticks: 3, Batch: true, Faults: lossy},
		{Attempts: 1, Ticks: 3, Faults: plan.Faults{LostReplies: 1, Cuts: 1, Late: -1}},
		{Attempts: 1, Ticks: 3, OneConn: true, Extend: true, Faults: lossy},
	} {
		for _, name := range []string{"getset:listed", "tx:renamed", "set:lua", "tx:guarded/pinned", "getset:guarded/pinned", "rw:write"} {
			if c.Batch && (name == "rw:write" || strings.HasSuffix(name, "/pinned")) {
				continue
			}
			c := c
			c.Algorithm, c.Server, c.Each = name, "2.4", true
			if name == "set:lua" {
				c.Server = "7.0"
			}
			r := explored(t, c)
			if r.Verdict != search.Safe {
				for _, b := range r.Breaks {
					t.Errorf("%s: %s: %s", plan.Line(c), b.Verdict.Violated, b.ReplayLine())
				}
			}
		}
	}
}

// What the published algorithms do wrong is found without a hint: the losing
// GETSET that sets a live lease back although nobody releases, and on 2.2–2.6.11
// the repair that revives a dead lock.
func TestPublishedRacesAreFound(t *testing.T) {
	r := explored(t, plan.Config{Algorithm: "getset:classic", Clients: 2, Attempts: 3, Ticks: 6, Keep: true, Invariants: []string{"exclusion"}})
	if r.Verdict != search.Violated {
		t.Errorf("getset:classic without a release: %v, want exclusion violated", r)
	}
	for _, v := range []struct {
		server  string
		revives bool
	}{{"2.2.5", true}, {"2.2", true}, {"2.4", true}, {"2.6", true}, {"2.8", false}, {"7.0", false}} {
		r := explored(t, plan.Config{Algorithm: "tx:classic/published", Server: v.server, Clients: 2, Attempts: 1, Ticks: 3,
			Faults: plan.Faults{Unreaped: true, Crash: true}, Invariants: []string{"progress"}})
		if (r.Verdict == search.Violated) != v.revives {
			t.Errorf("the published repair on %s: %v, want violated %v", v.server, r, v.revives)
		}
	}
}

// The published locks of SET and of readers and a writer, and a quorum of which
// one server forgets, break as it is known of them, in as few steps; and hold
// where they are known to.
func TestNewerLocks(t *testing.T) { newerLocks(t, false) }

func newerLocks(t *testing.T, rest bool) {
	const shared, published = "rw:read+rw:read+rw:write", "rw:read/published+rw:write/published"
	for n, c := range []struct {
		plan.Config
		steps int // 0: it holds
	}{
		{plan.Config{Algorithm: "set:published", Server: "7.0", Ticks: 3, Invariants: []string{"ownership"}}, 5},
		{plan.Config{Algorithm: "set:lua", Server: "7.0", Ticks: 3,
			Faults: plan.Faults{LostReplies: 1, Crash: true, Late: -1}}, 0},
		{plan.Config{Algorithm: "set:watch", Server: "noscript", Ticks: 3, Faults: plan.Faults{LostReplies: 1, Crash: true, Late: -1}}, 0},
		{plan.Config{Algorithm: "set:script", Server: "2.6", Ticks: 3,
			Faults: plan.Faults{LostReplies: 1, Crash: true, Late: -1}}, 0},
		{plan.Config{Algorithm: published, Attempts: 1, Ticks: 2, Invariants: []string{"exclusion"}}, 13},
		{plan.Config{Algorithm: published, Attempts: 1, Ticks: 3, Invariants: []string{"accuracy"}}, 11},
		{plan.Config{Algorithm: published, Attempts: 1, Faults: plan.Faults{Crash: true},
			Invariants: []string{"progress"}}, 2},
		{plan.Config{Algorithm: shared, Clients: 3, Attempts: 1, Ticks: 3, Faults: plan.Faults{Crash: true, Late: -1}}, 0},
		{plan.Config{Algorithm: "rw:write", Attempts: 1, Ticks: 3, Write: true, Invariants: []string{"fencing"}}, 18},
		{plan.Config{Algorithm: "redlock", Server: "7.0", Attempts: 1, Faults: plan.Faults{Restart: 1, Late: -1}}, 7},
		{plan.Config{Algorithm: "redlock", Server: "7.0", Attempts: 1, Ticks: 2, Faults: plan.Faults{Crash: true, Down: 1, Late: -1}}, 0},
	} {
		if (c.steps > 0 || n == 1) == rest {
			continue
		}
		r := explored(t, c.Config)
		steps := 0
		if r.Trace != nil {
			steps = len(r.Trace.Events)
		}
		if steps != c.steps {
			t.Errorf("%s: %v; want it to break in %d steps", plan.Line(c.Config), r, c.steps)
		}
	}
}

// Readers hold together: what would be two holders of a plain lock is not, and a
// writer beside one of them is.
func TestReadersShare(t *testing.T) {
	for schedule, want := range map[string]string{
		"rw:read 7.0 2x1 : C1 C1 C1 C1 C1 C1 C1 C2 C2 C2 C2 C2 C2 C2":                            "",
		"rw:read/published+rw:write/published 7.0 2x1 : C1 C1 C1 +6s C2 C2 C2 C2 C1 C1 C2 C2 C2": "exclusion",
		"rw:write/published+rw:read/published 7.0 2x1 : C1 C1 C1 C1 +6s C2 C2 C2 C2 C2 C1 C1 C1": "exclusion",
		"set:lua+set:watch 7.0 2x1 : C1 redis.restart C2":                                        "exclusion",
		"redlock 7.0 2x1 : C1 C1 C2 C2 C1 S1.restart C2":                                         "exclusion",
		"redlock 7.0 2x1 : C1 C1 C2 C2 C1 S1.down C2":                                            "",
	} {
		trace, err := live.ReplaySchedule(schedule, nil)
		if err != nil || trace.Verdict.Violated != want {
			t.Errorf("%s: %q %v, want %q", schedule, trace.Verdict.Violated, err, want)
		}
	}
}

// The variants that ship hold; the published one does not.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		algorithm, server string
		violated          bool
	}{
		{"tx:classic", "2.2", false}, {"tx:guarded", "2.2", false}, {"tx:renamed", "2.4", false},
		{"tx:renamed", "7.0", false}, {"getset:guarded", "2.2", false}, {"getset:guarded", "noscript", false}, {"getset:classic", "1.2", true},
	} {
		r := explored(t, plan.Config{Algorithm: c.algorithm, Server: c.server, Ticks: 3, Faults: plan.Faults{LostReplies: 1, Crash: true, Late: -1}})
		if (r.Verdict == search.Violated) != c.violated {
			t.Errorf("%s on %s: %v, want violated %v", c.algorithm, c.server, r, c.violated)
		}
	}
}

// The numbers of states of small configurations: a search that loses some, or
// makes some up, is noticed here.
func TestStatesArePinned(t *testing.T) {
	for _, c := range []struct {
		plan.Config
		states int
	}{
		{plan.Config{Algorithm: "tx:classic", Attempts: 1, Ticks: 2}, 326},
		{plan.Config{Algorithm: "tx:guarded", Attempts: 1, Ticks: 2}, 368},
		{plan.Config{Algorithm: "tx:renamed", Attempts: 2, Ticks: 2, Faults: plan.Faults{LostReplies: 1}}, 11216},
		{plan.Config{Algorithm: "getset:guarded", Attempts: 2, Ticks: 2}, 1882},
		{plan.Config{Algorithm: "set:lua", Server: "7.0", Attempts: 2, Ticks: 2, Faults: plan.Faults{Restart: 1}, Invariants: []string{"progress"}}, 6198},
		{plan.Config{Algorithm: "rw:read/published+rw:write/published", Attempts: 1, Ticks: 2, Invariants: []string{"progress"}}, 3137},
		{plan.Config{Algorithm: "redlock", Server: "7.0", Attempts: 1, Ticks: 1,
			Faults: plan.Faults{Down: 1, Late: -1}}, 32958},
	} {
		r := explored(t, c.Config)
		if r.States != c.states {
			t.Errorf("%s: %d states, pinned at %d: if you know why, pin it anew", plan.Line(c.Config), r.States, c.states)
		}
	}
}

// Of a lock that refuses the server nothing is claimed.
func TestRefusedServerIsNoProof(t *testing.T) {
	for server, want := range map[string]string{"2.4": "set:published refuses Redis 2.4", "7.0": ""} {
		_, err := Explore(t.Context(), plan.Config{Algorithm: "set:published", Server: server, Attempts: 1, Ticks: 2, Invariants: []string{"exclusion"}})
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v", server, err)
		}
	}
}
