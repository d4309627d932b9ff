package race

import (
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// Where the clients' values stand, for locks that are more than one key with
// one value on it.

// A standing says of each client whether the value of its lease was on the
// server before a command and after it; and whether there was anything at all.
type standing struct {
	before, after [maxClients]bool
	any           bool
}

// values is judge.command for a lock that is not one key.
func (j *judge) values(g *ghost, st *stances, i int, now int64, s *standing) breach {
	if !j.tracks {
		return breach{}
	}
	m := &g.mark[i]
	m.bits &^= mine
	if s.after[i] {
		m.bits |= mine
	}
	if s.before[i] && !s.after[i] {
		m.bits |= gave
	}
	for k := range j.c.Clients {
		if st[k].phase == acquiring && s.any {
			g.mark[k].bits |= saw
		}
		if k != i && j.ownership && s.before[k] && !s.after[k] && j.valid(st, k, now) {
			return breach{removedAnothers, uint8(i), uint8(k)}
		}
	}
	return breach{}
}

func stands(entries []oldredis.Entry, value string) bool {
	value, other, two := strings.Cut(value, or)
	return two && stands(entries, other) || slices.ContainsFunc(entries, func(e oldredis.Entry) bool {
		return strings.Contains(e.Value, value) || strings.Contains(e.Key, value) ||
			slices.ContainsFunc(e.Elements, func(el string) bool { return strings.Contains(el, value) })
	})
}
