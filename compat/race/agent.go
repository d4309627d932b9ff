package race

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
)

// An agent is one client: the shipping code, run attempt after attempt, with
// all that reaches it from outside going through ask. Both engines run it, and
// differ in ask alone.
type agent struct {
	c       *setup
	id      int // from 0
	ask     func(request) answer
	leaving bool // it has been stopped: nothing is asked any more

	stance
	results []result // since the engine last looked
	closed  bool     // a connection was closed since then
	fresh   bool     // the clock was read and nothing asked since
	// answered: an operation has ended, and what comes of it is not settled yet. The clock
	// is read then to note when, and again before anything is done.
	answered bool
	ms       int64 // what was read
	issued   int   // tokens of this attempt
	asks     int   // acquisitions of this attempt

	lock    *compat.Lock // that it holds, through the Locker
	leased  compat.Lease // what the algorithm last said of it
	current *wire        // the connection that it used last
	open    int          // connections that it has
	all     bool         // it remembers all: more than one lease can matter
	adopts  bool         // what it reads on the key becomes its lease
	timer   func()       // of its Locker
	due     int64        // when that is due, by its own clock; 0: whenever
	renewed error        // what its Locker's last renewal came to
	sent    int          // writes of this attempt
	times   int          // how often it has begun to hold the lock in this attempt

	memory   memory
	timeless *[opAgain]bool // operations that ignore the time they are given
	shift    time.Duration  // by which that time is then wrong
}

// crashed unwinds a client's code.
type crashed struct{}

// request asks the world, and stops the client if it is not to go on.
func (a *agent) request(r request) answer {
	if a.leaving {
		return answer{lost: true}
	}
	if r.kind != readsClock {
		a.fresh, a.answered = false, false
		a.believe()
	}
	if r.kind == sends {
		a.sent++
	}
	got := a.ask(r)
	if got.lost || slices.ContainsFunc(got.replies, isRefusal) {
		a.lossy = true
	}
	return got
}

// isRefusal reports whether a reply is that of a server which did not take the command (Refuse).
func isRefusal(reply any) bool {
	e, ok := reply.(redis.Error)
	return ok && (strings.HasPrefix(string(e), "EXECABORT") || strings.Contains(string(e), "maxmemory"))
}

// now is the client's clock. It is read once between two requests: time that
// passes between two readings with nothing sent in between is measured and
// not acted upon. One reading more notes when an answer came.
func (a *agent) now() time.Time {
	if a.answered {
		a.answered = false
		a.ms = a.request(request{kind: readsClock, along: true}).ms
		if a.all || a.adopts {
			a.memory.past.number(uint64(a.ms))
		} else {
			a.memory.past.number(truth(instant(a.ms).Before(a.leased.Until)))
		}
		return instant(a.ms)
	}
	if !a.fresh {
		a.ms = a.request(request{kind: readsClock}).ms
		a.fresh = true
		if a.all {
			a.memory.past.number(uint64(a.ms))
		}
		if a.phase == idle {
			a.phase, a.asked = acquiring, a.ms
		}
	}
	return instant(a.ms)
}

// run makes one attempt: it takes the lock, works, and releases.
func (a *agent) run(k int) {
	a.stance = stance{attempt: k, asked: -1}
	a.issued, a.asks, a.fresh, a.answered = 0, 0, false, false
	a.memory = memory{}
	a.lock, a.leased, a.current, a.open, a.timer, a.due, a.renewed, a.sent, a.times = nil, compat.Lease{}, nil, 0, nil, 0, nil, 0, 0
	a.all, a.adopts = a.c.Batch || a.c.Signal, false
	algo := a.recorder()
	if a.c.bare(a.id) {
		a.runBare(algo)
	} else {
		a.runShipped(algo)
	}
	a.unpin()
	a.lock = nil
}

// runShipped runs one attempt through the shipping Locker.
func (a *agent) runShipped(algo protocol.Algorithm) {
	o := compat.Options{Clock: ticker{a: a}, Rand: func() float64 { return 0 }, MaxPinned: a.c.entry(a.id).pinned, Signal: a.c.Signal}
	if a.c.Batch {
		o.Renew, o.Observer = true, observer{a}.Observe
	}
	k := compat.NewOn(a.source(), algo, o)
	ctx := context.Background()
	if a.c.Wait {
		ctx = k.WaitingAs(ctx, token(a.id, 0, 0))
	}
	if a.c.Poll && !a.free(k) {
		return
	}
	lock, err := k.TryLock(ctx, a.c.Key, a.c.TTL)
	a.end(opAcquire, err)
	if err != nil {
		return
	}
	a.holdLock(lock)
	a.work()
	if a.c.Batch {
		a.batch(ctx, k)
	}
	var given compat.Handle
	if a.c.StaleHandle {
		given = lock.Handle()
	}
	if a.c.Handoff {
		next := a.handoff(ctx, lock)
		if a.c.StaleHandle && next != lock {
			a.stale(func() error { return k.ReleaseHandle(ctx, given) })
		}
		lock = next
	}
	for _, ttl := range a.c.extensions() {
		if lock = a.extend(lock, func() error { return lock.Extend(ctx, ttl) }); lock == nil {
			break
		}
	}
	if a.c.Downgrade && lock != nil && !a.c.entry(a.id).Among {
		lock = a.downgrade(ctx, lock)
	}
	if a.c.Detach && lock != nil {
		lock = a.detach(ctx, k, lock)
	}
	if lock == nil {
		lock = a.lock // lost: its release says so once more
	}
	if a.letGo(); !a.c.Keep && lock != nil {
		a.end(opRelease, lock.Release(ctx))
	}
}

// extend is one extension of a lock; nil: it was lost.
func (a *agent) extend(lock *compat.Lock, by func() error) *compat.Lock {
	a.begin(extending)
	err := by()
	a.end(opExtend, err)
	if errors.Is(err, compat.ErrLost) {
		a.holds = false
		a.unpin()
		return nil
	}
	a.holdLock(lock)
	a.work()
	return lock
}

// detach gives the lock away with its handle, and takes it up by that: the client after it may
// be another process, with nothing but the handle. nil: it has no lock any more.
func (a *agent) detach(ctx context.Context, k *compat.Locker, lock *compat.Lock) *compat.Lock {
	a.adopts = true
	a.letGo()
	a.begin(extending)
	sent := a.sent
	h, err := lock.Detach(ctx)
	switch {
	case errors.Is(err, compat.ErrLost):
		a.end(opExtend, err)
		a.unpin()
		return nil
	case err != nil: // it is held on
		if a.sent > sent {
			a.end(opExtend, err)
		}
		a.holdLock(lock)
		a.work()
		return lock
	}
	a.unpin()
	a.memory.past.text(h.Token, a.id)
	next, err := k.AdoptHandle(ctx, h, a.c.TTL)
	a.end(opExtend, err)
	a.lock = next
	if err != nil {
		return nil
	}
	a.holdLock(next)
	a.work()
	return next
}

// downgrade makes a reader of a writer. nil: it has no lock any more.
func (a *agent) downgrade(ctx context.Context, lock *compat.Lock) *compat.Lock {
	a.adopts = true
	a.letGo()
	a.begin(extending)
	sent := a.sent
	readers := compat.NewOn(a.source(), recorder{a.c.readers(a.id, a.token), a}, compat.Options{Clock: ticker{a: a}, Rand: func() float64 { return 0 }})
	next, err := rwlock.Downgrade(ctx, lock, readers, a.c.TTL)
	if err != nil && lock.Context().Err() == nil { // it was not detached
		if a.sent > sent {
			a.end(opExtend, err)
		}
		a.holdLock(lock)
		a.work()
		return lock
	}
	a.end(opExtend, err)
	a.lock = next
	if err != nil {
		return nil
	}
	a.reads = true
	a.holdLock(next)
	return next
}

// stale is a release by somebody who has a handle from before the hand-off.
func (a *agent) stale(by func() error) {
	a.begin(extending)
	a.end(opStale, by())
	a.phase, a.fresh = holding, false
}

// batch takes a second lock, and has the Locker renew both in one write, as soon as that
// may be due or later.
func (a *agent) batch(ctx context.Context, k *compat.Locker) {
	timer := a.timer
	second, err := k.TryLock(ctx, a.c.Key+".2", a.c.TTL)
	a.phase, a.lossy = holding, false
	if err != nil {
		return
	}
	const margin = 250 // a Lock's context ends that much before its lease, at most
	if a.due = a.ms + a.c.TTL.Milliseconds()/3 + 1; a.due >= a.until-margin {
		a.due = 0 // it is not due before its end
	}
	a.renewed = errors.ErrUnsupported // not renewed at all
	a.begin(extending)
	timer()
	if err := a.renewed; !errors.Is(err, errors.ErrUnsupported) {
		a.end(opExtend, err)
	}
	switch {
	case errors.Is(a.renewed, compat.ErrLost):
		a.holds = false
	default:
		a.holdLock(a.lock)
		a.work()
	}
	second.Release(ctx) //nolint:errcheck // it is there to be renewed beside the other
}

// An observer is told what the Locker's own renewals came to.
type observer struct{ a *agent }

func (o observer) Observe(e compat.Event) {
	if e.Key != o.a.c.Key {
		return
	}
	switch e.Kind {
	case compat.EventExtended:
		o.a.renewed = nil
	case compat.EventFailed, compat.EventLost:
		o.a.renewed = e.Err
	}
}

// handoff is one client after another in one process: the old holder relies on the
// lock no more before the new one begins to. Without a command, if the lease is fresh
// and no fence is drawn: then nothing was asked, and nothing has ended.
func (a *agent) handoff(ctx context.Context, lock *compat.Lock) *compat.Lock {
	sent := a.sent
	a.letGo()
	a.begin(extending)
	next, err := lock.Handoff(ctx, a.c.TTL)
	if err == nil {
		lock = next
	}
	if err != nil || a.sent > sent {
		a.end(opExtend, err)
	}
	if errors.Is(err, compat.ErrLost) {
		a.unpin()
		return lock
	}
	a.holdLock(lock)
	a.work()
	return lock
}

// A handoffer is an algorithm that has its own way to make one holder's lease
// another's.
type handoffer interface {
	Handoff(now time.Time, l compat.Lease, ttl time.Duration) compat.Lease
}

// A waker is an algorithm that has its own way to release the lock and wake who waits for it.
type waker interface {
	Wake(l compat.Lease) protocol.Change
}

// A believer has its own way to think of an extension whose outcome is open.
type believer interface {
	Believes(l, next compat.Lease) compat.Lease
}

// unpin is what the Locker does in the background: it returns the connection that a
// lost lease pinned. To the server it is one that begins anew.
func (a *agent) unpin() {
	if w := a.current; w != nil && !w.gone {
		w.Close()
	}
}

// free looks before it tries, as Locker.Lock does between attempts.
func (a *agent) free(k *compat.Locker) bool {
	st, err := k.Inspect(context.Background(), a.c.Key)
	a.answered = false
	return err != nil || st.Status == compat.StatusFree || st.Status == compat.StatusDead
}

// runBare runs one attempt by the algorithm alone, with the least that a
// program must add to it: an unknown outcome is released.
func (a *agent) runBare(algo recorder) {
	w := a.wire()
	lease, err := algo.Acquire(protocol.NewConn(w), a.now(), a.c.Key, a.c.TTL)
	a.end(opAcquire, bareError(lease, err))
	if err != nil {
		if !knownOutcome(err) && !lease.Ambiguous {
			a.phase = releasing // and lossy still: what is released perhaps never was
			w = a.redial(w)
			a.end(opRelease, forgiven(bareError(lease, a.releaseBare(algo, w, lease))))
		}
		w.Close()
		return
	}
	a.hold(lease)
	a.work()
	if h, ok := algo.Algorithm.(handoffer); ok && a.c.Handoff {
		a.letGo()
		given := lease
		lease = h.Handoff(a.now(), lease, a.c.TTL)
		a.hold(lease)
		a.work()
		if a.c.StaleHandle {
			a.stale(func() error { return bareError(given, a.releaseBare(algo, w, given)) })
			w = a.redial(w)
		}
	}
	for _, ttl := range a.c.extensions() {
		a.begin(extending)
		now := a.now()
		next, ch, err := algo.Extend(now, lease, ttl, false)
		if err == nil && ch.By == nil && !now.Before(lease.Until) {
			err = compat.ErrLost // as the Locker does it
			ch.Seen(err)
		} else if err == nil {
			a.until = millis(a.believes(algo, lease, next).Until)
			var replies []any
			if replies, err = protocol.NewConn(w).Run(ch); err == nil && ch.Draw {
				next.Fence, err = redis.Int64(replies[len(replies)-1], nil)
			}
		}
		a.end(opExtend, bareError(next, err))
		w = a.redial(w)
		switch {
		case errors.Is(err, compat.ErrLost):
			a.holds = false
		case err == nil:
			lease = next
		case !knownOutcome(err):
			lease.Until = a.believes(algo, lease, next).Until
		}
		if !a.holds {
			break
		}
		a.hold(lease)
		a.work()
	}
	if a.letGo(); !a.c.Keep {
		a.end(opRelease, bareError(lease, a.releaseBare(algo, w, lease)))
	}
	w.Close()
}

func (a *agent) releaseBare(algo recorder, w *wire, l compat.Lease) error {
	a.now()
	release := algo.Release
	if k, ok := algo.Algorithm.(waker); ok && a.c.Signal {
		release = func(l compat.Lease) protocol.Change { return algo.releasing(l, k.Wake(l)) }
	}
	_, err := protocol.NewConn(w).Run(release(l))
	return err
}

// believes is the lease that a client believes in while it is not known whether l became
// next: the one that ends first.
func (a *agent) believes(algo recorder, l, next compat.Lease) compat.Lease {
	if b, ok := algo.Algorithm.(believer); ok {
		return b.Believes(l, next)
	}
	if next.Until.Before(l.Until) {
		l.Until = next.Until
	}
	return l
}

func (a *agent) redial(w *wire) *wire {
	if w.err == nil {
		return w
	}
	w.Close()
	return a.wire()
}

// forgiven drops the ErrLost of a release of what perhaps never was.
func forgiven(err error) error {
	if errors.Is(err, compat.ErrLost) {
		return nil
	}
	return err
}

func bareError(l compat.Lease, err error) error {
	if err == nil || knownOutcome(err) {
		return err
	}
	return &compat.UnknownError{Lease: l, Err: err}
}

func knownOutcome(err error) bool {
	return errors.Is(err, compat.ErrHeld) || errors.Is(err, compat.ErrLost) || errors.Is(err, compat.ErrForeign) ||
		errors.Is(err, compat.ErrUnsafeServer) || errors.Is(err, compat.ErrInvalid)
}

func (a *agent) begin(p phase) { a.phase, a.lossy, a.answered = p, false, false }

// end notes how an operation ended.
func (a *agent) end(op operation, err error) {
	how := failed
	switch {
	case err == nil:
		how = done
	case errors.Is(err, compat.ErrUnknown):
		how = unknown
	case errors.Is(err, compat.ErrHeld):
		how = held
	case errors.Is(err, compat.ErrLost):
		how = lost
	}
	a.got = false
	a.results = append(a.results, result{op: op, how: how, until: a.until, lossy: a.lossy})
}

func (a *agent) hold(l compat.Lease) {
	a.phase, a.holds, a.lossy, a.asked = holding, true, false, -1
	a.fresh, a.answered = false, false // what it does next, it may do later
	a.until, a.fence, a.value = millis(l.Until), l.Fence, l.Value
	a.memory.holds(l, a.id, a.all)
	a.times++
	a.memory.past.number(uint64(a.times)) // which of what it does with the lock comes next
}

// holdLock is hold of what the Locker says that it holds. Its token is asked for only where
// several stand on the key: a lock whose token is known to somebody is not the same any more.
func (a *agent) holdLock(lock *compat.Lock) {
	a.lock = lock
	l := a.leased
	l.Until, l.Fence = lock.Until(), lock.Fence()
	if a.c.form() == members {
		l.Value = lock.Token()
	}
	a.hold(l)
	a.believe()
}

// believe brings in line what the client believes with what its Lock says: an extension that is
// under way can make the lease shorter, and a lock that is lost ends its context.
func (a *agent) believe() {
	if a.lock == nil || !a.holds {
		return
	}
	a.until = millis(a.lock.Until())
	a.holds = a.lock.Context().Err() == nil
}

// letGo is where the client stops relying on the lock: before its release is
// on the way.
func (a *agent) letGo() {
	a.now()
	a.begin(releasing)
	a.holds = false
}

// work writes to what the lock protects, unless it is a reader's. The decision to write is as old as the
// lease: a client that stops between the two writes late.
func (a *agent) work() {
	if a.c.Write && !a.c.entry(a.id).Among {
		a.request(request{kind: works})
	}
}

// token is what makes the client's values its own: twelve digits, the first six
// zeros so that they weigh nothing in a timestamp.
func (a *agent) token() string {
	a.issued++
	return token(a.id, a.attempt, a.issued)
}

// A ticker is the clock that a client's Locker is given. Its timers never fire by themselves:
// what a client does late, it does because it was scheduled late. The Locker's own timer is
// fired where the client renews (Config.Batch). Every other way to wait panics on the nil clock
// inside.
type ticker struct {
	clock.Clock
	a *agent
}

// Unattended says that nothing runs behind the client's back.
func (ticker) Unattended() {}

// Now is the client's clock. The first reading of a timer that was fired early is the moment
// for which it was set.
func (t ticker) Now() time.Time {
	now := t.a.now()
	if due := t.a.due; due > 0 {
		t.a.due = 0
		if due > millis(now) {
			return instant(due)
		}
	}
	return now
}

// Since and Until are used to measure, never to decide: they read nothing.
func (t ticker) Since(m time.Time) time.Duration { return instant(t.a.ms).Sub(m) }
func (t ticker) Until(m time.Time) time.Duration { return m.Sub(instant(t.a.ms)) }

func (t ticker) Timer(d time.Duration) *clock.Timer { return clock.NewMock().Timer(max(d, 1)) }

// AfterFunc keeps the last function: a Locker that has just taken a lock has set its own timer.
func (t ticker) AfterFunc(d time.Duration, f func()) *clock.Timer {
	t.a.timer = f
	return clock.NewMock().AfterFunc(d, f)
}
