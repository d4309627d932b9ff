// Package judge checks the invariants: it is told what clients and the server did, and says what that breaks. It
// remembers nothing but what its caller keeps for it (Ghost).
package judge

import (
	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A Breach is an invariant broken, and how.
type Breach struct {
	How        BreachKind
	Who, Other uint8 // clients, from 0
}

// A BreachKind is what went wrong, as a client or the storage saw it.
type BreachKind uint8

const (
	None BreachKind = iota
	TwoHold
	TooMany
	staleWrite
	removedAnothers
	changedAnothers
	falselyAcquired
	falselyExtended
	removedSuccessors
	Stuck
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
	None:               {},
	TwoHold:            {"exclusion", "%[1]s and %[2]s both hold the lock"},
	TooMany:            {"exclusion", "more clients hold the lock than may, %[1]s and %[2]s among them"},
	staleWrite:         {"fencing", "the storage accepts %[1]s's write after a newer holder's"},
	removedAnothers:    {"ownership", "%[1]s removes the lock that %[2]s holds"},
	changedAnothers:    {"ownership", "%[1]s changes the lock that %[2]s holds"},
	falselyAcquired:    {"ownership", "%[1]s is told that it has the lock, but the key is not its own"},
	falselyExtended:    {"ownership", "%[1]s is told that its lease goes on, but the key is not its own"},
	removedSuccessors:  {"ownership", "a handle that %[1]s gave away before its hand-off releases the lock of the next holder"},
	Stuck:              {"progress", "no client would get the lock in the next %[3]s"},
	revived:            {"progress", "%[1]s revives a lock that had expired"},
	notLost:            {"accuracy", "%[1]s is told that the lock was lost, but the key is its own"},
	removedNothing:     {"accuracy", "%[1]s is told that it released the lock, but it removed nothing of its own"},
	heldByNobody:       {"accuracy", "%[1]s is told that another holds the lock, but no client did"},
	unknownWithoutLoss: {"accuracy", "%[1]s is told that the outcome is unknown, but no message was lost"},
	fenceOrder:         {"fence-order", "%[1]s's fence does not fit the order of acquisition"},
	passedOver:         {"fairness", "%[1]s waits and asks again and again, and %[4]d times another client has come in before it"},
}

// Invariant names the broken invariant.
func (f BreachKind) Invariant() string { return kinds[f].invariant }

// Says describes a breach; see kinds.
func (f BreachKind) Says() string { return kinds[f].text }

// A KeyState is what the server holds under the key.
type KeyState struct {
	Present bool   // in memory, dead or alive
	Alive   bool   // and has not expired
	Value   uint32 // two values are equal exactly if their numbers are
	Dies    int64  // ms; 0: never
}

// A Ghost is what the invariants must remember and no client or server knows.
type Ghost struct {
	Writer      uint8 // 1 + the client that last changed the value; somebody; or nobody
	PrevWriter  uint8 // before the last write, for a failover
	Newest      uint8 // rank of the newest holder so far
	NewestFence uint8
	Stored      uint8 // rank of the last accepted write
	StoredFence uint8
	Late        uint8 // whose the write is that is on its way: 1 + the client; somebody: of an attempt that is over; or nobody
	Mark        [plan.MaxClients]remark
}

const (
	Nobody   uint8 = 0
	Somebody uint8 = 7 // wrote before the run began, or in an attempt that is over
)

// A remark is a ghost's note about one client.
type remark struct {
	Rank uint8 // its place in the order of acquisition
	Bits uint8
}

const (
	mine  uint8 = 1 << iota // after its last command the key was its own
	gave                    // its command removed its own key, in this operation
	saw                     // another's value was on the key, in this attempt
	Stall                   // it waits for time to pass before it reads its clock
	came                    // it waits for the lock, and another client has come in since it was refused

	waits uint8 = 1 << 5         // times 1 + the turns of others since it waits, in the bits from here
	turns uint8 = came | 7*waits // all that is known of its wait
)

// A Judge checks the invariants. It keeps nothing: both engines hand it what
// happened, and the ghost.
type Judge struct {
	c                                                                   *plan.Setup
	exclusion, fencing, ownership, Progress, accuracy, fenceOrder, fair bool
	Tracks                                                              bool // the writer is of interest
	ranks                                                               bool
	Form                                                                plan.Form
	Servers                                                             int
	shared                                                              [plan.MaxClients]bool
	most                                                                [plan.MaxClients]int // that hold it together; 0: any number
	Skew                                                                [plan.MaxClients]int64
}

// New returns a judge of c's invariants.
func New(c *plan.Setup) *Judge {
	j := &Judge{c: c, exclusion: c.Checks("exclusion"), fencing: c.Checks("fencing"), ownership: c.Checks("ownership"),
		Progress: c.Checks("progress"), accuracy: c.Checks("accuracy"), fenceOrder: c.Checks("fence-order"), fair: c.Checks("fairness")}
	j.Form, j.Servers = c.Form(), c.Servers()
	j.ranks = j.fencing || j.fenceOrder
	j.Tracks = j.ownership || j.accuracy || j.ranks
	for i := range c.Clients {
		j.Skew[i] = c.SkewOf(i)
		j.shared[i], j.most[i] = c.Entry(i).Among, c.Entry(i).Most
	}
	return j
}

// States are the clients'.
type States [plan.MaxClients]*client.State

// valid reports whether a client holds the lock by its own clock.
func (j *Judge) valid(st *States, i int, now int64) bool {
	return st[i].Holds && now+j.Skew[i] < st[i].Until
}

// An Effect is what a command did to the key.
type Effect struct {
	Before, After KeyState
	Wrote         bool // it changed anything on the server
	Touched       bool // a WATCH of the key would have noticed
	Late          bool // it arrived after it was given up
}

// Command judges client i's command. What arrives when the attempt is over that sent it is nobody's
// lock: the client that is then refused is told the truth.
func (j *Judge) Command(g *Ghost, st *States, i int, now int64, e Effect) Breach {
	before, after := e.Before, e.After
	if j.Progress && after.Alive && before.Present && !before.Alive && before.Value == after.Value && g.Writer != uint8(i+1) {
		return Breach{How: revived, Who: uint8(i)}
	}
	if !j.Tracks {
		return Breach{}
	}
	was, self := g.Writer, uint8(i+1)
	by := self
	if e.Late {
		by = g.Late
	}
	changed := before.Present != after.Present || before.Value != after.Value || before.Dies != after.Dies
	if e.Wrote {
		g.PrevWriter = was
	}
	if before.Value != after.Value || before.Present != after.Present {
		g.Writer = by
		if !after.Present {
			g.Writer = Nobody
		}
	}
	if changed && after.Present && g.Writer == self && j.ranks {
		g.rank(i)
	}
	m := &g.Mark[i]
	m.Bits &^= mine
	if after.Alive && g.Writer == self {
		m.Bits |= mine
	}
	if before.Present && !after.Present && was == self {
		m.Bits |= gave
	}
	for k := range j.c.Clients {
		if st[k].Phase == client.Acquiring && (before.Present && was != uint8(k+1) ||
			after.Present && g.Writer != uint8(k+1)) {
			g.Mark[k].Bits |= saw
		}
	}
	if owner := int(was) - 1; j.ownership && (changed || e.Touched) && before.Alive && owner >= 0 && owner < j.c.Clients && owner != i && j.valid(st, owner, now) {
		if after.Present {
			return Breach{changedAnothers, uint8(i), uint8(owner)}
		}
		return Breach{removedAnothers, uint8(i), uint8(owner)}
	}
	return Breach{}
}

// Server records the server's own change of the key.
func (j *Judge) Server(g *Ghost, after KeyState) {
	if !after.Present {
		g.Writer = Nobody
	}
}

// rank makes client i the newest in the order of acquisition, and the order
// dense again.
func (g *Ghost) rank(i int) {
	top := max(g.Newest, g.Stored)
	for _, m := range g.Mark {
		top = max(top, m.Rank)
	}
	g.Mark[i].Rank = top + 1
	g.dense()
}

func (g *Ghost) dense() {
	var used [16]bool
	used[g.Newest&15], used[g.Stored&15] = true, true
	for _, m := range g.Mark {
		used[m.Rank&15] = true
	}
	var to [16]uint8
	n := uint8(0)
	for r := 1; r < 16; r++ {
		if used[r] {
			n++
			to[r] = n
		}
	}
	g.Newest, g.Stored = to[g.Newest&15], to[g.Stored&15]
	for i := range g.Mark {
		g.Mark[i].Rank = to[g.Mark[i].Rank&15]
	}
}

// leaves records the end of an attempt: no client can act on its leftovers any more.
func (g *Ghost) leaves(client int) {
	for _, w := range [...]*uint8{&g.Writer, &g.PrevWriter, &g.Late} {
		if *w == uint8(client+1) {
			*w = Somebody
		}
	}
}

// Result judges how an operation of client i ended. st is the client as it
// goes on from there; stands says that the value of its lease is on the server,
// if the lock is one of members.
func (j *Judge) Result(g *Ghost, st *client.State, i int, now int64, r client.Result, stands bool) Breach {
	m, own := &g.Mark[i], now+j.Skew[i]
	if r.Op == client.OpAgain {
		g.leaves(i)
		if j.Tracks && (g.Writer != Nobody || j.Form != plan.OneKey) {
			m.Bits |= saw
		}
		return Breach{}
	}
	if r.Op == client.OpAcquire && r.How == client.Done && j.Form != plan.OneKey {
		// It gets its rank when the client hears of it. A lock that excludes lets nobody
		// else take it between that and the taking while its lease lasts.
		if j.ranks && !j.shared[i] {
			g.rank(i)
		}
		if stands {
			m.Bits |= mine
		}
	}
	bits := m.Bits
	m.Bits &^= mine | gave | saw
	at := func(f BreachKind, on bool) Breach {
		if !on {
			return Breach{}
		}
		return Breach{How: f, Who: uint8(i)}
	}
	if r.Op == client.OpExtend && r.How == client.Done && j.fenceOrder && m.Rank == g.Newest {
		g.NewestFence = max(g.NewestFence, uint8(min(st.Fence, 255))) // handed on, it is another's
	}
	switch {
	case r.How == client.Done && r.Op == client.OpAcquire && bits&mine == 0 && own < st.Until:
		return at(falselyAcquired, j.ownership)
	case r.How == client.Done && r.Op == client.OpExtend && bits&mine == 0 && own < st.Until:
		return at(falselyExtended, j.ownership)
	case r.How == client.Done && r.Op == client.OpRelease && bits&gave == 0 && !r.Lossy && j.Form != plan.Quorum:
		return at(removedNothing, j.accuracy)
	case r.Op == client.OpStale:
		return at(removedSuccessors, j.ownership && (bits&gave != 0 || r.How == client.Done && own < st.Until))
	case r.How == client.Lost && r.Op != client.OpAcquire && bits&mine != 0 && own < r.Until && j.Form != plan.Quorum:
		return at(notLost, j.accuracy)
	case r.How == client.Held && bits&saw == 0:
		return at(heldByNobody, j.accuracy)
	case r.How == client.Unknown && !r.Lossy:
		return at(unknownWithoutLoss, j.accuracy)
	case r.How == client.Done && r.Op == client.OpAcquire && j.fenceOrder && !j.shared[i]:
		return at(fenceOrder, !g.fenced(m.Rank, st.Fence))
	}
	return Breach{}
}

// Turn records the end of client i's attempt, for it and for waiting clients. Who comes in in the
// midst of another's attempt, or was on its way when that was refused, passes nobody by.
func (j *Judge) Turn(g *Ghost, st *States, i int, r client.Result) Breach {
	if !j.fair || r.Op != client.OpAcquire {
		return Breach{}
	}
	m := &g.Mark[i]
	switch r.How {
	case client.Done:
		m.Bits &^= turns
		for k := range j.c.Clients {
			if k != i && g.Mark[k].Bits&turns != 0 && st[k].Phase == client.Idle {
				g.Mark[k].Bits |= came
			}
		}
	case client.Held:
		switch n := m.Bits / waits; {
		case n == 0:
			m.Bits |= waits
		case m.Bits&came != 0 && int(n) > j.c.Clients:
			return Breach{How: passedOver, Who: uint8(i)}
		case m.Bits&came != 0:
			m.Bits = m.Bits&^came + waits
		}
	}
	return Breach{}
}

// fenced notes an acquisition of rank with its number, and reports whether
// the numbers grow as the ranks do.
func (g *Ghost) fenced(rank uint8, fence int64) bool {
	f := uint8(min(fence, 255))
	if rank > g.Newest {
		ok := f > g.NewestFence
		g.Newest, g.NewestFence = rank, f
		return ok
	}
	return rank == g.Newest || f < g.NewestFence
}

// Write judges a write to the storage.
func (j *Judge) Write(g *Ghost, st *client.State, i int) (accepted bool, b Breach) {
	if j.c.Fence && uint8(min(st.Fence, 255)) < g.StoredFence {
		return false, b
	}
	m := g.Mark[i]
	if j.fencing && m.Rank < g.Stored {
		b = Breach{How: staleWrite, Who: uint8(i)}
	}
	g.Stored = m.Rank
	if j.c.Fence {
		g.StoredFence = uint8(min(st.Fence, 255))
	}
	return true, b
}

// State judges the holders in a state.
func (j *Judge) State(st *States, now int64) Breach {
	if !j.exclusion {
		return Breach{}
	}
	first, alone, n, most := -1, false, 0, len(st)
	for i := range j.c.Clients {
		if !st[i].Holds || now+j.Skew[i] >= st[i].Until {
			continue
		}
		shared := j.shared[i] || st[i].Reads
		if first >= 0 && (alone || !shared) {
			return Breach{TwoHold, uint8(first), uint8(i)}
		}
		if j.most[i] > 0 {
			most = min(most, j.most[i])
		}
		if n++; n > most {
			return Breach{TooMany, uint8(max(first, 0)), uint8(i)}
		}
		if first < 0 || !shared {
			first, alone = i, !shared
		}
	}
	return Breach{}
}

// Tidy forgets a client's history beyond the invariants' needs, so states without another difference
// are one.
func (j *Judge) Tidy(g *Ghost, st *States) {
	if !j.Tracks {
		for i := range j.c.Clients {
			g.Mark[i].Bits &= Stall | turns
		}
		g.Late = Nobody
		return
	}
	ranked := false
	for i := range j.c.Clients {
		m := &g.Mark[i]
		switch st[i].Phase {
		case client.Idle, client.Finished:
			ranked = ranked || m.Rank != 0
			*m = remark{Bits: m.Bits & turns}
			if st[i].Phase == client.Finished {
				m.Bits = 0
			}
			g.leaves(i)
		case client.Holding:
			m.Bits = 0
		case client.Acquiring:
			if !j.accuracy {
				m.Bits &= mine | Stall | turns
			}
		default:
			m.Bits &^= saw
		}
	}
	if j.c.Faults.Failover == 0 {
		g.PrevWriter = Nobody
	}
	if ranked {
		g.dense()
	}
}
