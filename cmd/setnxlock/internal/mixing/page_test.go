package mixing

import (
	"context"
	"flag"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/must"
)

var update = flag.Bool("update-mixing", false, "write the table of docs/mixing.md anew")

const (
	page        = "../../../../docs/mixing.md"
	begin, ends = "<!-- The table is computed: make mixing -->\n", "<!-- the end of the table -->\n"
)

// Summary returns the parties of the table in docs/mixing.md, one for each way to behave on a key.
func Summary() []Party {
	return named(
		"ours/getset:guarded/redis-py-2.9", "ours/getset:patient", "ours/tx:guarded",
		"theirs/redis-py-2.2.3", "theirs/redis-py-2.9", "theirs/node-resque", "theirs/jedis-lock", "theirs/npm-redis-lock-0.0", "theirs/machinery",
		"theirs/redis-in-action", "theirs/redis-py-2.10", "theirs/redis-py-3", "theirs/locky",
	)
}

// summary is the matrix of the page's table, computed once: some seconds.
var summary = sync.OnceValues(func() (Matrix, error) { return Compute(context.Background(), Summary(), nil) })

// computed returns that matrix.
func computed(t *testing.T) Matrix {
	t.Helper()
	skipUnderRace(t)
	return must.Get(summary())(t)
}

// skipUnderRace leaves a whole matrix out under the race detector: TestVerdictsAreThoseOfTheSources computes a part.
func skipUnderRace(t *testing.T) {
	t.Helper()
	if underRace() {
		t.Skip("not run under the race detector: the whole matrix")
	}
}

// underRace reports whether the race detector watches, which costs a factor of eight: the tests are smaller then. They
// still have two searches at a time.
var underRace = sync.OnceValue(func() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
})

// The page's table is what the code computes, all of it.
func TestPageIsNotStale(t *testing.T) {
	m := computed(t)
	b := must.Get(os.ReadFile(page))(t)
	before, rest, ok := strings.Cut(string(b), begin)
	was, after, two := strings.Cut(rest, ends)
	if !ok || !two {
		t.Fatalf("docs/mixing.md has no table between %q and %q", begin, ends)
	}
	now := m.Words(Summary())
	if *update {
		must.Do(t, os.WriteFile(page, []byte(before+begin+now+ends+after), 0o644))
		return
	}
	if was != now {
		t.Errorf("docs/mixing.md is stale: its table is\n%s\nand the code computes\n%s\nIf you know why, run: make mixing", was, now)
	}
}

// The page's rules are those that the matrix bears out.
func TestRulesOfThePage(t *testing.T) {
	m := computed(t)
	for _, p := range Summary() {
		for _, q := range Summary() {
			v := m.Of(p.Name, q.Name)
			tokens := !p.Kind.Timed() && !q.Kind.Timed()
			switch {
			case tokens && v.Clash != nil && v.Clash.Grade != Late:
				t.Errorf("tokens may share a key, but %s and %s both hold it %s", p.Name, q.Name, v.Clash.Grade)
			case strings.HasSuffix(p.Name, "/node-resque") && (v.Clash == nil || v.Clash.Grade != AtOnce):
				t.Errorf("nobody may share a key with node-resque, but beside %s it breaks not at once: %+v", q.Name, v.Clash)
			case p.Kind.Timed() != q.Kind.Timed() && p.Kind != dialect.InAction && q.Kind != dialect.InAction && len(v.Stuck) == 0:
				t.Errorf("a time beside a token is never recovered, but nobody is stuck between %s and %s", p.Name, q.Name)
			case p.Kind.Timed() && q.Kind.Timed() && seconds(p) != seconds(q) && v.Safe():
				t.Errorf("units may not be mixed, but %s and %s are safe", p.Name, q.Name)
			}
		}
	}
}

// seconds reports whether a party writes seconds, whole or not.
func seconds(p Party) bool { return p.Kind == dialect.Seconds || p.Kind == dialect.FloatSeconds }

var replays = regexp.MustCompile(`(?m)^    setnxlock race replay '(.*)'$`)

// Every schedule that the whole matrix would show of these parties breaks its invariant.
func TestSchedulesOfTheMatrixBreak(t *testing.T) {
	m := computed(t)
	text := m.Markdown()
	found := replays.FindAllStringSubmatch(text, -1)
	if len(found) < 50 {
		t.Fatalf("%d schedules, want one for each unsafe pair", len(found))
	}
	for _, m := range found {
		got, err := race.ReplaySchedule(m[1], Locks())
		if err != nil || !strings.Contains(m[1], "check="+got.Verdict.Violated) || got.Verdict.Violated == "" {
			t.Errorf("%s\nbreaks %q, %v", m[1], got.Verdict.Violated, err)
		}
	}
}
