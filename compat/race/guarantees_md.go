package race

import (
	"fmt"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// Markdown is the matrix as docs/guarantees.md shows it: a table for each
// algorithm, and every counterexample below. link, if not nil, makes a link of a
// schedule.
func (m Matrix) Markdown(link func(b Break) string) string {
	var b strings.Builder
	for _, a := range Guaranteed() {
		fmt.Fprintf(&b, "## %s\n\n%s.\n\n", a, upperFirst(Describe(a)))
		m.table(&b, a)
		m.counterexamples(&b, a, link)
	}
	fmt.Fprintf(&b, "%d cells, %d states.\n", len(m.Cells), m.States)
	return b.String()
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// table has a row for each group of servers that answer alike.
func (m Matrix) table(b *strings.Builder, algorithm string) {
	type row struct {
		servers []string
		cells   []string
	}
	var rows []row
	for _, v := range append(oldredis.Versions(), oldredis.Profiles()...) {
		var cells []string
		for _, x := range accidents {
			cells = append(cells, m.verdict(algorithm, v, x.Name))
		}
		if i := slices.IndexFunc(rows, func(r row) bool { return slices.Equal(r.cells, cells) }); i >= 0 {
			rows[i].servers = append(rows[i].servers, v)
			continue
		}
		rows = append(rows, row{[]string{v}, cells})
	}
	b.WriteString("| server |")
	for _, x := range accidents {
		b.WriteString(" " + x.Name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(accidents)) + "\n")
	for _, r := range rows {
		fmt.Fprintf(b, "| %s | %s |\n", strings.Join(r.servers, ", "), strings.Join(r.cells, " | "))
	}
	b.WriteString("\n")
}

// verdict is what stands in a field: for 2 and 3 clients together.
func (m Matrix) verdict(algorithm, server, accident string) string {
	var broken []string
	for _, c := range m.Cells {
		if c.Algorithm != algorithm || c.Server != server || c.Accident != accident {
			continue
		}
		if c.Refused != "" {
			return "refused"
		}
		if c.Bound != "" && len(c.Breaks) == 0 {
			broken = append(broken, "not proved")
		}
		for _, br := range c.Breaks {
			if !slices.Contains(broken, br.Invariant) {
				broken = append(broken, br.Invariant)
			}
		}
	}
	if len(broken) == 0 {
		return "holds"
	}
	slices.Sort(broken)
	return "**" + strings.Join(broken, ", ") + "**"
}

// counterexamples lists each break once: the shortest for its invariant and accident.
func (m Matrix) counterexamples(b *strings.Builder, algorithm string, link func(Break) string) {
	type key struct{ accident, invariant string }
	best := map[key]Break{}
	var order []key
	for _, c := range m.Cells {
		if c.Algorithm != algorithm {
			continue
		}
		for _, br := range c.Breaks {
			k := key{c.Accident, br.Invariant}
			old, ok := best[k]
			if !ok {
				order = append(order, k)
			}
			if !ok || br.Steps < old.Steps {
				best[k] = br
			}
		}
	}
	for _, k := range order {
		br := best[k]
		line := "`" + br.Schedule + "`"
		if link != nil {
			line = link(br)
		}
		fmt.Fprintf(b, "- %s, %s: %s, in %d steps: %s\n", k.accident, k.invariant, br.Text, br.Steps, line)
	}
	if len(order) > 0 {
		b.WriteString("\n")
	}
}
