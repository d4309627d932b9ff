package view

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/traces"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// renders has the traces that are drawn, and what they become.
const renders = "testdata/render"

// golden compares got with a file of testdata/render, or makes it so.
func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join(renders, name)
	if *update {
		must.Do(t, os.WriteFile(name, []byte(got), 0o666))
	}
	want := must.Get(os.ReadFile(name))(t)
	if got != string(want) {
		t.Errorf("%s differs (-update rewrites it: read the diff); got\n%s", name, got)
	}
}

func TestTimeline(t *testing.T) {
	for name, tr := range traces.Saved(t, renders) {
		golden(t, name+".txt", Timeline(tr, TimelineOptions{}))
	}
}

// The widths are those of a terminal, with two clients and with three.
func TestTimelineFits(t *testing.T) {
	for name, tr := range traces.Saved(t, renders) {
		for _, w := range []int{80, 100, 132} {
			for line := range strings.Lines(Timeline(tr, TimelineOptions{Width: w})) {
				line = strings.TrimSuffix(line, "\n")
				if strings.HasPrefix(line, "replay ") || strings.Contains(line, "://") {
					continue // what is there to be copied is not broken
				}
				if width(line) > w {
					t.Errorf("%s: %d columns of %d: %s", name, width(line), w, line)
				}
			}
		}
	}
}

func TestTimelineStep(t *testing.T) {
	golden(t, "double-takeover.step4.txt", Timeline(traces.Saved(t, renders)["double-takeover"], TimelineOptions{Step: 4}))
}

// What there is at the start has its own row, unless an event shows it.
func TestTimelineStart(t *testing.T) {
	tr := traces.Saved(t, renders)["double-takeover"]
	const row = "  0    0s    — at the start"
	if got := Timeline(tr, TimelineOptions{}); strings.Contains(got, row) {
		t.Errorf("the start is told twice in\n%s", got)
	}
	tr.Events = tr.Events[1:]
	if got := Timeline(tr, TimelineOptions{}); !strings.Contains(got, row) {
		t.Errorf("no start in\n%s", got)
	}
}

// Colour adds nothing but colour.
func TestTimelineColor(t *testing.T) {
	for name, tr := range traces.Saved(t, renders) {
		colored := Timeline(tr, TimelineOptions{Color: true})
		if !strings.Contains(colored, "\x1b[1;31m") {
			t.Errorf("%s: the violation is not red", name)
		}
		plain := colored
		for _, c := range []string{"0", "1", "2", "31", "32", "33", "35", "1;31"} {
			plain = strings.ReplaceAll(plain, "\x1b["+c+"m", "")
		}
		trim := func(s string) string {
			var b strings.Builder
			for line := range strings.Lines(s) {
				b.WriteString(strings.TrimRight(line, " \n") + "\n")
			}
			return b.String()
		}
		if want := Timeline(tr, TimelineOptions{}); trim(plain) != trim(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, plain, want)
		}
	}
}

// A value that another program wrote must not reach the terminal as it is.
func TestTimelineHarmless(t *testing.T) {
	tr := traces.Saved(t, renders)["double-takeover"]
	tr.Events = tr.Events[:1]
	tr.Events[0].Server.Value = "\x1b[2Jé漢字\u202e\xff\n"
	got := Timeline(tr, TimelineOptions{})
	for _, bad := range []string{"\x1b", "\u202e", "\xff"} {
		if strings.Contains(got, bad) {
			t.Errorf("%q in\n%s", bad, got)
		}
	}
	for _, want := range []string{`\x1b[2Jé漢字\u202e`, `\n`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestWidth(t *testing.T) {
	for s, want := range map[string]int{"": 0, "«C1» → 1": 8, "漢字": 4, "e\u0301": 1, "🔒": 2} {
		if got := width(s); got != want {
			t.Errorf("width(%q) = %d, want %d", s, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		s    string
		w    int
		want string
	}{
		{"SETNX t=10s → 0", 20, "SETNX t=10s → 0"},
		{"SETNX t=10s → 0", 13, "SETNX t=10s|→ 0"},
		{"SETNX t=10s → 0", 6, "SETNX|t=10s|→ 0"},
		{"漢字漢字", 4, "漢字|漢字"},
		{"漢", 1, "漢"},
		{"", 5, ""},
	} {
		if got := strings.Join(wrap(c.s, c.w), "|"); got != c.want {
			t.Errorf("wrap(%q, %d) = %q, want %q", c.s, c.w, got, c.want)
		}
	}
}
