package mixing

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// Every code on disk is what the code computes: two minutes of one processor.
func TestLongCodes(t *testing.T) {
	if !*update { // asked for, by name
		realredis.Long(t)
	}
	skipUnderRace(t)
	m := must.Get(Compute(context.Background(), Shown(), nil))(t)
	now := m.Codes()
	if *update {
		must.Do(t, os.WriteFile("pairs.txt", []byte(now), 0o644))
	} else if pairs != now {
		t.Error("pairs.txt is stale: go test ./cmd/setnxlock/internal/mixing -run TestLongCodes -timeout 0 -update-mixing")
	}
}

// The codes on disk are of all parties that are shown, and those of the page's parties are what the code computes.
func TestCodesAreNotStale(t *testing.T) {
	m := computed(t)
	lines := strings.Split(strings.TrimSuffix(pairs, "\n"), "\n")
	if len(lines) != len(Shown()) {
		t.Fatalf("pairs.txt has %d parties, want %d", len(lines), len(Shown()))
	}
	at, codes := map[string]int{}, make([][]string, len(lines))
	for i, p := range Shown() {
		list := strings.Fields(lines[i])
		if at[p.Name], codes[i] = i, list[1:]; list[0] != p.Name || len(list)-1 != len(lines)-i {
			t.Fatalf("pairs.txt, line %d: %d codes of %s, want %d of %s", i+1, len(list)-1, list[0], len(lines)-i, p.Name)
		}
	}
	compared := 0
	for _, p := range Summary() {
		for _, q := range Summary() {
			i, one := at[p.Name]
			k, two := at[q.Name]
			if !one || !two || k < i {
				continue
			}
			compared++
			if got, want := codes[i][k-i], m.code(p, q); got != want {
				t.Errorf("pairs.txt: %s and %s: %s, and the code computes %s", p.Name, q.Name, got, want)
			}
		}
	}
	if compared < 80 {
		t.Errorf("%d pairs compared", compared)
	}
}

// Codes returns the matrix in a few letters for each pair, as pairs.txt has it, of which FleetsPage is made. A
// line is a party: its name, and a code for it and each party from itself on, in the order of the lines.
//
// A code begins with what it takes until two hold the lock: "." nothing does, "x" at once, "t" at takeover, "e" early,
// "l" late; then "1", one client of each, "a", two of the line's party, or "b", two of the other; and "*" if neither
// fleet does so alone. "<" and a letter: the line's party never gets a key that a client of the other left; ">": the
// other way round. "h" stands for a client that died holding it, "d" half-way, "o" for one that has released it; a
// capital, if the fleet does not do that to itself.
func (m Matrix) Codes() string {
	var b strings.Builder
	for i, p := range m.Parties {
		b.WriteString(p.Name)
		for _, q := range m.Parties[i:] {
			b.WriteString(" " + m.code(p, q))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// code is that of a pair, as its first party sees it.
func (m Matrix) code(p, q Party) string {
	v := m.Of(p.Name, q.Name)
	code := m.grade(v)
	if c := v.Clash; c != nil {
		needs := map[Needs]string{OneOfEach: "1", TwoOfA: "a", TwoOfB: "b"}[c.Needs]
		if v.A.Name != p.Name {
			needs = strings.NewReplacer("a", "b", "b", "a").Replace(needs)
		}
		code += needs
		if p.Name != q.Name && !m.inherited(v) {
			code += "*"
		}
	}
	var stuck []string
	for _, s := range v.Stuck {
		when := map[When]string{Holding: "h", Halfway: "d", Orderly: "o"}[s.When]
		if !m.owns(s) {
			when = strings.ToUpper(when)
		}
		if s.By == p.Name {
			stuck = append(stuck, "<"+when)
		} else {
			stuck = append(stuck, ">"+when)
		}
	}
	slices.Sort(stuck)
	return code + strings.Join(stuck, "")
}

// grade returns what it takes until two hold the lock as one character.
func (m Matrix) grade(v Verdict) string {
	if v.Clash == nil {
		return "."
	}
	return map[Grade]string{AtOnce: "x", Takeover: "t", Early: "e", Late: "l"}[v.Clash.Grade]
}
