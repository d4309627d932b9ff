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

// standing looks where the values stand before and after a command.
func (x *search) standing(st *stances, was, to uint32) *standing {
	s := &standing{any: x.trans.contents[was].busy || x.trans.contents[to].busy}
	if x.judge.form == members {
		for k := range x.c.Clients {
			s.before[k] = x.trans.stands(was, st[k].value)
			s.after[k] = x.trans.stands(to, st[k].value)
		}
	}
	return s
}

// stands reports whether a value is on the server, dead or alive.
func (t *transitions) stands(n uint32, value string) bool {
	if value == "" {
		return false
	}
	lease, ok := t.leases[value]
	if !ok {
		t.frozen.check()
		lease = uint32(len(t.leases))
		t.leases[value] = lease
	}
	return t.stood.find(pairOf(uint64(n), uint64(lease)), &t.frozen, func() bool {
		return stands(t.contents[n].snap.Entries(t.witness.s), value)
	})
}

func stands(entries []oldredis.Entry, value string) bool {
	value, other, two := strings.Cut(value, or)
	return two && stands(entries, other) || slices.ContainsFunc(entries, func(e oldredis.Entry) bool {
		return strings.Contains(e.Value, value) || strings.Contains(e.Key, value) ||
			slices.ContainsFunc(e.Elements, func(el string) bool { return strings.Contains(el, value) })
	})
}

// or stands between the two values of a client whose extension puts another one on the key.
const or = "\x00"

// busy reports whether anything is there but fences and what stands for a
// server that is down.
func (c *Config) busy(entries []oldredis.Entry) bool {
	for _, e := range entries {
		if e.Key != fenceKey(c.Key) && !strings.HasSuffix(e.Key, downKey) {
			return true
		}
	}
	return false
}

// standing is the same in a world, over two of its contents.
func (w *world) standing(before, after []oldredis.Entry) *standing {
	s := &standing{any: w.c.busy(before) || w.c.busy(after)}
	if w.judge.form == members {
		for k, p := range w.players {
			if p.value != "" {
				s.before[k], s.after[k] = stands(before, p.value), stands(after, p.value)
			}
		}
	}
	return s
}
