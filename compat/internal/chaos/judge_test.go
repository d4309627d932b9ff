//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// at is a moment, ms after the beginning.
func at(ms int) int64 { return int64(time.Hour) + int64(ms)*int64(time.Millisecond) }

// section are the lines of a client that had the key from got to end.
func section(id string, asked, got, end int, fence int64) []line {
	return []line{
		{Op: "wait", Key: "k", Asked: at(asked), At: at(got)},
		{Op: "got", ID: id, Key: "k", Asked: at(asked), At: at(got), Until: at(got + 3000), Fence: fence},
		{Op: "end", ID: id, Key: "k", Asked: at(end), At: at(end + 1), Until: at(got + 3000)},
	}
}

// judged is the verdict on what each client has written.
func judged(t *testing.T, kind string, losses []span, diaries ...[]line) verdict {
	t.Helper()
	var clients []*process
	for i, lines := range diaries {
		p := &process{diary: filepath.Join(t.TempDir(), fmt.Sprint(i))}
		var text []byte
		for _, l := range append(lines, line{Op: "bye"}) {
			b, _ := json.Marshal(l)
			text = append(append(text, b...), '\n')
		}
		if err := os.WriteFile(p.diary, text, 0o600); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, p)
	}
	var all []loss
	for _, s := range losses {
		all = append(all, loss{s, []string{"k"}})
	}
	all = append(all, loss{span{at(0), at(1 << 30)}, []string{"another"}}) // which explains nothing
	var v verdict
	if err := v.judge(run{Kind: kind, For: time.Minute, Clients: len(diaries), Goroutines: 1, Dir: t.TempDir()}, clients, all); err != nil {
		t.Fatal(err)
	}
	return v
}

// What is wrong is found; what a loss explains is counted apart, and what it does not is found.
func TestJudge(t *testing.T) {
	lost := section("b", 150, 151, 160, 2)
	lost[2].Err = "setnxlock: lease lost"
	tooLate := append([]line(nil), lost...)
	tooLate[2].At = at(3200) // its release took that long
	elsewhere := append([]line(nil), lost...)
	elsewhere[2].Err = `setnxlock: lease lost: "k" is not ours on the server that answers now: EOF`
	stoodStill := section("a", 0, 400, 401, 1)
	for i := range stoodStill {
		stoodStill[i].Until = at(100)
	}
	crashed := section("a", 0, 1, 100, 1)[:2]
	reader := func(id string, asked, got, end int, fence int64) []line {
		lines := section(id, asked, got, end, fence)
		lines[1].Shared = true
		return lines
	}
	down := reader("b", 99, 101, 200, 5) // of a, which has stopped at 100
	down[1].From = "a"
	killed := func(ms ...int) (all []span) {
		for _, at0 := range ms {
			all = append(all, span{at(at0), at(at0 + 10)})
		}
		return all
	}
	for _, c := range []struct {
		name   string
		kind   string
		a, b   []line
		losses []span
		broken string // "": nothing
		apart  string
	}{
		{name: "one after the other", a: section("a", 0, 1, 100, 1), b: section("b", 0, 101, 200, 2)},
		{name: "two at once", a: section("a", 0, 1, 100, 1), b: section("b", 0, 99, 200, 2), broken: "before the end of a"},
		{name: "two at once, after a loss", a: section("a", 0, 1, 100, 1), b: section("b", 60, 61, 200, 2), losses: killed(30), apart: "overlaps"},
		{name: "two at once, long before a loss", a: section("a", 0, 1, 100, 1), b: section("b", 60, 61, 200, 2), losses: killed(80), broken: "before the end of a"},
		{name: "two at once, long after a loss", a: section("a", 100, 101, 200, 1), b: section("b", 150, 151, 300, 2), losses: killed(30), broken: "before the end of a"},
		{name: "a fence that falls", a: section("a", 0, 1, 100, 2), b: section("b", 101, 102, 200, 2), broken: "has fence 2, after a's 2"},
		{name: "a fence that falls by a loss", a: section("a", 0, 1, 100, 2), b: section("b", 151, 152, 200, 2), losses: killed(110), apart: "fences that fell"},
		{name: "no fence", a: section("a", 0, 1, 100, 0), broken: "has no fence"},
		{name: "no fence in a quorum", kind: five, a: section("a", 0, 1, 100, 0), b: section("b", 0, 101, 200, 0)},
		{name: "two at once in a quorum", kind: five, a: section("a", 0, 1, 100, 0), b: section("b", 0, 50, 200, 0), broken: "before the end of a"},
		{name: "lost, and nobody took it", a: section("a", 0, 1, 100, 1), b: lost, broken: "was told that it had lost it"},
		{name: "lost when its time was over", a: section("a", 0, 1, 100, 1), b: tooLate},
		{name: "lost by a loss", a: section("a", 0, 1, 100, 1), b: lost, losses: killed(155), apart: "leases lost"},
		{name: "not there on the next server", kind: clustered, a: section("a", 0, 1, 100, 1), b: elsewhere, losses: killed(155), apart: "releases unanswered before a change of servers"},
		{name: "not there on the next server, and there is none", kind: clustered, a: section("a", 0, 1, 100, 1), b: elsewhere, broken: "was told that it had lost it"},
		{name: "not there on the next server, which was made one before", kind: sentinels, a: section("a", 0, 1, 100, 1), b: elsewhere, losses: killed(130), broken: "was told that it had lost it"},
		{name: "not there on the next server of one", kind: alone, a: section("a", 0, 1, 100, 1), b: elsewhere, broken: "was told that it had lost it"},
		{name: "lost to another", a: append(section("a", 0, 1, 100, 1), section("c", 155, 170, 180, 3)...), b: lost},
		{name: "lost to one that was not told", a: append(section("a", 0, 1, 100, 1), section("c", 400, 401, 410, 4)...), b: lost},
		{name: "lost, and nobody took it until later", a: append(section("a", 0, 1, 100, 1), section("c", 400, 401, 410, 3)...), b: lost, broken: "was told that it had lost it"},
		{name: "told after its time, when another had had it", a: stoodStill, b: section("b", 0, 200, 300, 2)},
		{name: "told after its time, and another had it before that", a: stoodStill, b: section("b", 0, 50, 300, 2), broken: "has fence 1, after b's 2"},
		{name: "taken from one that was killed, too early", a: crashed, b: section("b", 0, 2900, 2950, 2), broken: "before the end of a"},
		{name: "taken from one that was killed, in time", a: crashed, b: section("b", 0, 3100, 3200, 2)},
		{name: "taken from one that was killed while it gave it up", a: append(crashed[:2:2], line{Op: "until", ID: "a", Key: "k", Until: at(100)}), b: section("b", 0, 101, 200, 2)},
		{name: "two readers at once", a: reader("a", 0, 1, 100, 1), b: reader("b", 0, 50, 200, 2)},
		{name: "two readers, the second told first", a: reader("a", 0, 60, 100, 1), b: reader("b", 0, 50, 200, 2)},
		{name: "a writer beside a reader", a: reader("a", 0, 1, 100, 1), b: section("b", 0, 50, 200, 2), broken: "before the end of a"},
		{name: "a reader beside a writer", a: section("a", 0, 1, 100, 1), b: reader("b", 0, 50, 200, 2), broken: "before the end of a"},
		{name: "a writer's fence behind a reader's", a: reader("a", 0, 1, 100, 2), b: section("b", 0, 101, 200, 2), broken: "has fence 2, after a's 2"},
		{name: "a reader's fence behind a writer's", a: section("a", 0, 1, 100, 2), b: reader("b", 0, 101, 200, 1), broken: "has fence 1, after a's 2"},
		{name: "a writer that becomes a reader", a: section("a", 0, 1, 100, 4), b: down},
		{name: "a writer between one and the reader that it became", a: append(section("a", 0, 1, 99, 3), section("c", 0, 99, 100, 4)...), b: down, broken: "c wrote, with fence 4, between a, with 3, and the reader"},
		{name: "what a client says", a: []line{{Op: "wrong", Err: "nobody gave it up"}}, broken: "nobody gave it up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := judged(t, c.kind, c.losses, c.a, c.b)
			if got := strings.Join(v.Broken, "; "); (c.broken == "") != (got == "") || !strings.Contains(got, c.broken) {
				t.Errorf("broken: %q, want %q", got, c.broken)
			}
			if c.apart != "" && v.Apart[c.apart] == 0 || c.apart == "" && len(v.Apart) > 0 {
				t.Errorf("apart: %v, want %q", v.Apart, c.apart)
			}
			overlap := strings.Contains(c.broken, "before the end")
			if c.losses == nil && (v.Checked == "linearizable") == overlap && !strings.Contains(c.broken, "fence") {
				t.Errorf("porcupine: %s", v.Checked)
			}
		})
	}
}

// A call that is passed over is found; what others had while its process stood still does not count.
func TestStarved(t *testing.T) {
	var served []line
	for i := range 200 {
		served = append(served, section(fmt.Sprint("b", i), i*10, i*10+1, i*10+9, int64(i+1))...)
	}
	waits := []line{{Op: "wait", Key: "k", Asked: at(0), At: at(2000)}}
	v := judged(t, "", nil, waits, served)
	if w := v.Waits[0]; w.over != 199 && w.over != 200 || w.own != 0 || w.stays < .99 || w.worst != 2*time.Second {
		t.Errorf("waits: %+v", w)
	}
	if len(v.Broken) == 0 || !strings.Contains(v.Broken[0], "starves") {
		t.Errorf("broken: %q", v.Broken)
	}
	p := &process{aways: []span{{at(0), at(1900)}}}
	var holds []*hold
	for i := range 200 {
		holds = append(holds, &hold{got: at(i * 10), client: 1})
	}
	var calm verdict
	calm.starved(run{For: time.Minute, Clients: 2, Goroutines: 1}, "k", []wait{{0, at(0), at(2000)}}, holds, []*process{p, {}})
	if len(calm.Broken) > 0 {
		t.Errorf("it stood still: %q", calm.Broken)
	}
	for _, h := range holds {
		h.shared = true
	}
	rw := run{Lock: "rw", For: time.Minute, Clients: 2, Goroutines: 1}
	if calm.starved(rw, "k", []wait{{0, at(0), at(2000)}}, holds, []*process{{}, {}}); len(calm.Broken) > 0 {
		t.Errorf("readers that come in together have one turn: %q", calm.Broken)
	}
	for i := range 90 {
		holds[2*i].shared = false
	}
	if calm.starved(rw, "k", []wait{{0, at(0), at(2000)}}, holds, []*process{{}, {}}); len(calm.Broken) == 0 {
		t.Error("90 writers and as many readers in turn before it: nobody starves")
	}
}

// What is given to porcupine together has no loss in between, and nobody whom one may have touched.
func TestPieces(t *testing.T) {
	var all []*hold
	for i := range 10 {
		all = append(all, &hold{asked: at(i * 100), got: at(i*100 + 1), until: at(i*100 + 50), end: at(i*100 + 50), gone: at(i*100 + 51)})
	}
	all[9].gone = math.MaxInt64 // killed
	lengths := func(losses ...span) (n []int) {
		for _, p := range pieces(all, losses, 4) {
			n = append(n, len(p))
		}
		return n
	}
	for _, c := range []struct {
		losses []span
		want   string
	}{
		{nil, "[4 4 2]"},
		{[]span{{at(160), at(170)}}, "[2 4 4]"},
		{[]span{{at(120), at(130)}}, "[1 4 4]"},
		{[]span{{at(0), at(10000)}}, "[]"},
	} {
		if got := fmt.Sprint(lengths(c.losses...)); got != c.want {
			t.Errorf("%v: %s, want %s", c.losses, got, c.want)
		}
	}
}

// A key that has gone is not one that nothing ends, though an old server answers both with -1.
func TestEndless(t *testing.T) {
	for _, version := range []string{"2.4", "2.6", "2.8"} {
		c := oldredis.Run(t, version).Dial()
		for _, cmd := range []string{"SET endless x", "SETEX ends 60 x"} {
			f := strings.Fields(cmd)
			if _, err := c.Do(f[0], redis.Args{}.AddFlat(f[1:])...); err != nil {
				t.Fatal(err)
			}
		}
		for key, want := range map[string]bool{"endless": true, "ends": false, "gone": false} {
			if got := endless(c.Do, key); got != want {
				t.Errorf("%s: %s is endless: %v, want %v", version, key, got, want)
			}
		}
	}
}
