package race

// A breach is an invariant broken, and how.
type breach struct {
	how        breachKind
	who, other uint8 // clients, from 0
}

type breachKind uint8

const (
	none breachKind = iota
	twoHold
	staleWrite
	removedAnothers
	changedAnothers
	falselyAcquired
	falselyExtended
	removedSuccessors
	stuck
	revived
	notLost
	removedNothing
	heldByNobody
	unknownWithoutLoss
	fenceOrder
	passedOver
)

// kinds are what each breaks, and how that is said, of who it was (%[1]s) and the other (%[2]s), of
// Config.Within and of how many turns there are.
var kinds = [...]struct{ invariant, text string }{
	none:               {},
	twoHold:            {"exclusion", "%[1]s and %[2]s both hold the lock"},
	staleWrite:         {"fencing", "the storage accepts %[1]s's write after a newer holder's"},
	removedAnothers:    {"ownership", "%[1]s removes the lock that %[2]s holds"},
	changedAnothers:    {"ownership", "%[1]s changes the lock that %[2]s holds"},
	falselyAcquired:    {"ownership", "%[1]s is told that it has the lock, but the key is not its own"},
	falselyExtended:    {"ownership", "%[1]s is told that its lease goes on, but the key is not its own"},
	removedSuccessors:  {"ownership", "a handle that %[1]s gave away before its hand-off releases the lock of the next holder"},
	stuck:              {"progress", "no client can take the lock within %[3]s"},
	revived:            {"progress", "%[1]s revives a lock that had expired"},
	notLost:            {"accuracy", "%[1]s is told that the lock was lost, but the key is its own"},
	removedNothing:     {"accuracy", "%[1]s is told that it released the lock, but it removed nothing of its own"},
	heldByNobody:       {"accuracy", "%[1]s is told that another holds the lock, but no client did"},
	unknownWithoutLoss: {"accuracy", "%[1]s is told that the outcome is unknown, but no message was lost"},
	fenceOrder:         {"fence-order", "%[1]s's fence does not fit the order of acquisition"},
	passedOver:         {"fairness", "%[1]s waits and asks again and again, and %[4]d times another client has come in before it"},
}

func (f breachKind) invariant() string { return kinds[f].invariant }

// says is how a breach is said; see kinds.
func (f breachKind) says() string { return kinds[f].text }

// A keyState is what the server holds under the key.
type keyState struct {
	present bool   // in memory, dead or alive
	alive   bool   // and has not expired
	value   uint32 // two values are equal exactly if their numbers are
	dies    int64  // ms; 0: never
}

// A ghost is what the invariants must remember and no client or server knows.
type ghost struct {
	writer      uint8 // 1 + the client that last changed the value; somebody; or nobody
	prevWriter  uint8 // before the last write, for a failover
	newest      uint8 // rank of the newest holder so far
	newestFence uint8
	stored      uint8 // rank of the last accepted write
	storedFence uint8
	late        uint8 // whose the write is that is on its way: 1 + the client; somebody: of an attempt that is over; or nobody
	mark        [maxClients]remark
}

const (
	nobody   uint8 = 0
	somebody uint8 = 7 // wrote before the run began, or in an attempt that is over
)

// A remark is a ghost's note about one client.
type remark struct {
	rank uint8 // its place in the order of acquisition
	bits uint8
}

const (
	mine  uint8 = 1 << iota // after its last command the key was its own
	gave                    // its command removed its own key, in this operation
	saw                     // another's value was on the key, in this attempt
	stall                   // it waits for time to pass before it reads its clock
	came                    // it waits for the lock, and another client has come in since it was refused

	waits uint8 = 1 << 5         // times 1 + the turns of others since it waits, in the bits from here
	turns uint8 = came | 7*waits // all that is known of its wait
)

// A judge checks the invariants. It keeps nothing: both engines hand it what
// happened, and the ghost.
type judge struct {
	c                                                                   *setup
	exclusion, fencing, ownership, progress, accuracy, fenceOrder, fair bool
	tracks                                                              bool // the writer is of interest
	ranks                                                               bool
	form                                                                form
	servers                                                             int
	shared                                                              [maxClients]bool
	skew                                                                [maxClients]int64
}

func newJudge(c *setup) *judge {
	j := &judge{c: c, exclusion: c.checks("exclusion"), fencing: c.checks("fencing"), ownership: c.checks("ownership"),
		progress: c.checks("progress"), accuracy: c.checks("accuracy"), fenceOrder: c.checks("fence-order"), fair: c.checks("fairness")}
	j.form, j.servers = c.form(), c.servers()
	j.ranks = j.fencing || j.fenceOrder
	j.tracks = j.ownership || j.accuracy || j.ranks
	for i := range c.Clients {
		j.skew[i] = c.skew(i)
		j.shared[i] = c.entry(i).Among
	}
	return j
}

type stances [maxClients]*stance

// valid reports whether a client holds the lock by its own clock.
func (j *judge) valid(st *stances, i int, now int64) bool {
	return st[i].holds && now+j.skew[i] < st[i].until
}

// command judges what client i's command did to the key.
// wrote says that it changed anything on the server, touched that a WATCH of
// the key would have noticed, late that it arrived after it was given up. What arrives when the
// attempt is over that sent it is nobody's lock: the client that is then refused is told the truth.
func (j *judge) command(g *ghost, st *stances, i int, now int64, before, after keyState, wrote, touched, late bool) breach {
	if j.progress && after.alive && before.present && !before.alive && before.value == after.value && g.writer != uint8(i+1) {
		return breach{how: revived, who: uint8(i)}
	}
	if !j.tracks {
		return breach{}
	}
	was, self := g.writer, uint8(i+1)
	by := self
	if late {
		by = g.late
	}
	changed := before.present != after.present || before.value != after.value || before.dies != after.dies
	if wrote {
		g.prevWriter = was
	}
	if before.value != after.value || before.present != after.present {
		g.writer = by
		if !after.present {
			g.writer = nobody
		}
	}
	if changed && after.present && g.writer == self && j.ranks {
		g.rank(i)
	}
	m := &g.mark[i]
	m.bits &^= mine
	if after.alive && g.writer == self {
		m.bits |= mine
	}
	if before.present && !after.present && was == self {
		m.bits |= gave
	}
	for k := range j.c.Clients {
		if st[k].phase == acquiring && (before.present && was != uint8(k+1) || after.present && g.writer != uint8(k+1)) {
			g.mark[k].bits |= saw
		}
	}
	if owner := int(was) - 1; j.ownership && (changed || touched) && before.alive && owner >= 0 && owner < j.c.Clients && owner != i && j.valid(st, owner, now) {
		if after.present {
			return breach{changedAnothers, uint8(i), uint8(owner)}
		}
		return breach{removedAnothers, uint8(i), uint8(owner)}
	}
	return breach{}
}

// server notes what the server did to the key by itself.
func (j *judge) server(g *ghost, after keyState) {
	if !after.present {
		g.writer = nobody
	}
}

// rank makes client i the newest in the order of acquisition, and the order
// dense again.
func (g *ghost) rank(i int) {
	top := max(g.newest, g.stored)
	for _, m := range g.mark {
		top = max(top, m.rank)
	}
	g.mark[i].rank = top + 1
	g.dense()
}

func (g *ghost) dense() {
	var used [16]bool
	used[g.newest&15], used[g.stored&15] = true, true
	for _, m := range g.mark {
		used[m.rank&15] = true
	}
	var to [16]uint8
	n := uint8(0)
	for r := 1; r < 16; r++ {
		if used[r] {
			n++
			to[r] = n
		}
	}
	g.newest, g.stored = to[g.newest&15], to[g.stored&15]
	for i := range g.mark {
		g.mark[i].rank = to[g.mark[i].rank&15]
	}
}

// leaves notes that an attempt of a client is over: what it left behind is no client's that could
// still act on it.
func (g *ghost) leaves(client int) {
	for _, w := range [...]*uint8{&g.writer, &g.prevWriter, &g.late} {
		if *w == uint8(client+1) {
			*w = somebody
		}
	}
}

// result judges how an operation of client i ended. st is the client as it
// goes on from there; stands says that the value of its lease is on the server,
// if the lock is one of members.
func (j *judge) result(g *ghost, st *stance, i int, now int64, r result, stands bool) breach {
	m, own := &g.mark[i], now+j.skew[i]
	if r.op == opAgain {
		g.leaves(i)
		if j.tracks && (g.writer != nobody || j.form != oneKey) {
			m.bits |= saw
		}
		return breach{}
	}
	if r.op == opAcquire && r.how == done && j.form != oneKey {
		// It gets its rank when the client hears of it. A lock that excludes lets nobody
		// else take it between that and the taking while its lease lasts.
		if j.ranks && !j.shared[i] {
			g.rank(i)
		}
		if stands {
			m.bits |= mine
		}
	}
	bits := m.bits
	m.bits &^= mine | gave | saw
	at := func(f breachKind, on bool) breach {
		if !on {
			return breach{}
		}
		return breach{how: f, who: uint8(i)}
	}
	if r.op == opExtend && r.how == done && j.fenceOrder && m.rank == g.newest {
		g.newestFence = max(g.newestFence, uint8(min(st.fence, 255))) // handed on, it is another's
	}
	switch {
	case r.how == done && r.op == opAcquire && bits&mine == 0 && own < st.until:
		return at(falselyAcquired, j.ownership)
	case r.how == done && r.op == opExtend && bits&mine == 0 && own < st.until:
		return at(falselyExtended, j.ownership)
	case r.how == done && r.op == opRelease && bits&gave == 0 && !r.lossy && j.form != quorum:
		return at(removedNothing, j.accuracy)
	case r.op == opStale:
		return at(removedSuccessors, j.ownership && (bits&gave != 0 || r.how == done && own < st.until))
	case r.how == lost && r.op != opAcquire && bits&mine != 0 && own < r.until && j.form != quorum:
		return at(notLost, j.accuracy)
	case r.how == held && bits&saw == 0:
		return at(heldByNobody, j.accuracy)
	case r.how == unknown && !r.lossy:
		return at(unknownWithoutLoss, j.accuracy)
	case r.how == done && r.op == opAcquire && j.fenceOrder && !j.shared[i]:
		return at(fenceOrder, !g.fenced(m.rank, st.fence))
	}
	return breach{}
}

// turn notes how an attempt of client i ended, for it and for those who wait. Who comes in in the
// midst of another's attempt, or was on its way when that was refused, passes nobody by.
func (j *judge) turn(g *ghost, st *stances, i int, r result) breach {
	if !j.fair || r.op != opAcquire {
		return breach{}
	}
	m := &g.mark[i]
	switch r.how {
	case done:
		m.bits &^= turns
		for k := range j.c.Clients {
			if k != i && g.mark[k].bits&turns != 0 && st[k].phase == idle {
				g.mark[k].bits |= came
			}
		}
	case held:
		switch n := m.bits / waits; {
		case n == 0:
			m.bits |= waits
		case m.bits&came != 0 && int(n) > j.c.Clients:
			return breach{how: passedOver, who: uint8(i)}
		case m.bits&came != 0:
			m.bits = m.bits&^came + waits
		}
	}
	return breach{}
}

// fenced notes an acquisition of rank with its number, and reports whether
// the numbers grow as the ranks do.
func (g *ghost) fenced(rank uint8, fence int64) bool {
	f := uint8(min(fence, 255))
	if rank > g.newest {
		ok := f > g.newestFence
		g.newest, g.newestFence = rank, f
		return ok
	}
	return rank == g.newest || f < g.newestFence
}

// write judges a write to the storage.
func (j *judge) write(g *ghost, st *stance, i int) (accepted bool, b breach) {
	if j.c.Fence && uint8(min(st.fence, 255)) < g.storedFence {
		return false, b
	}
	m := g.mark[i]
	if j.fencing && m.rank < g.stored {
		b = breach{how: staleWrite, who: uint8(i)}
	}
	g.stored = m.rank
	if j.c.Fence {
		g.storedFence = uint8(min(st.fence, 255))
	}
	return true, b
}

// state judges a state: who holds the lock in it.
func (j *judge) state(st *stances, now int64) breach {
	if !j.exclusion {
		return breach{}
	}
	first, alone := -1, false
	for i := range j.c.Clients {
		if !st[i].holds || now+j.skew[i] >= st[i].until {
			continue
		}
		shared := j.shared[i] || st[i].reads
		if first >= 0 && (alone || !shared) {
			return breach{twoHold, uint8(first), uint8(i)}
		}
		if first < 0 || !shared {
			first, alone = i, !shared
		}
	}
	return breach{}
}

// tidy forgets of a client what no invariant will ask for, so that states that
// differ in nothing else are one.
func (j *judge) tidy(g *ghost, st *stances) {
	if !j.tracks {
		for i := range j.c.Clients {
			g.mark[i].bits &= stall | turns
		}
		g.late = nobody
		return
	}
	ranked := false
	for i := range j.c.Clients {
		m := &g.mark[i]
		switch st[i].phase {
		case idle, finished:
			ranked = ranked || m.rank != 0
			*m = remark{bits: m.bits & turns}
			if st[i].phase == finished {
				m.bits = 0
			}
			g.leaves(i)
		case holding:
			m.bits = 0
		case acquiring:
			if !j.accuracy {
				m.bits &= mine | stall | turns
			}
		default:
			m.bits &^= saw
		}
	}
	if j.c.Faults.Failover == 0 {
		g.prevWriter = nobody
	}
	if ranked {
		g.dense()
	}
}
