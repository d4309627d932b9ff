package live

import (
	"fmt"
	"maps"
	"runtime"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/embedded"
	"github.com/setnxlock/setnxlock/compat/race/internal/judge"
	"github.com/setnxlock/setnxlock/compat/race/internal/memo"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A player is a client in a world.
type player struct {
	client.Agent
	next    func() (client.Request, bool)
	stop    func()
	Pending client.Request
	reply   client.Answer
	conn    *oldredis.Conn // nil while none is in use
	cut     bool           // the server has cut it
	paused  bool
	dead    bool
	last    client.Ending // of its last operation
	ended   bool          // there was one
	heard   uint64        // all that it heard in this attempt
	spotted bool          // stack is wanted,
	stack   []uintptr     // where it asked last
}

// play runs as a client's coroutine.
func (p *player) play(yield func(client.Request) bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(client.Crashed); !ok {
				panic(r)
			}
		}
	}()
	p.Ask = func(r client.Request) client.Answer {
		if p.spotted {
			p.stack = append(p.stack[:0], make([]uintptr, 64)...)
			p.stack = p.stack[:runtime.Callers(1, p.stack)]
		}
		if !yield(r) {
			p.Leaving = true
			panic(client.Crashed{})
		}
		return p.reply
	}
	for k := range p.Setup.Attempts {
		p.Run(k)
	}
	p.State = client.State{Phase: client.Finished, Attempt: p.Setup.Attempts, Asked: -1}
	for {
		p.Ask(client.Request{Kind: client.Ends})
	}
}

// act makes a client's choice.
func (w *World) act(d *Outcome, c plan.Choice) error {
	p := w.Players[c.Client]
	name := fmt.Sprintf("C%d", c.Client+1)
	switch {
	case c.Verb == plan.Arrive:
		return w.arrive(d, c.Client)
	case p.dead:
		return disabled("%s is dead", name)
	case c.Verb == plan.Crash:
		p.dead, p.Holds, p.Phase = true, false, client.Finished
		p.stop()
		w.hangUp(p)
		return nil
	case c.Verb == plan.Clock:
		w.Judge.Skew[c.Client] += c.By.Milliseconds()
		return nil
	case c.Verb == plan.Pause && !p.paused, c.Verb == plan.Resume && p.paused:
		p.paused = c.Verb == plan.Pause
		return nil
	case c.Verb == plan.Pause || c.Verb == plan.Resume:
		return disabled("%s is paused: %t", name, p.paused)
	case p.paused:
		return disabled("%s is paused", name)
	case p.Pending.Kind == client.Ends:
		return disabled("%s has made its last attempt", name)
	case w.ghost.Mark[c.Client].Bits&judge.Stall != 0:
		return disabled("%s waits for time to pass", name)
	}
	return w.step(d, c)
}

// step runs a client to the next place where it can be stopped.
func (w *World) step(d *Outcome, c plan.Choice) error {
	i := c.Client
	p := w.Players[i]
	faulty := c.Verb == plan.Drop || c.Verb == plan.Sever || c.Verb == plan.Cut || c.Verb == plan.Refuse ||
		c.Verb == plan.Delay
	if c.Verb == plan.Look && p.Pending.Kind != client.ReadsClock {
		return disabled("C%d is not about to read its clock", i+1)
	}
	d.phase = p.Phase
	if p.Pending.Kind == client.ReadsClock {
		d.read = true
		w.readClock(d, i)
		d.phase = p.Phase
		if c.Verb == plan.Look {
			if p.Pending.Kind != client.Sends {
				return disabled("C%d sends nothing after it has read its clock", i+1)
			}
			return nil
		}
	}
	switch p.Pending.Kind {
	case client.Works:
		if faulty || c.Verb == plan.Stall {
			return disabled("C%d sends no command", i+1)
		}
		d.write = true
		var b judge.Breach
		d.taken, b = w.Judge.Write(&w.ghost, &p.State, i)
		d.broke(b)
		w.resume(d, i, client.Answer{})
		return nil
	case client.Sends:
		if err := w.send(d, i, c); err != nil {
			return err
		}
	default:
		if faulty || c.Verb == plan.Stall {
			return disabled("C%d sends no command", i+1)
		}
	}
	if err := w.along(d, i); err != nil {
		return err
	}
	toLearn := p.Pending.Kind == client.ReadsClock && p.Got
	switch {
	case c.Verb == plan.Stall && !toLearn:
		return disabled("C%d is not about to read its clock for the end of its lease", i+1)
	case c.Verb == plan.Stall:
		w.ghost.Mark[i].Bits |= judge.Stall
	case toLearn:
		w.readClock(d, i)
	}
	return nil
}

// along runs client i to its next stop.
func (w *World) along(d *Outcome, i int) error {
	p := w.Players[i]
	for {
		switch {
		case p.Pending.Along:
			w.readClock(d, i)
		case p.Pending.Local().Is(p.conn != nil && p.conn.State().Multi):
			if err := w.send(d, i, plan.Choice{}); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (w *World) readClock(d *Outcome, i int) {
	w.resume(d, i, client.Answer{Now: w.Now + w.Judge.Skew[i]})
}

// send runs client i's command, or loses it.
func (w *World) send(d *Outcome, i int, c plan.Choice) error {
	p, verb := w.Players[i], c.Verb
	r := p.Pending
	refused := 0
	switch {
	case verb == plan.Drop && !r.Last:
		return disabled("more commands follow in the same write: C%d.cut, or drop the last one's reply", i+1)
	case verb == plan.Sever && !r.First:
		return disabled("commands of the same write have run: C%d.cut", i+1)
	case verb == plan.Refuse && (c.Nth >= len(r.Cmds) || !embedded.Refusable(r.Cmds[c.Nth]) || p.cut):
		return disabled("C%d sends nothing there that can be refused", i+1)
	case verb == plan.Delay && (!r.First || p.cut):
		return disabled("C%d begins no write there that could still arrive", i+1)
	case verb == plan.Delay && w.late != nil:
		return disabled("C%d's write is on its way already", w.late.client+1)
	case verb == plan.Refuse:
		refused = c.Nth + 1
	case verb == plan.Cut && r.First:
		return disabled("it is the first command of its write: C%d.sever", i+1)
	}
	d.Cmds = append(d.Cmds, r.Cmds...)
	var got client.Answer
	switch {
	case verb == plan.Delay:
		for _, cmds := range r.Rest {
			d.Cmds = append(d.Cmds, cmds...)
		}
		d.lost, got.Lost = "late", true
		w.late = &delayedWrite{i, p.conn, append([][][]string{r.Cmds}, r.Rest...)}
		w.ghost.Late = uint8(i + 1)
		p.conn = nil
	case p.cut || verb == plan.Sever || verb == plan.Cut:
		d.lost = "request"
		if verb == plan.Cut {
			d.lost = "cut"
		}
		got.Lost = true
	case verb == plan.Stale:
		var err error
		if got, err = w.stale(d, i, r); err != nil {
			return err
		}
		d.replies = append(d.replies, got.Replies...)
	default:
		got = w.execute(d, i, r, refused)
		d.replies = append(d.replies, got.Replies...)
		if verb == plan.Drop {
			d.lost, got = "reply", client.Answer{Lost: true}
		} else if got.Lost && r.Server > 0 {
			d.lost = "request"
		} else if got.Lost {
			d.lost = "reply" // the server closes the connection on what it does not know
		}
	}
	if got.Lost {
		w.hangUp(p)
	}
	w.resume(d, i, got)
	return nil
}

// execute runs a command on the server; the server refuses part nth of it, counted from 1.
func (w *World) execute(d *Outcome, i int, r client.Request, refused int) client.Answer {
	p := w.Players[i]
	if r.Server > 0 && embedded.Down(w.Server.Snapshot().Entries(w.Server))&(1<<r.Server) != 0 {
		return client.Answer{Lost: true}
	}
	if p.conn == nil {
		p.conn = w.Server.Dial().(*oldredis.Conn)
	}
	return w.run(d, i, p.conn, r.Cmds, refused, false)
}

// A delayedWrite is a write on its way, with its connection.
type delayedWrite struct {
	client int
	conn   *oldredis.Conn // nil: none was in use
	write  [][][]string
}

// arrive delivers the delayed write. Nobody hears of its replies.
func (w *World) arrive(d *Outcome, i int) error {
	f := w.late
	if f == nil || f.client != i {
		return disabled("nothing of C%d's is on its way", i+1)
	}
	w.late = nil
	conn := f.conn
	if conn == nil {
		conn = w.Server.Dial().(*oldredis.Conn)
	}
	defer conn.Close()
	d.phase = w.Players[i].Phase
	for _, cmds := range f.write {
		got := w.run(d, i, conn, cmds, 0, true)
		d.Cmds, d.replies = append(d.Cmds, cmds...), append(d.replies, got.Replies...)
		if got.Lost {
			break
		}
	}
	w.ghost.Late = judge.Nobody
	return nil
}

// run sends client i's commands over a connection, late if it was given up.
func (w *World) run(d *Outcome, i int, conn *oldredis.Conn, cmds [][]string, refused int, late bool) client.Answer {
	e, content, was := judge.Effect{Before: w.key(), Late: late}, w.Server.Snapshot(), w.onKeys()
	w.observer.SetState(oldredis.ConnState{Watched: []oldredis.WatchedKey{{Key: w.c.Stands()}}})
	replies, err := embedded.RunRefusing(w.Server, conn, cmds, refused)
	e.Touched = w.observer.Dirty()
	w.observer.SetState(oldredis.ConnState{})
	e.After, e.Wrote = w.key(), w.Server.Snapshot().ContentKey() != content.ContentKey()
	if e.Wrote {
		w.Before, w.wrote = content, maps.Clone(w.writers)
	}
	w.writes(was, uint8(i+1))
	if w.Judge.Form != plan.OneKey {
		d.broke(w.Judge.Values(&w.ghost, w.States(), i, w.Now,
			w.liveValues(content.Entries(w.Server), w.Server.Snapshot().Entries(w.Server))))
	} else {
		d.broke(w.Judge.Command(&w.ghost, w.States(), i, w.Now, e))
	}
	return client.Answer{Replies: replies, Lost: err != nil}
}

// resume gives client i its answer and lets it run to its next request.
func (w *World) resume(d *Outcome, i int, got client.Answer) {
	p := w.Players[i]
	p.reply = got
	p.heard = memo.Mix(p.heard, memo.Text(uint64(got.Now)<<1|memo.Truth(got.Lost), embedded.ReplyKey(got.Replies)))
	attempt := p.Attempt
	next, ok := p.next()
	if !ok {
		panic("race: a client's code ended by itself")
	}
	p.Pending = next
	if p.Attempt != attempt {
		p.heard = 0
	}
	if p.Closed {
		p.Closed = false
		w.hangUp(p)
	}
	for _, r := range p.Results {
		if r.Op != client.OpAgain {
			p.last, p.ended = r.How, true
			d.results = append(d.results, r)
		}
		stands := w.Judge.Form == plan.Members && r.Op == client.OpAcquire && p.Value != "" &&
			judge.Stands(w.Server.Snapshot().Entries(w.Server), p.Value)
		d.broke(w.Judge.Result(&w.ghost, &p.State, i, w.Now, r, stands))
		d.broke(w.Judge.Turn(&w.ghost, w.States(), i, r))
	}
	p.Results = p.Results[:0]
}

// hangUp ends a client's connection.
func (w *World) hangUp(p *player) {
	if p.conn != nil {
		p.conn.Close()
	}
	p.conn, p.cut = nil, false
}

// liveValues is the same in a world, over two of its contents.
func (w *World) liveValues(before, after []oldredis.Entry) *judge.LiveValues {
	s := &judge.LiveValues{Any: embedded.Busy(w.c, before) || embedded.Busy(w.c, after)}
	if w.Judge.Form == plan.Members {
		for k, p := range w.Players {
			if p.Value != "" {
				s.Before[k], s.After[k] = judge.Stands(before, p.Value), judge.Stands(after, p.Value)
			}
		}
	}
	return s
}
