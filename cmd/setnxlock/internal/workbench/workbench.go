// Package workbench is the explorer for a page in a browser: the reader is the
// scheduler and chooses who runs next and what goes wrong; the shipping code does
// the rest. Answer is all that the page asks; Site writes the page, with that code
// compiled for the browser.
package workbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/monitor"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/pages"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
)

// A Question is what the page asks.
type Question struct {
	Do       string `json:"do"`       // "table", "at", "protocol", "choices", "remedy", "survivors", "parties", "pair", "monitor", "sample", "templates", "form", "exercise", "find"
	Schedule string `json:"schedule"` // as race replay takes it

	Second string `json:"second"` // of "at": the lock beside it; of no name of a lock: any

	// Of "find" outside of a level: what may go wrong how often, and the invariant that is looked at; "": all.
	Faults race.Faults `json:"faults"`
	Ticks  int         `json:"ticks"`
	Check  string      `json:"check"`

	Race string `json:"race"` // of "exercise" its name, where Schedule has the words; of "find" a level's; "": Schedule's lock

	Pair [2]string `json:"pair"` // of "pair": names of "parties"

	Text string `json:"text"` // of "monitor": what redis-cli MONITOR has printed; of "form": the lines of a lock of your own
	Key  string `json:"key"`  // and which key is looked at; "": the one that looks most like a lock
}

// A Table is what there is to choose from.
type Table struct {
	Locks   []Named  `json:"locks"`
	Servers []string `json:"servers"`
}

// A Named is a lock of the table.
type Named struct {
	Name    string `json:"name"`
	Says    string `json:"says"`
	Shipped bool   `json:"shipped"` // this library's; else it is there to be broken
}

// A State is where a schedule leads.
type State struct {
	Trace   race.Trace  `json:"trace"`
	Picture string      `json:"picture"` // SVG
	Replay  string      `json:"replay"`  // the command that comes here
	Steps   []Option    `json:"steps"`   // each client's next
	Time    []Option    `json:"time"`    // how much of it can pass; until something ends first
	Code    []race.Spot `json:"code"`    // where each client stands
	Second  *Second     `json:"second"`  // another lock, under the same schedule
}

// An Option is a choice that can be made now, and what it would do.
type Option struct {
	Word   string      `json:"word"` // of a schedule
	Client string      `json:"client,omitempty"`
	Says   string      `json:"says"`            // what happens, in few words
	Short  string      `json:"short,omitempty"` // the same of a client or its message, for a button
	Cmd    string      `json:"cmd,omitempty"`
	Line   string      `json:"line,omitempty"` // Cmd as a ProtocolLine has it
	Reply  string      `json:"reply,omitempty"`
	Key    race.Server `json:"key"` // after it
}

// A Monitored is the answer to "monitor".
type Monitored struct {
	monitor.Log
	Picture string `json:"picture"` // SVG
}

// A Progress is how far an exploration has come.
type Progress struct {
	States  int     `json:"states"`
	Depth   int     `json:"depth"`
	Seconds float64 `json:"seconds"`
}

// Answer answers a question in JSON: {"answer": …}, or {"error": "…"} in a reader's words. progress,
// called now and then by an exploration, may be nil.
func Answer(ctx context.Context, asked []byte, progress func(Progress)) []byte {
	var q Question
	var answer any
	err := json.Unmarshal(asked, &q)
	if err == nil {
		answer, err = q.answer(ctx, progress)
	}
	if err != nil {
		answer = map[string]string{"error": reason(err)}
	} else {
		answer = map[string]any{"answer": answer}
	}
	b, err := json.Marshal(answer)
	if err != nil {
		panic(err) // of the types above none fails
	}
	return b
}

func (q Question) answer(ctx context.Context, progress func(Progress)) (any, error) {
	switch q.Do {
	case "table":
		return table(), nil
	case "find":
		return q.find(ctx, progress)
	case "survivors":
		return q.survivors(progress)
	case "parties":
		return parties(), nil
	case "monitor":
		log, err := monitor.Read(q.Text, monitor.Options{Key: q.Key})
		return Monitored{log, pages.Picture(log.Trace)}, err
	case "sample":
		return monitor.Sample, nil
	case "templates":
		return catalogue.Templates(), nil
	case "exercise":
		return marked(q.Race, q.Schedule)
	case "form":
		name := catalogue.FormName(q.Text)
		_, err := catalogue.With(nil, name)
		return name, err
	case "pair":
		return pair(ctx, q.Pair)
	}
	p, err := q.position()
	if err != nil {
		return nil, err
	}
	switch q.Do {
	case "at":
		return p.state(q.Second)
	case "protocol":
		return p.protocols(), nil
	case "choices":
		return p.others(), nil
	case "remedy":
		r, err := race.Remedies(ctx, p.Trace, p.Config.Locks)
		return r.String(), err
	}
	return nil, fmt.Errorf("race: no question %q", q.Do)
}

var table = sync.OnceValue(func() Table {
	t := Table{Servers: slices.Concat(oldredis.Versions(), oldredis.Profiles(), oldredis.Today())}
	for _, name := range race.Algorithms(catalogue.Locks()) {
		lock, _, _ := strings.Cut(name, "/")
		t.Locks = append(t.Locks, Named{name, race.Describe(name, catalogue.Locks()), strings.Contains(lock, ":")})
	}
	return t
})

// read reads the schedule of the question.
func (q Question) read() (race.Config, []race.Choice, error) {
	c, choices, err := race.ParseSchedule(q.Schedule)
	if err == nil && c.Algorithm == "" {
		err = errors.New("race: a schedule begins with algorithm, server and clients x attempts, and a colon")
	}
	if err == nil {
		c.Locks, err = catalogue.With(Locks(), c.Algorithm)
	}
	return c, choices, err
}

func (q Question) position() (Position, error) {
	c, choices, err := q.read()
	if err != nil {
		return Position{}, err
	}
	return At(c, choices)
}

// reason removes the names of packages from an error.
func reason(err error) string {
	return strings.ReplaceAll(strings.TrimPrefix(err.Error(), "race: "), ": race: ", ": ")
}

func (p Position) state(second string) (State, error) {
	spots, err := race.Spots(p.Config, p.Choices)
	if err != nil {
		return State{}, err
	}
	return State{Trace: p.Trace, Picture: pages.Picture(p.Trace), Replay: p.Trace.ReplayLine(), Steps: p.steps(), Time: p.times(), Code: spots, Second: p.second(second)}, nil
}

// steps lists each client's next.
func (p Position) steps() []Option {
	var list []Option
	for i := range p.Trace.Clients {
		list = append(list, p.options("", race.Choice{Client: i})...)
	}
	return list
}

// times lists the possible jumps of time.
func (p Position) times() []Option {
	var list []Option
	if d, ok := p.Deadline(); ok {
		list = append(list, p.options(fmt.Sprintf("%v pass: %s", d.By, d.What), race.Choice{Verb: race.Pass, By: d.By})...)
		list = append(list, p.options(fmt.Sprintf("%v pass, and the server removes nothing yet", d.By), race.Choice{Verb: race.PassUnreaped, By: d.By})...)
	}
	return append(list, p.options("one second passes", race.Choice{Verb: race.Pass, By: time.Second})...)
}

// others lists the faults possible now.
func (p Position) others() []Option {
	var list []Option
	for i, c := range p.Trace.Clients {
		for _, f := range clientFaults {
			for _, o := range p.options(c.Name+f.says, race.Choice{Verb: f.verb, Client: i}) {
				o.Short = f.short
				list = append(list, o)
			}
		}
	}
	for _, f := range serverFaults {
		if f.verb != race.Down { // of one server there is nothing left
			list = append(list, p.options("the server "+f.says, race.Choice{Verb: f.verb})...)
		}
		for n := 1; n <= len(p.Trace.Start.Each); n++ {
			list = append(list, p.options(fmt.Sprintf("server %d %s", n, f.says), race.Choice{Verb: f.verb, Server: n})...)
		}
	}
	lease := time.Duration(p.Trace.TTL) * time.Millisecond
	for n := min(1, len(p.Trace.Start.Each)); n <= len(p.Trace.Start.Each); n++ {
		server := "the server"
		if n > 0 {
			server = fmt.Sprint("server ", n)
		}
		jump := race.Choice{Verb: race.Jump, Server: n, By: lease + time.Second}
		list = append(list, p.options(server+"'s clock is set forward by more than a lease", jump)...)
	}
	return list
}

type fault struct {
	verb  race.Verb
	short string
	says  string
}

var clientFaults = []fault{
	{race.Sever, "lose it", "'s request is lost"}, {race.Drop, "lose the reply", "'s reply is lost"},
	{race.Delay, "delay it", "'s request is delayed, and its connection given up"}, {race.Arrive, "the late one arrives", "'s delayed request arrives"},
	{race.Cut, "cut", "'s connection breaks within its write"}, {race.Refuse, "refuse it", "'s command is refused"},
	{race.Stall, "deliver, and go on late", " goes on, and looks at its clock late"}, {race.Look, "look at the clock, send later", " looks at its clock, and sends later"},
	{race.Pause, "pause", " pauses"}, {race.Resume, "resume", " resumes"}, {race.Crash, "crash", " crashes"},
}

var serverFaults = []fault{
	{race.Restart, "", "restarts empty"}, {race.Failover, "", "fails over, without its last write"}, {race.Evict, "", "drops the key"},
	{race.Reap, "", "removes what has expired"}, {race.Down, "", "answers no more"},
}

// options tries the choice. What it breaks is not said.
func (p Position) options(says string, c race.Choice) []Option {
	e, ok := p.Try(c)
	if !ok || (c.Verb == race.Reap || c.Verb == race.Evict) && !slices.Contains(e.Changed, "key") {
		return nil
	}
	o := Option{Word: c.String(), Says: says, Cmd: e.Cmd, Line: line(e.Cmd), Reply: e.Reply, Key: e.Server}
	if strings.HasPrefix(o.Word, "C") {
		o.Client = e.Who
	}
	if o.Says == "" {
		o.Says = e.Note
	}
	return []Option{o}
}
