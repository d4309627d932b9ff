package catalogue

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/must"
)

var update = flag.Bool("update", false, "write down what the scenarios and their pages show now")

// Every scenario breaks what it says at the step it says, and nothing else
// breaks before; its survivor breaks nothing. What is seen is in its file.
func TestScenarios(t *testing.T) {
	for _, s := range All() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			breaks := must.Get(s.breaks(s.Run.Config.Server))(t)
			if want := s.Breaking(); !slices.Equal(breaks, want) {
				t.Errorf("breaks %v, want %v", breaks, want)
			}
			seen, err := s.Trace()
			if err != nil || seen.Verdict != s.Expect {
				t.Errorf("verdict %v %v, want %v", seen.Verdict, err, s.Expect)
			}
			survived, err := s.Survivor()
			if err != nil || survived.Verdict.Violated != "" {
				t.Errorf("%s survives with %v %v", s.Survives.Config.Algorithm, survived.Verdict, err)
			}
			golden(t, filepath.Join("scenarios", filepath.FromSlash(s.Name)+".txt"), func(old string) string {
				body, _, _ := strings.Cut(old, "-- timeline --\n")
				return strings.TrimRight(body, "\n") + "\n\n-- timeline --\n" + bare(seen) + "\n-- survives --\n" + bare(survived)
			})
		})
	}
}

// It happens on the servers named and on no other.
func TestServers(t *testing.T) {
	for _, s := range All() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if got := s.happens(); !slices.Equal(got, s.Servers) {
				t.Errorf("happens on\n%s\nthe file has\n%s", strings.Join(got, " "), strings.Join(s.Servers, " "))
			}
			if !slices.Contains(s.Servers, s.Run.Config.Server) {
				t.Errorf("it does not happen on %s, where it is run", s.Run.Config.Server)
			}
		})
	}
}

// canonical are the races of races.md, section 6, one more that came with the
// documentation's lost character, those of the locks of issue 4, that of connections that are kept, that of
// readers that never pause, and that of a command that arrives late.
const canonical = `
	getset/crash-holding getset/double-takeover getset/loser-overwrites getset/vanished-key getset/skewed-takeover
	getset/stale-getset-sets-back getset/same-stamp getset/equal-or-past getset/old-stamp-new-lock any/lease-counted-from-reply
	tx/crash-before-expire any/lost-reply tx/ttl-repair tx/ttl-repair-revives tx/zero-ttl tx/getset-clears-ttl
	old/setnx-on-volatile old/expire-cannot-extend old/expire-one-second-out
	any/paused-holder any/renew-after-loss getset/renew-expired tx/extend-resurrects any/renewal-outlives-release any/server-clock-jump
	any/release-after-expiry getset/paused-release tx/watch-without-multi tx/watch-lost-on-reconnect tx/renewal-aborts-release
	tx/contender-aborts-release tx/stale-watch-in-pool tx/unverified-watch tx/half-queued tx/late-expire any/lost-reply-to-release any/release-of-unknown getset/float-stamp
	any/failover any/restart-forgets any/evicted any/read-from-replica
	compat/token-read-as-expired compat/ttl-vs-stamp compat/seconds-vs-milliseconds compat/setex-fallback
	getset/equal-only
	set/compare-then-del set/extend-adds set/older-successor rw/mutex-outrun rw/bare-mutex rw/expired-reader rw/extend-resurrects rw/compare-then-del rw/skewed-sweep
	rw/starved-writer
	semaphore/slow-clock semaphore/counter-outrun semaphore/lost-token semaphore/doubled-token
	set/bare-del set/check-then-set redlock/restart-forgets redlock/pause-after-check redlock/clock-jump`

// course is the order of teaching: the lock that students write, and what no lock prevents; then the locks of 2009 and
// their repairs.
const course = `
	getset/crash-holding set/bare-del set/compare-then-del set/check-then-set any/lost-reply any/lease-counted-from-reply
	any/renew-after-loss any/paused-holder any/failover redlock/restart-forgets redlock/pause-after-check redlock/clock-jump
	getset/double-takeover getset/loser-overwrites getset/vanished-key getset/skewed-takeover getset/paused-release
	getset/stale-getset-sets-back old/setnx-on-volatile tx/crash-before-expire tx/ttl-repair tx/watch-without-multi
	compat/token-read-as-expired`

func TestComplete(t *testing.T) {
	var names, taught []string
	for _, s := range All() {
		names = append(names, s.Name)
		if s.Star > 0 {
			taught = append(taught, s.Name)
			if s.Star != len(taught) {
				t.Errorf("%s is number %d, want %d", s.Name, s.Star, len(taught))
			}
			if s.Exercise == nil {
				t.Errorf("%s has no exercise", s.Name)
			}
		}
		for what, text := range map[string]string{"title": s.Title, "objective": s.Objective, "instead": s.Instead, "fix": s.Fix} {
			if text == "" {
				t.Errorf("%s has no %s", s.Name, what)
			}
		}
		if !strings.HasPrefix(s.Objective, "Make ") || !strings.HasSuffix(s.Objective, ".") {
			t.Errorf("%s: objective %q", s.Name, s.Objective)
		}
		if len(s.Sources) == 0 || len(s.Then) == 0 {
			t.Errorf("%s has %d sources and %d reasons", s.Name, len(s.Sources), len(s.Then))
		}
	}
	want := strings.Fields(canonical)
	slices.Sort(want)
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("the catalogue has\n%s\nwant\n%s", names, want)
	}
	if want := strings.Fields(course); !slices.Equal(taught, want) {
		t.Errorf("the course is\n%s\nwant\n%s", taught, want)
	}
}

// Every lock that is kept to be broken is broken by a scenario.
func TestOthersAreUsed(t *testing.T) {
	used := make(map[string]bool)
	for _, s := range All() {
		for _, run := range []Run{s.Run, s.Survives} {
			for _, name := range strings.Split(run.Config.Algorithm, "+") {
				used[name] = true
			}
		}
	}
	for _, o := range others {
		if !used[o.name] {
			t.Errorf("%s is used by no scenario", o.name)
		}
	}
}

// Each exercise has right answers of two kinds, and wrong ones that are told what they lack. What brings about nothing, and
// what is shown, answers none.
func TestExercises(t *testing.T) {
	for _, s := range All() {
		e := s.Exercise
		if e == nil {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			if len(e.Answers) < 2 || len(e.Wrong) < 2 {
				t.Errorf("%d right answers and %d wrong ones", len(e.Answers), len(e.Wrong))
			}
			for _, answer := range e.Answers {
				if _, err := s.Check(answer); err != nil {
					t.Errorf("the answer %s: %v", answer, err)
				}
			}
			for _, w := range e.Wrong {
				if _, err := s.Check(w.Schedule); err == nil || !strings.Contains(err.Error(), w.Says) {
					t.Errorf("%s: told %v, want %q", w.Schedule, err, w.Says)
				}
			}
			for _, wrong := range []string{s.Run.Schedule, "", "C9", "+1ms +1ms +1ms +1ms +1ms +1ms +1ms", "C1 C2", "+1h"} {
				if _, err := s.Check(wrong); err == nil {
					t.Errorf("%q passes for an answer", wrong)
				}
			}
		})
	}
}

// What a goal asks for is in one answer and not in the other, which is told what it lacks.
func TestGoals(t *testing.T) {
	for _, x := range []struct{ goals, right, wrong, says string }{
		{"uses redis.failover, held C1 then C2", "redis.failover C1 C1 C1 +11s C2 C2 C2", "C1 C1 C1 +11s C2 C2 C2", "it has no redis.failover"},
		{"held C1 then C2", "C1 C1 C1 +11s C2 C2 C2", "C2 C2 C2 +11s C1 C1 C1", "C2 holds the lock before C1, and not after it"},
		{"a lost request", "C1.sever", "C1-", "no request is lost"},
		{"a lost reply", "C1-", "C1.sever", "no reply is lost"},
		{"without C1.crash", "C1", "C1.crash", "it has C1.crash: do without"},
		{"held C1 and C2", "C2 C2 C2 +11s C1 C1 C1", "C1 C1 C1", "C2 never holds the lock"},
	} {
		goals := must.Get(parseGoals(x.goals))(t)
		lacks := func(schedule string) string {
			c := race.Config{Algorithm: "tx:classic", Server: "2.4"}
			tr := must.Get(race.Replay(c, must.Get(race.ParseWords(schedule))(t)))(t)
			_, made, err := race.ParseSchedule(tr.Schedule)
			must.Do(t, err)
			var list []string
			for _, g := range goals {
				if says := g.missing(&attempt{tr, made, ""}); says != "" {
					list = append(list, says)
				}
			}
			return strings.Join(list, "; ")
		}
		if got := lacks(x.right); got != "" {
			t.Errorf("%s: %s: %s", x.goals, x.right, got)
		}
		if got := lacks(x.wrong); got != x.says {
			t.Errorf("%s: %s: %q, want %q", x.goals, x.wrong, got, x.says)
		}
	}
	for _, wrong := range []string{"", "in 8 steps", "breaks everything", "held C1 then"} {
		if _, err := parseGoals(wrong); err == nil {
			t.Errorf("%q is a goal", wrong)
		}
	}
}

// The pages in docs/races show what the scenarios show.
func TestPages(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "docs", "races")
	if *update {
		must.Do(t, os.MkdirAll(dir, 0o777))
	}
	want := map[string]bool{"README.md": true}
	golden(t, filepath.Join(dir, "README.md"), func(string) string { return index(t) })
	for _, s := range All() {
		want[file(s.Name)] = true
		golden(t, filepath.Join(dir, file(s.Name)), func(string) string { return page(t, s) })
	}
	files := must.Get(filepath.Glob(filepath.Join(dir, "*.md")))(t)
	for _, f := range files {
		if !want[filepath.Base(f)] {
			t.Errorf("%s belongs to no race", f)
		}
	}
}

// golden compares a file with what it should be, or with -update makes it so.
func golden(t *testing.T, name string, want func(old string) string) {
	t.Helper()
	old, err := os.ReadFile(name)
	if err != nil && !*update {
		t.Error(err)
		return
	}
	text := want(string(old))
	if text == string(old) {
		return
	}
	if !*update {
		a, b := strings.Split(string(old), "\n"), strings.Split(text, "\n")
		n := 0
		for n < len(a) && n < len(b) && a[n] == b[n] {
			n++
		}
		t.Errorf("%s:%d is stale (go test ./compat/race/catalogue -update). It should go on\n%s", name, n+1, strings.Join(b[n:min(n+3, len(b))], "\n"))
		return
	}
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Error(err)
	}
}

func TestFind(t *testing.T) {
	for name, want := range map[string]string{
		"getset/double-takeover": "getset/double-takeover", "double-takeover": "getset/double-takeover", "takeover": "", "": "",
	} {
		if s, ok := Find(name); s.Name != want || ok != (want != "") {
			t.Errorf("Find(%q) = %q %t, want %q", name, s.Name, ok, want)
		}
	}
	if g := Groups(); !slices.Equal(g, []string{"getset", "set", "any", "redlock", "old", "tx", "compat", "rw", "semaphore"}) {
		t.Errorf("groups %v", g)
	}
}

func TestParse(t *testing.T) {
	s := must.Get(Parse("mine", []byte("algorithm tx:classic # ours\n\nC1 C1 +9s\nC2.crash\n")))(t)
	if s.Run.Config.Algorithm != "tx:classic" || s.Run.Schedule != "C1 C1 +9s C2.crash" {
		t.Errorf("parsed %+v", s.Run)
	}
	if _, err := s.Trace(); err != nil {
		t.Error(err)
	}
	if _, err := s.Survivor(); err == nil {
		t.Error("a survivor out of nothing")
	}
	if _, err := s.Check("C1"); err == nil {
		t.Error("an exercise out of nothing")
	}
}

func TestParseErrors(t *testing.T) {
	const good = "algorithm tx:classic\nC1\n"
	for text, want := range map[string]string{
		"":                                    "mine: no algorithm",
		"algorithm tx:classic\n":              "mine: no schedule",
		good + "survives tx:renamed\n":        "mine: no schedule for the survivor",
		good + "frobnicate 3\n":               `mine:3: "frobnicate" begins neither a setting nor a schedule`,
		good + "server 9.9\n":                 `mine:3: no server "9.9"`,
		good + "servers 2.4 9.9\n":            `mine:3: no server "9.9"`,
		good + "clients none\n":               `mine:3: "none" is not a number from 1`,
		good + "ttl soon\n":                   `mine:3: race: "ttl=soon"`,
		good + "clock D2 +3s\n":               `mine:3: "D2" is no client`,
		good + "holders sing\n":               `mine:3: race: "sing" is no part`,
		good + "expect violation at 3\n":      "mine:3: expect violation at 3",
		good + "expect violation joy at 3\n":  "mine:3: expect violation joy at 3",
		good + "also joy at 3\n":              "mine:3: also joy at 3",
		good + "only joy\n":                   `mine:3: no invariant "joy"`,
		good + "exercise run\n":               "mine: an exercise without a goal",
		good + "exercise run\ngoal in 8\n":    `mine:4: "in 8" is no goal`,
		good + "exercise a\nexercise b\n":     "mine:4: a second one",
		good + "exercise a\nwrong C1\n":       "mine:4: want",
		good + "answer C1\n":                  "mine:3: answer before its exercise",
		good + "fix a\nfix b\n":               "mine:4: a second one",
		good + "why 1 a\nwhy 1 b\n":           "mine:4: a second reason for step 1",
		good + "survives a\nC1\nsurvives b\n": "mine:5: a second survivor",
		"# mine\n" + good:                     "mine:1: want",
	} {
		_, err := Parse("mine", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s…", text, err, want)
		}
	}
	s := must.Get(Parse("mine", []byte(good+"why 7 never\n")))(t)
	if _, err := s.Trace(); err == nil {
		t.Error("a reason for a step that is not there")
	}
	s.Run.Schedule = "C1 C1 C1 C9"
	if _, err := s.Trace(); err == nil {
		t.Error("a client that is not there")
	}
}

// Parse takes anything without harm.
func FuzzParse(f *testing.F) {
	for _, s := range All()[:3] {
		text := must.Get(files.ReadFile("scenarios/" + s.Name + ".txt"))(f)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse("fuzz", text)
		if err == nil && s.Run.Schedule == "" {
			t.Error("no schedule and no error")
		}
		again, err2 := Parse("fuzz", bytes.Clone(text))
		if (err == nil) != (err2 == nil) || !reflect.DeepEqual(s, again) {
			t.Error("parsed twice, and differently")
		}
	})
}

// A trace is the same each time, and replays from its own schedule.
func TestReplays(t *testing.T) {
	for _, s := range All() {
		t.Run(s.Name, func(t *testing.T) {
			a := must.Get(s.Trace())(t)
			if b, err := s.Trace(); err != nil || !reflect.DeepEqual(a, b) {
				t.Errorf("run twice, and differently: %v", err)
			}
			b, err := race.ReplaySchedule(a.Schedule, Locks())
			if err != nil || b.Verdict != a.Verdict || b.Schedule != a.Schedule {
				t.Errorf("%s: %v %v, want %v", a.Schedule, b.Verdict, err, a.Verdict)
			}
		})
	}
}

// happens returns the servers on which the scenario happens just so, by running
// it on all of them.
func (s Scenario) happens() []string {
	var on []string
	servers := append(oldredis.Versions(), oldredis.Profiles()...)
	if slices.Contains(oldredis.Today(), s.Run.Config.Server) { // it is about what they have
		servers = append(servers, oldredis.Today()...)
	}
	for _, server := range servers {
		if breaks, err := s.breaks(server); err == nil && slices.Equal(breaks, s.Breaking()) {
			on = append(on, server)
		}
	}
	return on
}

// breaks returns what the scenario's schedule breaks on a server, each invariant checked
// alone: checked together, the first one hides what another would show at the same step.
func (s Scenario) breaks(server string) ([]race.Verdict, error) {
	var list []race.Verdict
	for _, invariant := range race.Invariants() {
		run := s.Run
		run.Config.Server = server
		switch c := run.Config; {
		case invariant == "fencing" && !c.Write, invariant == "fence-order" && !c.Fence, invariant == "fairness" && !c.Wait:
			continue
		case c.Invariants != nil && !slices.Contains(c.Invariants, invariant):
			continue
		}
		run.Config.Invariants = []string{invariant}
		t, err := run.trace()
		if err != nil {
			return list, fmt.Errorf("%s: %w", s.Name, err)
		}
		if t.Verdict.Violated != "" {
			list = append(list, t.Verdict)
		}
	}
	return list, nil
}

// A SET is explained by the options that it has.
func TestSetsAreExplainedByTheirOptions(t *testing.T) {
	t.Parallel()
	for schedule, want := range map[string]map[int]string{
		"other/check-then-set 7.0 1x1 : C1 C1":              {1: "it writes the key with a TTL, whatever is there"},
		"set:lua 7.0 2x1 : C1 C2":                           {0: "it creates the key with a TTL, if there is no key", 1: "it creates the key with a TTL, if there is no key; there is one"},
		"set:watch 7.0 1x1 fence : C1":                      {0: "it creates the key with a TTL, if there is no key, and draws a fence"},
		"set:ifeq 8.6 1x1 extend=10s : C1 C1 C1 C1":         {1: "it sets a new TTL if the key is its own", 3: "it removes the key if it is its own"},
		"set:ifeq 8.6 1x1 extend=10s : C1 redis.restart C1": {2: "it sets a new TTL if the key is its own; it is not"},
		"set:ifeq valkey-9.1 1x1 : C1 C1":                   {1: "it removes the key if it is its own"},
	} {
		seen := must.Get(race.ReplaySchedule(schedule, Locks()))(t)
		for n, why := range want {
			if got := seen.Events[n].Why; !strings.HasPrefix(strings.ToLower(got), strings.ToLower(why)) {
				t.Errorf("%s, step %d: %q, want %q", schedule, n+1, got, why)
			}
		}
	}
}
