package mixing

import (
	"strings"
	"testing"
)

// A code is said in words, from either side.
func TestCodesInWords(t *testing.T) {
	a, b := Party{Name: "ours/A"}, Party{Name: "theirs/B"}
	for code, want := range map[string]string{
		".":   "No two clients hold it at once, and what a dead client has left is taken again.",
		"x1":  "Two hold it at once, with one client of each.",
		"lb*": "Two hold it late, with two clients of B and one of A; neither fleet does so alone.",
		"la<d>H": "Two hold it late, with two clients of A and one of B. " +
			"If a client of B dies half-way, A never gets it again; nor does B. " +
			"If a client of A dies holding it, B never gets it again.",
		".>O": "Once a client of A has released it, B never gets it again.",
	} {
		if got := sentence(code, a, b); got != want {
			t.Errorf("%s: %q", code, got)
		}
	}
	const alone = "Two hold it late, with three clients. If a client of A dies half-way, A never gets it again."
	if got := sentence("la<d", a, a); got != alone {
		t.Errorf("alone: %q", got)
	}
}

// The page answers for every pair, for readers without JavaScript too: as docs/mixing.md does, where it has the pair.
func TestFleetsPage(t *testing.T) {
	q := FleetsPage("workbench.html")
	n := len(Shown())
	if got := strings.Count(string(q.Body), "<tr data-name="); got != n*n {
		t.Errorf("%d pairs, want %d", got, n*n)
	}
	_, redis2, _ := strings.Cut(string(q.Body), `id="redis-py-2.9"`)
	_, row, _ := strings.Cut(redis2, `<tr data-name="ours/tx:guarded">`)
	row, _, _ = strings.Cut(row, "</tr>")
	const want = "<b>No.</b> Two hold it late, with one client of each. " +
		"If a client of redis-py-2.9 dies holding it, tx:guarded never gets it again."
	if !strings.Contains(row, want) {
		t.Errorf("%s, want %s", row, want)
	}
}
