// Package redlock is a lock over several independent servers: who has the key
// on a majority of them has the lock. Each server may be of another age and have
// the algorithm that suits it; a 2.0 with getsetlock, a 2.4 with txlock and a
// 7.0 with setlock make one quorum.
//
//	acquire   on all at once, each by its own algorithm
//	          a majority, before Until: ours; late votes join it
//	          none to be had: release what was taken or may have been; ErrHeld
//	extend    on all that we hold, at once     a majority: Until moves
//	release   on all that we hold or may hold, at once
//
//	Until = before the first request + ttl - drift
//
// Which is the validity of the article, ttl − elapsed − drift, as a moment.
//
//	quorum := redlock.New([]compat.Backend{
//		compat.NewBackend(compat.Pooled(old), getsetlock.Classic{}),
//		compat.NewBackend(compat.Pooled(older), txlock.Renamed{}),
//		compat.NewBackend(compat.Pooled(modern), setlock.Lua{}),
//	}, redlock.Options{})
//	locks := compat.NewLocker(quorum, compat.Options{})
//
// Of 2n+1 servers n may be down. An even number tolerates no more than the odd
// one below it, and both servers of a pair are needed. All clients must be
// given the same servers, in the same order: a lock's token says by position
// what is on which. A server that was listed twice refuses its second vote; that
// is noticed, and is ErrInvalid.
//
// The token is as long as what is on all servers, unless that is the same: a
// client that makes one acquisition, and has Options.Token of every algorithm return
// the same, has it once.
//
// # What it does not promise
//
// It protects from the loss of a minority of servers, and from nothing else that
// breaks a lock on one of them:
//
//   - A server that restarts without its keys has forgotten its vote, and gives
//     it again: with one more, two clients have a majority each
//     (any/restart-forgets; the same by eviction, any/evicted, or by a replica
//     that takes over, any/failover). Let it stay down for the longest ttl in use,
//     or have it write with appendfsync always.
//   - A holder that pauses past Until and writes on does harm (any/paused-holder),
//     and so does a clock that jumps, a server's or the holder's
//     (any/server-clock-jump): time is what the proof rests on.
//   - There is no fence: Lease.Fence is 0 (unless there is one server). Each
//     server has a counter of its own, and no function f of a majority's numbers
//     grows with every acquisition, because two acquisitions can be told apart only by
//     the servers that they have in common. Write 1:2 for "server 1 said 2"; of five
//     servers, by the counters of 1, 1, 3 and 3 alone, f must have
//     f(1:1 2:1 3:3) < f(1:2 4:1 5:1) < f(1:9 2:9 3:1) < f(3:2 4:1 5:1) < f(1:1 2:1 3:3).
//   - A request that nobody has heard of can arrive after the release that was
//     sent for that reason. What it leaves takes one server's vote, for a ttl.
//
// That is the debate of 2016. Kleppmann: a lock whose safety rests on time and that
// has no fence is too much for saving work and too little for correctness.
// Sanfilippo: clocks need not be right, only run at about the same rate; a pause
// before the lock was had is noticed, and one after it is every lease's trouble; an
// unfenced resource is no better off elsewhere. Both are right: where two holders
// would do damage, and not just the work twice, let the resource check a number
// that it, or a consensus system, has given out.
//
// Sources: "Distributed Locks with Redis" (redis.io, 2014); Martin Kleppmann,
// "How to do distributed locking" (2016); Salvatore Sanfilippo, "Is Redlock
// safe?" (2016).
package redlock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/internal/lease"
)

// Options are a Quorum's. The zero value is ready to use.
type Options struct {
	// Timeout bounds what a server may take for one step, connecting and, at
	// first, checking included. It is lost time for every extension as long as a
	// server hangs (one that refuses connections costs nothing), and for every
	// acquisition without a majority beside it; and it is taken off the lease, so it
	// must be small against the ttl. But a server that is slower than it has no
	// vote. Default: a fifth of the ttl, 250 ms at most.
	Timeout time.Duration

	// Grace is how long servers that have not answered yet are waited for when the
	// others have decided: a majority has granted the lock, or released it, or can't do
	// so any more. A vote more makes the lock safer from the loss of a server. One that
	// missed it the last time has less: as long as the others took, 1 ms at least.
	// Default: 50 ms.
	Grace time.Duration

	// Drift is taken off a lease of ttl, for clocks that run at different rates.
	// nil: a hundredth and 2 ms, as compat.Until takes off.
	Drift func(ttl time.Duration) time.Duration

	// Names are what errors call the servers. Default: "servers[0]" and so on.
	Names []string

	// Sequential asks one server after the other, beginning with
	// servers[First]. It then starts no goroutine, sets no timer and looks at no clock but
	// the one it is told: what is sent depends on the answers alone. It is
	// for compat/race and for tests; Timeout has no effect, and a server
	// that hangs holds up the others.
	Sequential bool
	First      int

	// Clock runs the timers. nil: clock.New().
	Clock clock.Clock
}

// A Quorum is a compat.Backend, for compat.NewLocker. It is safe for concurrent
// use.
type Quorum struct {
	servers []*server
	need    int
	o       Options
	invalid error // why it is none

	abilities   compat.Abilities
	allDistinct atomic.Bool    // the servers are; see twins
	crew        *cleaning.Crew // where there is no Locker's

	mu    sync.Mutex
	moved map[id]*moved   // see remember
	swept int             // how many there were when those that have ended were last dropped
	pairs map[[2]int]bool // servers that are known to be two, or, if false, to be one
}

// New returns the quorum of servers: an Algorithm and its connections each, by
// compat.NewBackend. What makes no quorum (no server, one that is there twice, readers beside
// writers) says so at each step, with ErrInvalid.
func New(servers []compat.Backend, o Options) *Quorum {
	if o.Drift == nil {
		o.Drift = lease.Drift
	}
	if o.Clock == nil {
		o.Clock = clock.New()
	}
	if o.Grace <= 0 {
		o.Grace = 50 * time.Millisecond
	}
	q := &Quorum{need: len(servers)/2 + 1, o: o, moved: make(map[id]*moved), pairs: make(map[[2]int]bool)}
	q.crew = cleaning.New(o.Clock, cleanupAtMost, compat.ErrTimeout)
	q.abilities.Rotates = true
	if len(servers) == 0 {
		q.invalid = fmt.Errorf("%w: a quorum of no servers", compat.ErrInvalid)
	}
	for i, b := range servers {
		s := &server{Backend: compat.Settled(b), name: fmt.Sprintf("servers[%d]", i)}
		if i < len(o.Names) {
			s.name = o.Names[i]
		}
		can := b.Abilities()
		if i == 0 {
			q.abilities.Shared = can.Shared
		}
		if can.Shared != q.abilities.Shared {
			q.invalid = fmt.Errorf("%w: of %s and %s one is shared and the other is not", compat.ErrInvalid, q.servers[0].name, s.name)
		}
		q.abilities.Rotates = q.abilities.Rotates && can.Rotates
		for j, other := range servers[:i] {
			if b == other {
				q.invalid = fmt.Errorf("%w: %s and %s are one server", compat.ErrInvalid, q.servers[j].name, s.name)
			}
		}
		q.servers = append(q.servers, s)
	}
	q.abilities.Valid = q.valid
	return q
}

// valid asks each server whether it can keep ttl.
func (q *Quorum) valid(key string, ttl time.Duration) error {
	for _, s := range q.servers {
		if valid := s.Abilities().Valid; valid != nil {
			if err := valid(key, ttl); err != nil {
				return fmt.Errorf("setnxlock: %s: %w", s.name, err)
			}
		}
	}
	return nil
}

// Abilities say that the lock is shared if its servers' locks are, and that it can change its
// value if each of them can. It has no epoch: each server has its own.
func (q *Quorum) Abilities() compat.Abilities { return q.abilities }

// Acquire asks every server for key until now+ttl. A majority that was had
// before the lease's Until makes the lock; otherwise what was taken, or may have
// been, is released, and the error is an *Error with every server's own. It returns
// when the one or the other is certain; a server that has not answered is waited for no longer
// than Options.Grace. What it grants later, within the Locker's Options.Cleanup,
// belongs to the lock if that is still held and was not extended, and is released if not.
//
//   - ErrHeld if as many servers answered as it takes: others have the rest. Two
//     clients that split the votes both get it, and a Locker has them ask again
//     after pauses of random length.
//   - ErrUnsafeServer if the algorithm of any server excludes nobody there, and
//     ErrInvalid if any can't keep the ttl. Nothing was written on those.
//   - ErrForeign if the key is not a string on so many that no majority is left.
//   - none of these if too few servers answered.
//
// The outcome is unknown (to a Locker ErrUnknown) only if what may be left
// behind, on servers that can't be reached any more, keeps others from a majority.
func (q *Quorum) Acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, How: compat.Free, Ambiguous: true}
	if q.invalid != nil {
		return l, q.invalid
	}
	l.Until = now().Add(ttl - q.o.Drift(ttl))
	m := &moved{until: l.Until}
	m.settling.Lock() // until it is known what becomes of the parts that come late
	votes := ask(ctx, q, round[compat.Lease]{
		limit: q.limit(ttl),
		step: func(ctx context.Context, s *server, _ int) (compat.Lease, error) {
			return s.vote(ctx, now, key, ttl)
		},
		enough: q.voted,
		late: func(ctx context.Context, s *server, i int, part compat.Lease, err error, inTime bool) {
			if mayHold(part, err) && !(inTime && q.join(m, i, partOf(part, err))) {
				s.Release(ctx, now, part) //nolint:errcheck // nobody has it: what is left ends with its ttl
			}
		},
		hopeless: q.hopeless,
	})
	err := q.elected(key, votes)
	if twins := q.twins(ctx, now, key, votes); twins != nil {
		err = twins
	}
	if err == nil && !now().Before(l.Until) {
		err = fmt.Errorf("%w: %q: the servers took longer to answer than the lease lasts", compat.ErrLost, key)
	}
	if err != nil {
		m.settling.Unlock()
		return q.undo(ctx, now, l, votes, err)
	}
	m.parts = make([]part, len(votes))
	for i, v := range votes {
		m.parts[i] = partOf(v.value, v.err)
		if v.err == nil && v.value.How == compat.TakenOver {
			l.How = compat.TakenOver
		}
	}
	l.Value = format(m.parts)
	if len(votes) == 1 {
		l.Fence = votes[0].value.Fence
	}
	if slices.ContainsFunc(votes, func(v answer[compat.Lease]) bool { return v.asked && !v.came }) {
		q.open(id{key, l.Value}, m)
	}
	m.settling.Unlock()
	return l, nil
}

// undo releases what an attempt that failed because of why has taken, or may have taken. It
// waits no longer for that than it takes to know whether others can have a majority.
func (q *Quorum) undo(ctx context.Context, now func() time.Time, l compat.Lease, votes []answer[compat.Lease], why error) (compat.Lease, error) {
	ctx, done := q.cleanup(ctx)
	defer done()
	stays := func(i int, a answer[none]) bool { // it may hold our part
		return (votes[i].err == nil || open(votes[i].err)) && !(a.came && gone(a.err))
	}
	count := func(answers []answer[none]) (left int) {
		for i, a := range answers {
			if stays(i, a) {
				left++
			}
		}
		return left
	}
	answers := ask(ctx, q, round[none]{
		limit: q.limit(0),
		only:  func(i int) bool { return mayHold(votes[i].value, votes[i].err) },
		step: func(ctx context.Context, s *server, i int) (none, error) {
			return none{}, s.Release(ctx, now, votes[i].value)
		},
		enough: func(answers []answer[none]) bool { return count(answers) < q.need },
	})
	if count(answers) < q.need {
		return l, why
	}
	parts := make([]part, len(votes))
	for i, v := range votes {
		if stays(i, answers[i]) {
			parts[i] = partOf(v.value, v.err)
			parts[i].doubt = true
		}
	}
	// Others are kept out, if by anybody then by us.
	l.Value = format(parts)
	return l, failed(q, "acquire", l.Key, votes, nil)
}

// Extend asks the servers on which we hold the key to hold it until now+ttl. With a majority of
// them the lease's end moves. It returns ErrLost if no majority is ours any more, having
// released what still was. If too few answered, nothing is lost yet: it is an *Error, within an
// ErrUnknown if the extension may have reached a majority for all that. The lease that it
// returns then ends at the earlier of the two ends, unless a majority is known to have the old
// one still. An extension that takes longer than its own ttl loses the lock.
//
// A server that refused the acquisition, or has lost its part since, is not
// asked for it again: a lock that outlives the restarts of a majority, one
// after the other, is lost.
func (q *Quorum) Extend(ctx context.Context, now func() time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	start := now()
	if !start.Before(l.Until) {
		return l, compat.ErrLost
	}
	parts, err := q.parts(l.Key, l.Value)
	if err != nil {
		return l, err
	}
	answers := ask(ctx, q, round[compat.Lease]{
		limit: q.limit(ttl),
		only:  func(i int) bool { return parts[i].held() },
		step: func(ctx context.Context, s *server, i int) (compat.Lease, error) {
			return s.prolong(ctx, now, q.lease(l, parts[i]), parts[i], ttl)
		},
	})
	next := l
	next.Until, next.Rotate = start.Add(ttl-q.o.Drift(ttl)), false
	t, asBefore := tally{}, 0
	for i, a := range answers {
		kind := t.add(a.asked, a.err)
		if kind == &t.undone && !parts[i].doubt {
			asBefore++
		}
		if a.asked {
			parts[i] = parts[i].after(a.value, a.err)
		}
	}
	next.Value = format(parts)
	switch ended := !now().Before(next.Until); {
	case t.done >= q.need && !ended:
		q.forget(l)
		if len(parts) == 1 {
			next.Fence = answers[0].value.Fence
		}
		return next, nil
	case len(parts)-t.lost < q.need, t.done >= q.need && ended, !now().Before(l.Until):
		ctx, done := q.cleanup(ctx)
		defer done()
		q.Release(ctx, now, next) //nolint:errcheck // what is left ends with its ttl
		q.forget(l)
		return l, failed(q, "extend", l.Key, answers, compat.ErrLost)
	}
	q.remember(l, next.Value)
	err = failed(q, "extend", l.Key, answers, nil)
	sooner := next.Until.Before(l.Until) && t.done+t.unknown > 0 && asBefore < q.need
	if !sooner && t.done+t.unknown < q.need {
		return l, compat.NotSent.Mark(err)
	}
	if sooner {
		l.Until = next.Until
	}
	return l, &compat.UnknownError{Lease: l, Err: err}
}

// Release releases the key on every server that holds our part or may hold it. It is done when
// others can have a majority, whatever servers that can't be reached still hold: that ends with
// its ttl. Those that take longer are released in the background, within the Locker's
// Options.Cleanup. It returns ErrLost if no majority
// was ours any more; then too the rest is released. If others can't have a
// majority yet the outcome is unknown: release again, or wait for the ttl.
func (q *Quorum) Release(ctx context.Context, now func() time.Time, l compat.Lease) error {
	parts, err := q.parts(l.Key, l.Value)
	if err != nil {
		return err
	}
	answers := ask(ctx, q, round[none]{
		limit: q.limit(0),
		only:  func(i int) bool { return parts[i].held() },
		step: func(ctx context.Context, s *server, i int) (none, error) {
			return none{}, s.drop(ctx, now, q.lease(l, parts[i]), parts[i])
		},
		enough: func(answers []answer[none]) bool {
			t, pending := tally{}, 0
			for _, a := range answers {
				if a.asked && !a.came {
					pending++
				} else {
					t.add(a.asked, a.err)
				}
			}
			lost, kept := len(parts)-t.lost < q.need, len(parts)-t.lost-pending >= q.need
			return lost || kept && t.done+t.lost >= q.need
		},
	})
	t := tally{}
	for _, a := range answers {
		t.add(a.asked, a.err)
	}
	switch {
	case len(parts)-t.lost < q.need:
		q.forget(l)
		return failed(q, "release", l.Key, answers, compat.ErrLost)
	case t.done+t.lost >= q.need:
		q.forget(l)
		return nil
	}
	return failed(q, "release", l.Key, answers, nil)
}

// limit bounds a step for a lease of ttl; 0: one that is for none.
func (q *Quorum) limit(ttl time.Duration) time.Duration {
	const most = 250 * time.Millisecond
	switch {
	case q.o.Timeout > 0:
		return q.o.Timeout
	case ttl > 0:
		return min(ttl/5, most)
	}
	return most
}

// lease is our lease on one server.
func (q *Quorum) lease(l compat.Lease, p part) compat.Lease {
	l.Value, l.Ambiguous = p.values[0], p.ambiguous
	if len(q.servers) > 1 {
		l.Fence = 1 // so that none is drawn, which nobody would see
	}
	return l
}

// A tally counts what became of the parts of a lease.
type tally struct{ done, lost, undone, unknown int }

// add counts one part, and returns under what.
func (t *tally) add(asked bool, err error) *int {
	n := &t.undone
	switch {
	case !asked || isLost(err):
		n = &t.lost
	case err == nil:
		n = &t.done
	case open(err):
		n = &t.unknown
	}
	*n++
	return n
}
