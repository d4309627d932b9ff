//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/history"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/internal/must"
)

// at returns the moment ms milliseconds after the beginning.
func at(ms int) int64 { return int64(time.Hour) + int64(ms)*int64(time.Millisecond) }

// section returns the diary of a client with a hold from got to end.
func section(id string, asked, got, end int, fence int64) []history.Event {
	return []history.Event{
		{Op: waited, Key: "k", Asked: at(asked), At: at(got)},
		{Op: history.Got, ID: id, By: id, Key: "k", Asked: at(asked), At: at(got), Until: at(got + 3000), Fence: fence},
		{Op: history.Ends, ID: id, Key: "k", At: at(end), Until: at(got + 3000)},
		{Op: history.Released, ID: id, Key: "k", At: at(end + 1)},
	}
}

// judged writes the diaries, and returns the verdict on them.
func judged(t *testing.T, kind string, losses []span, left string, diaries ...[]history.Event) verdict {
	t.Helper()
	var clients []*process
	for i, events := range diaries {
		file := filepath.Join(t.TempDir(), fmt.Sprint(i))
		f := must.Get(os.Create(file))(t)
		d := &diary{f: f, client: i}
		for _, e := range append(slices.Clone(events), history.Event{Op: bye}) {
			d.write(e)
		}
		f.Close()
		clients = append(clients, &process{diary: file})
	}
	g := &group{keys: []string{"k", "another"}}
	for _, s := range losses {
		g.forgot(s, g.keys[:1])
	}
	g.forgot(span{at(0), at(1 << 30)}, g.keys[1:]) // excuses nothing on k
	var v verdict
	r := run{Kind: kind, For: time.Minute, Clients: len(diaries), Goroutines: 1, Dir: t.TempDir()}
	must.Do(t, v.judge(r, clients, g.lost(), strings.Fields(left), false))
	return v
}

// Package history and porcupine judge diaries, and a loss excuses violations. The tests of package history prove the
// single rules.
func TestJudge(t *testing.T) {
	a, b := section("a", 0, 1, 100, 1), section("b", 0, 101, 200, 2)
	early := section("b", 60, 61, 200, 2)
	lost := section("b", 150, 151, 160, 2)
	lost = append(lost, history.Event{Op: history.Lost, ID: "b", At: at(161), Until: at(3151), Text: "lease lost"})
	reader := section("b", 60, 61, 200, 2)
	other := section("a", 0, 1, 100, 1)
	reader[1].Shared, other[1].Shared = true, true
	slot := func(n int, s []history.Event) []history.Event {
		s[1].Most, s[1].Slot = 2, n
		return s
	}
	for _, c := range []struct {
		name    string
		kind    string
		a, b    []history.Event
		losses  []span
		left    string
		broken  string // "": the lock is not broken
		excused history.Kind
	}{
		{name: "one after the other", a: a, b: b},
		{name: "two at once", a: a, b: early, broken: "b got it"},
		{name: "two at once, after a loss", a: a, b: early, losses: []span{{at(30), at(40)}}, excused: history.Exclusion},
		{name: "two at once, in a quorum", kind: five, a: a, b: early, broken: "b got it"},
		{name: "two readers at once", a: other, b: reader},
		{name: "two of a semaphore of two", a: slot(1, section("a", 0, 1, 100, 1)), b: slot(2, section("b", 0, 50, 200, 1))},
		{name: "two in one slot of it", a: slot(1, section("a", 0, 1, 100, 1)), b: slot(1, section("b", 0, 50, 200, 2)), broken: "b got it"},
		{name: "no fence", a: section("a", 0, 1, 100, 0), b: b, broken: "a has no fence"},
		{name: "no fence in a quorum", kind: five, a: section("a", 0, 1, 100, 0), b: section("b", 0, 101, 200, 0)},
		{name: "lost, and nobody took it", a: a, b: lost, broken: "b was told that it had lost it"},
		{name: "killed", a: a[:2], b: section("b", 0, 3002, 3010, 2)},
		{name: "killed, and taken too early", a: a[:2], b: b, broken: "b got it"},
		{name: "a key is left", a: a, b: b, left: "k", excused: history.Leak},
		{name: "what a client says", a: []history.Event{{Op: wrong, Text: "nobody gave it up"}}, broken: "nobody gave it up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := judged(t, c.kind, c.losses, c.left, c.a, c.b)
			if got := strings.Join(v.Broken, "; "); (c.broken == "") != (got == "") || !strings.Contains(got, c.broken) {
				t.Errorf("broken: %q, want %q", got, c.broken)
			}
			if c.excused != "" && v.Excused[string(c.excused)] == 0 || c.excused == "" && len(v.Excused) > 0 {
				t.Errorf("excused: %v, want %q", v.Excused, c.excused)
			}
			if overlap := strings.Contains(c.broken, "got it"); c.losses == nil && (v.Checked == "linearizable") == overlap {
				t.Errorf("porcupine: %s", v.Checked)
			}
		})
	}
}

// A call starves if others are served too often. Turns of others count only while the caller's process could compete.
func TestStarved(t *testing.T) {
	var served []history.Event
	for i := range 200 {
		served = append(served, section(fmt.Sprint("b", i), i*10, i*10+1, i*10+9, int64(i+1))...)
	}
	waits := []history.Event{{Op: waited, Key: "k", Asked: at(0), At: at(2000)}}
	v := judged(t, "", nil, "", waits, served)
	if w := v.Worst; w.over != 199 && w.over != 200 || w.own != 0 || w.stays < .99 || w.worst != 2*time.Second {
		t.Errorf("waits: %+v", w)
	}
	if len(v.Broken) == 0 || !strings.Contains(v.Broken[0], "starves") {
		t.Errorf("broken: %q", v.Broken)
	}
	p := &process{aways: []span{{at(0), at(1900)}}}
	var holds []*history.Hold
	for i := range 200 {
		holds = append(holds, &history.Hold{Got: at(i * 10), By: "1"})
	}
	var calm verdict
	calm.starved(run{For: time.Minute, Clients: 2, Goroutines: 1}, "k", []wait{{0, at(0), at(2000)}}, holds, []*process{p, {}})
	if len(calm.Broken) > 0 {
		t.Errorf("it stood still: %q", calm.Broken)
	}
	for _, h := range holds {
		h.Shared = true
	}
	rw := run{Lock: "rw", For: time.Minute, Clients: 2, Goroutines: 1}
	if calm.starved(rw, "k", []wait{{0, at(0), at(2000)}}, holds, []*process{{}, {}}); len(calm.Broken) > 0 {
		t.Errorf("readers that come in together have one turn: %q", calm.Broken)
	}
	for i := range 90 {
		holds[2*i].Shared = false
	}
	if calm.starved(rw, "k", []wait{{0, at(0), at(2000)}}, holds, []*process{{}, {}}); len(calm.Broken) == 0 {
		t.Error("90 writers and as many readers in turn before it: nobody starves")
	}
}

// No piece for porcupine spans a loss, or contains a hold that a loss may have touched.
func TestPieces(t *testing.T) {
	var all []*history.Hold
	for i := range 10 {
		from := i * 100
		all = append(all, &history.Hold{Key: "k", Asked: at(from), Got: at(from + 1), Until: at(from + 50), Gone: at(from + 51)})
	}
	all[9].Gone = history.Never // the client was killed
	lengths := func(losses ...span) (n []int) {
		var j history.Judge
		for _, l := range losses {
			j.Add(history.Event{Op: history.Forgot, Key: "k", At: l.from, Until: l.to})
		}
		for _, p := range pieces(all, &j, 4) {
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

// A missing key is not endless, although an old server answers TTL with -1 for both.
func TestEndless(t *testing.T) {
	for _, version := range []string{"2.4", "2.6", "2.8"} {
		c := oldredis.Run(t, version).Dial()
		for _, cmd := range []string{"SET endless x", "SETEX ends 60 x"} {
			f := strings.Fields(cmd)
			must.Get(c.Do(f[0], redis.Args{}.AddFlat(f[1:])...))(t)
		}
		for key, want := range map[string]bool{"endless": true, "ends": false, "gone": false} {
			if got := endless(c.Do, key); got != want {
				t.Errorf("%s: %s is endless: %v, want %v", version, key, got, want)
			}
		}
	}
}
