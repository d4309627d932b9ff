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
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

var page = filepath.Join("..", "..", "..", "..", "docs", "interop.md")

// results are the rows of a run.
type results struct {
	mu    sync.Mutex
	rows  map[string]row
	alone int // how many of rueidislock's waits did not end when it was alone
}

func newResults() *results { return &results{rows: map[string]row{}} }

func (s *results) add(t *testing.T, r row) {
	t.Logf("%d sections of theirs and %d of ours, %d alternations, %d overlaps, %d of ours lost, %d stalled waits; killed, recovered in %v; dropped, in %v; released to us in %v, to them in %v",
		r.theirs, r.ours, r.alternations, r.overlaps, r.lost, r.stalls, r.theirDeath, r.ourDeath, r.toUs, r.toThem)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[r.c.name+r.a.name] = r
}

// write writes docs/interop.md with -update, and only after a complete run: a partial one would
// drop the other rows.
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
				fmt.Fprintf(os.Stderr, "INTEROP: %s is unchanged: %s with %s did not run\n", page, c.what, a.name)
				return
			}
			rows = append(rows, r)
		}
	}
	must.Do(t, os.WriteFile(page, []byte(render(rows, version(t), s.alone)), 0o644))
}

// version returns the server's version.
func version(t testing.TB) string {
	t.Helper()
	conn := must.Get(redis.Dial("tcp", realredis.Start(t)))(t)
	defer conn.Close()
	info := must.Get(redis.String(conn.Do("INFO", "server")))(t)
	_, rest, _ := strings.Cut(info, "redis_version:")
	v, _, _ := strings.Cut(rest, "\r\n")
	return v
}

const head = `<!-- Written by make interop. -->
# Interop: with the real clients of other languages

Each of these clients, installed from its registry and unchanged, contended with our lock in its dialect for one key of Redis %s: %d of their processes and
%d of our goroutines ran %d critical sections in total. Each section adds one to a counter that only the lock protects. An overlap is a client that enters
before another has left, in the order in which the server received the commands. Dead holders had a lease of one second, the shortest that all
these clients support. ` + "`make interop`" + ` fetches the clients and rewrites this page; the programs that run them are in
` + "`compat/dialect/internal/interop/drivers`" + `.

* **their holder killed**: we kill their holder with kill -9; the time from its request for the lock until we had it. Never before its lease had ended.
* **ours dropped**: we take the lock and abandon it; the time from our request until they had it. Never before our lease had ended. The time beyond the
  lease is the client's "+1" and rounding to seconds.
* **released**: the time from a release until the other side, which waits, had the lock: its poll interval.
* **lost**: our sections whose lock could not be released because their timestamp was on the key; the release returned ErrLost.

## Results

| client | from | its dialect | ours | sections, theirs + ours | overlaps | lost | their holder killed | ours dropped | released, to us | to them |
|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|
`

func render(rows []row, server string, alone int) string {
	var b strings.Builder
	total, stalls := 0, 0
	for _, r := range rows {
		total += r.theirs + r.ours
		if r.c.name == "rueidislock" {
			stalls += r.stalls
		}
	}
	fmt.Fprintf(&b, head, server, workers, workers, total)
	for _, r := range rows {
		overlaps := fmt.Sprint(r.overlaps)
		if r.overlaps > 0 { // only a client that overwrites may have any
			overlaps += " *"
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` | `%s` | %d + %d | %s | %d | %s | %s | %s | %s |\n", r.c.what, r.c.registry, r.c.dialect, r.a.name,
			r.theirs, r.ours, overlaps, r.lost, seconds(r.theirDeath), seconds(r.ourDeath), millis(r.toUs), millis(r.toThem))
	}
	b.WriteString("\n\\* Each after a plain SET of theirs on a held lock, as the server's record shows.\n\n")
	b.WriteString("`getsetlock.Patient` recovers a dead lock one lease after it first saw it, whatever the timestamp says. In the dialects of whole seconds our timestamp is\nrounded up, because the lease on the key must never be shorter than its holder believes.\n\n")
	b.WriteString(guarantees())
	fmt.Fprintf(&b, tail, stalls, alone)
	return b.String()
}

const tail = `
## rueidislock's waiters

Beside other clients, and beside each other, rueidislock's waiters sometimes wait for ever on a key that is free. In this run such waits were %d beside ours and %d among eight
processes of theirs alone; the driver ends one after two seconds and begins it again, so the table above shows no trace of it. It is theirs, not ours:

* A waiter asks once, and then waits for the server to tell it that the key has changed (CLIENT TRACKING). A waiter that stalled had been told: its process logged the refusal, the wait and
  *then* the invalidation, and did not go on. So our writes are announced as theirs are, be it SET NX PX and a script, or SETEX and DEL in a transaction.
* In ` + "`lock.go`" + ` of 1.0.79, ` + "`try`" + ` starts the goroutine ` + "`monitoring`" + ` of a refused key before it counts the failure. If that goroutine is the faster, it takes the refusal for the release of a lock that was held, and
  removes the waiter's gate from the table in which invalidations look for it.
* With that count moved before the goroutine starts, none of 46 runs of 3 of their processes and 3 of ours stalled; as it is, 7 of 40 did. As it is and alone, 10 of 16 runs of 6 processes stalled. (Their
  code was changed for this measurement only; November 2026, two busy cores, Redis 7.0.15.)

What helps: give WithContext a context that ends after a while *without* having a deadline (cancel it by a timer, and stop the timer when the lock is held; a deadline would be the lock's own), and call it
again. What does not: another kind of release on our side.

## What the table can't show

* **Redisson** is no client of any lock here: its lock is a hash. Neither side enters beside the other, but Redisson throws WRONGTYPE at our string where it should wait. It is recognised, and refused by name.
* **python-redis-lock** waits on the list ` + "`lock-signal:NAME`" + `. ` + "`txlock.Named(\"python-redis-lock\")`" + ` pushes to it as theirs does; any other lock's release leaves a waiter waiting for as long as its own lease, and without
  ` + "`expire=`" + ` for ever. The same holds when a holder dies, on either side and among themselves.
* **The redlocks** (redlock, redlock-py, redsync, pottery, redis-semaphore's RedlockMutex) were run with one server, as one key. On several, use ` + "`redlock.New`" + ` with the same keys.
* **rueidislock** by its default (KeyMajority 2) holds a lock by two of the keys ` + "`rueidislock:0:NAME`" + ` to ` + "`rueidislock:2:NAME`" + `: beside such clients lock two of them.
* **Spring Integration's** PUB_SUB_LOCK waits for a message that our release does not send; SPIN_LOCK, the default, asks again every 100 ms.
`

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func millis(d time.Duration) string {
	if d < time.Millisecond {
		return "< 1 ms"
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// timed reports whether the client writes timestamps.
func (c client) timed() bool { return c.late != "" }

// guarantees is the section that says what holds beside which clients, and what does not: clients
// of the same kind share a heading and the dangers that all of them have, those with the same
// others a line.
func guarantees() string {
	var b strings.Builder
	b.WriteString("## What is guaranteed, and what is not\n\nAs long as no client works past its lease, it depends on what the others write. In any case our release, however late, never deletes their lock.\n\n" +
		"Each race below was reproduced with the real client: a proxy holds back one of its commands, or the test makes it release late, or kills it\nbetween two commands. (The exception is clocks: there our clock was the fast one.) `setnxlock race show NAME` shows a race.\n")
	kinds := []struct {
		title, text string
		in          func(client) bool
	}{
		{"Clients that write a token", "Exclusion, whatever the clocks say. The lock of a dead holder of either side is recovered when its lease has ended.",
			func(c client) bool { return !c.timed() && !c.overwrites }},
		{"Clients that write a time", "Exclusion while clocks agree and no GETSET of theirs comes late. The lock of a dead holder of either side is recovered when its lease has ended.",
			func(c client) bool { return c.timed() && !c.overwrites }},
		{"Clients that overwrite a held lock", "We never take over a held lock. There is **no exclusion** where their clients contend: give our lock a key of its own, or replace them.",
			func(c client) bool { return c.overwrites }},
	}
	for _, k := range kinds {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n", k.title, k.text)
		these := slices.DeleteFunc(slices.Clone(clients), func(c client) bool { return !k.in(c) })
		all := func(danger string) bool {
			return len(these) > 1 && !slices.ContainsFunc(these, func(c client) bool { return !slices.Contains(c.dangers(), danger) })
		}
		b.WriteString("\nNot guaranteed, and the race:\n\n")
		for _, d := range these[0].dangers() {
			if all(d) {
				fmt.Fprintf(&b, "* **All of them**: %s\n", d)
			}
		}
		var lines []string // in the order of the clients
		names := map[string][]string{}
		for _, c := range these {
			line := strings.Join(slices.DeleteFunc(c.dangers(), all), " ")
			if names[line] == nil {
				lines = append(lines, line)
			}
			names[line] = append(names[line], c.what)
		}
		for _, line := range lines {
			fmt.Fprintf(&b, "* **%s**: %s\n", strings.Join(names[line], "; "), line)
		}
	}
	return b.String()
}

// dangers says what the client does when it is late; a test checks each.
func (c client) dangers() []string {
	var list []string
	if c.overwrites {
		list = append(list, "It takes a dead lock over by SET, without checking: if we were faster, both hold it (`getset/double-takeover`). It treats a missing key as a dead lock: if we took it meanwhile, both hold it, without any crash (`getset/vanished-key`). One client of theirs is enough for either.")
	}
	if c.late == "GETSET" {
		list = append(list, "Its GETSET after a takeover that we have won overwrites our timestamp (`getset/loser-overwrites`): our next extension or release returns ErrLost, and the lock stays held until its timestamp expires. If that is before the end of our lease, a third client takes the lock while we still believe that we hold it (`getset/stale-getset-sets-back`).")
		if c.gone {
			list = append(list, "It treats a missing key as a dead lock (`getset/vanished-key`): what a late GETSET does, this does without any crash; it causes *lost* above. Use leases as long as theirs: then its timestamp expires before our lease ends only by as much as it was late, and our margin for drift covers that up to a hundredth of the lease.")
		}
	}
	switch {
	case c.deletes:
		list = append(list, "Its release after the end of its lease deletes our lock (`any/release-after-expiry`): our next extension returns ErrLost.")
	case c.timed():
		list = append(list, "Its release checks its clock, and then deletes: after a pause between the two it deletes our lock (`getset/paused-release`).")
	}
	if c.timed() {
		list = append(list, "A client with a fast clock takes a held lock (`getset/skewed-takeover`): `Patient` prevents that on our side, not on theirs.")
	}
	if c.removes != "" {
		list = append(list, "Its release compares, and then deletes by "+c.removes+": after a pause between the two it deletes our lock (`getset/paused-release`).")
	}
	if c.name == "python-redis-lock" {
		list = append(list, "Nobody wakes a waiter whose holder died: it asks again when its own lease would have ended, without `expire=` never.")
	}
	if c.name == "rueidislock" {
		list = append(list, "Its waiters sometimes wait for ever on a free key, without us too: see below.")
	}
	if c.immortal {
		list = append(list, "If it is killed between SETNX and "+c.ends+", it leaves a key that never expires (`tx/crash-before-expire`): set `txlock.Fleet`'s NoRepair to false, and we repair it.")
	}
	if len(list) == 0 {
		return []string{"A holder that pauses past its lease, as with any lock (`any/paused-holder`)."}
	}
	return list
}

// The page has the current clients and algorithms: a new one needs a run of make interop.
func TestPageIsCurrent(t *testing.T) {
	text := must.Get(os.ReadFile(page))(t)
	var want, got []string
	for _, c := range clients {
		for _, a := range c.algorithms(t) {
			want = append(want, fmt.Sprintf("| %s | %s | `%s` | `%s` |", c.what, c.registry, c.dialect, a.name))
		}
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
		t.Errorf("%s is not current: run make interop\nit has\n%s\nwant\n%s", page, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !strings.Contains(string(text), guarantees()) {
		t.Errorf("%s does not say what is guaranteed as it should: run make interop", page)
	}
}
