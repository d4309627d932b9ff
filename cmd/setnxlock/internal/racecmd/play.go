package racecmd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/compat/race/view"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const playHelp = `You are the network, the scheduler and time: you decide whose command runs next
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
  C1.delay  C1.arrive
             it gives its connection up with a write on its way; that arrives
  C1.refuse  C1.refuse3
             the server refuses the command; the third of its transaction
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
  S1.restart  S1.evict  S1.down
             the same of one of several servers; it answers no more
  u  r       undo a step; reset
  s  v       the schedule so far; the timeline so far
  ?  q       these keys; quit`

const playExamples = `  setnxlock race play getset/double-takeover
  setnxlock race play double-takeover --algorithm getset:guarded
  setnxlock race play --algorithm tx:classic --server 2.4 --clients 3
  printf '1\n2\n1 2\n1 1\n2 2\n' | setnxlock race play double-takeover`

func (a *app) playCommand() *cobra.Command {
	var s setup
	cmd := &cobra.Command{
		Use:               "play [NAME]",
		Short:             "Break a lock yourself, step by step",
		Long:              playHelp,
		Example:           playExamples,
		Annotations:       exit.Alone("  0      The game is over.\n" + raceStatus),
		ValidArgsFunction: scenarioArgs,
		Args:              cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			g := &game{Screen: screen.New(a.out), width: a.width(), explained: map[string]bool{}}
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
					return exit.Usage(cmd, errors.New("play needs the NAME of a race, or --algorithm"))
				}
				return err
			}
			g.begin(c)
			if err := g.back(nil); err != nil {
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
	screen.Screen
	width     int
	scenario  *catalogue.Scenario // nil: any lock
	same      bool                // the lock is the scenario's
	c         race.Config         // with a scenario, only its objective is checked
	all       race.Config         // the same, and whatever else may break
	choices   []race.Choice
	trace     race.Trace      // of the choices
	over      bool            // the player wants to leave
	explained map[string]bool // what keys do that have been explained
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

func (g *game) say(format string, args ...any) { fmt.Fprintf(g.W, format+"\n", args...) }

// play reads lines until there are none, or the player has enough.
func (g *game) play(in io.Reader, typed bool) error {
	g.introduce()
	g.show()
	lines := bufio.NewScanner(in)
	for !g.over {
		fmt.Fprint(g.W, "\n> ")
		if !lines.Scan() {
			fmt.Fprintln(g.W)
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
	g.say("%s", g.Paint("1", title))
	objective := "Break any promise of " + g.c.Algorithm + "."
	if g.scenario != nil && g.scenario.Objective != "" {
		objective = g.scenario.Objective
	}
	fmt.Fprint(g.W, screen.Paragraph("Objective: ", objective, g.width))
	if g.scenario != nil && !g.same {
		g.say("The lock is %s instead of %s.", g.c.Algorithm, g.scenario.Run.Config.Algorithm)
	}
}

// answer carries out a line: words of a schedule, or keys.
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
	} else {
		g.keys(strings.Fields(line))
	}
	if len(g.choices) != was {
		g.show()
	}
}

// keys does one key after the other, up to an impossible one.
func (g *game) keys(fields []string) {
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
			return
		}
		if !g.choose(c) {
			return
		}
		fields = rest[used:]
	}
}

// commands maps the keys without a step.
func (g *game) commands() map[string]func() {
	leave := func() { g.over = true }
	help := func() { g.say("%s", playKeys) }
	return map[string]func(){
		"q": leave, "quit": leave, "exit": leave, "?": help, "h": help, "help": help,
		"u": g.undo, "undo": g.undo,
		"r": func() { g.back(nil); g.say("from the beginning") }, //nolint:errcheck // it began so
		"s": func() { g.say("%s", g.trace.ReplayLine()) },
		"v": func() {
			fmt.Fprint(g.W, view.Timeline(g.trace, view.TimelineOptions{Color: g.Color, Width: g.width}))
		},
	}
}

// clientKeys are the letters before a client's number: the word of a schedule, and what it does.
var clientKeys = map[byte][2]string{
	'd': {"drop", "its reply is lost"}, 'x': {"sever", "its request is lost"}, 'h': {"cut", "the connection breaks within the write"},
	'w': {"stall", "it goes on, and looks at its clock late"}, 'l': {"look", "it looks at its clock, and sends later"},
	'c': {"crash", "it crashes"}, 'p': {"pause", "it stops for a while"}, 'r': {"resume", "it resumes"}, 'k': {"clock"},
}

// serverKeys are words of the server's, and what they do.
var serverKeys = map[string]string{
	"restart": "the server comes back empty", "failover": "it comes back without its last write", "evict": "it drops the key",
	"down": "it answers no more", "reap": "it removes what has expired",
}

// choice returns a key's step, and the number of its further fields.
func (g *game) choice(key string, rest []string) (c race.Choice, used int, err error) {
	word := key
	switch {
	case serverKeys[key] != "":
		word = "redis." + key
	case key == "t":
		if len(rest) > 0 {
			if words, err := race.ParseWords("+" + strings.TrimPrefix(rest[0], "+")); err == nil {
				return words[0], 1, nil
			}
		}
		next, ok := g.position().Deadline()
		if !ok {
			return c, 0, errors.New("nothing is going to end: say how long, as in t 5s")
		}
		return race.Choice{Verb: race.Pass, By: next.By}, 0, nil
	case strings.Trim(key, "123456789*") == "":
		word = "C" + key
	case len(key) == 2 && clientKeys[key[0]][0] != "":
		word = "C" + key[1:] + "." + clientKeys[key[0]][0]
	}
	if strings.HasSuffix(word, ".clock") {
		if len(rest) == 0 {
			return c, 0, fmt.Errorf("%s needs a time, as in %s +3s", key, key)
		}
		word, used = word+rest[0], 1
	}
	words, err := race.ParseWords(word)
	if err != nil {
		return c, 0, fmt.Errorf("there is no key %q; ? tells the keys", key)
	}
	return words[0], used, nil
}

// choose makes a step, and tells its result.
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
			fmt.Fprint(g.W, screen.Paragraph("     (breaks "+v.Invariant+": ", v.Text+")", g.width))
		}
	}
	return true
}

// reason explains an impossible choice, in the fewest words.
func reason(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "race: "), "not enabled: ")
}

func (g *game) undo() {
	if len(g.choices) == 0 {
		g.say("there is nothing to undo")
		return
	}
	last := g.choices[len(g.choices)-1]
	g.back(g.choices[:len(g.choices)-1]) //nolint:errcheck // see there
	g.say("undone: %v", last)
}

// back goes to earlier choices. An error of choices that were made can't be: runs are deterministic.
func (g *game) back(choices []race.Choice) error {
	t, err := race.Replay(g.c, choices)
	g.choices, g.trace = slices.Clone(choices), t
	return err
}
