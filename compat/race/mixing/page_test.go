package mixing

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
)

var (
	update = flag.Bool("update-mixing", false, "compute all pairs and write docs/mixing.md anew: minutes")
	all    = flag.Bool("all-pairs", false, "compute all pairs and compare docs/mixing.md with them: minutes")
)

const page = "../../../docs/mixing.md"

// The page has what the code computes: every run of the tests checks a part of it, -all-pairs
// everything.
func TestPageIsNotStale(t *testing.T) {
	if *update || *all {
		now := whole(t)
		if *update {
			if err := os.WriteFile(page, []byte(now), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		was := read(t)
		for i, line := range strings.Split(now, "\n") {
			if old := strings.Split(was, "\n"); i >= len(old) || old[i] != line {
				t.Fatalf("docs/mixing.md is stale: line %d says\n%s\nand the code now\n%s\nIf you know why, run: make mixing", i+1, at(old, i), line)
			}
		}
	}
	said := letters(t, read(t))
	m, err := Compute(context.Background(), part(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Parties {
		for _, q := range m.Parties {
			if got, want := m.letter(m.Of(p.Name, q.Name)), said[[2]string{p.Name, q.Name}]; got != want {
				t.Errorf("docs/mixing.md is stale: it says %q of %s and %s, and the code now %q. If you know why, run: make mixing", want, p.Name, q.Name, got)
			}
		}
	}
}

// part returns the parties that every run of the tests computes: one of each kind, and the clients
// with the strangest quirks.
func part() []Party {
	var list []Party
	for _, name := range []string{"ours/getset:guarded/redis-py-2.9", "ours/getset:classic/redis-docs", "ours/tx:guarded", "theirs/lonely-job",
		"theirs/redis-py-2.9", "theirs/jedis-lock", "theirs/npm-redis-lock-0.0", "theirs/PT-redis-lock", "theirs/jedis-lock-1.0.1",
		"theirs/redis-in-action/3s", "theirs/redis-py-2.10", "theirs/redis-objects-1.7"} {
		p, err := Find(name)
		if err != nil {
			panic(err)
		}
		list = append(list, p)
	}
	if underRace {
		return list[3:7]
	}
	return list
}

func whole(t *testing.T) string {
	t.Helper()
	m, err := Compute(context.Background(), Mixed(), func(done, of int, v Verdict) {
		if done%100 == 0 {
			fmt.Fprintf(os.Stderr, "%d of %d\n", done, of)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	skews, err := Skews(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	now, err := m.Markdown(skews)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func read(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "nothing"
}

var lettersRow = regexp.MustCompile(`^ *[0-9]+ ((?:ours|theirs)/\S+) +([.xtelXTELS]+)$`)

// letters reads the table of all pairs. It has a row and a column for each party, and is the same
// on both sides of its diagonal.
func letters(t *testing.T, page string) map[[2]string]string {
	t.Helper()
	var names, rows []string
	for _, line := range strings.Split(page, "\n") {
		if m := lettersRow.FindStringSubmatch(line); m != nil {
			names, rows = append(names, m[1]), append(rows, m[2])
		}
	}
	var want []string
	for _, p := range Mixed() {
		want = append(want, p.Name)
	}
	if !slices.Equal(names, want) {
		t.Fatalf("docs/mixing.md is stale: its table has %d parties, %d are to be computed, or others. Run: make mixing", len(names), len(want))
	}
	said := map[[2]string]string{}
	for i, a := range names {
		for k, b := range names {
			if len(rows[i]) != len(names) || rows[i][k] != rows[k][i] {
				t.Fatalf("docs/mixing.md: the row of %s", a)
			}
			said[[2]string{a, b}] = rows[i][k : k+1]
		}
	}
	return said
}

var replays = regexp.MustCompile(`(?m)^    setnxlock race replay '(.*)'$`)

// Every schedule of the page breaks its invariant.
func TestSchedulesOfThePage(t *testing.T) {
	found := replays.FindAllStringSubmatch(read(t), -1)
	if len(found) < 200 {
		t.Fatalf("%d schedules in docs/mixing.md, want hundreds", len(found))
	}
	for _, m := range found {
		got, err := race.ReplaySchedule(m[1], Locks())
		if err != nil || !strings.Contains(m[1], "check="+got.Verdict.Violated) || got.Verdict.Violated == "" {
			t.Errorf("%s\nbreaks %q, %v", m[1], got.Verdict.Violated, err)
		}
	}
}

// Every link of the page has an anchor.
func TestLinksOfThePage(t *testing.T) {
	text := read(t)
	links := regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(text, -1)
	if len(links) < 100 {
		t.Fatalf("%d links, want one for each unsafe pair", len(links))
	}
	for _, l := range links {
		if !strings.Contains(text, `<a id="`+l[1]+`"></a>`) {
			t.Errorf("no anchor %s", l[1])
		}
	}
}
