package race

import (
	"fmt"
	"maps"
	"runtime"

	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// A player is a client in a world.
type player struct {
	agent
	next    func() (request, bool)
	stop    func()
	pending request
	reply   answer
	conn    *oldredis.Conn // nil while none is in use
	cut     bool           // the server has cut it
	paused  bool
	dead    bool
	last    ending    // of its last operation
	ended   bool      // there was one
	heard   uint64    // all that it heard in this attempt
	spotted bool      // stack is wanted,
	stack   []uintptr // where it asked last
}

// play is a client's coroutine.
func (p *player) play(yield func(request) bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crashed); !ok {
				panic(r)
			}
		}
	}()
	p.ask = func(r request) answer {
		if p.spotted {
			p.stack = append(p.stack[:0], make([]uintptr, 64)...)
			p.stack = p.stack[:runtime.Callers(1, p.stack)]
		}
		if !yield(r) {
			p.leaving = true
			panic(crashed{})
		}
		return p.reply
	}
	for k := range p.c.Attempts {
		p.run(k)
	}
	p.stance = stance{phase: finished, attempt: p.c.Attempts, asked: -1}
	for {
		p.ask(request{kind: ends})
	}
}

// act is a client's choice.
func (w *world) act(d *deed, c Choice) error {
	p := w.players[c.Client]
	name := fmt.Sprintf("C%d", c.Client+1)
	switch {
	case c.Verb == Arrive:
		return w.arrive(d, c.Client)
	case p.dead:
		return disabled("%s is dead", name)
	case c.Verb == Crash:
		p.dead, p.holds, p.phase = true, false, finished
		p.stop()
		w.hangUp(p)
		return nil
	case c.Verb == Clock:
		w.judge.skew[c.Client] += c.By.Milliseconds()
		return nil
	case c.Verb == Pause && !p.paused, c.Verb == Resume && p.paused:
		p.paused = c.Verb == Pause
		return nil
	case c.Verb == Pause || c.Verb == Resume:
		return disabled("%s is paused: %t", name, p.paused)
	case p.paused:
		return disabled("%s is paused", name)
	case p.pending.kind == ends:
		return disabled("%s has made its last attempt", name)
	case w.ghost.mark[c.Client].bits&stall != 0:
		return disabled("%s waits for time to pass", name)
	}
	return w.step(d, c)
}

// step runs a client to the next place where it can be stopped.
func (w *world) step(d *deed, c Choice) error {
	i := c.Client
	p := w.players[i]
	faulty := c.Verb == Drop || c.Verb == Sever || c.Verb == Cut || c.Verb == Refuse || c.Verb == Delay
	if c.Verb == Look && p.pending.kind != readsClock {
		return disabled("C%d is not about to read its clock", i+1)
	}
	d.phase = p.phase
	if p.pending.kind == readsClock {
		d.read = true
		w.readClock(d, i)
		d.phase = p.phase
		if c.Verb == Look {
			if p.pending.kind != sends {
				return disabled("C%d sends nothing after it has read its clock", i+1)
			}
			return nil
		}
	}
	switch p.pending.kind {
	case works:
		if faulty || c.Verb == Stall {
			return disabled("C%d sends no command", i+1)
		}
		d.write = true
		var b breach
		d.taken, b = w.judge.write(&w.ghost, &p.stance, i)
		d.broke(b)
		w.resume(d, i, answer{})
		return nil
	case sends:
		if err := w.send(d, i, c); err != nil {
			return err
		}
	default:
		if faulty || c.Verb == Stall {
			return disabled("C%d sends no command", i+1)
		}
	}
	if err := w.along(d, i); err != nil {
		return err
	}
	toLearn := p.pending.kind == readsClock && p.got
	switch {
	case c.Verb == Stall && !toLearn:
		return disabled("C%d is not about to read its clock for the end of its lease", i+1)
	case c.Verb == Stall:
		w.ghost.mark[i].bits |= stall
	case toLearn:
		w.readClock(d, i)
	}
	return nil
}

// along runs what client i does without stopping.
func (w *world) along(d *deed, i int) error {
	p := w.players[i]
	for {
		switch {
		case p.pending.along:
			w.readClock(d, i)
		case p.pending.local().is(p.conn != nil && p.conn.State().Multi):
			if err := w.send(d, i, Choice{}); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (w *world) readClock(d *deed, i int) {
	w.resume(d, i, answer{ms: w.now + w.judge.skew[i]})
}

// send runs the command that client i has sent, or loses it.
func (w *world) send(d *deed, i int, c Choice) error {
	p, verb := w.players[i], c.Verb
	r := p.pending
	refused := 0
	switch {
	case verb == Drop && !r.last:
		return disabled("more commands follow in the same write: C%d.cut, or drop the last one's reply", i+1)
	case verb == Sever && !r.first:
		return disabled("commands of the same write have run: C%d.cut", i+1)
	case verb == Refuse && (c.Nth >= len(r.cmds) || !refusable(r.cmds[c.Nth]) || p.cut):
		return disabled("C%d sends nothing there that can be refused", i+1)
	case verb == Delay && (!r.first || p.cut):
		return disabled("C%d begins no write there that could still arrive", i+1)
	case verb == Delay && w.late != nil:
		return disabled("C%d's write is on its way already", w.late.client+1)
	case verb == Refuse:
		refused = c.Nth + 1
	case verb == Cut && r.first:
		return disabled("it is the first command of its write: C%d.sever", i+1)
	}
	d.cmds = append(d.cmds, r.cmds...)
	var got answer
	switch {
	case verb == Delay:
		for _, cmds := range r.rest {
			d.cmds = append(d.cmds, cmds...)
		}
		d.lost, got.lost = "late", true
		w.late = &flown{i, p.conn, append([][][]string{r.cmds}, r.rest...)}
		w.ghost.late = uint8(i + 1)
		p.conn = nil
	case p.cut || verb == Sever || verb == Cut:
		d.lost = "request"
		if verb == Cut {
			d.lost = "cut"
		}
		got.lost = true
	case verb == Stale:
		var err error
		if got, err = w.stale(d, i, r); err != nil {
			return err
		}
		d.replies = append(d.replies, got.replies...)
	default:
		got = w.execute(d, i, r, refused)
		d.replies = append(d.replies, got.replies...)
		if verb == Drop {
			d.lost, got = "reply", answer{lost: true}
		} else if got.lost && r.server > 0 {
			d.lost = "request"
		} else if got.lost {
			d.lost = "reply" // the server closes the connection on what it does not know
		}
	}
	if got.lost {
		w.hangUp(p)
	}
	w.resume(d, i, got)
	return nil
}

// execute runs a command on the server, which refuses one of those that it is
// made of, counted from 1.
func (w *world) execute(d *deed, i int, r request, refused int) answer {
	p := w.players[i]
	if r.server > 0 && down(w.s.Snapshot().Entries(w.s))&(1<<r.server) != 0 {
		return answer{lost: true}
	}
	if p.conn == nil {
		p.conn = w.s.Dial().(*oldredis.Conn)
	}
	return w.run(d, i, p.conn, r.cmds, refused, false)
}

// A flown is a write on its way, with its connection.
type flown struct {
	client int
	conn   *oldredis.Conn // nil: none was in use
	write  [][][]string
}

// arrive has the write that is on its way reach the server. Nobody hears of its replies.
func (w *world) arrive(d *deed, i int) error {
	f := w.late
	if f == nil || f.client != i {
		return disabled("nothing of C%d's is on its way", i+1)
	}
	w.late = nil
	conn := f.conn
	if conn == nil {
		conn = w.s.Dial().(*oldredis.Conn)
	}
	defer conn.Close()
	d.phase = w.players[i].phase
	for _, cmds := range f.write {
		got := w.run(d, i, conn, cmds, 0, true)
		d.cmds, d.replies = append(d.cmds, cmds...), append(d.replies, got.replies...)
		if got.lost {
			break
		}
	}
	w.ghost.late = nobody
	return nil
}

// run has the server run commands of client i's over a connection, late if it was given up.
func (w *world) run(d *deed, i int, conn *oldredis.Conn, cmds [][]string, refused int, late bool) answer {
	before, content, was := w.key(), w.s.Snapshot(), w.onKeys()
	w.onlooker.SetState(oldredis.ConnState{Watched: []oldredis.WatchedKey{{Key: w.c.Key}}})
	replies, err := runRefusing(w.s, conn, cmds, refused)
	touched := w.onlooker.Dirty()
	w.onlooker.SetState(oldredis.ConnState{})
	wrote := w.s.Snapshot().ContentKey() != content.ContentKey()
	if wrote {
		w.before, w.wrote = content, maps.Clone(w.writers)
	}
	w.writes(was, uint8(i+1))
	if w.judge.form != oneKey {
		d.broke(w.judge.values(&w.ghost, w.stances(), i, w.now, w.standing(content.Entries(w.s), w.s.Snapshot().Entries(w.s))))
	} else {
		d.broke(w.judge.command(&w.ghost, w.stances(), i, w.now, before, w.key(), wrote, touched, late))
	}
	return answer{replies: replies, lost: err != nil}
}

// resume gives client i its answer and lets it run to its next request.
func (w *world) resume(d *deed, i int, got answer) {
	p := w.players[i]
	p.reply = got
	p.heard = mix(p.heard, text(uint64(got.ms)<<1|truth(got.lost), replyKey(got.replies)))
	attempt := p.attempt
	next, ok := p.next()
	if !ok {
		panic("race: a client's code ended by itself")
	}
	p.pending = next
	if p.attempt != attempt {
		p.heard = 0
	}
	if p.closed {
		p.closed = false
		w.hangUp(p)
	}
	for _, r := range p.results {
		if r.op != opAgain {
			p.last, p.ended = r.how, true
			d.results = append(d.results, r)
		}
		stands := w.judge.form == members && r.op == opAcquire && p.value != "" && stands(w.s.Snapshot().Entries(w.s), p.value)
		d.broke(w.judge.result(&w.ghost, &p.stance, i, w.now, r, stands))
		d.broke(w.judge.turn(&w.ghost, w.stances(), i, r))
	}
	p.results = p.results[:0]
}

// hangUp ends a client's connection.
func (w *world) hangUp(p *player) {
	if p.conn != nil {
		p.conn.Close()
	}
	p.conn, p.cut = nil, false
}

// standing is the same in a world, over two of its contents.
func (w *world) standing(before, after []oldredis.Entry) *standing {
	s := &standing{any: busy(w.c, before) || busy(w.c, after)}
	if w.judge.form == members {
		for k, p := range w.players {
			if p.value != "" {
				s.before[k], s.after[k] = stands(before, p.value), stands(after, p.value)
			}
		}
	}
	return s
}
