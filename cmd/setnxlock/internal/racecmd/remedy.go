package racecmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/race"
)

// remedy is what helps against the violation of a trace, in sentences; "" where that can't be found
// out by exploring.
func remedy(t race.Trace) string {
	locks, err := locksOf(t.Schedule)
	if err != nil {
		return ""
	}
	r, err := race.Remedies(context.Background(), t, locks)
	if err != nil {
		return "" // the trace says what broke all the same
	}
	return r.String()
}

// fixOf is the same for a cell of the guarantees, from the other cells: whether the lock holds
// without the row's fault, and which locks hold under it on the same server.
func fixOf(m race.Matrix, c race.Cell, invariant string) string {
	none := race.AllFaults()[0].Name
	breaks := func(algorithm, fault string) (holds, known bool) {
		f := fieldOf(m, algorithm, c.Server, fault)
		holds = len(f) > 0
		for _, cell := range f {
			holds = holds && cell.Refused == "" && cell.Bound == ""
			for _, b := range cell.Breaks {
				holds = holds && b.Invariant != invariant
			}
		}
		return holds, len(f) > 0
	}
	var says []string
	fault := c.Fault
	if invariant == "fencing" {
		fault = "pause, fenced"
	} else if c.Fault == none {
		says = append(says, "It takes no fault: time that passes is enough.")
	} else if holds, known := breaks(c.Algorithm, none); known && holds {
		says = append(says, fmt.Sprintf("It takes the fault of this row: without, the lock keeps %s on %s.", invariant, c.Server))
	} else if known {
		says = append(says, "It breaks without the fault of this row, too.")
	}
	if fault == "failover" { // the replica lacks one write: who has written twice by then is not safe for that
		return strings.Join(append(says, "What helps is to keep the failover away."), " ")
	}
	var hold []string
	for _, l := range locks.All() {
		if l.Flaw != "" || l.Comparison || l.Name == c.Algorithm && fault == c.Fault || l.Family() == "rw" || !slices.Contains(race.Guaranteed(), l.Name) {
			continue
		}
		if holds, _ := breaks(l.Name, fault); holds {
			hold = append(hold, l.Name)
		}
	}
	switch {
	case strings.HasPrefix(c.Algorithm, "rw:") || c.Algorithm == "redlock":
	case len(hold) > 0 && fault != c.Fault:
		says = append(says, fmt.Sprintf("With a fence these keep %s on %s: %s.", invariant, c.Server, strings.Join(hold, ", ")))
	case len(hold) > 0:
		says = append(says, fmt.Sprintf("Under the same fault these keep %s on %s: %s.", invariant, c.Server, strings.Join(hold, ", ")))
	default:
		says = append(says, fmt.Sprintf("No other lock here keeps %s under it on %s.", invariant, c.Server))
	}
	return strings.Join(says, " ")
}
