package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const racePlayHelp = `You are the network, the scheduler and time: you decide whose command runs next
and what goes wrong, and try to break the lock. With NAME you begin where a race
of the catalogue begins, and try to reach its objective; with --algorithm the
lock may be any. What you see is run by the lock's real code.

` + playKeys + `

Input is read line by line, so that a game can be piped, and recorded.`

const playKeys = `  1  2       client 1 or 2 goes on: its next command runs
  1*         client 1 goes on to the end of its attempt
  d1         its next command runs and the reply is lost
  x1         its next command never arrives
  h1         the connection breaks half-way, between two commands of one write
  w1         as 1, but it waits before it looks how long its lease still lasts
  l1         it looks at its clock, and does not send yet
  c1         it crashes for good
  p1  r1     it stops; it resumes
  k1 +3s     its clock jumps
  t          time passes until just after the next thing that ends
  t 5s       time passes; t 5s~ and the server has not removed what expired
  restart  failover  evict  reap
             the server comes back empty; comes back without its last write;
             drops the key; removes what has expired
  u  r       undo a step; reset
  s  v       the schedule so far; the timeline so far
  ?  q       these keys; quit`

const racePlayExamples = `  setnxlock race play getset/double-takeover
  setnxlock race play double-takeover --algorithm getset:guarded
  setnxlock race play --algorithm tx:classic --server 2.4 --clients 3
  printf '1\n2\n1 2\n1 1\n2 2\n' | setnxlock race play double-takeover`

func (a *app) racePlayCommand() *cobra.Command {
	var s setup
	cmd := &cobra.Command{
		Use:               "play [NAME]",
		Short:             "Break a lock yourself, step by step",
		Long:              racePlayHelp,
		Example:           racePlayExamples,
		Annotations:       alone("  0      The game is over.\n" + raceStatus),
		ValidArgsFunction: scenarioArgs,
		Args:              usageErrors(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			g := &game{stage: newStage(a.out), width: a.width()}
			var base race.Config
			if len(args) == 1 {
				race, err := scenario(args[0])
				if err != nil {
					return err
				}
				g.scenario, base = &race, race.Run.Config
			}
			c, err := s.over(base, cmd.Flags())
			if err != nil {
				if len(args) == 0 && s.Algorithm == "" {
					return usage(cmd, errors.New("play needs the NAME of a race, or --algorithm"))
				}
				return err
			}
			g.begin(c)
			if err := g.reset(); err != nil {
				return inRace(err)
			}
			return g.play(a.in, term.IsTerminal(int(a.in.Fd())))
		},
	}
	s.flags(cmd)
	return cmd
}

// A game is one session: a schedule that grows and shrinks.
type game struct {
	stage
	width    int
	scenario *catalogue.Scenario // nil: any lock
	same     bool                // the lock is the scenario's
	c        race.Config         // with a scenario, only its objective is checked
	all      race.Config         // the same, and whatever else may break
	choices  []race.Choice
	trace    race.Trace // of the choices
	over     bool       // the player wants to leave
}

// begin sets the game up.
func (g *game) begin(c race.Config) {
	g.all, g.c = c, c
	if g.scenario == nil {
		return
	}
	g.same = c.Algorithm == g.scenario.Run.Config.Algorithm
	g.c.Name = g.scenario.Name + ", played"
	if goal := g.scenario.Expect.Violated; goal != "" {
		g.c.Invariants = []string{goal}
	}
}

func (g *game) say(format string, args ...any) { fmt.Fprintf(g.w, format+"\n", args...) }

// play reads lines until there are none, or the player has enough.
func (g *game) play(in io.Reader, typed bool) error {
	g.introduce()
	g.show()
	lines := bufio.NewScanner(in)
	for !g.over {
		fmt.Fprint(g.w, "\n> ")
		if !lines.Scan() {
			fmt.Fprintln(g.w)
			break
		}
		if !typed {
			g.say("%s", lines.Text()) // so that a transcript has both sides
		}
		g.answer(strings.TrimSpace(lines.Text()))
	}
	return lines.Err()
}

func (g *game) introduce() {
	title := g.c.Algorithm
	if g.scenario != nil {
		title = g.scenario.Name + ": " + g.scenario.Title
	}
	g.say("%s", g.paint("1", title))
	objective := "Break any promise of " + g.c.Algorithm + "."
	if g.scenario != nil && g.scenario.Objective != "" {
		objective = g.scenario.Objective
	}
	fmt.Fprint(g.w, paragraph("Objective: ", objective, g.width))
	if g.scenario != nil && !g.same {
		g.say("The lock is %s instead of %s.", g.c.Algorithm, g.scenario.Run.Config.Algorithm)
	}
}

// answer does what a line says: words of a schedule, or keys.
func (g *game) answer(line string) {
	if line == "" || strings.HasPrefix(line, "#") {
		return
	}
	was := len(g.choices)
	if choices, err := race.ParseWords(line); err == nil {
		for _, c := range choices {
			if !g.choose(c) {
				break
			}
		}
	} else if !g.keys(strings.Fields(line)) {
		return
	}
	if len(g.choices) != was {
		g.show()
	}
}

// keys does one key after the other, and reports whether the state may have
// changed.
func (g *game) keys(fields []string) bool {
	for len(fields) > 0 && !g.over {
		key, rest := fields[0], fields[1:]
		if do, ok := g.commands()[key]; ok {
			do()
			fields = rest
			continue
		}
		c, used, err := g.choice(key, rest)
		if err != nil {
			g.say("%v", err)
			return true
		}
		if !g.choose(c) {
			return true
		}
		fields = rest[used:]
	}
	return true
}

// commands are the keys that are no step.
func (g *game) commands() map[string]func() {
	leave := func() { g.over = true }
	help := func() { g.say("%s", playKeys) }
	return map[string]func(){
		"q": leave, "quit": leave, "exit": leave, "?": help, "h": help, "help": help,
		"u": g.undo, "undo": g.undo,
		"r": func() { g.must(nil); g.say("from the beginning") },
		"s": func() { g.say("%s", g.replayLine()) },
		"v": func() { fmt.Fprint(g.w, race.Timeline(g.trace, race.TimelineOptions{Color: g.color, Width: g.width})) },
	}
}

var clientKeys = map[byte]race.Verb{
	'd': race.Drop, 'x': race.Sever, 'h': race.Cut, 'w': race.Stall, 'l': race.Look,
	'c': race.Crash, 'p': race.Pause, 'r': race.Resume, 'k': race.Clock,
}

var serverKeys = map[string]race.Verb{
	"restart": race.Restart, "failover": race.Failover, "evict": race.Evict, "reap": race.Reap,
}

// choice is the step that a key stands for, and how many of the fields after it
// belong to it.
func (g *game) choice(key string, rest []string) (c race.Choice, used int, err error) {
	duration := func() (time.Duration, error) {
		if len(rest) == 0 {
			return 0, fmt.Errorf("%s needs a time, as in %s +3s", key, key)
		}
		used = 1
		d, err := time.ParseDuration(strings.TrimSuffix(strings.TrimPrefix(rest[0], "+"), "~"))
		if err != nil {
			return 0, fmt.Errorf("%q is no time", rest[0])
		}
		return d, nil
	}
	if v, ok := serverKeys[key]; ok {
		return race.Choice{Verb: v}, 0, nil
	}
	if key == "t" {
		if len(rest) == 0 || strings.Trim(rest[0], "+0123456789.hms~") != "" || !strings.ContainsAny(rest[0], "hms") {
			next, ok := g.deadline()
			if !ok {
				return c, 0, errors.New("nothing is going to end: say how long, as in t 5s")
			}
			return race.Choice{Verb: race.Pass, By: next.by}, 0, nil
		}
		c.Verb = race.Pass
		if strings.HasSuffix(rest[0], "~") {
			c.Verb = race.PassUnreaped
		}
		c.By, err = duration()
		return c, used, err
	}
	if n, ok := strings.CutSuffix(key, "*"); ok {
		c.Verb, key = race.Run, n
	}
	if len(key) == 2 && c.Verb == race.Step {
		v, ok := clientKeys[key[0]]
		if ok {
			if v == race.Clock {
				if c.By, err = duration(); err != nil {
					return c, used, err
				}
			}
			c.Verb, key = v, key[1:]
		}
	}
	if len(key) == 1 && key[0] >= '1' && key[0] <= '9' {
		c.Client = int(key[0] - '1')
		return c, used, nil
	}
	return c, 0, fmt.Errorf("there is no key %q; ? tells the keys", key)
}

// choose makes a step, and tells what came of it.
func (g *game) choose(c race.Choice) bool {
	was := len(g.trace.Events)
	t, err := race.Replay(g.c, append(slices.Clone(g.choices), c))
	if err != nil {
		g.say("not now: %s", reason(err))
		return false
	}
	_, made, err := race.ParseSchedule(t.Schedule)
	if err != nil {
		g.say("%v", err) // can't be: a trace's schedule is one
		return false
	}
	g.choices, g.trace = made, t
	// What breaks beside the objective is told, and does not end the hunt.
	all, err := race.Replay(g.all, made)
	for i, e := range t.Events[was:] {
		g.tell(e)
		if e.Violation != nil {
			g.broken(e)
		} else if err == nil && all.Events[was+i].Violation != nil {
			v := all.Events[was+i].Violation
			fmt.Fprint(g.w, paragraph("     (breaks "+v.Invariant+": ", v.Text+")", g.width))
		}
	}
	return true
}

// reason is why a choice can't be made, in the fewest words.
func reason(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "race: "), "not enabled: ")
}

// tell says what a step did.
func (g *game) tell(e race.Event) {
	text := e.Note
	if e.Cmd != "" {
		text = e.Cmd
		switch {
		case e.Lost == "reply":
			text += " ⇢ reply lost"
		case e.Lost == "request":
			text += " ⇢ never arrived"
		case e.Lost == "cut":
			text += " ⇢ cut"
		case e.Reply != "":
			text += " → " + e.Reply
		}
	}
	who := e.Who + ": "
	if e.Who == "time" {
		who = ""
	}
	fmt.Fprint(g.w, paragraph(fmt.Sprintf("%3d  %s  %s", e.N, seconds(e.At), who), text, g.width))
	if e.Why != "" {
		fmt.Fprint(g.w, paragraph("     ", e.Why, g.width))
	}
}

// broken tells what a violation means, the first time.
func (g *game) broken(e race.Event) {
	text := paragraph("     ^^^ ", "VIOLATION "+e.Violation.Invariant+": "+e.Violation.Text, g.width)
	g.say("%s", g.paint("1;31", strings.TrimSuffix(text, "\n")))
	if g.trace.Verdict.Step != e.N {
		return
	}
	g.say("")
	arg := g.trace.Argument
	item := func(label string, items ...string) {
		for _, s := range items {
			if s != "" {
				fmt.Fprint(g.w, paragraph(fmt.Sprintf("%-7s", label), s, g.width))
				label = ""
			}
		}
	}
	fix := arg.Fix
	if g.same {
		fix = cmp.Or(g.scenario.Fix, fix)
	}
	item("Let", arg.Let...)
	item("Then", arg.Then...)
	item("So", arg.So)
	item("Fix", fix)
	g.say("%-7s%s", "replay", g.replayLine())
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

func (g *game) replayLine() string {
	return "setnxlock race replay '" + strings.ReplaceAll(g.trace.Schedule, "'", `'\''`) + "'"
}

func (g *game) undo() {
	if len(g.choices) == 0 {
		g.say("there is nothing to undo")
		return
	}
	last := g.choices[len(g.choices)-1]
	g.must(g.choices[:len(g.choices)-1])
	g.say("undone: %v", last)
}

func (g *game) reset() error {
	t, err := race.Replay(g.c, nil)
	g.choices, g.trace = nil, t
	return err
}

// must goes to choices that could be made before.
func (g *game) must(choices []race.Choice) {
	t, err := race.Replay(g.c, choices)
	if err != nil {
		g.say("%v", err) // can't be: runs are deterministic
		return
	}
	g.choices, g.trace = slices.Clone(choices), t
}

// show prints where the game stands, and what can be done.
func (g *game) show() {
	at, server, belief := int64(0), g.trace.Start, map[string]race.Belief{}
	if n := len(g.trace.Events); n > 0 {
		e := g.trace.Events[n-1]
		at, server, belief = e.At, e.Server, e.Belief
	}
	g.say("")
	g.say("%s", g.paint("2", fmt.Sprintf("     %-5s %-9s %-22s %s", "", "clock", "believes", "next")))
	for i, c := range g.trace.Clients {
		b, ok := belief[c.Name]
		if !ok {
			b = race.Belief{State: race.Idle, Until: -1, Now: c.Skew}
		}
		key, next := "", b.Next
		if e, ok := g.tried(race.Choice{Client: i}); ok {
			key, next = fmt.Sprint(i+1), cmp.Or(e.Cmd, e.Note, next)
		}
		fmt.Fprint(g.w, paragraph(fmt.Sprintf("%3s  %-5s %-9s %-22s ", key, c.Name, seconds(b.Now), believing(b)), next, g.width))
	}
	g.say("     %-5s %-9s %s", "Redis", seconds(at), g.key(server))
	for _, other := range server.Others {
		g.say("     %-5s %-9s %s", "", "", other)
	}
	if server.Storage != nil && server.Storage.Writer != "" {
		g.say("     %-5s %-9s last written by %s", "store", "", server.Storage.Writer)
	}
	if next, ok := g.deadline(); ok {
		g.say("%3s  %v pass: %s", "t", next.by, next.what)
	}
	fmt.Fprint(g.w, paragraph("     also: ", strings.Join(g.accidents(), " "), g.width))
}

// key is what the server has under the lock's name.
func (g *game) key(s race.Server) string {
	if s.Value == "" {
		return g.trace.Key + " is free"
	}
	text := g.trace.Key + " = " + s.Value
	if s.TTL >= 0 {
		text += "  ttl " + seconds(s.TTL)
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
		return "holds until " + seconds(b.Until)
	case b.State == race.RunOut:
		return "it ran out"
	case b.State == race.Lost:
		return "lost, and it knows"
	case b.State == race.Asking && b.Until >= 0:
		return "asking, has " + seconds(b.Until)
	}
	return b.State
}

// tried is the step that a choice would make, if it can be made now.
func (g *game) tried(c race.Choice) (race.Event, bool) {
	t, err := race.Replay(g.c, append(slices.Clone(g.choices), c))
	if err != nil {
		return race.Event{}, false
	}
	return t.Events[len(t.Events)-1], true
}

// accidents are the other keys that do something now.
func (g *game) accidents() []string {
	var keys []string
	for _, k := range []byte("dxhwlcpr") {
		for i := range g.trace.Clients {
			if _, ok := g.tried(race.Choice{Verb: clientKeys[k], Client: i}); ok {
				keys = append(keys, fmt.Sprintf("%c%d", k, i+1))
			}
		}
	}
	for _, k := range []string{"restart", "failover", "evict"} {
		if _, ok := g.tried(race.Choice{Verb: serverKeys[k]}); ok {
			keys = append(keys, k)
		}
	}
	return append(keys, "u", "r", "s", "v", "?", "q")
}

// A deadline is the next time at which something ends.
type deadline struct {
	by   time.Duration // until a moment after it
	what string
}

// deadline finds it among the leases, the key's TTL and the time written on it.
func (g *game) deadline() (best deadline, ok bool) {
	n := len(g.trace.Events)
	at, server := int64(0), g.trace.Start
	if n > 0 {
		at, server = g.trace.Events[n-1].At, g.trace.Events[n-1].Server
	}
	add := func(ends int64, what string) {
		by := time.Duration(ends+1-at) * time.Millisecond // until just after
		if by > 0 && (!ok || by < best.by) {
			best, ok = deadline{by, what}, true
		}
	}
	if n > 0 {
		for _, c := range g.trace.Clients {
			if b := g.trace.Events[n-1].Belief[c.Name]; b.Until >= 0 && b.State != race.Dead {
				add(at+b.Until-b.Now, c.Name+"'s lease ends")
			}
		}
	}
	if server.TTL >= 0 && !server.Dead {
		if ends, ok := g.expiry(at, server.TTL); ok {
			add(ends, "the key's ttl ends")
		}
	}
	if stamp, is := strings.CutPrefix(server.Value, "t="); is {
		if d, err := time.ParseDuration(strings.Fields(stamp)[0]); err == nil {
			for _, c := range g.trace.Clients {
				add(d.Milliseconds()-c.Skew, "the time on the key is over for "+c.Name)
			}
		}
	}
	return best, ok
}

// expiry finds out by trying when the key is gone: old servers count in whole
// seconds.
func (g *game) expiry(at, ttl int64) (ends int64, ok bool) {
	second := (at + ttl + 999) / 1000 * 1000
	for _, ends := range []int64{at + ttl, second, second + 1000, second + 2000} {
		if ends < at {
			continue
		}
		pass := race.Choice{Verb: race.Pass, By: time.Duration(ends+1-at) * time.Millisecond}
		if e, ok := g.tried(pass); ok && e.Server.Value == "" {
			return ends, true
		}
	}
	return 0, false
}

// seconds writes milliseconds as a timeline does.
func seconds(ms int64) string {
	s := fmt.Sprintf("%d.%03d", abs(ms)/1000, abs(ms)%1000)
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".") + "s"
	if ms < 0 {
		return "-" + s
	}
	return s
}

func abs(n int64) int64 { return max(n, -n) }
