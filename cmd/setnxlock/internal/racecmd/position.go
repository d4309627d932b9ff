package racecmd

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/workbench"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/view"
)

// What a game tells: its steps, where it stands, and what can be done next.

// tell describes a step.
func (g *game) tell(e race.Event) {
	who := e.Who + ": "
	if e.Who == "time" {
		who = ""
	}
	fmt.Fprint(g.W, screen.Paragraph(fmt.Sprintf("%3d  %s  %s", e.N, race.Seconds(e.At), who), view.Said(e), g.width))
	if e.Why != "" {
		fmt.Fprint(g.W, screen.Paragraph("     ", e.Why, g.width))
	}
}

// broken explains a violation, the first time.
func (g *game) broken(e race.Event) {
	text := screen.Paragraph("     ^^^ ", "VIOLATION "+e.Violation.Invariant+": "+e.Violation.Text, g.width)
	g.say("%s", g.Paint("1;31", strings.TrimSuffix(text, "\n")))
	if g.trace.Verdict.Step != e.N {
		return
	}
	g.say("")
	arg := g.trace.Argument
	item := func(label string, items ...string) {
		for _, s := range items {
			if s != "" {
				fmt.Fprint(g.W, screen.Paragraph(fmt.Sprintf("%-7s", label), s, g.width))
				label = ""
			}
		}
	}
	fix := arg.Fix
	if g.same {
		fix = cmp.Or(g.scenario.Fix, fix)
	}
	if fix == "" {
		fix = remedy(g.trace)
	}
	item("Let", arg.Let...)
	item("Then", arg.Then...)
	item("So", arg.So)
	item("Fix", fix)
	g.say("%-7s%s", "replay", g.trace.ReplayLine())
	g.congratulate(e)
}

func (g *game) congratulate(e race.Event) {
	switch s := g.scenario; {
	case s == nil, !g.same:
		g.say("\nYou broke %s in %d steps.", g.c.Algorithm, e.N)
	case s.Expect.Violated == e.Violation.Invariant && s.Expect.Step < e.N:
		g.say("\nWell done: that was the objective, in %d steps. It can be done in %d.", e.N, s.Expect.Step)
	case s.Expect.Violated == e.Violation.Invariant:
		g.say("\nWell done: that was the objective, in %d steps.", e.N)
	default:
		g.say("\nYou broke %s.", e.Violation.Invariant)
	}
}

// show prints the game's state, and the possible keys.
func (g *game) show() {
	at, server, belief := int64(0), g.trace.Start, map[string]race.Belief{}
	if n := len(g.trace.Events); n > 0 {
		e := g.trace.Events[n-1]
		at, server, belief = e.At, e.Server, e.Belief
	}
	g.say("")
	g.say("%s", g.Paint("2", fmt.Sprintf("     %-5s %-9s %-22s %s", "", "clock", "believes", "next")))
	for i, c := range g.trace.Clients {
		b, ok := belief[c.Name]
		if !ok {
			b = race.Belief{State: race.Idle, Until: -1, Now: c.Skew}
		}
		key, next := "", b.Next
		if e, ok := g.tried(race.Choice{Client: i}); ok {
			key, next = fmt.Sprint(i+1), cmp.Or(e.Cmd, e.Note, next)
		}
		fmt.Fprint(g.W, screen.Paragraph(fmt.Sprintf("%3s  %-5s %-9s %-22s ", key, c.Name, race.Seconds(b.Now), believing(b)), next, g.width))
	}
	g.say("     %-5s %-9s %s", "Redis", race.Seconds(at), g.key(server))
	for _, other := range server.Others {
		g.say("     %-5s %-9s %s", "", "", other)
	}
	if server.Storage != nil && server.Storage.Writer != "" {
		g.say("     %-5s %-9s last written by %s", "store", "", server.Storage.Writer)
	}
	if next, ok := g.position().Deadline(); ok {
		g.say("%3s  %v pass: %s", "t", next.By, next.What)
	}
	fmt.Fprint(g.W, screen.Paragraph("     also: ", strings.Join(g.faults(), " "), g.width))
}

// key describes the server's value under the lock's name.
func (g *game) key(s race.Server) string {
	if s.Value == "" {
		return g.trace.Key + " is free"
	}
	text := g.trace.Key + " = " + s.Value
	if s.TTL >= 0 {
		text += "  ttl " + race.Seconds(s.TTL)
	} else {
		text += "  no ttl"
	}
	if s.Dead {
		text += "  (expired, and still in memory)"
	}
	if len(s.Watched) > 0 {
		text += "  watched by " + strings.Join(s.Watched, ", ")
	}
	return text
}

func believing(b race.Belief) string {
	switch {
	case b.State == race.Holds && b.Until >= 0:
		return "holds until " + race.Seconds(b.Until)
	case b.State == race.RunOut:
		return "it ran out"
	case b.State == race.Lost:
		return "lost, and it knows"
	case b.State == race.Asking && b.Until >= 0:
		return "asking, has " + race.Seconds(b.Until)
	}
	return b.State
}

// tried returns a choice's step, if it can be made now.
func (g *game) tried(c race.Choice) (race.Event, bool) {
	return g.position().Try(c)
}

func (g *game) position() workbench.Position {
	return workbench.Position{Config: g.c, Choices: g.choices, Trace: g.trace}
}

// faults lists the other keys of use now. What a key does stands beside it the first time.
func (g *game) faults() []string {
	var all []string
	add := func(does string, keys ...string) {
		if keys == nil {
			return
		}
		if !g.explained[does] {
			g.explained[does] = true
			keys[len(keys)-1] += " (" + does + ")"
		}
		all = append(all, keys...)
	}
	can := func(key, word string) []string {
		if words, err := race.ParseWords(word); err == nil {
			if _, ok := g.tried(words[0]); ok {
				return []string{key}
			}
		}
		return nil
	}
	for _, k := range []byte("dxhwlcpr") {
		var keys []string
		for i := range g.trace.Clients {
			keys = append(keys, can(fmt.Sprintf("%c%d", k, i+1), fmt.Sprintf("C%d.%s", i+1, clientKeys[k][0]))...)
		}
		add(clientKeys[k][1], keys...)
	}
	for _, k := range []string{"restart", "failover", "evict"} {
		add(serverKeys[k], can(k, "redis."+k)...)
	}
	for _, k := range []string{"restart", "evict", "down"} {
		add(serverKeys[k]+"; S2 and S3 likewise", can("S1."+k, "S1."+k)...)
	}
	add("undo", "u")
	add("begin again", "r")
	add("the schedule", "s")
	add("the timeline", "v")
	add("all keys", "?")
	add("quit", "q")
	return all
}
