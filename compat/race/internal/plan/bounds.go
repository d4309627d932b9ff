package plan

import (
	"fmt"
	"strings"
)

// Bounds are within what an exploration of c holds, in words.
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
