package monitor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/race"
)

// A Held is one time at which a client held the lock. Times are in milliseconds of the trace.
type Held struct {
	Client string `json:"client"`
	From   int64  `json:"from_ms"`
	To     int64  `json:"to_ms"` // -1: beyond the end of the log
	Step   int    `json:"step"`  // which took it
	Ended  string `json:"ended"` // "released", "ran out", "" for one that has not ended
	By     string `json:"by"`    // who removed it meanwhile, at step At; "": nobody
	At     int    `json:"at"`
}

// A Both is a time with two holders.
type Both struct {
	Clients [2]string `json:"clients"`
	From    int64     `json:"from_ms"`
	To      int64     `json:"to_ms"` // -1: beyond the end of the log
	Step    int       `json:"step"`  // from which on
}

// A Removed is a lock removed or replaced by another client.
type Removed struct {
	Step  int    `json:"step"`
	At    int64  `json:"at_ms"`
	By    string `json:"by"`
	Whose string `json:"whose"`
}

// tell reads the holds, the overlaps and the removals off the trace.
func (l *Log) tell() {
	l.Held, l.Both, l.Removed = []Held{}, []Both{}, []Removed{}
	holding := map[string]int{} // whose place in Held
	for i, e := range l.Trace.Events {
		for _, c := range l.Trace.Clients {
			b, at := e.Belief[c.Name], e.At
			n, holds := holding[c.Name]
			switch {
			case !holds && b.State == race.Holds:
				holding[c.Name] = len(l.Held)
				l.Held = append(l.Held, Held{c.Name, at, ends(b), e.N, "", "", 0})
			case holds && b.State == race.Holds:
				l.Held[n].To = ends(b)
			case holds && b.State == race.RunOut:
				l.Held[n].Ended = "ran out"
				delete(holding, c.Name)
			case holds:
				l.Held[n].To, l.Held[n].Ended = at, "released"
				delete(holding, c.Name)
			}
		}
		if v := e.Violation; v != nil && v.Invariant == "ownership" && i > 0 {
			whose := l.Trace.Events[i-1].Server.Writer
			l.Removed = append(l.Removed, Removed{e.N, e.At, e.Who, whose})
			if n, holds := holding[whose]; holds {
				l.Held[n].By, l.Held[n].At = e.Who, e.N
			}
		}
	}
	for i, b := range l.Held {
		for _, a := range l.Held[:i] {
			if from := max(a.From, b.From); a.Client != b.Client && (a.To < 0 || a.To > from) && l.judged(b.Step) {
				l.Both = append(l.Both, Both{[2]string{a.Client, b.Client}, from, earlier(a.To, b.To), b.Step})
			}
		}
	}
	l.Says = l.sentences()
}

func ends(b race.Belief) int64 { return b.Until }

// earlier returns the first of two ends; -1 means none.
func earlier(a, b int64) int64 {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// judged reports whether a step broke exclusion in the trace, too: readers and unjudged steps don't.
func (l *Log) judged(step int) bool {
	return slices.ContainsFunc(l.Trace.Events, func(e race.Event) bool {
		return e.N == step && e.Violation != nil && e.Violation.Invariant == "exclusion"
	})
}

// sentences writes the results for people.
func (l *Log) sentences() []string {
	var list []string
	for _, h := range l.Held {
		s := fmt.Sprintf("%s held it from %s", h.Client, race.Seconds(h.From))
		switch {
		case h.By != "" && h.To >= 0:
			s += fmt.Sprintf(" to %s as far as it knows: %s removed it at step %d", race.Seconds(h.To), h.By, h.At)
		case h.By != "":
			s += fmt.Sprintf(", and %s removed it at step %d", h.By, h.At)
		case h.Ended != "":
			s += fmt.Sprintf(" to %s, and %s", race.Seconds(h.To), map[string]string{"released": "released it", "ran out": "its lease ran out"}[h.Ended])
		case h.To >= 0:
			s += fmt.Sprintf(", and has it at the end of the log: its lease lasts to %s", race.Seconds(h.To))
		default:
			s += ", and has it at the end of the log: its lease has no end"
		}
		list = append(list, s+".")
	}
	for _, b := range l.Both {
		s := fmt.Sprintf("Two held it: %s and %s from %s", b.Clients[0], b.Clients[1], race.Seconds(b.From))
		if b.To >= 0 {
			s += " to " + race.Seconds(b.To)
		}
		list = append(list, fmt.Sprintf("%s (step %d).", s, b.Step))
	}
	for _, r := range l.Removed {
		list = append(list, fmt.Sprintf("%s removed the lock of %s at %s (step %d).", r.By, r.Whose, race.Seconds(r.At), r.Step))
	}
	switch {
	case l.Unjudged != "":
		list = append(list, strings.ToUpper(l.Unjudged[:1])+l.Unjudged[1:]+".")
	case len(l.Held) == 0:
		list = append(list, "Nobody is seen to take the lock: nothing is judged.")
	case len(l.Both)+len(l.Removed) == 0:
		list = append(list, "As far as the log tells, no two clients held it at once, and nobody removed another's lock.")
	}
	if n := l.Skipped.Lines; n > 0 {
		s := "1 line is"
		if n > 1 {
			s = fmt.Sprintf("%d lines are", n)
		}
		s += " none of MONITOR's and skipped: " + l.Skipped.First
		if l.Skipped.Last {
			s += "; the last line is cut off"
		}
		list = append(list, s+".")
	}
	return list
}
