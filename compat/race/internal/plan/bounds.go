package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds describes the bounds of an exploration of c.
func (c *Setup) Bounds() string {
	f := &c.Faults
	list := []string{fmt.Sprintf("%d clients × %d attempts", c.Clients, c.Attempts)}
	add := func(n int, one, many string) {
		switch {
		case n == 1:
			list = append(list, "1 "+one)
		case n > 1:
			list = append(list, fmt.Sprintf("%d %s", n, many))
		}
	}
	add(c.Ticks, "jump of time", "jumps of time")
	add(f.LostReplies, "lost reply", "lost replies")
	add(f.LostRequests, "lost request", "lost requests")
	add(f.LateRequests, "late request", "late requests")
	add(f.Cuts, "cut", "cuts")
	add(f.Refusals, "refusal", "refusals")
	if f.Crash {
		list = append(list, "crashes")
	}
	add(f.Restart, "restart", "restarts")
	add(f.Failover, "failover", "failovers")
	add(f.Evict, "eviction", "evictions")
	add(f.Down, "server that goes", "servers that go")
	if f.Unreaped {
		list = append(list, "expired keys unreaped")
	}
	return strings.Join(list, ", ")
}

// A Looked says what an exploration looks for, and at: what it says of the rest is nothing.
type Looked struct {
	For     []string `json:"for"`     // the invariants
	NotFor  []string `json:"not_for"` // the others, with what they need
	Orders  string   `json:"orders"`  // "every order of the commands of 2 clients × 2 attempts"
	Tried   []string `json:"tried"`   // what goes wrong
	Untried []string `json:"untried"` // what else could
}

// Looked lists the invariants, the faults and the bounds of c.
func (c *Setup) Looked() Looked {
	l := Looked{For: c.Invariants, NotFor: []string{}, Tried: []string{}, Untried: []string{},
		Orders: fmt.Sprintf("every order of the commands of %d clients × %d attempts", c.Clients, c.Attempts)}
	needs := map[string]string{"fencing": "a client that writes", "fence-order": "a fence", "fairness": "clients that wait"}
	applicable := c.applicable()
	for _, v := range Invariants() {
		switch {
		case slices.Contains(c.Invariants, v):
		case slices.Contains(applicable, v) || needs[v] == "":
			l.NotFor = append(l.NotFor, v)
		default:
			l.NotFor = append(l.NotFor, v+" (needs "+needs[v]+")")
		}
	}
	f, several := &c.Faults, c.Servers() > 0
	for _, x := range []struct {
		n          int
		one, many  string
		impossible bool
	}{
		{c.Ticks, "jump of time", "jumps of time", false},
		{f.LostReplies, "lost reply", "lost replies", false},
		{f.LostRequests, "lost request", "lost requests", false},
		{f.LateRequests, "late request", "late requests", false},
		{f.Cuts, "cut within a write", "cuts within a write", false},
		{f.Refusals, "refused command", "refused commands", false},
		{count(f.Crash), "crash", "crashes", false},
		{f.Restart, "restart of the server", "restarts of the server", false},
		{f.Failover, "failover", "failovers", several},
		{f.Evict, "eviction", "evictions", false},
		{f.Down, "server that answers no more", "servers that answer no more", !several},
		{count(f.Unreaped), "stay of an expired key in memory", "expired keys that stay in memory", false},
		{count(f.Late >= 0 && c.Ticks > 0), "client that is late after it has read its clock", "clients that are late after they have read their clocks", false},
		{count(slices.ContainsFunc(c.Skew, func(d time.Duration) bool { return d != 0 })), "clock that is wrong", "clocks that are wrong", false},
	} {
		switch {
		case x.impossible:
		case x.n == 0:
			l.Untried = append(l.Untried, "a "+x.one)
		case x.n == uncounted:
			l.Tried = append(l.Tried, x.many)
		case x.n == 1:
			l.Tried = append(l.Tried, "1 "+x.one)
		default:
			l.Tried = append(l.Tried, fmt.Sprintf("%d %s", x.n, x.many))
		}
	}
	for i, s := range l.Untried {
		if strings.HasPrefix(s, "a e") {
			l.Untried[i] = "an" + s[1:]
		}
	}
	return l
}

// uncounted is how often something happens that is not counted.
const uncounted = -1

func count(b bool) int {
	if b {
		return uncounted
	}
	return 0
}

// Says writes l as sentences.
func (l Looked) Says() string {
	s := "Looked for " + strings.Join(l.For, ", ") + ", in " + l.Orders
	if len(l.Tried) > 0 {
		s += ", with " + strings.Join(l.Tried, ", ")
	}
	s += "."
	if len(l.Untried) > 0 {
		s += " Not tried: " + strings.Join(l.Untried, ", ") + "."
	}
	if len(l.NotFor) > 0 {
		s += " Not looked for: " + strings.Join(l.NotFor, ", ") + "."
	}
	return s
}
