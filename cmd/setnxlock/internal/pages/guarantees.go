//go:build !js

package pages

import (
	"fmt"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/view"
)

// Guarantees writes guarantees.md from the matrix: each algorithm's promises, by server and by fault,
// with the bounds of the proof or a shortest counterexample. Docs and the site show parts.
func Guarantees(of race.Matrix) string {
	m := matrix{of}
	// What is not computed is written in guarantees.md itself.
	var b strings.Builder
	before, rest, _ := strings.Cut(Stored, "| fault |")
	_, after, _ := strings.Cut(rest, " |\n\n")
	after, _, _ = strings.Cut(after, "## "+race.Guaranteed()[0]+"\n")
	b.WriteString(before)
	m.bounds(&b)
	b.WriteString("\n" + after)
	for _, a := range race.Guaranteed() {
		fmt.Fprintf(&b, "## %s\n\n%s.\n\n", a, upperFirst(race.Describe(a, nil)))
		m.table(&b, a)
		m.counterexamples(&b, a)
	}
	fmt.Fprintf(&b, "%s cells, %s states.\n", view.Thousands(len(m.Cells)), view.Thousands(m.States))
	return b.String()
}

// A matrix is one being written.
type matrix struct{ race.Matrix }

// bounds writes the bounds of each row of the tables.
func (m matrix) bounds(b *strings.Builder) {
	b.WriteString("| fault | what goes wrong | bounds: two clients, and more |\n|---|---|---|\n")
	for _, x := range race.AllFaults() {
		fmt.Fprintf(b, "| %s | %s | %s |\n", x.Name, x.Says, strings.Join(x.Bounds(), "; "))
	}
}

// table writes a row for each fault and a column for each group of servers with the same results.
func (m matrix) table(b *strings.Builder, algorithm string) {
	type column struct {
		servers []string
		broken  []string // by fault
	}
	var columns []column
	faults := race.FaultsOf(algorithm)
	for _, v := range m.servers(algorithm) {
		var broken []string
		for _, x := range faults {
			broken = append(broken, m.verdict(algorithm, v, x.Name))
		}
		if i := slices.IndexFunc(columns, func(c column) bool { return slices.Equal(c.broken, broken) }); i >= 0 {
			columns[i].servers = append(columns[i].servers, v)
			continue
		}
		columns = append(columns, column{[]string{v}, broken})
	}
	b.WriteString("| fault |")
	for _, c := range columns {
		b.WriteString(" " + strings.Join(c.servers, ", ") + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for i, x := range faults {
		fmt.Fprintf(b, "| %s |", x.Name)
		for _, c := range columns {
			text := c.broken[i]
			if text == "holds" {
				text += ", " + m.states(algorithm, c.servers, x.Name) + " states"
			}
			b.WriteString(" " + text + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// servers lists an algorithm's servers, in order.
func (m matrix) servers(algorithm string) []string {
	var list []string
	for _, c := range m.Cells {
		if c.Algorithm == algorithm && !slices.Contains(list, c.Server) {
			list = append(list, c.Server)
		}
	}
	return list
}

// noRoom is the verdict where not all states were seen.
const noRoom = "not proved: no room"

// verdict joins the results for all numbers of clients.
func (m matrix) verdict(algorithm, server, fault string) string {
	var broken []string
	for _, c := range m.Cells {
		if c.Algorithm != algorithm || c.Server != server || c.Fault != fault {
			continue
		}
		if c.Refused != "" {
			return "refused"
		}
		if c.Bound != "" && len(c.Breaks) == 0 {
			broken = append(broken, noRoom)
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

func (m matrix) states(algorithm string, servers []string, fault string) string {
	n := 0
	for _, c := range m.Cells {
		if c.Algorithm == algorithm && c.Fault == fault && slices.Contains(servers, c.Server) {
			n += c.States
		}
	}
	return view.Thousands(n)
}

// counterexamples lists each way to break the lock once, with its shortest faults.
func (m matrix) counterexamples(b *strings.Builder, algorithm string) {
	type way struct{ invariant, text, words string }
	type found struct {
		faults   []string
		shortest race.Break
	}
	best := map[[2]string]race.Break{}
	var order [][2]string
	for _, c := range m.Cells {
		for _, br := range c.Breaks {
			k := [2]string{c.Fault, br.Invariant}
			old, ok := best[k]
			switch {
			case c.Algorithm != algorithm:
			case !ok:
				order = append(order, k)
				best[k] = br
			case br.Steps < old.Steps:
				best[k] = br
			}
		}
	}
	none := race.AllFaults()[0].Name
	ways := map[way]*found{}
	var list []*found
	for _, k := range order {
		br := best[k]
		if plain, ok := best[[2]string{none, k[1]}]; ok && k[0] != none && plain.Steps <= br.Steps {
			continue // it needs no fault
		}
		_, words, _ := strings.Cut(br.Schedule, " : ")
		w := way{br.Invariant, br.Text, words}
		if ways[w] == nil {
			ways[w] = &found{shortest: br}
			list = append(list, ways[w])
		}
		ways[w].faults = append(ways[w].faults, k[0])
	}
	for _, f := range list {
		br := f.shortest
		fmt.Fprintf(b, "- *%s* (%s): %s%s. %d steps: `%s`\n", br.Invariant, strings.Join(f.faults, ", "), br.Text,
			pageOf(algorithm, f.faults[0], br), br.Steps, br.Schedule)
	}
	if len(list) > 0 {
		b.WriteString("\n")
	}
}

// pageOf links to the race of the catalogue for this break.
func pageOf(algorithm, fault string, b race.Break) string {
	name := ""
	switch {
	case fault == "failover":
		name = "any-failover"
	case algorithm == "redlock" && fault == "restart":
		name = "redlock-restart-forgets"
	case fault == "restart":
		name = "any-restart-forgets"
	case fault == "evict":
		name = "any-evicted"
	case b.Invariant == "fencing":
		name = "any-paused-holder"
	case fault == "skew" && strings.HasPrefix(algorithm, "getset"):
		name = "getset-skewed-takeover"
	case algorithm == "tx:classic/never" && b.Invariant == "progress":
		name = "tx-crash-before-expire"
	case algorithm == "tx:classic/published" && b.Invariant == "progress":
		name = "tx-ttl-repair-revives"
	case algorithm == "tx:classic/published":
		name = "tx-ttl-repair"
	case algorithm == "set:published" && fault == "none":
		name = "set-compare-then-del"
	case strings.HasPrefix(algorithm, "rw:read/published") && b.Invariant == "exclusion":
		name = "rw-mutex-outrun"
	case strings.HasPrefix(algorithm, "getset:classic") && strings.Contains(b.Text, "removes the lock"):
		name = "getset-paused-release"
	default:
		return ""
	}
	return " ([" + strings.Replace(name, "-", "/", 1) + "](../../../../docs/races/" + name + ".md))"
}
