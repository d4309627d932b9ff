package search

import (
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/judge"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// moment returns the target of a jump of time: the next change in a client's view; never if there is
// none. That is
//
//	the end of a lease that a client holds
//	the time that the value says, by each client's clock, and the millisecond after it; likewise the scores of sorted sets
//	the first moment at which a key is dead
//	if there is none of these, the end of a lease that a client has asked for
//
// Up to it nothing changes. The moment at which a TTL is just over is none:
// the key is alive in it, as it was before.
func moment(c *plan.Setup, st *judge.States, skew *[plan.MaxClients]int64, now int32, ct *content) int32 {
	first := never
	next := func(ms int64) {
		if ms > int64(now) && ms < int64(first) {
			first = int32(ms)
		}
	}
	for i := range c.Clients {
		if st[i].Holds {
			next(st[i].Until - skew[i])
		}
		if ct.stamp != 0 {
			next(ct.stamp - skew[i])
			next(ct.stamp - skew[i] + 1)
			for _, m := range c.Entry(i).Margins {
				next(ct.stamp + m.Milliseconds() - skew[i])
				next(ct.stamp + m.Milliseconds() - skew[i] + 1)
			}
		}
	}
	for _, ms := range ct.scores {
		for i := range c.Clients {
			next(ms - skew[i])
			next(ms - skew[i] + 1)
		}
	}
	for _, d := range ct.deaths {
		next(int64(d))
	}
	if first != never {
		return first
	}
	until := protocol.Until(plan.Epoch, c.TTL).Sub(plan.Epoch).Milliseconds()
	for i := range c.Clients {
		if st[i].Phase == client.Acquiring && st[i].Asked >= 0 {
			next(st[i].Asked + until - skew[i])
		}
	}
	return first
}
