package mixing

import (
	"slices"
	"strings"
)

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
