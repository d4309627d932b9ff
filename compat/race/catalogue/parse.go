package catalogue

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race"
)

// Parse reads a scenario. A file is lines:
//
//	# getset/double-takeover: two clients remove the same expired lock
//	# Objective: Make two clients hold lock.report.
//	#
//	# What there is to know beforehand.
//
//	algorithm other/naive-del        what clients run; a + b: C1 runs a, C2 and all after it b
//	note C2 npm redis-lock 0.0.8     what a client is called
//	server 2.4                       where it is run
//	servers 1.2 2.0 2.2.5 …          where it happens; on all others it does not
//	clients 2                        default 2
//	attempts 1                       of each client, default 1
//	ttl 10s                          default 10s
//	key lock.report = t=-2s          the key, and what is on it at first: a timestamp of two seconds ago
//	given EXPIRE {key} 10            what else the server ran before
//	nothing given                    for a survivor: the key is not there at first
//	clock C2 +15s                    what a client's clock shows more than the server's
//	holders extend write poll wait   what clients do beyond taking and releasing
//	extend 20s                       and they extend once to another lease than the first
//	fence                            the algorithm draws fences
//	bare                             the algorithm alone, without the Locker
//	only exclusion                   the invariants that are checked; default: all
//	within 12s                       how soon a dead client's lock is free again
//
//	C1 C2 C1 C2 C1 C1 C2 C2          the schedule, in any number of lines
//
//	expect violation exclusion at 9  or: expect no violation
//	also ownership at 7                what else breaks, each invariant checked alone
//	why 8 removes C1's key           the reason of a step, in place of the computed one
//	let, then, so, fix TEXT          parts of the argument, likewise
//	source NAME [URL]                where the race is described
//	instead TEXT                     what this library does
//	elsewhere TEXT                   which locks have it on the servers where this one does not run
//	star 2                           place in the order of teaching
//	exercise TEXT
//	goal held C1 then C2, breaks nothing   what an answer must do: each is a Goal
//	answer C1 C2 …                   one that does
//	wrong C1 C2: C2 never holds the lock   one that does not, and what it is told
//
//	survives getset:guarded          from here on: the variant that survives, its
//	C1 C2 …                          schedule, and what else is different for it
//	-- timeline --                   what was seen: written by -update
//	…
//	-- survives --
//	…
//
// The words of a schedule are those of race.ParseWords: C1 is its next command, C1-
// loses the reply, C1.sever the request, C1.stale has a replica answer; +9s lets time
// pass, +9s~ without anything expired being removed; redis.restart, redis.failover,
// redis.evict and redis.clock+2000s are what happens to the server, S2.restart, S2.evict,
// S2.down and S2.clock+11s to one of several.
//
// A # after white space begins a comment. A file of a user's own needs the
// algorithm and the schedule; all the rest may be left out.
func Parse(name string, text []byte) (Scenario, error) {
	p := parser{s: Scenario{Name: name, Whys: make(map[int]string)}}
	p.run = &p.s.Run
	p.run.Config = race.Config{Attempts: 1, TTL: ttl, Locks: Locks()}
	body, timeline, _ := strings.Cut(string(text), "-- timeline --\n")
	timeline, survived, _ := strings.Cut(timeline, "-- survives --\n")
	p.s.Timeline, p.s.Survived = timeline, survived
	for i, line := range strings.Split(body, "\n") {
		if err := p.line(strings.TrimSpace(line), i); err != nil {
			return p.s, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
	}
	if err := p.end(); err != nil {
		return p.s, fmt.Errorf("%s: %w", name, err)
	}
	return p.s, nil
}

type parser struct {
	s         Scenario
	run       *Run // the scenario's, or after "survives" the survivor's
	surviving bool
	begun     bool // past the comments at the top
}

func (p *parser) line(line string, n int) error {
	if strings.HasPrefix(line, "#") {
		return p.comment(strings.TrimSpace(line[1:]), n)
	}
	if line == "" {
		p.begun = p.begun || p.s.Title != ""
		return nil
	}
	p.begun = true
	word, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	if known, err := p.text(word, rest); known || err != nil {
		return err
	}
	if i := strings.Index(rest, " #"); i >= 0 {
		rest = strings.TrimSpace(rest[:i])
	}
	if known, err := p.setting(word, rest); known || err != nil {
		return err
	}
	if !isWord(word) {
		return fmt.Errorf("%q begins neither a setting nor a schedule", word)
	}
	p.run.Schedule = strings.TrimSpace(p.run.Schedule + " " + strings.TrimSpace(word+" "+rest))
	return nil
}

// isWord reports whether a line with this beginning belongs to a schedule.
func isWord(w string) bool {
	return w[0] == 'C' && len(w) > 1 && w[1] >= '1' && w[1] <= '9' || w[0] == '+' || slices.Contains([]string{"redis", "time", "network"}, w) ||
		w[0] == 'S' && len(w) > 2 && w[1] >= '1' && w[1] <= '9' && w[2] == '.'
}

// comment reads the lines at the top for the page: name and title, the objective, and the text.
func (p *parser) comment(text string, n int) error {
	if p.begun {
		return nil
	}
	if n == 0 {
		name, title, ok := strings.Cut(text, ": ")
		if !ok || p.s.Name != "" && strings.Contains(p.s.Name, "/") && name != p.s.Name {
			return fmt.Errorf("want %q and a title, not %q", "# "+p.s.Name+": ", text)
		}
		p.s.Title = title
		return nil
	}
	if objective, ok := strings.CutPrefix(text, "Objective: "); ok {
		p.s.Objective = objective
		return nil
	}
	switch {
	case text == "":
		if p.s.Text != "" {
			p.s.Text += "\n\n"
		}
	case p.s.Text == "" || strings.HasSuffix(p.s.Text, "\n"):
		p.s.Text += text
	default:
		p.s.Text += " " + text
	}
	return nil
}

// setting reads a line with an optional comment. It reports whether it is one.
func (p *parser) setting(word, rest string) (known bool, err error) {
	c := &p.run.Config
	f := strings.Fields(rest)
	if n := map[string]*int{"clients": &c.Clients, "attempts": &c.Attempts, "star": &p.s.Star}[word]; n != nil {
		return true, number(rest, n)
	}
	switch word {
	case "algorithm":
		c.Algorithm = strings.ReplaceAll(rest, " ", "")
	case "survives":
		err = p.survives(strings.ReplaceAll(rest, " ", ""))
	case "server":
		c.Server, err = rest, knownServers(rest)
	case "servers":
		p.s.Servers, err = f, knownServers(f...)
	case "ttl", "within", "extend", "successor":
		err = c.Set(word + "=" + rest)
	case "bare", "fence":
		err = c.Set(word)
	case "holders":
		for _, what := range f {
			err = errors.Join(err, c.Set(what))
		}
	case "key":
		name, value, ok := strings.Cut(rest, " = ")
		if c.Key = strings.TrimSpace(name); ok {
			c.Given = append(c.Given, "SET {key} "+strings.TrimSpace(value))
		}
	case "given":
		c.Given = append(c.Given, rest)
	case "nothing":
		if c.Given = nil; rest != "given" {
			err = fmt.Errorf(`want "nothing given"`)
		}
	case "clock":
		by, text, bad := ofClient(&c.Skew, rest)
		if err = bad; err == nil {
			*by, err = time.ParseDuration(text)
		}
	case "only":
		c.Invariants = f
		if i := slices.IndexFunc(f, func(v string) bool { return !slices.Contains(race.Invariants(), v) }); i >= 0 {
			err = fmt.Errorf("no invariant %q", f[i])
		}
	case "expect":
		p.s.Expect, err = expected(rest)
	case "also":
		v, bad := breaks(rest)
		if p.s.Also = append(p.s.Also, v); bad != nil {
			err = fmt.Errorf(`also %s, want "also INVARIANT at STEP"`, rest)
		}
	default:
		return false, nil
	}
	return true, err
}

// survives begins the part of the surviving lock.
func (p *parser) survives(algorithm string) error {
	if p.surviving {
		return fmt.Errorf("a second survivor")
	}
	p.surviving, p.s.Survives = true, p.s.Run
	p.run = &p.s.Survives
	c := &p.run.Config
	p.run.Schedule, c.Algorithm, p.run.Notes = "", algorithm, nil
	c.Skew, c.Given = slices.Clone(c.Skew), slices.Clone(c.Given)
	return nil
}

// expected reads the rest of a line after "expect".
func expected(text string) (v race.Verdict, err error) {
	what, violated := strings.CutPrefix(text, "violation ")
	if text == "no violation" {
		return v, nil
	}
	if v, err = breaks(what); err != nil || !violated {
		err = fmt.Errorf(`expect %s, want "expect violation INVARIANT at STEP" or "expect no violation"`, text)
	}
	return v, err
}

// breaks reads "INVARIANT at STEP".
func breaks(text string) (v race.Verdict, err error) {
	f := strings.Fields(text)
	if len(f) != 3 || f[1] != "at" || !slices.Contains(race.Invariants(), f[0]) {
		return v, errors.New("no verdict")
	}
	v.Violated = f[0]
	return v, number(f[2], &v.Step)
}

// ofClient returns the place in a list for a line's client, and the rest of the line.
func ofClient[T any](list *[]T, line string) (at *T, rest string, err error) {
	who, rest, _ := strings.Cut(line, " ")
	i, err := client(who)
	for len(*list) <= i {
		*list = append(*list, *new(T))
	}
	return &(*list)[i], rest, err
}

// text reads a line with a sentence to its end. It reports whether it is one.
func (p *parser) text(word, rest string) (known bool, err error) {
	if s := map[string]*string{"so": &p.s.So, "fix": &p.s.Fix, "instead": &p.s.Instead, "elsewhere": &p.s.Elsewhere}[word]; s != nil {
		if *s != "" {
			return true, fmt.Errorf("a second one")
		}
		*s = rest
		return true, nil
	}
	switch word {
	case "let":
		p.s.Let = append(p.s.Let, rest)
	case "then":
		p.s.Then = append(p.s.Then, rest)
	case "note":
		var at *string
		var text string
		if at, text, err = ofClient(&p.run.Notes, rest); err == nil {
			*at = text
		}
	case "why":
		step, text, _ := strings.Cut(rest, " ")
		n := 0
		if err := number(step, &n); err != nil {
			return true, err
		}
		if p.s.Whys[n] != "" {
			return true, fmt.Errorf("a second reason for step %d", n)
		}
		p.s.Whys[n] = text
	case "source":
		s := race.Source{Name: rest}
		if i := strings.LastIndex(rest, " http"); i > 0 {
			s = race.Source{Name: rest[:i], URL: rest[i+1:]}
		}
		p.s.Sources = append(p.s.Sources, s)
	case "exercise":
		if p.s.Exercise != nil {
			return true, errors.New("a second one")
		}
		p.s.Exercise = &Exercise{Text: rest}
	case "goal", "answer", "wrong":
		if p.s.Exercise == nil {
			return true, fmt.Errorf("%s before its exercise", word)
		}
		err = p.s.Exercise.line(word, rest)
	default:
		return false, nil
	}
	return true, err
}

// line reads a line of an exercise.
func (e *Exercise) line(word, rest string) error {
	switch word {
	case "goal":
		goals, err := parseGoals(rest)
		e.Goals = append(e.Goals, goals...)
		return err
	case "answer":
		e.Answers = append(e.Answers, rest)
	default:
		schedule, says, ok := strings.Cut(rest, ": ")
		if !ok {
			return errors.New(`want "wrong SCHEDULE: what it is told"`)
		}
		e.Wrong = append(e.Wrong, Wrong{schedule, says})
	}
	return nil
}

// end checks the complete scenario, and fills in defaults.
func (p *parser) end() error {
	s := &p.s
	if s.Run.Config.Algorithm == "" {
		return fmt.Errorf("no algorithm")
	}
	if s.Run.Schedule == "" {
		return fmt.Errorf("no schedule")
	}
	if p.surviving && s.Survives.Schedule == "" {
		return fmt.Errorf("no schedule for the survivor")
	}
	if e := s.Exercise; e != nil && len(e.Goals) == 0 {
		return fmt.Errorf("an exercise without a goal")
	}
	return nil
}

func knownServers(servers ...string) error {
	all := slices.Concat(oldredis.Versions(), oldredis.Profiles(), oldredis.Today())
	for _, s := range servers {
		if !slices.Contains(all, s) {
			return fmt.Errorf("no server %q: there are %s", s, strings.Join(all, ", "))
		}
	}
	return nil
}

func client(name string) (int, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "C"))
	if err != nil || !strings.HasPrefix(name, "C") || n < 1 || n > 9 {
		return 0, fmt.Errorf("%q is no client", name)
	}
	return n - 1, nil
}

func number(s string, n *int) error {
	got, err := strconv.Atoi(s)
	if err != nil || got < 1 {
		return fmt.Errorf("%q is not a number from 1", s)
	}
	*n = got
	return nil
}
