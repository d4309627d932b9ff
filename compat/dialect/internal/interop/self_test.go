package interop

import (
	"fmt"
	"strings"
	"testing"
)

// recorder is a testing.TB that records errors instead of failing.
type recorder struct {
	testing.TB
	errors []string
}

func (t *recorder) Helper() {}
func (t *recorder) Errorf(format string, args ...any) {
	t.errors = append(t.errors, fmt.Sprintf(format, args...))
}

// judge finds an explained overlap, an unexplained one, and a client that never leaves.
func TestJudge(t *testing.T) {
	const a, b, ours = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
	for _, c := range []struct {
		name, record             string
		overlaps, blind          int
		theirs, us, alternations int
		error                    string
	}{
		{
			name: "one after the other",
			record: `1 SETNX k 5; 1 RPUSH interop:log enter theirs-1; 3 SETNX k 6; 1 RPUSH interop:log leave theirs-1; 1 DEL k
				3 SETNX k 6; 3 RPUSH interop:log enter ours-1; 3 RPUSH interop:log leave ours-1; 3 DEL k`,
			theirs: 1, us: 1, alternations: 1,
		},
		{
			name: "two at once",
			record: `1 SETNX k 5; 1 RPUSH interop:log enter theirs-1; 3 RPUSH interop:log enter ours-1
				3 RPUSH interop:log leave ours-1; 1 RPUSH interop:log leave theirs-1; 1 DEL k`,
			overlaps: 1, theirs: 1, us: 1, alternations: 1, error: "ours-1#2 got it beside theirs-1#1",
		},
		{
			name: "a lock over a lock",
			record: `3 SETNX k 5; 3 RPUSH interop:log enter ours-1; 1 SET k 6; 1 RPUSH interop:log enter theirs-1
				3 RPUSH interop:log leave ours-1; 1 RPUSH interop:log leave theirs-1; 1 DEL k`,
			overlaps: 1, blind: 1, theirs: 1, us: 1, alternations: 1,
		},
		{
			name: "a lock over a lock, and later, for no reason, two at once",
			record: `3 SETNX k 5; 3 RPUSH interop:log enter ours-1; 1 SET k 6; 3 RPUSH interop:log leave ours-1
				1 RPUSH interop:log enter theirs-1; 1 RPUSH interop:log leave theirs-1; 1 DEL k
				3 SETNX k 7; 3 RPUSH interop:log enter ours-1; 3 RPUSH interop:log leave ours-1; 3 DEL k
				1 SETNX k 7; 1 RPUSH interop:log enter theirs-1; 1 RPUSH interop:log leave theirs-1; 1 DEL k
				3 SETNX k 7; 3 RPUSH interop:log enter ours-1; 3 RPUSH interop:log leave ours-1; 3 DEL k
				1 SETNX k 8; 1 RPUSH interop:log enter theirs-1; 3 RPUSH interop:log enter ours-1
				3 RPUSH interop:log leave ours-1; 1 RPUSH interop:log leave theirs-1; 1 DEL k`,
			overlaps: 1, blind: 1, theirs: 3, us: 4, alternations: 5, error: "ours-1#21 got it beside theirs-1#20",
		},
		{
			name: "SET with NX is not an explanation",
			record: `1 SETNX k 5; 1 RPUSH interop:log enter theirs-1; 2 SET k 6 NX PX 1000; 2 RPUSH interop:log enter theirs-2
				1 RPUSH interop:log leave theirs-1; 2 RPUSH interop:log leave theirs-2; 1 DEL k`,
			overlaps: 1, theirs: 2, error: "theirs-2#3 got it beside theirs-1#1",
		},
		{name: "stays", record: `3 SETNX k 5; 3 RPUSH interop:log enter ours-1`, error: "never left"},
	} {
		var lines []string
		for _, entry := range strings.FieldsFunc(c.record, func(r rune) bool { return r == ';' || r == '\n' }) {
			words := strings.Fields(entry)
			conn := map[string]string{"1": a, "2": b, "3": ours}[words[0]]
			if words[1] == "RPUSH" {
				words = []string{"", "RPUSH", words[2], words[3] + " " + words[4]}
			}
			lines = append(lines, fmt.Sprintf("1795268269.599284 [0 %s] \"%s\"", conn, strings.Join(words[1:], "\" \"")))
		}
		said := &recorder{TB: t}
		v := judge(said, lines, "k")
		if v != (verdict{theirs: c.theirs, ours: c.us, alternations: c.alternations, overlaps: c.overlaps, blind: c.blind}) {
			t.Errorf("%s: %+v", c.name, v)
		}
		if all := strings.Join(said.errors, "; "); (c.error == "") != (all == "") || !strings.Contains(all, c.error) {
			t.Errorf("%s: %q, want %q", c.name, all, c.error)
		}
	}
}
