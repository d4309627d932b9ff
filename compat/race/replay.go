package race

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
)

func replay(c *setup, choices []Choice) (Trace, error) {
	w, err := newWorld(c)
	if err != nil {
		return Trace{}, err
	}
	defer w.close()
	s := newNarrator(w)
	var made []Choice
	for n, choice := range choices {
		c := choice
		if c.Verb == Run {
			c.Verb = Step
		}
		for {
			d, err := w.apply(c)
			if err != nil {
				return s.trace, fmt.Errorf("word %d, %v: %w", n+1, choice, err)
			}
			made = append(made, c)
			s.add(d)
			if choice.Verb != Run || w.resting(c.Client) {
				break
			}
		}
	}
	s.trace.Schedule = Schedule(c.Config, made)
	s.argue()
	return s.trace, nil
}

// resting reports whether a client stands between two attempts, or after the last.
func (w *world) resting(i int) bool {
	p := w.players[i].phase
	return p == idle || p == finished
}

// A narrator turns deeds into a Trace.
type narrator struct {
	w     *world
	trace Trace
	deeds []*deed
	store *Storage
	prev  Server
}

func newNarrator(w *world) *narrator {
	c := w.c
	s := &narrator{w: w, trace: Trace{
		Format: TraceFormat, Title: c.Name, Algorithm: c.Algorithm, Server: c.Server, Key: c.Key, TTL: c.TTL.Milliseconds(),
	}}
	for i := range c.Clients {
		client := Client{Name: name(i), Skew: c.skew(i)}
		if strings.Contains(c.Algorithm, "+") {
			client.Runs = c.runs(i)
		}
		s.trace.Clients = append(s.trace.Clients, client)
	}
	if c.Write {
		s.store = &Storage{}
	}
	s.trace.Start = s.server()
	s.prev = s.trace.Start
	return s
}

func name(client int) string { return fmt.Sprintf("C%d", client+1) }

// add adds the event of a deed.
func (s *narrator) add(d *deed) {
	w, c := s.w, d.choice
	e := Event{N: len(s.trace.Events) + 1, At: w.now, Lost: d.lost}
	switch {
	case c.clients():
		e.Who = name(c.Client)
		e.Cmd = commandText(d.cmds, w.c.Key)
		if d.lost == "" || d.lost == "reply" {
			e.Reply = repliesText(d.cmds, d.replies)
		}
	case c.Verb == Pass || c.Verb == PassUnreaped:
		e.Who = "time"
	default:
		e.Who = "redis"
	}
	e.Note, e.Why = s.note(d), s.why(d)
	if d.write && d.taken {
		p := w.players[c.Client]
		s.store = &Storage{Writer: name(c.Client), Fence: p.fence}
	}
	e.Server = s.server()
	e.Belief = s.beliefs(d)
	e.Changed = s.changed(e)
	if d.breach.how != none {
		v := Violation{Invariant: d.breach.how.invariant(), Text: s.breachText(d.breach)}
		e.Violation = &v
		if s.trace.Verdict.Violated == "" {
			s.trace.Verdict = Verdict{Violated: v.Invariant, Step: e.N}
		}
	}
	s.prev = e.Server
	s.trace.Events = append(s.trace.Events, e)
	s.deeds = append(s.deeds, d)
}

// server is what is true now.
func (s *narrator) server() Server {
	w := s.w
	out := Server{TTL: -1, Storage: s.store}
	if w.c.servers() > 0 {
		out.Each = make([]Server, serverCount)
		for i := range out.Each {
			out.Each[i].TTL = -1
		}
	}
	for _, e := range w.s.Snapshot().Entries(w.s) {
		ttl := int64(-1)
		if !e.Expires.IsZero() {
			ttl = max(0, millis(e.Expires)-w.now)
		}
		n := serverOf(e.Key)
		switch {
		case n > 0 && e.Key == keyOn(w.c.Key, n):
			out.Each[n-1] = Server{Value: decode(e.Value), Raw: e.Value, TTL: ttl, Dead: e.Unreaped, Writer: writerName(w.writers[e.Key])}
		case n > 0 && e.Key == nth(n)+downKey:
			out.Each[n-1] = Server{Value: "gone", TTL: -1}
		case e.DB == 0 && e.Key == w.c.Key:
			out.Raw, out.Value, out.TTL, out.Dead = e.Value, contents(e), ttl, e.Unreaped
		case e.Key == fenceKey(w.c.Key):
			fmt.Sscan(e.Value, &out.Fence) //nolint:errcheck
		default:
			other := beside(decode(e.Key), w.c.Key) + " = " + contents(e)
			if ttl >= 0 {
				other += " ttl " + Seconds(ttl)
			}
			out.Others = append(out.Others, other)
		}
	}
	out.Writer = writerName(w.writers[w.c.Key])
	if out.Each != nil {
		out.votes()
	}
	for i, p := range w.players {
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

// votes is what several servers come to, in a line: their values, and who wrote them if it was one client.
func (s *Server) votes() {
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
	case nobody:
		return ""
	case somebody:
		return "somebody before"
	}
	return name(int(w) - 1)
}

// contents is what a key holds, readable: of a sorted set each member with its
// score, where that is a time.
func contents(e oldredis.Entry) string {
	switch e.Type {
	case "string":
		return decode(e.Value)
	case "zset":
		var list []string
		for i := 0; i+1 < len(e.Elements); i += 2 {
			score := e.Elements[i+1]
			if ms := stampOfScore(score); ms != 0 {
				score = "t=" + Seconds(ms)
			}
			list = append(list, decode(e.Elements[i])+" "+score)
		}
		return strings.Join(list, ", ")
	}
	return e.Type
}

// beliefs are what the clients think after a deed.
func (s *narrator) beliefs(d *deed) map[string]Belief {
	all := make(map[string]Belief, len(s.w.players))
	for i, p := range s.w.players {
		b := Belief{Now: s.w.now + s.w.judge.skew[i], Until: -1, Fence: p.fence}
		if p.holds {
			b.Until = p.until
		}
		switch {
		case p.dead:
			b.State = Dead
		case p.paused:
			b.State = Paused
		case d.write && d.choice.Client == i && d.choice.clients():
			b.State = Acts
		case p.holds && b.Now < p.until:
			b.State = Holds
		case p.holds:
			b.State = RunOut
		case (p.phase == idle || p.phase == finished) && p.ended && p.last == lost:
			b.State = Lost
		case (p.phase == idle || p.phase == finished) && p.ended && p.last == unknown, p.lossy:
			b.State = Unknown
		case p.phase == idle || p.phase == finished:
			b.State = Idle
		default:
			b.State = Asking
		}
		if !p.dead {
			b.Next = s.next(p)
		}
		all[name(i)] = b
	}
	return all
}

// next is what a client is about to do.
func (s *narrator) next(p *player) string {
	switch p.pending.kind {
	case sends:
		return commandText(p.pending.cmds, s.w.c.Key)
	case works:
		return "writes to the storage"
	case readsClock:
		switch p.phase {
		case idle:
			return "tries to take the lock"
		case holding:
			return "releases"
		}
		return "reads its clock"
	}
	return ""
}

// changed says what differs from the step before.
func (s *narrator) changed(e Event) []string {
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
	for i := range s.w.players {
		was := Idle
		if n := len(s.trace.Events); n > 0 {
			was = s.trace.Events[n-1].Belief[name(i)].State
		}
		add(e.Belief[name(i)].State != was, name(i))
	}
	return list
}

// at is the time of the last event.
func (s *narrator) at() int64 {
	if n := len(s.trace.Events); n > 0 {
		return s.trace.Events[n-1].At
	}
	return 0
}

// ends2 is when a TTL seen at a moment ends: a TTL that only went by has not changed.
func ends2(ttl, at int64) int64 {
	if ttl < 0 {
		return -1
	}
	return at + ttl
}

// secondsOf writes a duration as the rest of a trace does.
func secondsOf(d time.Duration) string { return Seconds(d.Milliseconds()) }
