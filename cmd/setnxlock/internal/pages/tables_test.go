package pages

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/must"
)

func stored(t *testing.T) tables {
	t.Helper()
	return must.Get(readTables(Stored))(t)
}

// The stored guarantees have all locks and all faults; each break has a way, which its schedule
// takes in as many steps, and which leads to a race that there is.
func TestStored(t *testing.T) {
	g := stored(t)
	var locks, faults []string
	for _, l := range g.Locks {
		locks = append(locks, l.Name)
	}
	for _, f := range g.Faults {
		faults = append(faults, f.Name)
	}
	if !slices.Equal(locks, race.Guaranteed()) {
		t.Errorf("locks %q, want %q", locks, race.Guaranteed())
	}
	var want []string
	for _, x := range race.AllFaults() {
		want = append(want, x.Name)
	}
	if !slices.Equal(faults, want) {
		t.Errorf("faults %q, want %q", faults, want)
	}
	breaks := 0
	for _, l := range g.Locks {
		for _, c := range l.Columns {
			for fault, verdict := range c.Verdicts {
				if verdict == "refused" || verdict == "holds" && c.states[fault] != "" {
					continue
				}
				for invariant := range strings.SplitSeq(verdict, ", ") {
					breaks++
					if l.way(invariant, fault) < 0 {
						t.Errorf("%s on %s, %s: no way to break %s", l.Name, c.Servers, fault, invariant)
					}
				}
			}
		}
		for _, w := range l.ways {
			tr, err := race.ReplaySchedule(w.schedule, nil)
			if err != nil || tr.Verdict.Violated != w.invariant || len(tr.Events) != w.steps {
				t.Errorf("%s: %v, %d steps, %v", w.schedule, tr.Verdict, len(tr.Events), err)
			}
		}
	}
	if breaks < 500 {
		t.Errorf("%d breaks", breaks)
	}
	if want := "1.2 2.0 2.2.5 2.2 2.4 2.6 2.6.12 2.8 "; !strings.HasPrefix(strings.Join(g.Servers, " "), want) {
		t.Errorf("in order: %q", g.Servers)
	}
	if _, err := readTables("{}"); err == nil {
		t.Error("an object is a table")
	}
}

// The worst and the best are read as they are.
func TestVerdicts(t *testing.T) {
	g := stored(t)
	for _, c := range []struct{ lock, server, fault, want string }{
		{"getset:classic", "1.2", "none", "accuracy, exclusion, ownership"},
		{"tx:renamed", "2.4", "lost reply", "holds"},
		{"tx:renamed", "2.2", "lost reply", "refused"},
		{"set:lua", "7.0", "failover", "exclusion"},
		{"redlock", "7.0", "failover", ""},
		{"redlock", "7.0", "server down", "holds"},
	} {
		if got := g.of(c.lock, c.server, c.fault); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	got, want := g.faultsIn("pause, pause, fenced, evict"), []string{"pause", "pause, fenced", "evict"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The tables of docs/guarantees.md and docs/comparison.md say what the stored guarantees say, and so does
// the summary among the stored ones.
func TestDocsAreNotStale(t *testing.T) {
	g := stored(t)
	for page, tables := range map[string]map[string]string{
		"guarantees.md":                  {"all locks": g.summary(race.Guaranteed())},
		"../../../../docs/guarantees.md": {"summary": g.summary(chosen())},
		"../../../../docs/comparison.md": {"verdicts": g.compared()},
	} {
		b := must.Get(os.ReadFile(page))(t)
		text := string(b)
		for what, now := range tables {
			begin := "<!-- " + what + ": go test ./cmd/setnxlock/internal/pages -run Docs -update -->\n"
			end := "<!-- end of " + what + " -->"
			before, rest, ok := strings.Cut(text, begin)
			was, after, ends := strings.Cut(rest, end)
			if !ok || !ends {
				t.Errorf("%s has no table of the %s", page, what)
				continue
			}
			if was != now && !*update {
				t.Errorf("%s: the %s are\n%s\nand cmd/setnxlock/internal/pages/guarantees.md says\n%s", page, what, was, now)
			}
			text = before + begin + now + end + after
		}
		if *update {
			must.Do(t, os.WriteFile(page, []byte(text), 0o644))
		}
	}
}

// of is the verdict on a lock; "": it was not asked.
func (g tables) of(lock, server, fault string) string {
	for _, l := range g.Locks {
		for _, c := range l.Columns {
			if l.Name == lock && slices.Contains(c.Servers, server) {
				return c.Verdicts[fault]
			}
		}
	}
	return ""
}

// chosen are the locks that auto chooses from.
func chosen() (names []string) {
	for _, l := range locks.Preferred() {
		names = append(names, l.Name)
	}
	return names
}

// summary has a line for each of these locks and each kind of server that it works on: what breaks it.
// In what is not named it holds.
func (g tables) summary(names []string) string {
	var b strings.Builder
	b.WriteString("| lock | on | breaks |\n|---|---|---|\n")
	for _, l := range g.Locks {
		if !slices.Contains(names, l.Name) {
			continue
		}
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
func (g tables) breaks(c lockColumn) string {
	const none = "none"
	plain := c.Verdicts[none]
	var order []string
	under := map[string][]string{}
	for _, f := range g.Faults {
		for name := range strings.SplitSeq(c.Verdicts[f.Name], ", ") {
			if name == "" || name == "holds" || name == "refused" {
				continue
			}
			if f.Name != none && slices.Contains(strings.Split(plain, ", "), name) {
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
	slices.SortFunc(all, func(a, b string) int { return age(a) - age(b) })
	var versions, others []string
	for _, s := range all {
		if slices.Contains(oldredis.Versions(), s) {
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

// compared is the table of docs/comparison.md: some locks under some faults, on 7.0. Faults that follow
// each other and break the same share a row.
func (g tables) compared() string {
	locks := []string{"set:lua", "redlock", "set:published", "tx:classic/published", "getset:classic", "tx:renamed"}
	var b strings.Builder
	b.WriteString("| fault |")
	for _, l := range locks {
		b.WriteString(" `" + l + "` |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(locks)) + "\n")
	var faults []string
	was := ""
	for _, fault := range []string{
		"none", "crash", "lost reply", "lost request", "cut", "late", "skew", "renewal", "restart", "evict", "failover",
		"server down", "pause", "pause, fenced", "",
	} {
		row := ""
		for _, l := range locks {
			row += " " + g.shown(l, fault) + " |"
		}
		if row != was && faults != nil {
			fmt.Fprintf(&b, "| %s |%s\n", strings.Join(faults, ", "), was)
			faults = nil
		}
		faults, was = append(faults, strings.ReplaceAll(fault, ", ", " + ")), row
	}
	return b.String()
}

// shown is a cell of the table.
func (g tables) shown(lock, fault string) string {
	switch v := g.of(lock, "7.0", fault); {
	case fault == "":
		return ""
	case v == "":
		return "–"
	case v == "holds", v == "refused":
		return v
	case fault != "none" && v == g.of(lock, "7.0", "none"):
		return "the same"
	default:
		return "**" + v + "**"
	}
}
