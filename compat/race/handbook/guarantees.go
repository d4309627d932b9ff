package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// data is what the explorer computed, in the repository: a test of compat/race compares it with
// the code.
const data = "compat/race/view/guarantees.md"

// A Lock is what a lock promises, by servers on which it promises the same.
type Lock struct {
	Name    string   `json:"name"`
	About   string   `json:"about"`
	Columns []Column `json:"columns"`
}

// A Column has a verdict for each fault: "holds", "refused", or what breaks.
type Column struct {
	Servers  []string          `json:"servers"`
	Verdicts map[string]string `json:"verdicts"`
}

// A Fault is a row of the tables.
type Fault struct {
	Name   string `json:"name"`
	Says   string `json:"says"`
	Bounds string `json:"-"`
}

// Guarantees are all of them.
type Guarantees struct {
	Faults  []Fault  `json:"faults"`
	Servers []string `json:"servers"`
	Locks   []Lock   `json:"locks"`

	text   string // the whole page
	clocks string // its table of clocks that disagree
}

var states = regexp.MustCompile(`, [\d,]+ states$`)

// readGuarantees reads the data of a repository.
func readGuarantees(repository string) (Guarantees, error) {
	b, err := os.ReadFile(filepath.Join(repository, data))
	if err != nil {
		return Guarantees{}, err
	}
	g := Guarantees{text: strings.ReplaceAll(string(b), "../../../docs/", "")}
	_, rest, _ := strings.Cut(g.text, "\n## Clocks that disagree\n")
	g.clocks = table(rest)
	for _, section := range strings.Split(g.text, "\n## ")[1:] {
		title, rest, _ := strings.Cut(section, "\n")
		rows := cells(table(rest))
		switch {
		case title == "The rows":
			for _, r := range rows[1:] {
				g.Faults = append(g.Faults, Fault{r[0], r[1], r[2]})
			}
		case strings.HasPrefix(rest, "\n") && len(rows) > 0 && rows[0][0] == "fault":
			about, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
			l := Lock{Name: title, About: strings.TrimSuffix(about, ".")}
			for i, servers := range rows[0][1:] {
				c := Column{strings.Split(servers, ", "), map[string]string{}}
				for _, r := range rows[1:] {
					c.Verdicts[r[0]] = states.ReplaceAllString(strings.Trim(r[i+1], "*"), "")
				}
				l.Columns = append(l.Columns, c)
				for _, s := range c.Servers {
					if !slices.Contains(g.Servers, s) {
						g.Servers = append(g.Servers, s)
					}
				}
			}
			g.Locks = append(g.Locks, l)
		}
	}
	slices.SortFunc(g.Servers, func(a, b string) int { return version(a) - version(b) })
	if len(g.Faults) < 20 || len(g.Locks) < 20 || len(g.Servers) < 10 || g.clocks == "" {
		return g, fmt.Errorf("%s: %d faults, %d locks, %d servers", data, len(g.Faults), len(g.Locks), len(g.Servers))
	}
	return g, nil
}

// version orders servers by their age, proxies and profiles last.
func version(name string) int {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(name, "%d.%d.%d", &major, &minor, &patch); n == 0 {
		return 1 << 20
	} else if n < 3 {
		patch = 99 // 2.2 is the last of its line, 2.2.5 an early one; 2.6 is up to 2.6.11
		if name == "2.6" {
			patch = 11
		}
	}
	return major*10000 + minor*100 + patch
}

// table is the first table of a text.
func table(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "|") {
			b.WriteString(line)
		} else if b.Len() > 0 || strings.HasPrefix(line, "## ") {
			break
		}
	}
	return b.String()
}

// cells are a table's, without the line below its head.
func cells(table string) (rows [][]string) {
	for line := range strings.Lines(table) {
		var row []string
		for c := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			row = append(row, strings.TrimSpace(c))
		}
		if strings.Trim(row[0], "-:") != "" || len(rows) == 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

// of is the verdict on a lock; "": it was not asked.
func (g Guarantees) of(lock, server, fault string) string {
	for _, l := range g.Locks {
		for _, c := range l.Columns {
			if l.Name == lock && slices.Contains(c.Servers, server) {
				return c.Verdicts[fault]
			}
		}
	}
	return ""
}

// rows is the table of what goes wrong, for docs/guarantees.md.
func (g Guarantees) rows() string {
	var b strings.Builder
	b.WriteString("| fault | what goes wrong | bounds: two clients, and more |\n|---|---|---|\n")
	for _, f := range g.Faults {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", f.Name, f.Says, f.Bounds)
	}
	return b.String()
}

// summary has a line for each lock and each kind of server that it works on: what breaks it. In
// what is not named it holds.
func (g Guarantees) summary() string {
	var b strings.Builder
	b.WriteString("| lock | on | breaks |\n|---|---|---|\n")
	for _, l := range g.Locks {
		var order []string
		on := map[string][]string{}
		for _, c := range l.Columns {
			if c.Verdicts["none"] == "refused" {
				continue
			}
			breaks := g.breaks(c)
			if on[breaks] == nil {
				order = append(order, breaks)
			}
			on[breaks] = append(on[breaks], c.Servers...)
		}
		for _, breaks := range order {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", l.Name, span(on[breaks]), breaks)
		}
	}
	return b.String()
}

// breaks are the faults under which something does, by what breaks.
func (g Guarantees) breaks(c Column) string {
	const none = "none"
	plain := c.Verdicts[none]
	var order []string
	under := map[string][]string{}
	for _, f := range g.Faults {
		for name := range strings.SplitSeq(c.Verdicts[f.Name], ", ") {
			if name == "" || name == "holds" || name == "refused" || f.Name != none && slices.Contains(strings.Split(plain, ", "), name) {
				continue // it breaks without a fault, too
			}
			if under[name] == nil {
				order = append(order, name)
			}
			under[name] = append(under[name], f.Name)
		}
	}
	var parts []string
	if plain != "holds" {
		parts = []string{"**" + plain + "** without any fault"}
	}
	for _, name := range order {
		if !slices.Contains(under[name], none) {
			parts = append(parts, "**"+name+"**: "+strings.Join(under[name], ", "))
		}
	}
	if parts == nil {
		return "nothing"
	}
	return strings.Join(parts, "; ")
}

// span is a list of servers in few words.
func span(servers []string) string {
	all := slices.Clone(servers)
	slices.SortFunc(all, func(a, b string) int { return version(a) - version(b) })
	var versions, others []string
	for _, s := range all {
		if version(s) < 1<<20 {
			versions = append(versions, s)
		} else {
			others = append(others, s)
		}
	}
	text := strings.Join(versions, ", ")
	if len(versions) > 2 {
		text = versions[0] + " to " + versions[len(versions)-1]
	}
	return strings.Trim(strings.Join(append([]string{text}, others...), ", "), ", ")
}

// compared is the table of docs/comparison.md: some locks under some faults, on 7.0.
func (g Guarantees) compared() string {
	locks := []string{"set:lua", "redlock", "set:published", "tx:classic/published", "getset:classic", "tx:renamed"}
	var b strings.Builder
	b.WriteString("| fault |")
	for _, l := range locks {
		b.WriteString(" `" + l + "` |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(locks)) + "\n")
	for _, fault := range []string{"none", "crash", "lost reply", "lost request", "cut", "late", "skew", "renewal", "restart", "failover", "server down", "evict", "pause", "pause, fenced"} {
		b.WriteString("| " + fault + " |")
		for _, l := range locks {
			v := g.of(l, "7.0", fault)
			switch v {
			case "":
				v = "–"
			case "holds", "refused":
			case g.of(l, "7.0", "none"):
				if fault != "none" {
					v = "the same"
					break
				}
				fallthrough
			default:
				v = "**" + v + "**"
			}
			b.WriteString(" " + v + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}
