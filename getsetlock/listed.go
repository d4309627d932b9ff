package getsetlock

import (
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Listed is the timestamp lock that compares by lists (compat.ReleaseListed): what
// Guarded does under WATCH it does in one transaction of list commands. Redis 2.0
// and later, 2.0 being where there is no WATCH and nothing else compares. One
// round trip when the key is free, for an extension and for a release; two for
// a refusal, three for a takeover.
//
//	SETNX key T              1: ours
//	GET key                  a time to come: held
//	MULTI; lists; EXEC       what was read is on the key still: ours; else another was faster,
//	                         and nothing was written
//
// Among clients of Listed, and of Guarded, nobody writes over a winner's time
// and nobody deletes what is not theirs. Clients of Classic exclude it and are
// excluded by it, for they can't tell the difference; but what the published
// protocol does to them it does to Listed, too: one that comes second
// to a takeover leaves its own time on our key, so that we can't extend or
// release and the key stays until that time (getset/loser-overwrites); and one
// that pauses between GET and DEL past its end deletes our lock
// (getset/paused-release).
//
// Over maxmemory 2.0–2.4 refuse transactions, and 2.6 and later what makes lists: a
// lock is then neither extended nor released before its end. An extension or a
// release writes a kilobyte to the AOF and the replicas; where there is WATCH,
// Guarded's writes a tenth of that.
type Listed struct{ Options }

// Acquire makes one attempt to hold key until now+ttl. A stale now is safe: our
// lease gets shorter, and fewer leases of others look expired. A key of more than
// compat.MaxListedKey bytes is ErrInvalid.
func (g Listed) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := g.Lease(key, now, ttl)
	if err == nil {
		err = compat.Listable(key)
	}
	if err != nil {
		return l, err
	}
	for try := 0; try < 2; try++ {
		won, err := g.setnx(c, &l)
		if won || err != nil {
			return l, err
		}
		held, err := redis.String(c.Do("GET", key))
		if errors.Is(err, redis.ErrNil) {
			continue // released since the SETNX: ask again, once (getset/vanished-key)
		}
		if err != nil {
			return l, compat.Foreign(key, err)
		}
		if !g.Dialect.Dead(held, now) {
			return l, g.held(key, held)
		}
		return g.takeover(c, l, held)
	}
	return l, &compat.HeldError{Key: key}
}

// takeover replaces a dead value, held.
func (g Listed) takeover(c redis.Conn, l compat.Lease, held string) (compat.Lease, error) {
	replies, err := compat.ReplaceListed(c, compat.Lease{Key: l.Key, Value: held}, l.Value, g.drawn(l.Key, g.Fence)...)
	switch {
	case errors.Is(err, compat.ErrLost):
		return l, &compat.HeldError{Key: l.Key}
	case err != nil:
		return l, err
	case g.Fence:
		l.Fence = replies[0].(int64)
	}
	l.How = compat.TakenOver
	return l, nil
}

// drawn is what draws a fence, if one is to be drawn.
func (g Listed) drawn(key string, draw bool) []compat.Cmd {
	if !draw {
		return nil
	}
	return []compat.Cmd{g.incr(key)}
}

// Extend moves the end of a lease that is still ours to now+ttl: one round trip.
func (g Listed) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	next, errs := g.ExtendAll(c, now, []compat.Lease{l}, []time.Duration{ttl})
	return next[0], errs[0]
}

// ExtendAll is Extend of many leases, in one write.
func (g Listed) ExtendAll(c redis.Conn, now time.Time, leases []compat.Lease, ttls []time.Duration) ([]compat.Lease, []error) {
	next, errs := make([]compat.Lease, len(leases)), make([]error, len(leases))
	var ours []compat.Lease // those that are not over, where they stand, what they become
	var at []int
	var values []string
	var more [][]compat.Cmd
	for i, l := range leases {
		draw := false
		if next[i], draw, errs[i] = g.next(now, l, ttls[i]); errs[i] == nil {
			ours, at, values, more = append(ours, l), append(at, i), append(values, next[i].Value), append(more, g.drawn(l.Key, draw))
		}
	}
	replies, failed := compat.ReplaceAllListed(c, ours, values, more)
	for n, i := range at {
		if errs[i] = failed[n]; errs[i] == nil && len(replies[n]) > 0 {
			next[i].Fence = replies[n][0].(int64)
		}
	}
	for i, err := range errs {
		if _, settled := compat.Settled(err); settled {
			next[i] = leases[i]
		}
	}
	return next, errs
}

// Release deletes the key if it still has our time on it: one round trip. It may
// come late: whoever took over has changed the value.
func (g Listed) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	return compat.ReleaseListed(c, l)
}

// Check returns ErrUnsafeServer if lists don't compare here. On 1.2, where a
// list that was emptied stays, nothing that is safe is known.
func (g Listed) Check(c redis.Conn, key string) error {
	return compat.CheckListed(c, compat.Aux(key, "check:"+compat.NewToken()), "getsetlock.Guarded, or where there is no WATCH getsetlock.Classic")
}
