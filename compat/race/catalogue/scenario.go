package catalogue

import (
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/race"
)

// A Scenario is one race: what is run, what breaks, and what to do instead.
type Scenario struct {
	Name      string // "getset/double-takeover"
	Title     string // one line
	Objective string // what the reader is asked to bring about
	Text      string // what there is to know beforehand; paragraphs

	Run     Run
	Expect  race.Verdict   // what the schedule breaks, and at which step
	Also    []race.Verdict // what else it breaks, each invariant checked alone
	Servers []string       // where it happens; on all others it does not

	Let, Then []string // handwritten parts of the argument, in place of the computed ones
	So, Fix   string
	Whys      map[int]string // handwritten reasons of steps

	Sources []race.Source
	Instead string // what our library does

	Elsewhere string // which locks have the race where this one does not run; "": the race is one of Servers alone

	Survives Run // the same race, met by a variant that is guarded against it

	Star     int // place in the order of teaching, from 1; 0: not taught
	Exercise *Exercise

	Timeline, Survived string // as the file has them
}

// A Run is a schedule and its configuration.
type Run struct {
	Config   race.Config
	Schedule string
	Notes    []string // of the clients, in their order: "redis-py 2.9"
}

// An Exercise is a question whose answer is a schedule of the scenario.
type Exercise struct {
	Text    string
	Goals   []Goal
	Answers []string // of several kinds, for the tests
	Wrong   []Wrong  // for the tests, too
}

// Goal writes the goals in a line.
func (e *Exercise) Goal() string {
	var list []string
	for _, g := range e.Goals {
		list = append(list, g.Text)
	}
	return strings.Join(list, ", ")
}

// A Wrong is a schedule that is no answer.
type Wrong struct {
	Schedule string
	Says     string // what it is told
}

// ttl is what a scenario's clients ask for.
const ttl = 10 * time.Second

// Lecture returns the race's lecture in the course, from 1; 0: it is not taught.
func (s Scenario) Lecture() int {
	switch {
	case s.Star == 0:
		return 0
	case s.Star <= 12: // the lock that students write, and what no lock prevents
		return 1
	}
	return 2 // the locks of 2009
}

// Group returns the part of the name before the slash.
func (s Scenario) Group() string { group, _, _ := strings.Cut(s.Name, "/"); return group }
