package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/oldredis/realredis"
)

var page = filepath.Join("..", "..", "..", "docs", "interop.md")

// results are the rows of a run.
type results struct {
	mu   sync.Mutex
	rows map[string]row
}

func newResults() *results { return &results{rows: map[string]row{}} }

func (s *results) add(t *testing.T, r row) {
	t.Logf("%d sections of theirs and %d of ours, %d turns, %d overlaps, %d of ours lost; killed, recovered in %v; dropped, in %v; released to us in %v, to them in %v",
		r.theirs, r.ours, r.turns, r.overlaps, r.lost, r.theirDeath, r.ourDeath, r.toUs, r.toThem)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[r.c.name+r.a.name] = r
}

// write writes docs/interop.md if it is asked for, and only what a whole run has
// seen: part of it would take the rest away.
func (s *results) write(t *testing.T) {
	t.Helper()
	if !*update || t.Failed() {
		return
	}
	var rows []row
	for _, c := range clients {
		for _, a := range c.algorithms(t) {
			r, ok := s.rows[c.name+a.name]
			if !ok {
				fmt.Fprintf(os.Stderr, "INTEROP: %s is left as it is: %s with %s did not run\n", page, c.what, a.name)
				return
			}
			rows = append(rows, r)
		}
	}
	if err := os.WriteFile(page, []byte(render(rows, version(t))), 0o644); err != nil {
		t.Fatal(err)
	}
}

// version is the server's own word.
func version(t testing.TB) string {
	t.Helper()
	conn, err := redis.Dial("tcp", realredis.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	info, err := redis.String(conn.Do("INFO", "server"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "redis_version:")
	v, _, _ := strings.Cut(rest, "\r\n")
	return v
}

const head = `<!-- Written by make interop. -->
# Interop: with the real clients of other languages

Each of these clients, installed from its registry and unchanged, contended with our lock in its dialect for one key of Redis %s: %d processes of theirs and
%d goroutines of ours, %d critical sections in all, each of which adds one to a counter that nothing else protects. An overlap is an enter between
another's enter and leave, in the order in which the server was sent them. The shortest lease that all of these clients know, a second, was the
dead holder's. ` + "`make interop`" + ` fetches the clients and writes this page anew; the programs that speak for them are in
` + "`compat/dialect/interop/drivers`" + `.

* **their holder killed**: with kill -9, while it holds; how long after it had asked for the lock we had it. Never before its lease had ended.
* **ours dropped**: taken by us and never heard of again; how long after we had asked for it they had it. Never before our lease had ended. What is
  more than the lease is the client's "+1", and whole seconds.
* **released**: how long after a release the other side, which waits, had the lock: its poll.
* **lost**: sections of ours whose lock could not be given back, since their time stood on it; the release said ErrLost.

## What was seen

| client | from | its dialect | ours | sections, theirs + ours | overlaps | lost | their holder killed | ours dropped | released, to us | to them |
|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|
`

func render(rows []row, server string) string {
	var b strings.Builder
	total := 0
	for _, r := range rows {
		total += r.theirs + r.ours
	}
	fmt.Fprintf(&b, head, server, workers, workers, total)
	for _, r := range rows {
		overlaps := fmt.Sprint(r.overlaps)
		if r.overlaps > 0 { // only a client that believes may have any
			overlaps += " *"
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` | `%s` | %d + %d | %s | %d | %s | %s | %s | %s |\n", r.c.what, r.c.registry, r.c.dialect, r.a.name,
			r.theirs, r.ours, overlaps, r.lost, seconds(r.theirDeath), seconds(r.ourDeath), millis(r.toUs), millis(r.toThem))
	}
	b.WriteString("\n\\* Each after a plain SET of theirs on a lock that stood: the record of the server shows it.\n\n")
	b.WriteString("`getsetlock.Patient` recovers a dead lock a lease after it first saw it, whatever its time says. In the dialects of whole seconds our time is\nrounded up, as a lease must never be shorter on the key than in its holder's belief.\n\n")
	b.WriteString("## What is guaranteed, and what is not\n\nWhat stands on the right was brought about with the real client, each time: what it sends goes through a gate that keeps one command back, or it is\ntold to release late, or it is killed between two commands. (But for clocks: there ours was the fast one.) `setnxlock race show NAME` tells the race.\n\n")
	b.WriteString("| client | guaranteed | not, and the race |\n|---|---|---|\n")
	for _, c := range clients {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.what, c.guaranteed(), c.dangers())
	}
	return b.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func millis(d time.Duration) string {
	if d < time.Millisecond {
		return "< 1 ms"
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// timed reports whether the client writes times.
func (c client) timed() bool { return c.late != "" }

// guaranteed is what holds as long as nobody works past its lease.
func (c client) guaranteed() string {
	ours := "Our release, however late, deletes nothing of theirs."
	switch {
	case c.believes:
		return "We never take over a lock that stands. " + ours + " **No exclusion** where its clients contend: let it have the key for itself, or replace it."
	case c.timed():
		return "Exclusion while clocks agree, nobody works past its lease and no GETSET of theirs comes late; a dead holder of either side is recovered when its lease has ended. " + ours
	}
	return "Exclusion while nobody works past its lease, whatever the clocks say; a dead holder of either side is recovered when its lease has ended. " + ours
}

// dangers are what the client does when it is late: a test each.
func (c client) dangers() string {
	var list []string
	if c.believes {
		list = append(list, "It takes a dead lock over by SET, without looking: if we were faster, both hold (`getset/double-takeover`). A key that is gone is a dead one to it: if we "+
			"took it meanwhile, both hold, without any crash (`getset/vanished-key`). One client of theirs is enough for either.")
	}
	if c.late == "GETSET" {
		list = append(list, "Its GETSET at a takeover that we have won puts its time over ours (`getset/loser-overwrites`): our next extension or release says ErrLost, and the "+
			"lock stands until its time. If that is before the end of our lease, a third takes it while we still believe in it (`getset/stale-getset-sets-back`).")
		if c.gone {
			list = append(list, "A key that is gone is a dead one to it (`getset/vanished-key`): the same, without any crash; that is what was *lost* above. Ask for leases as long as theirs: then its time is before our end only by what it was late, and up to a hundredth of the lease our margin for drift covers that.")
		}
	}
	switch {
	case c.deletes:
		list = append(list, "Its release after its lease deletes our lock (`any/release-after-expiry`): our next extension says ErrLost.")
	case c.timed():
		list = append(list, "Its release looks at its clock, and then deletes: a pause between the two deletes our lock (`getset/paused-release`).")
	}
	if c.timed() {
		list = append(list, "A clock that is fast takes a lock that is held (`getset/skewed-takeover`): `Patient` keeps us from it, not them.")
	}
	if c.immortal {
		list = append(list, "Killed between SETNX and "+c.ends+" it leaves a key that nothing ends (`tx/crash-before-expire`): set `txlock.Fleet`'s TTLRepair to RepairSeen, and we do.")
	}
	if len(list) == 0 {
		return "A holder that pauses past its lease, like any (`any/paused-holder`)."
	}
	return strings.Join(list, " ")
}

// The page is that of the clients and algorithms that there are: one that is new
// wants a run of make interop.
func TestPageIsOfTheseClients(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, c := range clients {
		for _, a := range c.algorithms(t) {
			want = append(want, fmt.Sprintf("| %s | %s | `%s` | `%s` |", c.what, c.registry, c.dialect, a.name))
		}
		want = append(want, fmt.Sprintf("| %s | %s | %s |", c.what, c.guaranteed(), c.dangers()))
	}
	for _, line := range strings.Split(string(text), "\n") {
		for _, w := range want {
			if strings.HasPrefix(line, w) {
				got = append(got, w)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s is of other clients: run make interop\nit has\n%s\nwant\n%s", page, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
