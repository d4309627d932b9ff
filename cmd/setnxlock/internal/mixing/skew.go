//go:build !js

package mixing

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/pages"
	"github.com/setnxlock/setnxlock/compat/race"
)

// A Skew says whether a fleet of ours holds when one of its clocks is off.
type Skew struct {
	Party    string        // a name of race.Algorithms
	Off      time.Duration // how far one client's clock is ahead of the others; negative: behind
	Steps    int           // of the shortest way to two holders; 0: none within the bounds
	Schedule string
	States   int
}

// Holds reports whether no two clients held the lock at once.
func (s Skew) Holds() bool { return s.Schedule == "" }

// skewed lists the fleets of the table, with their descriptions.
var skewed = []struct{ name, says string }{
	{"getset:guarded", "`getsetlock.Guarded{}`: float seconds"},
	{"getset:classic", "`getsetlock.Classic{}`"},
	{"ours/getset:guarded/redis-docs", "`Dialect: Seconds`: whole seconds, and one more"},
	{"ours/getset:guarded/margin-1s", "`Dialect.Margin: 1 s`"},
	{"getset:guarded/margin", "`Dialect.Margin: 5 s`"},
	{"ours/getset:guarded/margin-20s", "`Dialect.Margin: 20 s`"},
	{"ours/getset:patient", "`getsetlock.Patient{Lease: …}`"},
	{"tx:guarded", "`txlock.Guarded{}`"},
	{"set:lua", "`setlock.Lua{}`"},
}

// offs are the columns. A probe.Clock measured with round trips of less than a tenth of a second
// is off by less than that.
var offs = []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second, 15 * time.Second}

// Skews explores each fleet with one clock fast and with one clock slow, two clients
// and three.
func Skews(ctx context.Context) ([]Skew, error) {
	var list []Skew
	for _, p := range skewed {
		for _, off := range offs {
			for _, o := range []time.Duration{off, -off} {
				s, err := skew(ctx, p.name, o)
				if err != nil {
					return list, fmt.Errorf("%s, a clock off by %v: %w", p.name, o, err)
				}
				list = append(list, s)
			}
		}
	}
	return list, nil
}

func skew(ctx context.Context, name string, off time.Duration) (Skew, error) {
	s := Skew{Party: name, Off: off}
	for clients := 2; clients <= 3; clients++ {
		c := race.Config{Algorithm: name, Locks: Locks(), Server: "2.8", Clients: clients, Attempts: 4 - clients, Ticks: 5, Keep: true,
			Skew: []time.Duration{0, off}, Faults: race.Faults{Late: -1}, Invariants: []string{"exclusion"}}
		r, err := race.Explore(ctx, c)
		if err != nil {
			return s, err
		}
		s.States += r.States
		if r.Trace != nil && (s.Steps == 0 || len(r.Trace.Events) < s.Steps) {
			s.Steps, s.Schedule = len(r.Trace.Events), r.Trace.Schedule
		}
	}
	return s, nil
}

// Clocks returns the last section of the guarantees, on clocks that disagree. Its prose stands in
// guarantees.md itself.
func Clocks(skews []Skew) string {
	const title = "\n## Clocks that disagree\n"
	_, prose, _ := strings.Cut(pages.Stored, title)
	prose, _, _ = strings.Cut(prose, "| lock |")
	return title + prose + skewTable(skews)
}

// skewTable returns the table of Skews in Markdown.
func skewTable(list []Skew) string {
	var b, ways strings.Builder
	b.WriteString("| lock |")
	for _, off := range offs {
		fmt.Fprintf(&b, " %v fast | %v slow |", off, off)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", 2*len(offs)) + "\n")
	for i, p := range skewed {
		b.WriteString("| " + p.says + " |")
		for _, s := range list[i*2*len(offs) : (i+1)*2*len(offs)] {
			if s.Holds() {
				b.WriteString(" holds |")
				continue
			}
			fmt.Fprintf(&b, " **breaks** in %d |", s.Steps)
			if s.Off > 0 {
				fmt.Fprintf(&ways, "    setnxlock race replay '%s'\n", s.Schedule)
			}
		}
		b.WriteString("\n")
	}
	return b.String() + "\nThe shortest ways with a fast clock:\n\n" + ways.String()
}
