// Package redlock is a lock over several independent servers: a client that has the key on a
// majority of them has the lock. The servers may be of different versions, each with the algorithm
// that suits it: a 2.0 with getsetlock, a 2.4 with txlock and a 7.0 with setlock make one quorum.
//
//	acquire   on all at once, each by its own algorithm
//	          a majority, before Until: ours; late votes join it
//	          none to be had: release what was taken or may have been; ErrHeld
//	extend    on all that we hold, at once     a majority: Until moves; the rest are asked for their parts
//	release   on all that we hold or may hold, at once
//
//	Until = before the first request + ttl - drift
//
// That is the article's validity time, ttl − elapsed − drift, as a moment.
//
//	quorum := redlock.New([]compat.Backend{
//		compat.NewBackend(compat.Pooled(old), getsetlock.Classic{}),
//		compat.NewBackend(compat.Pooled(older), txlock.Renamed{}),
//		compat.NewBackend(compat.Pooled(modern), setlock.Lua{}),
//	}, redlock.Options{})
//	locks := compat.NewLocker(quorum, compat.Options{})
//
// Of 2n+1 servers, n may be down. An even number tolerates no more than the odd number below it;
// with two servers, both are needed. All clients must list the same servers in the same order,
// because a lock's token tells by position what is on which server. A server that is listed twice,
// by two names or by two of its databases, is [compat.ErrInvalid] (the latter where INFO tells a run_id).
//
// The token is made of the values on all servers, so it is long, unless they are all the same.
//
// # What it does not promise
//
// It protects from the loss of a minority of servers, and from nothing else that
// breaks a lock on one of them:
//
//   - A server that restarts without its keys has forgotten its vote and gives it again: two
//     clients can then each have a majority (any/restart-forgets; the same by eviction,
//     any/evicted, or by a replica that takes over, any/failover). Keep such a server down for the
//     longest ttl in use, or run it with appendfsync always.
//   - A holder that pauses past Until and then writes does harm (any/paused-holder), and so does a
//     server's or the holder's clock that jumps (any/server-clock-jump): the proof depends on
//     time.
//   - There is no fence: Lease.Fence is 0 (unless there is one server). Each
//     server has a counter of its own, and no function f of a majority's numbers
//     grows with every acquisition, because two acquisitions can be told apart only by
//     the servers that they have in common. Write 1:2 for "server 1 said 2"; of five
//     servers, by the counters of 1, 1, 3 and 3 alone, f must have
//     f(1:1 2:1 3:3) < f(1:2 4:1 5:1) < f(1:9 2:9 3:1) < f(3:2 4:1 5:1) < f(1:1 2:1 3:3).
//   - A delayed request can arrive after the release that was sent because no reply came. It then
//     takes up one server's vote for a ttl.
//
// That is the debate of 2016. Kleppmann: a lock that depends on time and has no fence is more than
// you need to save work, and not enough for correctness. Sanfilippo: clocks need not be right, they
// need only run at about the same rate; a pause before the lock was acquired is noticed, and a
// pause after it is a problem of every lease; without a fence a resource is no safer with any other
// lock. Both are right: if two holders would do damage, and not just the work twice, let the
// resource check a number that it, or a consensus system, has issued.
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
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// DefaultTimeout is how long one server's step may take where [Options].Timeout doesn't say.
const DefaultTimeout = 250 * time.Millisecond

// Options are a Quorum's. The zero value is ready to use.
type Options struct {
	// Timeout bounds the time of one server's step, with connecting. A server that is slower has no vote. Each answer
	// to the check of a server, too, must come in that time; until a majority has been checked, an acquisition takes
	// as long as that needs, within the Locker's Options.Timeout. While a server hangs (one that refuses connections
	// costs nothing), every extension takes that long, and so does every acquisition that has no majority without it;
	// the lease gets shorter by as much. So it is never more than a fifth of the ttl. Default: [DefaultTimeout], or as
	// long as four answers of a majority took when it was checked, up to a second.
	Timeout time.Duration

	// Grace is how long to wait for servers that have not answered when the others have decided: a
	// majority has granted or released the lock, or no majority is possible any more. One more vote
	// makes the lock safer against the loss of a server. A server that came too late the last time
	// gets only as long as the others took, at least 1 ms. Default: 50 ms.
	Grace time.Duration

	// Drift is the time by which a lease of ttl is shortened, for clocks that run at different
	// rates. nil: a hundredth of the ttl and 2 ms, as in [protocol.Until].
	Drift func(ttl time.Duration) time.Duration

	// Names are the servers' names in errors. Default: "servers[0]" and so on.
	Names []string

	// Sequential asks one server after the other, beginning with servers[First]. It then starts no
	// goroutine, sets no timer and reads no clock but the one it is given: what it sends depends
	// only on the answers. It is for compat/race and for tests: Timeout has no effect, and a server
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
	allDistinct atomic.Bool    // the servers are; see sameServers
	trip        atomic.Int64   // in which a majority answers, in nanoseconds
	jobs        *cleaning.Jobs // where there is no Locker's

	mu    sync.Mutex
	moved map[id]*moved   // see open
	swept int             // how many there were when those that have ended were last dropped
	pairs map[[2]int]bool // servers that are known to be two, or, if false, to be one
}

// New returns the quorum of servers: an Algorithm and its connections each, by compat.NewBackend.
// If they can't make a quorum (no server, the same server twice, readers beside writers, semaphores on
// more than two), each step returns [compat.ErrInvalid].
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
	q.jobs = cleaning.New(o.Clock, cleanupAtMost)
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
		if can.Most > 1 && len(servers) > 2 { // of three servers with two slots, three clients could have two each
			q.invalid = fmt.Errorf("%w: %s has a semaphore, and a majority for each holder lets more in", compat.ErrInvalid, s.name)
		}
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

// Abilities describe the quorum: shared if its servers' locks are; able to change its value if each of them can. They
// have no Epoch: each server has its own.
func (q *Quorum) Abilities() compat.Abilities { return q.abilities }

// Acquire asks every server for key until now+ttl. With a majority before the lease's Until, the
// lock is ours; otherwise what was or may have been taken is released, and the error is an [*Error]
// with each server's own error. Acquire returns when the result is certain, and waits for servers
// that have not answered no longer than Options.Grace. A vote that comes later, within the Locker's
// Options.Cleanup, counts if the lock is still held and was not extended; otherwise it is released.
//
//   - ErrHeld if a majority answered, but other clients have too many of the servers. Two clients
//     that split the votes both get it; a Locker asks again after a pause of random length.
//   - ErrUnsafeServer if the algorithm of any server is not safe there, and ErrInvalid if any
//     can't keep the ttl. Nothing was written on those servers.
//   - ErrForeign if the key is not a string on so many servers that no majority is left.
//   - None of these if too few servers answered.
//
// The outcome is unknown (a Locker returns ErrUnknown) only if what may be left on servers that
// can't be reached keeps other clients from a majority.
func (q *Quorum) Acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (compat.Grant, error) {
	if q.invalid != nil {
		return compat.Grant{Lease: compat.Lease{Key: key}}, q.invalid
	}
	l, err := q.acquire(ctx, now, key, ttl)
	if protocol.OutcomeOf(err) == protocol.NotSent && q.ready(ctx, key, ttl) {
		return q.acquire(ctx, now, key, ttl)
	}
	return l, err
}

// acquire holds one vote.
func (q *Quorum) acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (compat.Grant, error) {
	l := compat.Grant{Lease: compat.Lease{Key: key, How: protocol.Free, Ambiguous: true}}
	l.Until = now().Add(ttl - q.o.Drift(ttl))
	m := &moved{until: l.Until, settled: make(chan struct{})}
	settled := func() { close(m.settled) } // it is known what becomes of the parts that come late
	votes := q.ballot(ctx, bid{now: now, key: key, ttl: ttl, m: m, enough: q.voted})
	err := q.elected(key, votes)
	if same := q.sameServers(ctx, now, key, votes); same != nil {
		err = same
	}
	if err == nil && !now().Before(l.Until) {
		err = fmt.Errorf("%w: %q: the servers took longer to answer than the lease lasts", compat.ErrLost, key)
	}
	if err != nil {
		settled()
		return q.undo(ctx, now, l, votes, err)
	}
	m.parts = make([]part, len(votes))
	for i, v := range votes {
		m.parts[i] = partOf(v.value, v.err)
		if v.err == nil && v.value.How == protocol.TakenOver {
			l.How = protocol.TakenOver
		}
	}
	l.Value = format(m.parts)
	if len(votes) == 1 {
		l.Fence = votes[0].value.Fence
	}
	q.open(id{key, l.Value}, m, votes)
	settled()
	return l, nil
}

// A bid is for parts of an attempt, on all servers or on some.
type bid struct {
	now    func() time.Time
	key    string
	ttl    time.Duration
	m      *moved // the parts that come late join it
	only   func(i int) bool
	enough func([]answer[compat.Grant]) bool
}

func (q *Quorum) ballot(ctx context.Context, b bid) []answer[compat.Grant] {
	return ask(ctx, q, round[compat.Grant]{
		limit: q.limit(b.ttl),
		only:  b.only,
		step: func(ctx context.Context, s *server, _ int) (compat.Grant, error) {
			return s.vote(ctx, b.now, b.key, b.ttl)
		},
		enough: b.enough,
		late: func(ctx context.Context, s *server, i int, part compat.Grant, err error, inTime bool) {
			if mayHold(part, err) && !(inTime && q.join(b.m, i, partOf(part, err))) {
				s.Release(ctx, b.now, part) //nolint:errcheck // nobody has it: what is left ends with its ttl
			}
		},
		hopeless: q.hopeless,
	})
}

// undo releases all parts of a failed attempt, also those that may have been taken; why is its error. It waits until it
// is known if others can have a majority, and no longer.
func (q *Quorum) undo(ctx context.Context, now func() time.Time, l compat.Grant, votes []answer[compat.Grant], why error) (compat.Grant, error) {
	ctx, done := q.cleanup(ctx)
	defer done()
	stays := func(i int, a answer[none]) bool { // it may hold our part
		return (votes[i].err == nil || open(votes[i].err)) && !(a.came && gone(a.err))
	}
	free := func(answers []answer[none]) bool { // others can have a majority
		left := 0
		for i, a := range answers {
			if stays(i, a) {
				left++
			}
		}
		return len(votes)-left >= q.need
	}
	answers := ask(ctx, q, round[none]{
		limit: q.limit(0),
		only:  func(i int) bool { return mayHold(votes[i].value, votes[i].err) },
		step: func(ctx context.Context, s *server, i int) (none, error) {
			return none{}, s.Release(ctx, now, votes[i].value)
		},
		enough: free,
	})
	if free(answers) {
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

// Extend asks the servers with our parts to hold the key until now+ttl. With a majority of them the lease's end moves.
// If no majority is ours any more, it releases the rest and returns ErrLost. If too few answered, nothing is lost yet:
// it returns an [*Error], inside an ErrUnknown if the extension may have reached a majority. The lease that it returns
// then has the earlier of the two ends, unless a majority is known to have the old one still. An extension that takes
// longer than its own ttl loses the lock.
//
// A server that refused the acquisition, or has since lost its part, is asked for it again when a majority was
// extended, and does not count before the next extension: servers that restart empty one after the other, with an
// extension in between, lose nothing.
func (q *Quorum) Extend(ctx context.Context, now func() time.Time, l compat.Grant, ttl time.Duration) (compat.Grant, error) {
	start := now()
	if !start.Before(l.Until) {
		return l, compat.ErrLost
	}
	parts, err := q.parts(l.Key, l.Value)
	if err != nil {
		return l, err
	}
	answers := ask(ctx, q, round[compat.Grant]{
		limit: q.limit(ttl),
		only:  func(i int) bool { return parts[i].held() },
		step: func(ctx context.Context, s *server, i int) (compat.Grant, error) {
			return s.prolong(ctx, now, q.lease(l, parts[i]), parts[i], ttl)
		},
	})
	next := l
	next.Until, next.Rotate, next.Final = start.Add(ttl-q.o.Drift(ttl)), false, true
	t := q.extended(l, &next, parts, answers)
	switch ended := !now().Before(next.Until); {
	case t.done >= q.need && !ended:
		for i, a := range answers {
			parts[i].fresh = false // beside a majority
			// The caller knows of it.
			parts[i].late = parts[i].late && !(next.Rotate && a.err == nil && a.value.Rotate)
		}
		next.Value = q.refill(ctx, now, l, parts, next.Until, ttl)
		if len(parts) == 1 {
			next.Fence = answers[0].value.Fence
		}
		return next, nil
	case len(parts)-t.lost < q.need, t.done >= q.need && ended, !now().Before(l.Until):
		ctx, done := q.cleanup(ctx)
		defer done()
		q.forget(l)
		next.Value = format(parts)
		q.Release(ctx, now, next) //nolint:errcheck // what is left ends with its ttl
		return l, failed(q, "extend", l.Key, answers, compat.ErrLost)
	}
	q.open(id{l.Key, l.Value}, &moved{until: l.Until, parts: parts}, nil)
	err = failed(q, "extend", l.Key, answers, nil)
	sooner := next.Until.Before(l.Until) && t.done+t.unknown > 0 && t.asBefore < q.need
	if !sooner && !t.late && t.done+t.unknown < q.need {
		return l, protocol.NotSent.Mark(err)
	}
	if sooner {
		l.Until = next.Until
	}
	return l, &compat.UnknownError{Lease: l.Lease, Err: err}
}

// An extension is what the servers made of one.
type extension struct {
	tally
	asBefore int  // parts that are known to end when they did
	late     bool // what was sent may still arrive
	sure     int  // parts of which nothing may
}

// extended counts the answers to an extension of l. It notes their results in parts and in next.
func (q *Quorum) extended(l compat.Grant, next *compat.Grant, parts []part, answers []answer[compat.Grant]) (t extension) {
	for i, a := range answers {
		kind := t.add(a.asked && !parts[i].fresh, a.err)
		if kind == &t.undone && !parts[i].doubt {
			t.asBefore++
		}
		if !a.asked {
			continue
		}
		fresh, was, stays := parts[i].fresh, parts[i].late, !q.servers[i].Abilities().Rotates
		parts[i] = parts[i].after(a.value, a.err)
		again := a.err == nil && a.value.Rotate || open(a.err) && stays
		parts[i].fresh = fresh
		parts[i].late = again || was && !(a.err == nil && a.value.Final)
		next.Final = next.Final && a.err == nil && a.value.Final
		next.Rotate = next.Rotate || a.err == nil && !a.value.Final && l.Rotate && stays
		t.late = t.late || again
		if a.err == nil && !parts[i].late && !fresh {
			t.sure++
		}
		if a.err == nil && !fresh && was && parts[i].late { // until when it holds is not known
			t.done, t.unknown = t.done-1, t.unknown+1
		}
	}
	next.Rotate = next.Rotate || t.late && t.sure < q.need
	return t
}

// refill asks each server without a part of l for one, and returns the Value of the lease. A majority has l until a
// moment. Answers are waited for as late votes are.
func (q *Quorum) refill(ctx context.Context, now func() time.Time, l compat.Grant, parts []part, until time.Time,
	ttl time.Duration) string {
	q.forget(l)
	m := &moved{until: until, parts: parts, fresh: true, settled: make(chan struct{})}
	defer close(m.settled)
	var votes []answer[compat.Grant]
	if slices.ContainsFunc(parts, func(p part) bool { return !p.held() }) {
		votes = q.ballot(ctx, bid{now: now, key: l.Key, ttl: ttl, m: m, only: func(i int) bool { return !parts[i].held() },
			enough: func([]answer[compat.Grant]) bool { return true }})
	}
	for i, v := range votes {
		if v.asked && v.came {
			parts[i] = partOf(v.value, v.err)
			parts[i].fresh = true
		}
	}
	shown := slices.Clone(parts) // what the servers hold
	for i := range shown {
		shown[i].fresh = false
	}
	value := format(shown)
	q.open(id{l.Key, value}, m, votes)
	return value
}

// Release releases the key on every server with our part, or what may be our part. It is done when other clients can
// get a majority; what servers that can't be reached still hold ends with its ttl. Slower servers are released in the
// background, within the Locker's Options.Cleanup. It returns ErrLost if no majority was ours any more, and releases
// the rest. If others can't get a majority yet, the outcome is unknown: release again, or wait for the ttl.
func (q *Quorum) Release(ctx context.Context, now func() time.Time, l compat.Grant) error {
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

// limit returns the time limit of a step for a lease of ttl, or for no lease if ttl is 0.
func (q *Quorum) limit(ttl time.Duration) time.Duration {
	most := q.o.Timeout
	if most <= 0 {
		most = max(DefaultTimeout, min(4*time.Duration(q.trip.Load()), time.Second))
	}
	if ttl > 0 {
		most = min(ttl/5, most)
	}
	return most
}

// lease returns our lease on one server.
func (q *Quorum) lease(l compat.Grant, p part) compat.Grant {
	l.Value, l.Ambiguous = p.values[0], p.ambiguous
	if len(q.servers) > 1 {
		l.Fence = 1 // so that none is drawn, which nobody would see
	}
	return l
}

// A tally counts what became of the parts of a lease.
type tally struct{ done, lost, undone, unknown int }

// add counts one part, and returns the counter.
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
