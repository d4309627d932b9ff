package search

import (
	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/embedded"
	"github.com/setnxlock/setnxlock/compat/race/internal/judge"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A turn is one choice being made on a state.
type turn struct {
	x  *search
	t  state
	st judge.States
	b  breaches

	refused int // 1 + the command of the next request that the server refuses; 0: none
}

// breaches are those of one step, the first one first.
type breaches [3]judge.Breach

func (x *search) turn(s *state) turn {
	return turn{x: x, t: *s, st: x.clientStates(s)}
}

func (u *turn) broke(b judge.Breach) {
	if b.How == judge.None {
		return
	}
	for i := range u.b {
		if u.b[i].How == judge.None {
			u.b[i] = b
			return
		}
	}
}

// end tidies the state and judges it.
func (u *turn) end() (state, breaches) {
	u.x.judge.Tidy(&u.t.ghost, &u.st)
	u.broke(u.x.judge.State(&u.st, int64(u.t.now)))
	return u.t, u.b
}

// step makes a client's choice; see live.World for the same on live code, with a stop after each
// command. Here all commands of one write run together: a server reads what a client has written in
// one piece. ran is how many commands of a write run before a Cut.
func (x *search) step(s *state, verb plan.Verb, i, ran int) (t state, b breaches, ok bool) {
	x.words, x.learned = 1, false
	if s.ghost.Mark[i].Bits&judge.Stall != 0 {
		return t, b, false
	}
	kind := x.runs.nodes[s.cells[i].node].kind
	if kind == client.Ends {
		return t, b, false
	}
	u := x.turn(s)
	if kind == client.ReadsClock {
		u.readClock(i)
	}
	x.past = true
	switch u.node(i).kind {
	case client.Works:
		if verb != plan.Step {
			return t, b, false
		}
		_, stale := x.judge.Write(&u.t.ghost, u.st[i], i)
		u.broke(stale)
		u.resume(i, inputWrote)
		t, b = u.end()
		return t, b, true
	case client.Sends:
		if !u.write(i, verb, ran) {
			return t, b, false
		}
	default:
		switch verb {
		case plan.Drop, plan.Sever, plan.Cut, plan.Refuse, plan.Delay, plan.Stall:
			return t, b, false
		}
	}
	u.along(i)
	toLearn := u.node(i).toLearn
	switch {
	case verb == plan.Stall && !toLearn:
		return t, b, false
	case verb == plan.Stall:
		u.t.ghost.Mark[i].Bits |= judge.Stall
		u.t.budget = u.t.budget.lessLate(1)
	case toLearn:
		x.learned = true
		u.readClock(i)
	}
	t, b = u.end()
	return t, b, true
}

// write sends client i's write, with the fault of the verb, if possible.
func (u *turn) write(i int, verb plan.Verb, ran int) (can bool) {
	n, broken := u.node(i), false
	switch verb {
	case plan.Delay:
		if can = n.first && u.t.cells[i].conn != cutConn; can {
			u.delay(i, n.req)
		}
		return can
	case plan.Refuse:
		return u.sendRefused(i, ran&255, ran>>8)
	case plan.Sever:
		can = n.first
	default:
		broken, can = u.sendTo(i, verb, ran)
	}
	if can && !broken && u.node(i).kind == client.Sends {
		u.send(i, verb)
	}
	return can
}

// sendTo runs the commands of a write up to the verb's: the last one, or the one before a cut. It
// reports can if there is one, or if the connection was broken before it.
func (u *turn) sendTo(i int, verb plan.Verb, ran int) (broken, can bool) {
	for n := 0; ; n++ {
		at := u.node(i)
		if n > 0 && (at.kind != client.Sends || at.first) {
			return true, verb != plan.Cut && verb != plan.Drop // the server has closed it, or is gone
		}
		if verb == plan.Cut && n == ran || verb != plan.Cut && at.last {
			return false, true
		}
		if verb == plan.Cut && at.last {
			return false, false
		}
		u.send(i, plan.Step)
		u.x.words++
	}
}

// sendRefused runs the commands of a write; of its at-th request the nth is refused.
func (u *turn) sendRefused(i, at, nth int) (can bool) {
	for n := 0; ; n++ {
		now := *u.node(i)
		if n > 0 && (now.kind != client.Sends || now.first) {
			return n > at // the server has closed the connection, or is gone
		}
		if n == at {
			cmds := u.x.runs.requests[now.req].Cmds
			if u.x.past = nth >= len(cmds); u.x.past || !embedded.Refusable(cmds[nth]) || u.t.cells[i].conn == cutConn {
				return false
			}
			u.spend(plan.Refuse)
			u.refused = nth + 1
		}
		u.send(i, plan.Step)
		u.refused = 0
		if now.last {
			return n >= at
		}
		u.x.words++
	}
}

func (u *turn) node(i int) *node { return &u.x.runs.nodes[u.t.cells[i].node] }

// local reports whether the client's next request runs along; see client.Request.Local.
func (u *turn) local(i int) bool {
	n := u.node(i)
	return n.local != client.Shared && n.local.Is(u.x.trans.conns[u.t.cells[i].conn].Multi)
}

// along runs client i to its next stop.
func (u *turn) along(i int) {
	for {
		switch {
		case u.node(i).along:
			u.readClock(i)
		case u.local(i):
			u.send(i, plan.Step)
		default:
			return
		}
	}
}

func (u *turn) readClock(i int) {
	u.resume(i, clockIs(int64(u.t.now)+u.x.judge.Skew[i]))
}

// resume gives client i an input and lets it run to its next request.
func (u *turn) resume(i int, input uint32) {
	c := &u.t.cells[i]
	h := u.x.runs.child(c.node, input)
	c.node = h.to
	if h.closed() {
		c.conn = noConn
	}
	u.st[i] = &u.x.runs.nodes[h.to].State
	if h.rest < 2 {
		return
	}
	for _, r := range u.x.runs.ended[h.rest>>1] {
		stands := u.x.judge.Form == plan.Members && r.Op == client.OpAcquire && u.x.trans.stands(u.t.content, u.st[i].Value)
		u.broke(u.x.judge.Result(&u.t.ghost, u.st[i], i, int64(u.t.now), r, stands))
		u.broke(u.x.judge.Turn(&u.t.ghost, &u.st, i, r))
	}
}

// send runs client i's command, or loses it.
func (u *turn) send(i int, verb plan.Verb) {
	c := &u.t.cells[i]
	u.spend(verb)
	if c.conn == cutConn || verb == plan.Sever || verb == plan.Cut {
		c.conn = noConn
		u.resume(i, inputLost)
		return
	}
	reply := u.execute(i)
	if verb == plan.Drop || reply == inputLost {
		c.conn, reply = noConn, inputLost
	}
	u.resume(i, reply)
}

// delay has client i give its connection up, with a write from req on under way.
func (u *turn) delay(i int, req uint32) {
	c := &u.t.cells[i]
	u.t.late = flight{req: req + 1, conn: max(c.conn, newConn), client: uint8(i), left: u.t.late.left - 1}
	u.t.ghost.Late = uint8(i + 1)
	c.conn = noConn
	u.resume(i, inputLost)
}

// arrive delivers the delayed write. Nobody hears of its replies.
func (x *search) arrive(s *state) (state, breaches) {
	x.words, x.learned = 1, false
	u := x.turn(s)
	f := s.late
	u.t.late = flight{left: f.left}
	conn := f.conn
	for _, req := range x.runs.write(f.req - 1) {
		var reply uint32
		if reply, conn = u.run(int(f.client), req, conn, -1); reply == inputLost {
			break // the server has closed it
		}
	}
	u.t.ghost.Late = judge.Nobody
	return u.end()
}

// execute runs client i's request on the server.
func (u *turn) execute(i int) (reply uint32) {
	c := &u.t.cells[i]
	req := u.node(i).req
	if r := &u.x.runs.requests[req]; r.Server > 0 && u.x.trans.contents[u.t.content].down&(1<<r.Server) != 0 {
		return inputLost // no server answers
	}
	reply, c.conn = u.run(i, req, max(c.conn, newConn), i)
	return reply
}

// run runs client i's request on the server over the connection of the cell own; -1: an abandoned one.
func (u *turn) run(i int, req uint32, conn uint16, own int) (reply uint32, left uint16) {
	x := u.x
	was, now := u.t.content, u.t.now
	e := execution{content: was, now: now, req: req, of: &x.runs.requests[req], conn: conn, refused: u.refused}
	id, done := x.trans.do(e)
	to, reply, after, touched := done.content, done.reply, done.conn, done.touched
	for k := range x.c.Clients {
		if w := u.t.cells[k].conn; k != own && w > newConn {
			u.t.cells[k].conn = x.trans.watched(id, e, w)
		}
	}
	if w := u.t.late.conn; w > newConn {
		u.t.late.conn = x.trans.watched(id, e, w)
	}
	u.t.content = to
	if to != was && x.c.Faults.Failover > 0 {
		u.t.prev = was
	}
	if x.judge.Form != plan.OneKey {
		u.broke(x.judge.Values(&u.t.ghost, &u.st, i, int64(now), x.liveValues(&u.st, was, to)))
	} else if x.judge.Tracks || x.judge.Progress {
		u.broke(x.judge.Command(&u.t.ghost, &u.st, i, int64(now), judge.Effect{Before: x.trans.key(was, now), After: x.trans.key(to, now),
			Wrote: to != was, Touched: touched, Late: own < 0}))
	}
	return reply, after
}

// canLook reports whether a client can read its clock and not send before until, and whether the early
// reading makes a difference.
func (x *search) canLook(s *state, i int, until int32) bool {
	at := s.cells[i].node
	if x.runs.nodes[at].kind != client.ReadsClock || s.ghost.Mark[i].Bits&judge.Stall != 0 {
		return false
	}
	early := x.runs.child(at, clockIs(int64(s.now)+x.judge.Skew[i])).to
	return x.runs.nodes[early].kind == client.Sends && (x.c.KeepHistory || early != x.runs.child(at, clockIs(int64(until)+x.judge.Skew[i])).to)
}

// pass lets time go by, after some clients have looked at their clocks.
func (x *search) pass(s *state, m move) (state, breaches) {
	u := x.turn(s)
	for i := range x.c.Clients {
		if m.looks()&(1<<i) != 0 {
			u.readClock(i)
			u.t.budget = u.t.budget.lessLate(1)
		}
	}
	u.t.budget = u.t.budget.less(ofTicks)
	u.act(m.verb(), m.until())
	u.t.now = m.until()
	for i := range x.c.Clients {
		u.t.ghost.Mark[i].Bits &^= judge.Stall
	}
	x.judge.Server(&u.t.ghost, x.trans.key(u.t.content, u.t.now))
	return u.end()
}

// spend takes a fault off the budget, if it is counted there.
func (u *turn) spend(verb plan.Verb) {
	if kind := kindOfFault[verb]; kind > 0 {
		u.t.budget = u.t.budget.less(kind)
	}
}

var kindOfFault = [...]int{plan.Drop: ofReplies, plan.Sever: ofRequests, plan.Cut: ofCuts, plan.Refuse: ofRefusals,
	plan.Restart: ofRestart, plan.Failover: ofFailover, plan.Evict: ofEvict, plan.Down: ofDown, plan.Jump: 0}

// act lets the server do something by itself; see probeServer.perform.
func (u *turn) act(verb plan.Verb, n int32) {
	x, was, now := u.x, u.t.content, u.t.now
	u.t.content = x.trans.act(was, now, verb, n)
	if u.t.content == was {
		return // nothing was touched
	}
	for k := range x.c.Clients {
		if w := u.t.cells[k].conn; w > newConn {
			u.t.cells[k].conn = x.trans.actWatched(was, now, verb, n, w)
		}
	}
	if w := u.t.late.conn; w > newConn {
		u.t.late.conn = x.trans.actWatched(was, now, verb, n, w)
	}
}

// serve makes a choice of the server's, or of one of several.
func (x *search) serve(s *state, verb plan.Verb, server int) (state, breaches) {
	u := x.turn(s)
	if server == 0 && (verb == plan.Restart || verb == plan.Failover) {
		u.t.late, u.t.ghost.Late = flight{left: u.t.late.left}, judge.Nobody
		for i := range x.c.Clients {
			if c := &u.t.cells[i]; c.conn != noConn {
				c.conn = cutConn
			}
		}
	}
	u.spend(verb)
	if verb == plan.Failover {
		u.t.content = x.trans.act(u.t.prev, u.t.now, plan.Failover, 0)
		u.t.ghost.Writer = u.t.ghost.PrevWriter
	} else {
		u.act(verb, int32(server))
	}
	x.judge.Server(&u.t.ghost, x.trans.key(u.t.content, u.t.now))
	return u.end()
}

// liveValues looks where the values stand before and after a command.
func (x *search) liveValues(st *judge.States, was, to uint32) *judge.LiveValues {
	s := &judge.LiveValues{Any: x.trans.contents[was].busy || x.trans.contents[to].busy}
	if x.judge.Form == plan.Members {
		for k := range x.c.Clients {
			s.Before[k] = x.trans.stands(was, st[k].Value)
			s.After[k] = x.trans.stands(to, st[k].Value)
		}
	}
	return s
}
