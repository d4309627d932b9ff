//go:build !js

package pages

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// Stored is what Guarantees returned when the guarantees were last computed. Tests of compat/race and
// cmd/setnxlock/internal/mixing compare it with the code.
//
//go:embed guarantees.md
var Stored string

// tables are the guarantees as a text of Guarantees has them.
type tables struct {
	Faults  []faultRow  `json:"faults"`
	Servers []string    `json:"servers"` // by age, proxies and profiles last
	Locks   []lockTable `json:"locks"`
}

type faultRow struct {
	Name   string `json:"name"`
	Says   string `json:"says"`
	Bounds string `json:"-"`
}

type lockTable struct {
	Name    string       `json:"name"`
	About   string       `json:"about"`
	Columns []lockColumn `json:"columns"`

	ways []way
}

// A lockColumn is servers on which a lock promises the same.
type lockColumn struct {
	Servers  []string          `json:"servers"`
	Verdicts map[string]string `json:"verdicts"` // by fault: "holds", "refused", or the invariants that break

	states map[string]string // by fault that it holds under: "1,204"
}

// A way is a shortest one to break an invariant.
type way struct {
	invariant string
	faults    []string // under which it is the shortest
	text      string
	race      string // of the catalogue, which shows it; "": none
	steps     int
	schedule  string
}

// readTables reads the output of Guarantees.
func readTables(text string) (tables, error) {
	wayRow := regexp.MustCompile(`(?m)^- \*([a-z-]+)\* \((.*?)\): (.*?)(?: \(\[([a-z/-]+)\]\(.*?\)\))?\.` +
		" (\\d+) steps: `(.*)`$")
	var g tables
	sections := strings.Split(text, "\n## ")
	for _, section := range sections[1:] {
		title, body, _ := strings.Cut(section, "\n")
		rows := cells(body)
		switch {
		case title == "The rows":
			for _, r := range rows[1:] {
				g.Faults = append(g.Faults, faultRow{r[0], r[1], r[2]})
			}
		case len(rows) > 0 && rows[0][0] == "fault":
			l := lockTable{Name: title}
			l.About, _, _ = strings.Cut(strings.TrimSpace(body), ".\n")
			for i, servers := range rows[0][1:] {
				c := lockColumn{strings.Split(servers, ", "), map[string]string{}, map[string]string{}}
				for _, r := range rows[1:] {
					c.Verdicts[r[0]] = strings.Trim(r[i+1], "*")
					if states, ok := strings.CutPrefix(r[i+1], "holds, "); ok {
						c.Verdicts[r[0]], c.states[r[0]] = "holds", strings.TrimSuffix(states, " states")
					}
				}
				l.Columns = append(l.Columns, c)
				for _, s := range c.Servers {
					if !slices.Contains(g.Servers, s) {
						g.Servers = append(g.Servers, s)
					}
				}
			}
			for _, m := range wayRow.FindAllStringSubmatch(body, -1) {
				steps, _ := strconv.Atoi(m[5]) //nolint:errcheck // they are digits
				l.ways = append(l.ways, way{m[1], g.faultsIn(m[2]), m[3], m[4], steps, m[6]})
			}
			g.Locks = append(g.Locks, l)
		}
	}
	slices.SortFunc(g.Servers, func(a, b string) int { return age(a) - age(b) })
	if len(g.Faults) == 0 || len(g.Locks) == 0 {
		return g, fmt.Errorf("race: no guarantees as setnxlock race guarantees prints them: %d faults, %d locks",
			len(g.Faults), len(g.Locks))
	}
	return g, nil
}

// cells reads the first table of a section, without the line below its head.
func cells(section string) (rows [][]string) {
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "|") {
			if rows != nil {
				break
			}
			continue
		}
		var row []string
		for c := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			row = append(row, strings.TrimSpace(c))
		}
		if strings.Trim(row[0], "-") != "" {
			rows = append(rows, row)
		}
	}
	return rows
}

// faultsIn reads a list of faults. A name may have a comma in it: "pause, fenced".
func (g tables) faultsIn(list string) (names []string) {
	for list != "" {
		longest := ""
		for _, f := range g.Faults {
			if len(f.Name) > len(longest) && strings.HasPrefix(list+", ", f.Name+", ") {
				longest = f.Name
			}
		}
		if longest == "" {
			return append(names, list)
		}
		names = append(names, longest)
		list = strings.TrimPrefix(list[len(longest):], ", ")
	}
	return names
}

// age returns a server's place among all, the oldest first.
func age(name string) int {
	return slices.Index(slices.Concat(oldredis.Versions(), oldredis.Profiles(), oldredis.Today()), name)
}

// way returns the index of a shortest way to break an invariant of a lock under a fault; -1: there is
// none.
func (l lockTable) way(invariant, fault string) int {
	for _, under := range []string{fault, "none"} { // what breaks as soon without a fault is listed there alone
		for i, w := range l.ways {
			if w.invariant == invariant && slices.Contains(w.faults, under) {
				return i
			}
		}
	}
	return -1
}
