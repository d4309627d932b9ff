package judge

import (
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// Where the clients' values stand, for locks that are more than one key with
// one value on it.

// A LiveValues says of each client whether the value of its lease was on the
// server before a command and after it; and whether there was anything at all.
type LiveValues struct {
	Before, After [plan.MaxClients]bool
	Any           bool
}

// Values does Command for a lock of several keys.
func (j *Judge) Values(g *Ghost, st *States, i int, now int64, s *LiveValues) Breach {
	if !j.Tracks {
		return Breach{}
	}
	m := &g.Mark[i]
	m.Bits &^= mine
	if s.After[i] {
		m.Bits |= mine
	}
	if s.Before[i] && !s.After[i] {
		m.Bits |= gave
	}
	for k := range j.c.Clients {
		if st[k].Phase == client.Acquiring && s.Any {
			g.Mark[k].Bits |= saw
		}
		if k != i && j.ownership && s.Before[k] && !s.After[k] && j.valid(st, k, now) {
			return Breach{removedAnothers, uint8(i), uint8(k)}
		}
	}
	return Breach{}
}

// Stands reports whether a server holds a value, or one of two (client.Or).
func Stands(entries []oldredis.Entry, value string) bool {
	value, other, two := strings.Cut(value, client.Or)
	return two && Stands(entries, other) || slices.ContainsFunc(entries, func(e oldredis.Entry) bool {
		return strings.Contains(e.Value, value) || strings.Contains(e.Key, value) ||
			slices.ContainsFunc(e.Elements, func(el string) bool { return strings.Contains(el, value) })
	})
}
