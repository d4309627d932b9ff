package mixing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/view"
)

// Shown are the parties whose pairs docs/mixing.md has in words and with a
// schedule: at least one of each kind that shares keys, the clients that are still
// met in the field before others.
func Shown() []Party {
	var list []Party
	for _, name := range []string{
		"ours/getset:guarded/redis-docs", "ours/getset:guarded/redis-py-2.9", "ours/getset:guarded/jedis-lock", "ours/getset:patient",
		"ours/tx:guarded", "ours/set:lua",
		"theirs/redis-py-2.2.3", "theirs/resque-lock", "theirs/lonely-job", "theirs/node-resque",
		"theirs/redis-py-2.9", "theirs/redis-mutex", "theirs/retools-0.3",
		"theirs/jedis-lock", "theirs/npm-redis-lock-0.0", "theirs/machinery", "theirs/PT-redis-lock", "theirs/jedis-lock-1.0.1",
		"theirs/ServiceStack-DistributedLock",
		"theirs/redis-in-action", "theirs/redis-in-action/3s", "theirs/redis-py-2.10", "theirs/redis-py-3", "theirs/locky", "theirs/laravel-5.5",
	} {
		p, err := Find(name)
		if err != nil {
			panic(err)
		}
		list = append(list, p)
	}
	return list
}

// Mixed are the parties of docs/mixing.md: all but the classic variant of ours in
// most dialects, which differs from the guarded one as it does in the others.
// Pair has those.
func Mixed() []Party {
	return slices.DeleteFunc(slices.Clone(Parties()), func(p Party) bool {
		return strings.HasPrefix(p.Name, "ours/getset:classic/") && !slices.Contains([]string{"redis-docs", "redis-py-2.9", "jedis-lock", "machinery"}, strings.TrimPrefix(p.Name, "ours/getset:classic/"))
	})
}

// Clocks is the section on clocks that disagree, the last of docs/guarantees.md too.
func Clocks(skews []Skew) string { return clocks + skewTable(skews) }

// Markdown is docs/mixing.md. It replays every schedule that it shows.
func (m Matrix) Markdown(skews []Skew) (string, error) {
	var b strings.Builder
	b.WriteString(head)
	m.table(&b)
	b.WriteString(Clocks(skews))
	m.letters(&b)
	if err := m.ways(&b); err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "\n%s pairs, %s states.\n", view.Thousands(len(m.verdicts)), view.Thousands(m.States))
	return b.String(), nil
}

const head = `# Mixing: two fleets on one key

<!-- Written by: setnxlock race mixing -o docs/mixing.md -->

What happens when two fleets lock the same key, each with its own client. *Computed*: our locks run as they ship, the clients in the field as models
of their published code, faults included; each pair in every order of its commands, on the embedded Redis ([how that works](explorer.md)). The models do, cell by cell, what fifteen of the real
clients were seen to do with nineteen values on the key (compat/race/mixing/testdata/executed.txt).

## How to read it

A pair is **safe** if no two clients ever hold the lock at once, and each fleet gets again what a dead client of the other held. Otherwise the cell says what it takes
for two to hold it, and links to a shortest way there. Each word takes more than the one before:

| word | what it takes |
|---|---|
| at once | nothing. One takes what the other holds, without any time passing |
| at takeover | a dead client's lock on the key, and two that contend for it |
| early | time. One takes the lock over although the other's lease, by clocks that agree, has a while to go |
| late | somebody slow: a client that stops between two of its commands, or works on past the end of its lease |

A word in **bold** is the mixture's fault: neither fleet does that to itself, or only by a longer way. A plain one is no worse than what at least one of the two does to itself already; whether a fleet
that is alone on its keys is safe stands on the diagonal. *Of two* means that two clients of one fleet are needed, besides one of the other. **stuck** says that a lock which a dead client of
one fleet held is never had again by the other, nor by anybody until somebody deletes the key; stuck in plain type, that this takes a death between two commands, which leaves the fleet's own
clients locked out as well.

Bounds: the same lease of 10 s for all (but where a name says 3s) and clocks that agree; two clients with two attempts each, one of either fleet, then three with one attempt each, two of one fleet; up to four jumps of time (with three clients three), more where a fleet leaves others' locks alone for longer than the time on the key says, and in "late" one pause between a
clock and what is done on it. *Safe* is a proof within them, and no more. What a client makes of another's token is a lottery of the token's first digits. One ticket was drawn for all, one with which most lose: 94213c….
Two clients of different prefix never meet; these did.

`

const clocks = `
## Clocks that disagree

How our timestamp locks do among themselves when the clock of *one* client is off by so much, and all others agree: two clients × 2 attempts, three × 1, five jumps of time, leases of 10 s that nobody gives
back before their end. Locks whose end is a TTL are there for comparison: only the server's clock counts for them. A tenth of a second is what the drift margin of a lease of 10 s takes. Where the Locker's clock is ` + "`server.Clock`" + `, read the column of what is left after measuring: less than 0.1 s on any
network whose round trips are. ` + "`Patient`" + ` takes over by waiting only, so in these runs, in which everybody asks once, it refuses what is on the key; that it gets a dead client's key in the end
is what the table of [mixing](mixing.md) says of it.

`

// cell is what the table says of a pair.
func (m Matrix) cell(a, b Party, number string) string {
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
	return "[" + strings.Join(words, "; ") + "](#" + number + ")"
}

// inherited reports whether one of the two does to itself what they do to each
// other, under no worse conditions and in no more steps.
func (m Matrix) inherited(v Verdict) bool {
	for _, p := range []Party{v.A, v.B} {
		if c := m.Of(p.Name, p.Name).Clash; c != nil && !worse(c.Grade, v.Clash.Grade) && c.Steps <= v.Clash.Steps {
			return true
		}
	}
	return false
}

// owns reports whether the fleet is stuck by itself after the same.
func (m Matrix) owns(s Stuck) bool {
	return slices.ContainsFunc(m.Of(s.Of, s.Of).Stuck, func(o Stuck) bool { return o.When == s.When })
}

// table is the matrix of those that are shown.
func (m Matrix) table(b *strings.Builder) {
	shown := m.shown()
	b.WriteString("## The table\n\n| | |")
	for i := range shown {
		fmt.Fprintf(b, " %d |", i+1)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(shown)) + "\n")
	for i, p := range shown {
		fmt.Fprintf(b, "| %d | %s, %s |", i+1, p.Name, p.Kind)
		for k, q := range shown {
			if k < i {
				b.WriteString(" |") // it stands on the other side of the diagonal
				continue
			}
			b.WriteString(" " + m.cell(p, q, anchor(i, k)) + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for i, p := range shown {
		fmt.Fprintf(b, "%d. `%s`: %s\n", i+1, p.Name, p.Says)
	}
	b.WriteString("\n")
}

// shown are those of Shown that were computed.
func (m Matrix) shown() []Party {
	return slices.DeleteFunc(Shown(), func(p Party) bool { _, ok := m.verdicts[[2]string{p.Name, p.Name}]; return !ok })
}

func anchor(i, k int) string { return fmt.Sprintf("m-%d-%d", i+1, k+1) }

// letter is a verdict in one character, for the table of all.
func (m Matrix) letter(v Verdict) string {
	l := "."
	if v.Clash != nil {
		l = map[Grade]string{AtOnce: "x", Takeover: "t", Early: "e", Late: "l"}[v.Clash.Grade]
	}
	if slices.ContainsFunc(v.Stuck, func(s Stuck) bool { return !m.owns(s) }) {
		l = map[string]string{".": "S", "x": "X", "t": "T", "e": "E", "l": "L"}[l]
	}
	return l
}

// letters is the matrix of all parties.
func (m Matrix) letters(b *strings.Builder) {
	b.WriteString(`
## All of them

Every party with every other: ours in each dialect (the classic variant in four), theirs in each format. ` + "`.`" + ` is safe; ` + "`x`" + ` at once, ` + "`t`" + ` at takeover, ` + "`e`" + ` early, ` + "`l`" + ` late; a capital says that it is stuck as well, and
` + "`S`" + ` that it is only that. The columns are the rows, in their order. ` + "`setnxlock race mixing --a X --b Y`" + ` has the schedule of any of them.

` + "```\n")
	for i, p := range m.Parties {
		fmt.Fprintf(b, "%3d %-49s ", i+1, p.Name)
		for k := range m.Parties {
			b.WriteString(m.letter(m.Of(p.Name, m.Parties[k].Name)))
		}
		b.WriteString("\n")
	}
	b.WriteString("```\n\nThose that nobody on the key can tell apart stand for each other:\n\n")
	for _, p := range m.Parties {
		if len(p.Alike) > 0 {
			fmt.Fprintf(b, "- `%s`: %s\n", p.Name, strings.Join(p.Alike, ", "))
		}
	}
}

// ways are the counterexamples of the table.
func (m Matrix) ways(b *strings.Builder) error {
	b.WriteString("\n## The shortest ways\n")
	shown := m.shown()
	for i, p := range shown {
		for k, q := range shown[i:] {
			v := m.Of(p.Name, q.Name)
			if v.Safe() {
				continue
			}
			fmt.Fprintf(b, "\n<a id=\"%s\"></a>\n### %d and %d: %s and %s\n\n", anchor(i, i+k), i+1, i+k+1, p.Short(), q.Short())
			text, err := v.Text()
			if err != nil {
				return err
			}
			b.WriteString(text)
		}
	}
	return nil
}

// Text tells the verdict on one pair, with the steps of what breaks it.
func (v Verdict) Text() (string, error) {
	var b strings.Builder
	if c := v.Clash; c != nil {
		t, err := race.ReplaySchedule(c.Schedule, Locks())
		if err != nil {
			return "", fmt.Errorf("mixing: %s: %w", c.Schedule, err)
		}
		steps, _, _ := strings.Cut(view.Timeline(t, view.TimelineOptions{Width: 118}), "\n\n#")
		_, steps, _ = strings.Cut(steps, "\n\n")
		fmt.Fprintf(&b, "Two hold it %s, %s, in %d steps. %s\n\n```\n%s\n```\n\n    setnxlock race replay '%s'\n", c.Grade, v.Takes(), c.Steps, clients(t), trim(steps), c.Schedule)
	}
	for _, s := range v.Stuck {
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "Stuck: what a client of %s left, %s never gets (%s):\n\n    setnxlock race replay '%s'\n", s.Of, s.By, s.When, s.Schedule)
	}
	return b.String(), nil
}

// clients say who is who in a trace.
func clients(t race.Trace) string {
	var list []string
	for _, c := range t.Clients {
		if c.Runs != "" {
			list = append(list, c.Name+" runs "+strings.TrimSuffix(c.Runs, "/among"))
		}
	}
	if list == nil {
		return ""
	}
	return strings.Join(list, ", ") + "."
}

// trim drops spaces that end lines.
func trim(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}
