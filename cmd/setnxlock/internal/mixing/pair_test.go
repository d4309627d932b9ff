package mixing

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

func find(t *testing.T, name string) Party {
	t.Helper()
	return must.Get(Find(name))(t)
}

// What happened when real clients met, in the words of the page.
func TestPairsOfRealClients(t *testing.T) {
	for i, x := range []struct {
		a, b  string
		clash Grade // "": none
		needs Needs
		stuck string // whose lock, stuck for whom, after what; "": nothing
	}{
		{"ours/tx:guarded", "ours/set:lua", "", "", ""},
		{"ours/set:lua", "theirs/redis-py-3", "", "", ""},
		{"ours/getset:guarded/redis-docs", "ours/getset:guarded/redis-docs", "", "", ""},
		{"ours/getset:guarded/redis-docs", "ours/getset:guarded/jedis-lock", "", "", "ours/getset:guarded/redis-docs by ours/getset:guarded/jedis-lock died holding it; ours/getset:guarded/jedis-lock by ours/getset:guarded/redis-docs died holding it"},

		// redis-py takes the timestamp that a failed takeover left for its own, or deletes a later
		// one.
		{"ours/getset:guarded/redis-py-2.9", "theirs/redis-py-2.9", Late, OneOfEach, ""},
		// It waits longest before a takeover: much time must pass before a DEL without comparison
		// can do harm.
		{"ours/getset:guarded/redset", "theirs/resque-lock", Late, OneOfEach, ""},
		// lonely_job cuts off the fraction: it is nearly a second early.
		{"ours/getset:guarded/redis-py-2.9", "theirs/lonely-job", Early, OneOfEach, ""},
		// To a client of milliseconds, seconds expired long ago; to a client of seconds,
		// milliseconds never expire.
		{"theirs/redis-py-2.9", "theirs/npm-redis-lock-0.0", AtOnce, OneOfEach, "theirs/npm-redis-lock-0.0 by theirs/redis-py-2.9 died holding it"},
		// A token read with to_f.
		{"theirs/redis-mutex", "theirs/redis-py-2.10", AtOnce, OneOfEach, "theirs/redis-mutex by theirs/redis-py-2.10 died holding it"},
		// GET, then SETEX: two clients take a free key.
		{"theirs/celery-once-1", "theirs/celery-once-1", AtOnce, OneOfEach, ""},
		// A repair with a shorter lease ends a live lock; it takes a third client to notice.
		{"ours/getset:guarded/redis-docs", "theirs/redis-in-action/3s", Early, TwoOfA, "theirs/redis-in-action/3s by ours/getset:guarded/redis-docs died half-way"},
		// A crash between SETNX and PEXPIRE.
		{"theirs/redis-py-2.10", "theirs/redis-py-2.10", "", "", "theirs/redis-py-2.10 by theirs/redis-py-2.10 died half-way"},
	} {
		if realredis.UnderRace() && i%4 != 0 {
			continue
		}
		v := must.Get(pairOf(t, x.a, x.b))(t)
		var clash Grade
		var needs Needs
		if v.Clash != nil {
			clash, needs = v.Clash.Grade, v.Clash.Needs
			checkReplay(t, v.Clash.Schedule, "exclusion")
		}
		var stuck []string
		for _, s := range v.Stuck {
			stuck = append(stuck, s.Of+" by "+s.By+" "+string(s.When))
			checkReplay(t, s.Schedule, "progress")
		}
		if clash != x.clash || needs != x.needs || strings.Join(stuck, "; ") != x.stuck {
			t.Errorf("%s and %s: %q, %q, stuck %q;\nwant %q, %q, %q", x.a, x.b, clash, needs, stuck, x.clash, x.needs, x.stuck)
		}
		if v.Safe() != (x.clash == "" && x.stuck == "") {
			t.Errorf("%s and %s: safe is %v", x.a, x.b, v.Safe())
		}
	}
}

func pairOf(t *testing.T, a, b string) (Verdict, error) {
	t.Helper()
	return Pair(context.Background(), find(t, a), find(t, b))
}

func checkReplay(t *testing.T, schedule, want string) {
	t.Helper()
	got, err := race.ReplaySchedule(schedule, Locks())
	if err != nil || got.Verdict.Violated != want {
		t.Errorf("%s breaks %q, %v; want %s", schedule, got.Verdict.Violated, err, want)
	}
}

// A fleet that is unsafe by itself does not make every mixture unsafe: with two of its clients,
// only overlaps with the third client count.
func TestOverlapsAmongAFleet(t *testing.T) {
	const words = " 2.8 3x1 check=exclusion : C1 C2 C2 C1"
	plain, err := race.ReplaySchedule("theirs/celery-once-1+theirs/celery-once-1+ours/set:lua"+words, Locks())
	if err != nil || plain.Verdict.Violated != "exclusion" {
		t.Errorf("two celery-once with another: %q, %v", plain.Verdict.Violated, err)
	}
	among, err := race.ReplaySchedule("theirs/celery-once-1/among+theirs/celery-once-1/among+ours/set:lua"+words, Locks())
	if err != nil || among.Verdict.Violated != "" {
		t.Errorf("the same, among themselves: %q, %v", among.Verdict.Violated, err)
	}
}

// A clock that is off by more than the margin breaks a timestamp lock; one that is off by less does
// not. A lock with a TTL does not depend on clients' clocks.
func TestMarginsBearSkew(t *testing.T) {
	for i, x := range []struct {
		name  string
		off   time.Duration
		holds bool
	}{
		{"getset:guarded", 50 * time.Millisecond, true}, // less than the drift margin of the lease
		{"getset:guarded", 500 * time.Millisecond, false},
		{"getset:guarded", -500 * time.Millisecond, false},
		{"ours/getset:guarded/margin-1s", 500 * time.Millisecond, true},
		{"ours/getset:guarded/margin-1s", 3 * time.Second, false},
		{"getset:guarded/margin", 3 * time.Second, true},
		{"ours/getset:patient", 15 * time.Second, true},
		{"set:lua", -15 * time.Second, true},
	} {
		if realredis.UnderRace() && i%4 != 0 {
			continue
		}
		s, err := skew(context.Background(), x.name, x.off)
		if err != nil || s.Holds() != x.holds {
			t.Errorf("%s with a clock off by %v: holds is %v, want %v: %s %v", x.name, x.off, s.Holds(), x.holds, s.Schedule, err)
		}
	}
}

func TestPartiesAreFoundByName(t *testing.T) {
	for name, want := range map[string]string{
		"theirs/redis-py-2.9":                 "theirs/redis-py-2.9",
		"ours/getset:guarded/ohm-0.1":         "ours/getset:guarded/redis-py-2.9", // alike
		"Redis-Py-2.10":                       "theirs/redis-py-2.10",
		"theirs/SncRedisBundle":               "theirs/laravel-5.5",
		"set:lua":                             "ours/set:lua",
		"redis-py":                            "",
		"theirs/redis-py-2.9/among":           "",
		"ours/getset:guarded/redis-in-action": "",
	} {
		p, err := Find(name)
		if p.Name != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", name, p.Name, err, want)
		}
	}
}
