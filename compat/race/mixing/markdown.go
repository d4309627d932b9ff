package mixing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/view"
)

// Shown returns the parties whose pairs Markdown shows in words and with a schedule: at least one of
// each kind that shares keys, preferably clients that are still in use.
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

// Mixed returns the parties of the whole matrix: all except our classic variant in most dialects,
// where it differs from the guarded one in the same way. Pair computes those too.
func Mixed() []Party {
	return slices.DeleteFunc(slices.Clone(Parties()), func(p Party) bool {
		return strings.HasPrefix(p.Name, "ours/getset:classic/") && !slices.Contains([]string{"redis-docs", "redis-py-2.9", "jedis-lock", "machinery"}, strings.TrimPrefix(p.Name, "ours/getset:classic/"))
	})
}

// Clocks returns the section on clocks that disagree, which the data of the guarantees have too.
func Clocks(skews []Skew) string { return clocks + skewTable(skews) }

// Summary returns the parties of the table in docs/mixing.md, one for each way to behave on a key.
func Summary() []Party {
	var list []Party
	for _, name := range []string{
		"ours/getset:guarded/redis-py-2.9", "ours/getset:patient", "ours/tx:guarded",
		"theirs/redis-py-2.2.3", "theirs/redis-py-2.9", "theirs/node-resque", "theirs/jedis-lock", "theirs/npm-redis-lock-0.0", "theirs/machinery",
		"theirs/redis-in-action", "theirs/redis-py-2.10", "theirs/redis-py-3", "theirs/locky",
	} {
		p, err := Find(name)
		if err != nil {
			panic(err)
		}
		list = append(list, p)
	}
	return list
}

// Words returns the matrix of these parties as a table of words, for docs/mixing.md.
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
				cell, _, _ = strings.Cut(strings.TrimPrefix(m.cell(p, q, ""), "["), "](")
			}
			b.WriteString(" " + cell + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Markdown returns the whole matrix as a page. It replays every schedule that it shows.
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

const head = `# Mixing: two fleets on one key, every pair

<!-- Written by: setnxlock race mixing -o FILE -->

What happens when two fleets, each with its own client, lock the same key. The results are *computed*: our locks run as they ship, the clients in the field as models of
their published code, bugs included. Each pair runs in every order of its commands, on the embedded Redis. The models were checked against
what fifteen of the real clients did with nineteen values on the key (compat/race/mixing/testdata/executed.txt). What may share a key, and why, is in docs/mixing.md of setnxlock.

## How to read it

A pair is **safe** if no two clients ever hold the lock at once, and each fleet can take the lock of a dead client of the other. Otherwise the cell says what it takes for
two clients to hold the lock, and links to a shortest way. Each word takes more than the one before:

| word | what it takes |
|---|---|
| at once | nothing: one client takes the lock that another holds, without any time passing |
| at takeover | a dead client's lock on the key, and two clients that contend for it |
| early | time: one client takes the lock over although the other's lease, by clocks that agree, has not ended |
| late | a slow client: it pauses between two of its commands, or works on past the end of its lease |

A word in **bold** is caused by the mixture: neither fleet alone breaks in this way, or only in more steps. A plain word is no worse than what at least one of the two fleets does by
itself; the diagonal shows whether a fleet alone on its keys is safe. *Of two* means that it takes two clients of one fleet and one of the other. **stuck** means that the other fleet
can never take a lock that a dead client of one fleet held; it stays until somebody deletes the key. Plain stuck means that a client must die between two commands for this, which locks
out its own fleet as well.

Bounds: all leases are 10 s (except where a name says 3s), and clocks agree. First two clients with two attempts each run, one of each fleet; then three with one attempt each, two of
one fleet. There are up to four jumps of time (three with three clients), more where a fleet waits longer than the timestamp on the key says. "Late" has one pause between reading the clock
and acting on it. *Safe* is a proof within these bounds, and no more. How a client reads another's token as a number depends on the token's first digits; all tokens here begin with 94213c…, with
which most clients fail. In practice, clients with different key prefixes never meet; here all use the same key.

`

const clocks = `
## Clocks that disagree

How our timestamp locks behave among themselves when *one* client's clock is off by so much and all others agree: two clients × 2 attempts, three × 1, five jumps of time, leases of 10 s that no
client releases early. Locks with a TTL are included for comparison: only the server's clock matters to them. The drift margin of a 10 s lease covers a tenth of a second. With a Locker on ` + "`server.Clock`" + `,
read the column for the error that is left after measuring: less than 0.1 s if round trips take less than that. ` + "`Patient`" + ` takes over only by waiting. In these runs each client asks only once, so it
never takes over; the table of [mixing](../../../docs/mixing.md) shows that it recovers a dead client's key in the end.

`

// cell returns the table's cell for a pair.
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

// table writes the matrix of the parties that are shown.
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
				b.WriteString(" |") // it is on the other side of the diagonal
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

// shown returns the parties of Shown that were computed.
func (m Matrix) shown() []Party {
	return slices.DeleteFunc(Shown(), func(p Party) bool { _, ok := m.verdicts[[2]string{p.Name, p.Name}]; return !ok })
}

func anchor(i, k int) string { return fmt.Sprintf("m-%d-%d", i+1, k+1) }

// letter returns a verdict as one character, for the table of all parties.
func (m Matrix) letter(v Verdict) string {
	l := m.grade(v)
	if slices.ContainsFunc(v.Stuck, func(s Stuck) bool { return !m.owns(s) }) {
		l = map[string]string{".": "S", "x": "X", "t": "T", "e": "E", "l": "L"}[l]
	}
	return l
}

// grade returns what it takes until two hold the lock as one character.
func (m Matrix) grade(v Verdict) string {
	if v.Clash == nil {
		return "."
	}
	return map[Grade]string{AtOnce: "x", Takeover: "t", Early: "e", Late: "l"}[v.Clash.Grade]
}

// letters writes the matrix of all parties.
func (m Matrix) letters(b *strings.Builder) {
	b.WriteString(`
## All of them

Every party with every other: our locks in each dialect (the classic variant in four), the clients in the field in each format. ` + "`.`" + ` is safe; ` + "`x`" + ` at once, ` + "`t`" + ` at takeover, ` + "`e`" + ` early, ` + "`l`" + ` late; a capital letter means that it is also stuck, and
` + "`S`" + ` that it is only stuck. The columns are in the order of the rows. ` + "`setnxlock race mixing --a X --b Y`" + ` prints the schedules of any pair.

` + "```\n")
	for i, p := range m.Parties {
		fmt.Fprintf(b, "%3d %-49s ", i+1, p.Name)
		for k := range m.Parties {
			b.WriteString(m.letter(m.Of(p.Name, m.Parties[k].Name)))
		}
		b.WriteString("\n")
	}
	b.WriteString("```\n\nEach of these parties stands for others that behave alike on a shared key:\n\n")
	for _, p := range m.Parties {
		if len(p.Alike) > 0 {
			fmt.Fprintf(b, "- `%s`: %s\n", p.Name, strings.Join(p.Alike, ", "))
		}
	}
}

// ways writes the counterexamples of the table.
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

// Text describes the verdict on one pair, with the steps that break it.
func (v Verdict) Text() (string, error) {
	var b strings.Builder
	if c := v.Clash; c != nil {
		t, err := race.ReplaySchedule(c.Schedule, Locks())
		if err != nil {
			return "", fmt.Errorf("mixing: %s: %w", c.Schedule, err)
		}
		steps, _, _ := strings.Cut(view.Timeline(t, view.TimelineOptions{Width: 118}), "\n\n#")
		_, steps, _ = strings.Cut(steps, "\n\n")
		fmt.Fprintf(&b, "Two clients hold it %s, with %s, in %d steps. %s\n\n```\n%s\n```\n\n    setnxlock race replay '%s'\n", c.Grade, v.Takes(), c.Steps, clients(t), trim(steps), c.Schedule)
	}
	for _, s := range v.Stuck {
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "Stuck: %s can never take the lock that a client of %s left (%s):\n\n    setnxlock race replay '%s'\n", s.By, s.Of, s.When, s.Schedule)
	}
	return b.String(), nil
}

// clients says which party each client of a trace runs.
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

// trim drops trailing spaces.
func trim(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}
