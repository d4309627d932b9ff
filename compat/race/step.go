package race

// A turn is one choice being made on a state.
type turn struct {
	x  *search
	t  state
	st stances
	b  breaches

	refused int // 1 + the command of the next request that the server refuses; 0: none
}

// breaches are those of one step, the first one first.
type breaches [3]breach

func (x *search) turn(s *state) turn {
	return turn{x: x, t: *s, st: x.stances(s)}
}

func (u *turn) broke(b breach) {
	if b.how == none {
		return
	}
	for i := range u.b {
		if u.b[i].how == none {
			u.b[i] = b
			return
		}
	}
}

// end tidies the state and judges it.
func (u *turn) end() (state, breaches) {
	u.x.judge.tidy(&u.t.ghost, &u.st)
	u.broke(u.x.judge.state(&u.st, int64(u.t.now)))
	return u.t, u.b
}

// step is a client's choice; see world.step, which does the same on live code,
// but stops after each command. Here all commands of one write run together: a
// server reads what a client has written in one piece. ran is how many commands
// of a write run before a Cut.
func (x *search) step(s *state, verb Verb, i, ran int) (t state, b breaches, ok bool) {
	x.words, x.learned = 1, false
	if s.ghost.mark[i].bits&stall != 0 {
		return t, b, false
	}
	kind := x.runs.nodes[s.cells[i].node].kind
	if kind == ends {
		return t, b, false
	}
	u := x.turn(s)
	if kind == readsClock {
		u.readClock(i)
	}
	faulty := verb == Drop || verb == Sever || verb == Cut || verb == Refuse || verb == Delay
	x.past = true
	switch n := u.node(i); n.kind {
	case works:
		if verb != Step {
			return t, b, false
		}
		_, stale := x.judge.write(&u.t.ghost, u.st[i], i)
		u.broke(stale)
		u.resume(i, inputWrote)
		t, b = u.end()
		return t, b, true
	case sends:
		if verb == Delay {
			if !n.first || u.t.cells[i].conn == cutConn {
				return t, b, false
			}
			u.delay(i, n.req)
			break
		}
		if verb == Refuse {
			if !u.sendRefused(i, ran&255, ran>>8) {
				return t, b, false
			}
			break
		}
		if verb == Sever && !n.first {
			return t, b, false
		}
		broken := false
		if verb != Sever {
			var can bool
			if broken, can = u.sendTo(i, verb, ran); !can {
				return t, b, false
			}
		}
		if u.node(i).kind == sends && !broken {
			u.send(i, verb)
		}
	default:
		if faulty || verb == Stall {
			return t, b, false
		}
	}
	u.along(i)
	toLearn := u.node(i).toLearn
	switch {
	case verb == Stall && !toLearn:
		return t, b, false
	case verb == Stall:
		u.t.ghost.mark[i].bits |= stall
		u.t.budget = u.t.budget.lessLate(1)
	case toLearn:
		x.learned = true
		u.readClock(i)
	}
	t, b = u.end()
	return t, b, true
}

// sendTo runs the commands of a write up to where the verb wants it: the last
// one, or the one before which it is cut. It reports can if there is one, or if
// the connection was broken before it.
func (u *turn) sendTo(i int, verb Verb, ran int) (broken, can bool) {
	for n := 0; ; n++ {
		at := u.node(i)
		if n > 0 && (at.kind != sends || at.first) {
			return true, verb != Cut && verb != Drop // the server has closed it, or is gone
		}
		if verb == Cut && n == ran || verb != Cut && at.last {
			return false, true
		}
		if verb == Cut && at.last {
			return false, false
		}
		u.send(i, Step)
		u.x.words++
	}
}

// sendRefused runs the commands of a write; of its at-th request the nth is refused.
func (u *turn) sendRefused(i, at, nth int) (can bool) {
	for n := 0; ; n++ {
		now := *u.node(i)
		if n > 0 && (now.kind != sends || now.first) {
			return n > at // the server has closed the connection, or is gone
		}
		if n == at {
			cmds := u.x.runs.requests[now.req].cmds
			if u.x.past = nth >= len(cmds); u.x.past || !refusable(cmds[nth]) || u.t.cells[i].conn == cutConn {
				return false
			}
			u.spend(Refuse)
			u.refused = nth + 1
		}
		u.send(i, Step)
		u.refused = 0
		if now.last {
			return n >= at
		}
		u.x.words++
	}
}

func (u *turn) node(i int) *node { return &u.x.runs.nodes[u.t.cells[i].node] }

// local reports whether the client's next request runs along; see request.local.
func (u *turn) local(i int) bool {
	n := u.node(i)
	return n.local != shared && n.local.is(u.x.trans.conns[u.t.cells[i].conn].Multi)
}

// along runs what client i does without stopping.
func (u *turn) along(i int) {
	for {
		switch {
		case u.node(i).along:
			u.readClock(i)
		case u.local(i):
			u.send(i, Step)
		default:
			return
		}
	}
}

func (u *turn) readClock(i int) {
	u.resume(i, clockIs(int64(u.t.now)+u.x.judge.skew[i]))
}

// resume gives client i an input and lets it run to its next request.
func (u *turn) resume(i int, input uint32) {
	c := &u.t.cells[i]
	h := u.x.runs.child(c.node, input)
	c.node = h.to
	if h.closed() {
		c.conn = noConn
	}
	u.st[i] = &u.x.runs.nodes[h.to].stance
	if h.rest < 2 {
		return
	}
	for _, r := range u.x.runs.ended[h.rest>>1] {
		stands := u.x.judge.form == members && r.op == opAcquire && u.x.trans.stands(u.t.content, u.st[i].value)
		u.broke(u.x.judge.result(&u.t.ghost, u.st[i], i, int64(u.t.now), r, stands))
		u.broke(u.x.judge.turn(&u.t.ghost, &u.st, i, r))
	}
}

// send runs the command that client i has sent, or loses it.
func (u *turn) send(i int, verb Verb) {
	c := &u.t.cells[i]
	u.spend(verb)
	if c.conn == cutConn || verb == Sever || verb == Cut {
		c.conn = noConn
		u.resume(i, inputLost)
		return
	}
	reply := u.execute(i)
	if verb == Drop || reply == inputLost {
		c.conn, reply = noConn, inputLost
	}
	u.resume(i, reply)
}

// delay has client i give its connection up, with a write on its way that begins with req.
func (u *turn) delay(i int, req uint32) {
	c := &u.t.cells[i]
	u.t.late = flight{req: req + 1, conn: max(c.conn, newConn), client: uint8(i), left: u.t.late.left - 1}
	u.t.ghost.late = uint8(i + 1)
	c.conn = noConn
	u.resume(i, inputLost)
}

// arrive has the write that is on its way reach the server. Nobody hears of its replies.
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
	u.t.ghost.late = nobody
	return u.end()
}

// execute has the server run client i's request.
func (u *turn) execute(i int) (reply uint32) {
	c := &u.t.cells[i]
	req := u.node(i).req
	if r := &u.x.runs.requests[req]; r.server > 0 && u.x.trans.contents[u.t.content].down&(1<<r.server) != 0 {
		return inputLost // no server answers
	}
	reply, c.conn = u.run(i, req, max(c.conn, newConn), i)
	return reply
}

// run has the server run a request of client i's over a connection, which is that of the cell
// own; -1: nobody's any more.
func (u *turn) run(i int, req uint32, conn uint16, own int) (reply uint32, left uint16) {
	x := u.x
	r := &x.runs.requests[req]
	was, now := u.t.content, u.t.now
	id, done := x.trans.do(was, now, req, r, conn, u.refused)
	to, reply, after, touched := done.content, done.reply, done.conn, done.touched
	for k := range x.c.Clients {
		if w := u.t.cells[k].conn; k != own && w > newConn {
			u.t.cells[k].conn = x.trans.watched(id, was, now, req, r, conn, u.refused, w)
		}
	}
	if w := u.t.late.conn; w > newConn {
		u.t.late.conn = x.trans.watched(id, was, now, req, r, conn, u.refused, w)
	}
	u.t.content = to
	if to != was && x.c.Faults.Failover > 0 {
		u.t.prev = was
	}
	if x.judge.form != oneKey {
		u.broke(x.judge.values(&u.t.ghost, &u.st, i, int64(now), x.standing(&u.st, was, to)))
	} else if x.judge.tracks || x.judge.progress {
		u.broke(x.judge.command(&u.t.ghost, &u.st, i, int64(now), x.trans.key(was, now), x.trans.key(to, now), to != was, touched, own < 0))
	}
	return reply, after
}

// canLook reports whether a client can read its clock and not send before
// until, and whether it makes a difference that it has read it so early.
func (x *search) canLook(s *state, i int, until int32) bool {
	at := s.cells[i].node
	if x.runs.nodes[at].kind != readsClock || s.ghost.mark[i].bits&stall != 0 {
		return false
	}
	early := x.runs.child(at, clockIs(int64(s.now)+x.judge.skew[i])).to
	return x.runs.nodes[early].kind == sends && (x.c.keepHistory || early != x.runs.child(at, clockIs(int64(until)+x.judge.skew[i])).to)
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
		u.t.ghost.mark[i].bits &^= stall
	}
	x.judge.server(&u.t.ghost, x.trans.key(u.t.content, u.t.now))
	return u.end()
}

// spend takes a fault off the budget, if it is counted there.
func (u *turn) spend(verb Verb) {
	if kind := kindOfFault[verb]; kind > 0 {
		u.t.budget = u.t.budget.less(kind)
	}
}

var kindOfFault = [...]int{Drop: ofReplies, Sever: ofRequests, Cut: ofCuts, Refuse: ofRefusals, Restart: ofRestart,
	Failover: ofFailover, Evict: ofEvict, Down: ofDown, Jump: 0}

// act lets the server do something by itself; see witness.perform.
func (u *turn) act(verb Verb, n int32) {
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

// serve is a choice of the server's, or of one of several.
func (x *search) serve(s *state, verb Verb, server int) (state, breaches) {
	u := x.turn(s)
	if server == 0 && (verb == Restart || verb == Failover) {
		u.t.late, u.t.ghost.late = flight{left: u.t.late.left}, nobody
		for i := range x.c.Clients {
			if c := &u.t.cells[i]; c.conn != noConn {
				c.conn = cutConn
			}
		}
	}
	u.spend(verb)
	if verb == Failover {
		u.t.content = x.trans.act(u.t.prev, u.t.now, Failover, 0)
		u.t.ghost.writer = u.t.ghost.prevWriter
	} else {
		u.act(verb, int32(server))
	}
	x.judge.server(&u.t.ghost, x.trans.key(u.t.content, u.t.now))
	return u.end()
}

// standing looks where the values stand before and after a command.
func (x *search) standing(st *stances, was, to uint32) *standing {
	s := &standing{any: x.trans.contents[was].busy || x.trans.contents[to].busy}
	if x.judge.form == members {
		for k := range x.c.Clients {
			s.before[k] = x.trans.stands(was, st[k].value)
			s.after[k] = x.trans.stands(to, st[k].value)
		}
	}
	return s
}
