package search

import (
	"github.com/setnxlock/setnxlock/compat/race/internal/judge"
	"github.com/setnxlock/setnxlock/compat/race/internal/memo"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A state is all there is at one moment: small numbers that stand for what the
// real code and the real server were found to do, and compare as they do.
type state struct {
	content uint32 // what the server holds
	prev    uint32 // before the last write, if there may be a failover
	now     int32  // ms since the beginning
	budget  budget // what may still go wrong
	ghost   judge.Ghost
	late    flight
	cells   [plan.MaxClients]cell
}

// A flight is a write that was given up and is still on its way.
type flight struct {
	req    uint32 // 1 + the first request of the write; 0: none is on its way
	conn   uint16 // what the server knows of its connection
	client uint8
	left   uint8 // how many writes may still be late
}

// A cell is a client in a state.
type cell struct {
	node uint32 // how far its code has come, and on what it has received
	conn uint16 // what the server knows of its connection
}

const (
	noConn  uint16 = iota // none is in use
	cutConn               // the server has cut it, which the client does not know
	newConn               // clean
)

// A budget is how many faults of each kind are left, and jumps of time.
type budget uint32

// The kinds stand at these bits.
const (
	ofTicks    = 0 // four bits; the others have three, but where said
	ofReplies  = 4
	ofRequests = 7
	ofCuts     = 10
	ofRestart  = 13
	ofFailover = 16
	ofEvict    = 19
	ofLate     = 22 // five bits
	ofDown     = 27
	ofRefusals = 30 // two bits
)

// unlimited late clients: their number is not counted.
const unlimited = 31

func newBudget(c *plan.Setup) budget {
	f := &c.Faults
	return budget(c.Ticks)<<ofTicks | budget(f.LostReplies)<<ofReplies | budget(f.LostRequests)<<ofRequests |
		late(f.Late)<<ofLate | budget(f.Cuts)<<ofCuts | budget(f.Restart)<<ofRestart | budget(f.Failover)<<ofFailover | budget(f.Evict)<<ofEvict |
		budget(f.Down)<<ofDown | budget(f.Refusals)<<ofRefusals
}

func late(n int) budget {
	switch n {
	case 0:
		return unlimited
	case -1:
		return 0
	}
	return budget(n)
}

// late counts the remaining late clients.
func (b budget) late() int { return int(b >> ofLate & 31) }

func (b budget) lessLate(n int) budget {
	if b.late() == unlimited {
		return b
	}
	return b - budget(n)<<ofLate
}

func (b budget) has(kind int) bool {
	if kind == ofTicks {
		return b&15 != 0
	}
	return b>>kind&7 != 0
}

func (b budget) less(kind int) budget { return b - 1<<kind }

// print computes the state's fingerprint, never 0: two different states share one with a chance of
// 2^-64.
func (s *state) print(clients int) memo.Fingerprint {
	g := &s.ghost
	h := memo.Mix(0x5e7a11, uint64(s.content)|uint64(s.prev)<<32)
	h = memo.Mix(h, uint64(uint32(s.now))|uint64(s.budget)<<32)
	h = memo.Mix(h, uint64(g.Writer)|uint64(g.PrevWriter)<<8|uint64(g.Newest)<<16|uint64(g.NewestFence)<<24|
		uint64(g.Stored)<<32|uint64(g.StoredFence)<<40|uint64(g.Late)<<48)
	if s.late != (flight{}) {
		h = memo.Mix(h, uint64(s.late.req)|uint64(s.late.conn)<<32|uint64(s.late.client)<<48|uint64(s.late.left)<<56)
	}
	for i := range clients {
		c, m := &s.cells[i], g.Mark[i]
		h = memo.Mix(h, uint64(c.node)|uint64(c.conn)<<32|uint64(m.Rank)<<48|uint64(m.Bits)<<56)
	}
	return memo.Fingerprint(max(h, 1))
}
