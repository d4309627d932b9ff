package live

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/embedded"
	"github.com/setnxlock/setnxlock/compat/race/internal/judge"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/trace"
)

// Replay runs the choices on a live server and writes the trace. One that can't be made is an error.
func Replay(c *plan.Setup, choices []plan.Choice) (trace.Trace, error) {
	if slices.ContainsFunc(choices, func(c plan.Choice) bool { return c.Verb == plan.Failover }) && c.Faults.Failover == 0 {
		own := *c // the judge has to remember whose the key was before the last write
		own.Faults.Failover = 1
		c = &own
	}
	w, err := NewWorld(c)
	if err != nil {
		return trace.Trace{}, err
	}
	defer w.Close()
	s := newNarrator(w)
	var made []plan.Choice
	for n, choice := range choices {
		c := choice
		if c.Verb == plan.Run {
			c.Verb = plan.Step
		}
		for {
			d, err := w.Apply(c)
			if err != nil {
				return s.trace, fmt.Errorf("word %d, %v: %w", n+1, choice, err)
			}
			made = append(made, c)
			s.add(d)
			if choice.Verb != plan.Run || w.resting(c.Client) {
				break
			}
		}
	}
	s.trace.Schedule = plan.Schedule(c.Config, made)
	s.argue()
	return s.trace, nil
}

// resting reports whether a client stands between two attempts, or after the last.
func (w *World) resting(i int) bool {
	p := w.Players[i].Phase
	return p == client.Idle || p == client.Finished
}

// A narrator turns outcomes into a Trace.
type narrator struct {
	w        *World
	trace    trace.Trace
	outcomes []*Outcome
	store    *trace.Storage
	prev     trace.Server
}

func newNarrator(w *World) *narrator {
	c := w.c
	s := &narrator{w: w, trace: trace.Trace{
		Format: trace.TraceFormat, Title: c.Name, Algorithm: c.Algorithm, Server: c.Server, Key: c.Key,
		TTL: c.TTL.Milliseconds(),
	}}
	for i := range c.Clients {
		client := trace.Client{Name: name(i), Skew: c.SkewOf(i)}
		if strings.Contains(c.Algorithm, "+") {
			client.Runs = c.Runs(i)
		}
		s.trace.Clients = append(s.trace.Clients, client)
	}
	if c.Write {
		s.store = &trace.Storage{}
	}
	s.trace.Start = s.server()
	s.prev = s.trace.Start
	return s
}

func name(client int) string { return fmt.Sprintf("C%d", client+1) }

// add adds the event of a outcome.
func (s *narrator) add(d *Outcome) {
	w, c := s.w, d.choice
	e := trace.Event{N: len(s.trace.Events) + 1, At: w.Now, Lost: d.lost}
	switch {
	case byClient(c):
		e.Who = name(c.Client)
		e.Cmd = commandText(d.Cmds, w.c.Key)
		if d.lost == "" || d.lost == "reply" {
			e.Reply = repliesText(d.Cmds, d.replies)
		}
	case c.Verb == plan.Pass || c.Verb == plan.PassUnreaped:
		e.Who = "time"
	default:
		e.Who = "redis"
	}
	e.Note, e.Why = s.note(d), s.why(d)
	if d.write && d.taken {
		p := w.Players[c.Client]
		s.store = &trace.Storage{Writer: name(c.Client), Fence: p.Fence}
	}
	e.Server = s.server()
	e.Belief = s.beliefs(d)
	e.Changed = s.changed(e)
	if d.Breach.How != judge.None {
		v := trace.Violation{Invariant: d.Breach.How.Invariant(), Text: s.breachText(d.Breach)}
		e.Violation = &v
		if s.trace.Verdict.Violated == "" {
			s.trace.Verdict = trace.Verdict{Violated: v.Invariant, Step: e.N}
		}
	}
	s.prev = e.Server
	s.trace.Events = append(s.trace.Events, e)
	s.outcomes = append(s.outcomes, d)
}

// server reads the server's state.
func (s *narrator) server() trace.Server {
	w := s.w
	out := trace.Server{TTL: -1, Storage: s.store}
	if w.c.Servers() > 0 {
		out.Each = make([]trace.Server, w.c.Servers())
		for i := range out.Each {
			out.Each[i].TTL = -1
		}
	}
	for _, e := range w.Server.Snapshot().Entries(w.Server) {
		ttl := int64(-1)
		if !e.Expires.IsZero() {
			ttl = max(0, plan.Millis(e.Expires)-w.Now)
		}
		n := plan.ServerOf(e.Key)
		switch {
		case n > 0 && e.Key == plan.KeyOn(w.c.Key, n):
			out.Each[n-1] = trace.Server{Value: decode(e.Value), Raw: e.Value, TTL: ttl, Dead: e.Unreaped, Writer: writerName(w.writers[e.Key])}
		case n > 0 && e.Key == plan.Nth(n)+plan.DownKey:
			out.Each[n-1] = trace.Server{Value: "gone", TTL: -1}
		case e.DB == 0 && e.Key == w.c.Key:
			out.Raw, out.Value, out.TTL, out.Dead = e.Value, contents(e), ttl, e.Unreaped
		case e.Key == plan.FenceKey(w.c.Key):
			fmt.Sscan(e.Value, &out.Fence) //nolint:errcheck
		default:
			other := beside(decode(e.Key), w.c.Key) + " = " + contents(e)
			if ttl >= 0 {
				other += " ttl " + trace.Seconds(ttl)
			}
			out.Others = append(out.Others, other)
		}
	}
	out.Writer = writerName(w.writers[w.c.Key])
	if out.Each != nil {
		votes(&out)
	}
	for i, p := range w.Players {
		if p.conn != nil {
			if st := p.conn.State(); len(st.Watched) > 0 {
				who := name(i)
				if p.conn.Dirty() {
					who += " (touched)"
				}
				out.Watched = append(out.Watched, who)
			}
		}
	}
	return out
}

// votes joins the values of several servers in a line, and names their writer if it was one client.
func votes(s *trace.Server) {
	list := make([]string, len(s.Each))
	for i, one := range s.Each {
		list[i] = cmp.Or(one.Value, "-")
		switch {
		case one.Writer == "":
		case s.Writer == "":
			s.Writer = one.Writer
		case s.Writer != one.Writer:
			s.Writer = "several"
		}
	}
	if s.Value = strings.Join(list, " "); strings.Trim(s.Value, "- ") == "" {
		s.Value = ""
	}
}

func writerName(w uint8) string {
	switch w {
	case judge.Nobody:
		return ""
	case judge.Somebody:
		return "somebody before"
	}
	return name(int(w) - 1)
}

// contents writes a key's value, readable: of a sorted set each member with its score, if it is a
// time.
func contents(e oldredis.Entry) string {
	switch e.Type {
	case "string":
		return decode(e.Value)
	case "zset":
		var list []string
		for i := 0; i+1 < len(e.Elements); i += 2 {
			score := e.Elements[i+1]
			if ms := embedded.StampOfScore(score); ms != 0 {
				score = "t=" + trace.Seconds(ms)
			}
			list = append(list, decode(e.Elements[i])+" "+score)
		}
		return strings.Join(list, ", ")
	}
	return e.Type
}

// beliefs reads the clients' beliefs after a outcome.
func (s *narrator) beliefs(d *Outcome) map[string]trace.Belief {
	all := make(map[string]trace.Belief, len(s.w.Players))
	for i, p := range s.w.Players {
		b := trace.Belief{Now: s.w.Now + s.w.Judge.Skew[i], Until: -1, Fence: p.Fence}
		if p.Holds {
			b.Until = p.Until
		}
		switch {
		case p.dead:
			b.State = trace.Dead
		case p.paused:
			b.State = trace.Paused
		case d.write && d.choice.Client == i && byClient(d.choice):
			b.State = trace.Acts
		case p.Holds && b.Now < p.Until:
			b.State = trace.Holds
		case p.Holds:
			b.State = trace.RunOut
		case (p.Phase == client.Idle || p.Phase == client.Finished) && p.ended && p.last == client.Lost:
			b.State = trace.Lost
		case (p.Phase == client.Idle || p.Phase == client.Finished) && p.ended && p.last == client.Unknown, p.Lossy:
			b.State = trace.Unknown
		case p.Phase == client.Idle || p.Phase == client.Finished:
			b.State = trace.Idle
		default:
			b.State = trace.Asking
		}
		if !p.dead {
			b.Next = s.next(p)
		}
		all[name(i)] = b
	}
	return all
}

// next names a client's next command.
func (s *narrator) next(p *player) string {
	switch p.Pending.Kind {
	case client.Sends:
		return commandText(p.Pending.Cmds, s.w.c.Key)
	case client.Works:
		return "writes to the storage"
	case client.ReadsClock:
		switch p.Phase {
		case client.Idle:
			return "tries to take the lock"
		case client.Holding:
			return "releases"
		}
		return "reads its clock"
	}
	return ""
}

// changed lists the differences from the step before.
func (s *narrator) changed(e trace.Event) []string {
	var list []string
	a, b := s.prev, e.Server
	add := func(on bool, what string) {
		if on {
			list = append(list, what)
		}
	}
	add(a.Value != b.Value || a.Raw != b.Raw || a.Dead != b.Dead, "key")
	add(ends2(a.TTL, s.at()) != ends2(b.TTL, e.At), "ttl")
	add(a.Fence != b.Fence, "fence")
	add(a.Storage != b.Storage && b.Storage != nil && a.Storage != nil && *a.Storage != *b.Storage, "storage")
	add(strings.Join(a.Others, "\n") != strings.Join(b.Others, "\n"), "others")
	add(strings.Join(a.Watched, "\n") != strings.Join(b.Watched, "\n"), "watched")
	for i := range s.w.Players {
		was := trace.Idle
		if n := len(s.trace.Events); n > 0 {
			was = s.trace.Events[n-1].Belief[name(i)].State
		}
		add(e.Belief[name(i)].State != was, name(i))
	}
	return list
}

// at returns the time of the last event.
func (s *narrator) at() int64 {
	if n := len(s.trace.Events); n > 0 {
		return s.trace.Events[n-1].At
	}
	return 0
}

// ends2 computes a TTL's end from a moment: a TTL in the past has not changed.
func ends2(ttl, at int64) int64 {
	if ttl < 0 {
		return -1
	}
	return at + ttl
}

// secondsOf writes a duration as the rest of a trace does.
func secondsOf(d time.Duration) string { return trace.Seconds(d.Milliseconds()) }

// ReplaySchedule replays a whole line, as plan.Schedule writes it. Its algorithms are this module's, or of locks.
func ReplaySchedule(line string, locks plan.Locks) (trace.Trace, error) {
	c, choices, err := plan.ParseSchedule(line)
	c.Locks = locks
	if err != nil {
		return trace.Trace{}, err
	}
	if c.Algorithm == "" {
		return trace.Trace{}, errors.New("race: a schedule begins with algorithm, server and clients x attempts, and a colon")
	}
	full, err := plan.Complete(c)
	if err != nil {
		return trace.Trace{}, err
	}
	return Replay(full, choices)
}
