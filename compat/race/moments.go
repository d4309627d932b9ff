package race

import (
	"math"
	"strconv"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// stampOf is the time that a value says, in ms since the beginning; 0 if it
// says none.
func stampOf(value string) int64 {
	for _, s := range written {
		if t, _, ok := s.Parse(value); ok {
			if ms := millis(t); ms != 0 {
				return ms
			}
			return 1
		}
	}
	return 0
}

// written are the times that clients write on keys.
var written = []dialect.Stamp{
	{Unit: time.Second, Float: true},
	{Unit: time.Millisecond},
	{Unit: time.Nanosecond},
	{Unit: time.Second, Owner: dialect.OwnerPIDThread},
	{Unit: time.Second, Owner: dialect.OwnerColonPID},
	{Unit: time.Millisecond, Owner: dialect.OwnerUUID},
	{Unit: time.Second, Binary: true},
}

// stampOfScore is the time that a score of a sorted set says, whatever its unit.
func stampOfScore(score string) int64 {
	f, err := strconv.ParseFloat(score, 64)
	for _, unit := range []float64{1e-3, 1, 1e3, 1e6} { // of a millisecond: seconds, milliseconds, …
		if ms := f / unit; err == nil && ms > 1e12 && ms < 1e13 {
			return stampOf(strconv.FormatInt(int64(math.Ceil(ms)), 10))
		}
	}
	return 0
}

// moment is the time to which time jumps: the next one at which something
// begins to look different to a client; never if there is none. That is
//
//	the end of a lease that a client holds
//	the time that the value says, by each client's clock, and the millisecond after it; likewise the scores of sorted sets
//	the first moment at which a key is dead
//	if there is none of these, the end of a lease that a client has asked for
//
// Up to it nothing changes. The moment at which a TTL is just over is none:
// the key is alive in it, as it was before.
func (c *Config) moment(st *stances, skew *[maxClients]int64, now int32, ct *content) int32 {
	first := never
	next := func(ms int64) {
		if ms > int64(now) && ms < int64(first) {
			first = int32(ms)
		}
	}
	for i := range c.Clients {
		if st[i].holds {
			next(st[i].until - skew[i])
		}
		if ct.stamp != 0 {
			next(ct.stamp - skew[i])
			next(ct.stamp - skew[i] + 1)
			for _, m := range c.entry(i).Margins {
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
	until := protocol.Until(epoch, c.TTL).Sub(epoch).Milliseconds()
	for i := range c.Clients {
		if st[i].phase == acquiring && st[i].asked >= 0 {
			next(st[i].asked + until - skew[i])
		}
	}
	return first
}
