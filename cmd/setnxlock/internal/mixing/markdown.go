package mixing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/race/view"
)

// named returns the parties of some names.
func named(names ...string) []Party {
	list := make([]Party, len(names))
	for i, name := range names {
		p, err := Find(name)
		if err != nil {
			panic(err)
		}
		list[i] = p
	}
	return list
}

// Shown returns the parties of the site's page: at least one of each kind that shares keys, preferably
// clients still in use.
func Shown() []Party {
	return named(
		"ours/getset:guarded/redis-docs", "ours/getset:guarded/redis-py-2.9", "ours/getset:guarded/jedis-lock", "ours/getset:patient",
		"ours/tx:guarded", "ours/set:lua",
		"theirs/redis-py-2.2.3", "theirs/resque-lock", "theirs/lonely-job", "theirs/node-resque",
		"theirs/redis-py-2.9", "theirs/redis-mutex", "theirs/retools-0.3",
		"theirs/jedis-lock", "theirs/npm-redis-lock-0.0", "theirs/machinery", "theirs/PT-redis-lock", "theirs/jedis-lock-1.0.1",
		"theirs/ServiceStack-DistributedLock",
		"theirs/redis-in-action", "theirs/redis-in-action/3s", "theirs/redis-py-2.10", "theirs/redis-py-3", "theirs/locky", "theirs/laravel-5.5",
	)
}

// Mixed returns the parties of the whole matrix: all except our classic variant in most dialects,
// where it differs from the guarded one in the same way. Pair computes those too.
func Mixed() []Party {
	return slices.DeleteFunc(slices.Clone(Parties()), func(p Party) bool {
		return strings.HasPrefix(p.Name, "ours/getset:classic/") && !slices.Contains([]string{"redis-docs", "redis-py-2.9", "jedis-lock", "machinery"}, strings.TrimPrefix(p.Name, "ours/getset:classic/"))
	})
}

// Words returns the matrix of these parties as a table of words.
func (m Matrix) Words(parties []Party) string {
	var b strings.Builder
	b.WriteString("| | |")
	for i := range parties {
		fmt.Fprintf(&b, " %d |", i+1)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(parties)) + "\n")
	for i, p := range parties {
		fmt.Fprintf(&b, "| %d | %s, %s |", i+1, p.Name, p.Kind)
		for k, q := range parties {
			cell := ""
			if k >= i {
				cell = m.cell(p, q)
			}
			b.WriteString(" " + cell + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Markdown returns the whole matrix as a page: the table of words, and a shortest way to break each pair.
func (m Matrix) Markdown() string {
	var b strings.Builder
	b.WriteString("# Mixing: two fleets on one key, every pair\n\n<!-- Written by: setnxlock race mixing -o FILE -->\n\n" +
		"The words, and the bounds, are those of docs/mixing.md.\n\n" + m.Words(m.Parties) + "\n## The shortest ways\n")
	for i, p := range m.Parties {
		for k, q := range m.Parties[i:] {
			for n, w := range m.Of(p.Name, q.Name).Ways() {
				if n == 0 {
					fmt.Fprintf(&b, "\n### %d and %d: %s and %s\n", i+1, i+k+1, p.Short(), q.Short())
				}
				fmt.Fprintf(&b, "\n%s\n\n    setnxlock race replay '%s'\n", w.Text, w.Schedule)
			}
		}
	}
	fmt.Fprintf(&b, "\n%s pairs, %s states.\n", view.Thousands(len(m.verdicts)), view.Thousands(m.States))
	return b.String()
}

// A Way is a schedule, and what it shows.
type Way struct {
	Text     string `json:"text"`
	Schedule string `json:"schedule"`
}

// Ways returns the shortest ways to break the pair; none: it is safe.
func (v Verdict) Ways() []Way {
	list := []Way{}
	if c := v.Clash; c != nil {
		list = append(list, Way{fmt.Sprintf("Two clients hold the lock %s, with %s, in %d steps.", c.Grade, v.Takes(), c.Steps), c.Schedule})
	}
	for _, s := range v.Stuck {
		list = append(list, Way{fmt.Sprintf("%s never gets a key that %s has left: %s.", s.By, s.Of, s.When), s.Schedule})
	}
	return list
}

// cell returns the table's cell for a pair.
func (m Matrix) cell(a, b Party) string {
	v := m.Of(a.Name, b.Name)
	if v.Safe() {
		return "safe"
	}
	var words []string
	if c := v.Clash; c != nil {
		word := string(c.Grade)
		if c.Needs != OneOfEach {
			word += ", of two"
		}
		if !m.inherited(v) && a.Name != b.Name {
			word = "**" + word + "**"
		}
		words = append(words, word)
	}
	if len(v.Stuck) > 0 {
		word := "stuck"
		if slices.ContainsFunc(v.Stuck, func(s Stuck) bool { return !m.owns(s) }) {
			word = "**stuck**"
		}
		words = append(words, word)
	}
	return strings.Join(words, "; ")
}

// inherited reports whether one of the two fleets breaks by itself in the same way, under no worse
// conditions and in no more steps.
func (m Matrix) inherited(v Verdict) bool {
	for _, p := range []Party{v.A, v.B} {
		if c := m.Of(p.Name, p.Name).Clash; c != nil && !worse(c.Grade, v.Clash.Grade) && c.Steps <= v.Clash.Steps {
			return true
		}
	}
	return false
}

// owns reports whether the fleet by itself is stuck after the same event.
func (m Matrix) owns(s Stuck) bool {
	return slices.ContainsFunc(m.Of(s.Of, s.Of).Stuck, func(o Stuck) bool { return o.When == s.When })
}
