package history

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// ms returns the moment n milliseconds after the beginning of a history.
func ms(n int) int64 { return int64(time.Hour) + int64(n)*int64(time.Millisecond) }

// section returns the events of a hold of the key k, from got to end, with a lease of 3 s.
func section(id string, asked, got, end int, fence int64) []Event {
	until := ms(got + 3000)
	return []Event{
		{Op: Got, ID: id, By: "P" + id, Key: "k", Asked: ms(asked), At: ms(got), Until: until, Fence: fence},
		{Op: Ends, ID: id, At: ms(end), Until: until},
		{Op: Released, ID: id, At: ms(end + 1)},
	}
}

func reads(asked, got, end int, id string, fence int64) []Event {
	s := section(id, asked, got, end, fence)
	s[0].Shared = true
	return s
}

// slot returns a section in a slot of a semaphore of two.
func slot(n, got, end int, id string, fence int64) []Event {
	s := section(id, 0, got, end, fence)
	s[0].Most, s[0].Slot = 2, n
	return s
}

// reported appends a release with ErrLost, at a moment.
func reported(at int, s []Event) []Event {
	return append(s, Event{Op: Lost, ID: s[0].ID, At: ms(at), Until: s[0].Until, Text: "lease lost"})
}

// by returns a change of the key by its new owner.
func by(at int, process string) Event {
	return Event{Op: Changed, Key: "k", At: ms(at), By: process, There: true, Owner: process}
}

func gone(at int, process string) Event {
	return Event{Op: Changed, Key: "k", At: ms(at), By: process, Owner: process}
}

// died returns the crash of the process Pa.
func died(at int) Event { return Event{Op: Crashed, By: "Pa", At: ms(at), Until: ms(at + 10)} }

func forgot(from, to int) Event { return Event{Op: Forgot, Key: "k", At: ms(from), Until: ms(to)} }

// Each kind of verdict is found in its histories, and not in clean histories that differ in one event.
func TestJudge(t *testing.T) {
	late := section("a", 0, 400, 401, 1) // the client stood still when the reply came
	late[0].Until, late[1].Until = ms(100), ms(100)
	unplaced := section("a", 0, 400, 401, 1)
	unplaced[0].Until, unplaced[1].Until, unplaced[0].Unplaced = ms(100), ms(100), true
	crashed := section("a", 0, 1, 100, 1)[:1]
	shortened := append(crashed[:1:1], Event{Op: Holds, ID: "a", At: ms(50), Until: ms(100), Fence: 1})
	renewed := section("a", 0, 1, 3500, 1)
	renewed[1].Until = ms(6000)
	down := reads(99, 101, 200, "b", 5)
	down[0].From = "a"
	elsewhere := reported(160, section("a", 0, 1, 150, 1))
	elsewhere[3].Other = true
	kept := Event{Op: Kept, ID: "a", At: ms(170), Until: ms(3001), Text: "Extend says nil"}
	other := Event{Op: Forgot, Key: "k", Kind: Leak, At: ms(0), Until: ms(9999)}
	type all [][]Event
	for _, c := range []struct {
		name string
		all
		want string // the kinds in their order; an excused one in brackets
	}{
		{"one after the other", all{section("a", 0, 1, 100, 1), section("b", 0, 101, 200, 2)}, ""},
		{"two at once", all{section("a", 0, 1, 100, 1), section("b", 0, 99, 200, 2)}, "exclusion"},
		{"one ends as the other begins", all{section("a", 0, 1, 100, 1), section("b", 0, 100, 200, 2)}, ""},
		{"two at once, of other keys",
			all{section("a", 0, 1, 100, 1), {{Op: Got, ID: "b", Key: "l", At: ms(9), Until: ms(10), Fence: 1}}}, ""},
		{"two at once, after a loss",
			all{section("a", 0, 1, 100, 1), section("b", 60, 61, 200, 2), {forgot(30, 40)}}, "(exclusion)"},
		{"two at once, before a loss",
			all{section("a", 0, 1, 100, 1), section("b", 60, 61, 200, 2), {forgot(80, 90)}}, "exclusion"},
		{"two at once, long after a loss",
			all{section("a", 100, 101, 200, 1), section("b", 150, 151, 300, 2), {forgot(30, 40)}}, "exclusion"},
		{"two at once, and what was lost explains leaks alone",
			all{section("a", 0, 1, 100, 1), section("b", 60, 61, 200, 2), {other}}, "exclusion"},
		{"beside a renewed lease", all{renewed, section("b", 0, 3200, 3300, 2)}, "exclusion"},
		{"after a lease that was not renewed", all{crashed, section("b", 0, 3200, 3300, 2)}, ""},
		{"beside a shortened lease", all{shortened, section("b", 0, 90, 200, 2)}, "exclusion"},
		{"after a shortened lease", all{shortened, section("b", 0, 110, 200, 2)}, ""},
		{"beside one that could not give it up", all{section("a", 0, 1, 50, 1)[:2], section("b", 0, 60, 200, 2),
			{{Op: Again, ID: "a", At: ms(100), Until: ms(3001), Fence: 1}}}, "exclusion"},
		{"before one that could not give it up had ended", all{section("a", 0, 1, 50, 1)[:2],
			{{Op: Again, ID: "a", At: ms(60), Until: ms(3001), Fence: 1}}, section("b", 0, 90, 200, 2)}, "exclusion"},
		{"beside one whose process died before",
			all{crashed, {died(50)}, section("b", 0, 90, 200, 2)}, ""},
		{"beside one whose process died after",
			all{crashed, {died(150)}, section("b", 0, 90, 200, 2)}, "exclusion"},
		{"beside one whose process was about to die",
			all{{died(0)}, crashed, section("b", 0, 90, 200, 2)}, ""},
		{"two readers at once", all{reads(0, 1, 100, "a", 1), reads(0, 50, 200, "b", 2)}, ""},
		{"two readers, the second told first", all{reads(0, 60, 100, "a", 1), reads(0, 50, 200, "b", 2)}, ""},
		{"a writer beside a reader", all{reads(0, 1, 100, "a", 1), section("b", 0, 50, 200, 2)}, "exclusion"},
		{"a reader beside a writer", all{section("a", 0, 1, 100, 1), reads(0, 50, 200, "b", 2)}, "exclusion"},

		{"two of a semaphore of two", all{slot(1, 1, 100, "a", 1), slot(2, 50, 200, "b", 1)}, ""},
		{"three of a semaphore of two", all{slot(1, 1, 100, "a", 1), slot(2, 50, 200, "b", 1), slot(3, 60, 200, "c", 1)}, "exclusion exclusion"},
		{"three, one after the other had ended", all{slot(1, 1, 100, "a", 1), slot(2, 50, 200, "b", 1), slot(1, 100, 200, "c", 2)}, ""},
		{"three, the first told last", all{slot(2, 50, 200, "b", 1), slot(3, 60, 200, "c", 1), slot(1, 1, 100, "a", 1)}, "exclusion exclusion"},
		{"two in one slot", all{slot(1, 1, 100, "a", 1), slot(1, 50, 200, "b", 2)}, "exclusion"},
		{"a plain lock beside a semaphore", all{slot(1, 1, 100, "a", 1), section("b", 0, 50, 200, 2)}, "exclusion"},
		{"a fence that falls in a slot", all{slot(1, 1, 100, "a", 2), slot(2, 101, 150, "b", 1), slot(1, 160, 200, "c", 2)}, "fencing"},
		{"lost, and nobody took the slot", all{reported(160, slot(1, 1, 150, "a", 1)), slot(2, 155, 180, "b", 2)}, "false loss"},
		{"lost to another, in the slot", all{reported(160, slot(1, 1, 150, "a", 1)), slot(2, 2, 180, "c", 1), slot(1, 155, 180, "b", 2)}, ""},

		{"a fence that falls", all{section("a", 0, 1, 100, 2), section("b", 101, 102, 200, 2)}, "fencing"},
		{"a fence that falls by a loss",
			all{section("a", 0, 1, 100, 2), section("b", 151, 152, 200, 2), {forgot(110, 120)}}, "(fencing)"},
		{"a fence that falls while it is held",
			all{section("a", 0, 1, 100, 2), {{Op: Holds, ID: "a", At: ms(50), Until: ms(3001), Fence: 1}}}, "fencing"},
		{"no fence", all{section("a", 0, 1, 100, 0)}, "fencing"},
		{"a writer's behind a reader's",
			all{reads(0, 1, 100, "a", 2), section("b", 0, 101, 200, 2)}, "fencing"},
		{"a writer's behind the first of two readers'",
			all{reads(0, 1, 100, "a", 3), reads(0, 2, 100, "c", 2), section("b", 0, 101, 200, 3)}, "fencing"},
		{"a reader's behind a writer's",
			all{section("a", 0, 1, 100, 2), reads(0, 101, 200, "b", 1)}, "fencing"},
		{"the second reader's behind a writer's",
			all{section("a", 0, 1, 100, 2), reads(0, 101, 200, "b", 3), reads(0, 102, 200, "c", 1)}, "fencing"},
		{"told after its time, when another had had it", all{late, section("b", 0, 200, 300, 2)}, ""},
		{"told after its time, when another had had it before",
			all{late, section("b", 0, 50, 300, 2)}, "fencing"},
		{"told after a time that nobody knows, when another had had it", all{unplaced, section("b", 0, 50, 300, 2)}, ""},
		{"told after a time that nobody knows, between two whose fences fall",
			all{section("c", 0, 10, 20, 4), unplaced, section("b", 0, 200, 300, 3)}, "fencing"},
		{"told after its time, with the next one's fence", all{late, section("b", 0, 200, 300, 1)}, "fencing"},
		{"a writer that becomes a reader", all{section("a", 0, 1, 100, 4), down}, ""},
		{"a writer between one and the reader that it became",
			all{section("a", 0, 1, 98, 3), section("c", 0, 99, 100, 4), down}, "fencing"},
		{"one that tells it later",
			all{section("a", 0, 1, 98, 3), section("c", 0, 201, 202, 4), down}, "fencing"},

		{"lost, and nobody took it", all{reported(160, section("a", 0, 1, 150, 1))}, "false loss"},
		{"lost when its time was up", all{reported(3000, section("a", 0, 1, 150, 1))}, ""},
		{"lost by a loss", all{reported(160, section("a", 0, 1, 150, 1)), {forgot(155, 156)}}, "(false loss)"},
		{"lost before a loss", all{reported(160, section("a", 0, 1, 150, 1)), {forgot(170, 180)}}, "false loss"},
		{"lost to another", all{reported(160, section("a", 0, 1, 150, 1)), section("b", 155, 170, 180, 2)}, ""},
		{"lost to one that never learnt it",
			all{reported(160, section("a", 0, 1, 150, 1)), section("b", 400, 401, 410, 3)}, ""},
		{"lost, and nobody took it until later",
			all{reported(160, section("a", 0, 1, 150, 1)), section("b", 400, 401, 410, 2)}, "false loss"},
		{"lost, as was observed",
			all{{by(0, "Pa")}, reported(160, section("a", 0, 1, 150, 1)), {gone(155, "Pb")}}, ""},
		{"lost, which nobody observed",
			all{{by(0, "Pa")}, reported(160, section("a", 0, 1, 150, 1)), section("b", 155, 170, 180, 3)}, "false loss"},
		{"lost by its own process",
			all{{by(0, "Pa")}, reported(160, section("a", 0, 1, 150, 1)), {gone(155, "Pa")}}, "false loss"},
		{"lost by its own process, on another server", all{{by(0, "Pa")}, elsewhere, {gone(155, "Pa")}}, ""},

		{"a loss that was told, and taken back",
			all{reported(160, section("a", 0, 1, 150, 1)), section("b", 155, 161, 180, 2), {kept}}, "loss not told"},
		{"an extension that was no loss", all{section("a", 0, 1, 150, 1), {kept}}, ""},
		{"gone, and its client believes",
			all{{by(0, "Pa")}, section("a", 0, 1, 150, 1), {gone(100, "")}}, "loss not told"},
		{"gone when its client had stopped",
			all{{by(0, "Pa")}, section("a", 0, 1, 150, 1), {gone(160, "")}}, ""},
		{"gone when it is told that it has it",
			all{{by(0, "Pa"), gone(1, "")}, section("a", 0, 1, 150, 1)}, "loss not told"},

		{"removed by another",
			all{{by(0, "Pa")}, section("a", 0, 1, 150, 1), {gone(100, "Pb")}}, "ownership"},
		{"taken by another", all{{by(0, "Pa")}, section("a", 0, 1, 150, 1), {by(100, "Pb")}}, "ownership"},
		{"removed by its own process", all{{by(0, "Pa")}, section("a", 0, 1, 150, 1), {gone(150, "Pa")}}, ""},
		{"taken by another, after a loss",
			all{{by(0, "Pa")}, section("a", 0, 1, 150, 1), {forgot(90, 90), by(100, "Pb")}}, "(ownership)"},
		{"removed by another, which adopted it",
			all{{by(0, "Pa")}, section("a", 0, 1, 50, 1), section("b", 50, 60, 150, 2), {gone(151, "Pb")}}, ""},

		{"a context that goes on",
			all{section("a", 0, 1, 3500, 1), {{Op: Works, ID: "a", At: ms(3200)}}}, "outlived"},
		{"a context that goes on for a little",
			all{section("a", 0, 1, 3500, 1), {{Op: Works, ID: "a", At: ms(3050)}}}, ""},

		{"what is left", all{{{Op: Left, Key: "k", At: ms(500), Text: "k without a TTL"}}}, "leak"},
		{"what a server brought back", all{{{Op: Left, Key: "k", At: ms(500)}, other}}, "(leak)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var events []Event
			for _, some := range c.all {
				events = append(events, some...)
			}
			j := Judge{Fenced: true, Margin: 500 * time.Millisecond, Grace: 100 * time.Millisecond}
			got, sep := "", ""
			verdicts := j.Judged(events)
			for _, v := range verdicts {
				if v.Excused {
					v.Kind = "(" + v.Kind + ")"
				}
				got, sep = got+sep+string(v.Kind), " "
			}
			if got != c.want {
				t.Errorf("%q, want %q: %v", got, c.want, verdicts)
			}
		})
	}
}

// With ExcusesAcknowledged, a server's loss excuses verdicts about locks acknowledged before it. The moment of the
// request does not count.
func TestPrompt(t *testing.T) {
	extended := section("a", 0, 1, 5000, 1)
	extended[1].Until = ms(6000)
	extended = append(extended, Event{Op: Holds, ID: "a", At: ms(45), Until: ms(6000), Fence: 1})
	for name, c := range map[string]struct {
		a, b   []Event
		excuse string
	}{
		"acknowledged before":         {section("a", 0, 20, 100, 1), section("b", 60, 61, 200, 2), "true"},
		"acknowledged after":          {section("a", 0, 45, 100, 1), section("b", 60, 61, 200, 2), "false"},
		"a fence, acknowledged after": {section("a", 0, 45, 50, 2), section("b", 60, 61, 200, 2), "false"},
		"extended after":              {extended, section("b", 60, 3500, 3600, 2), "false"},
		"extended after, and before":  {extended, section("b", 60, 61, 200, 2), "true"},
	} {
		j, got := Judge{Fenced: true, ExcusesAcknowledged: true}, ""
		for _, v := range j.Judged(slices.Concat(c.a, c.b, []Event{forgot(30, 40)})) {
			got += fmt.Sprint(v.Excused)
		}
		if got != c.excuse {
			t.Errorf("%s: %q, want %q", name, got, c.excuse)
		}
	}
}

// A lock without fences is judged by its other events: a fence of 0 is no violation, and a gap explains no loss.
func TestUnfenced(t *testing.T) {
	j := Judge{Margin: 500 * time.Millisecond}
	got := fmt.Sprint(j.Judged(append(reported(160, section("a", 0, 1, 150, 0)), section("b", 400, 401, 410, 9)...)))
	want := "[false loss: k: a was told that it had lost it, 2.841s before its time (lease lost), and nobody took it]"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
