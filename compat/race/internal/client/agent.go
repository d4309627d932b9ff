// Package client runs one client of a lock: the shipping code, attempt after attempt. All that reaches it from
// outside goes through one function, so that whoever runs it says what it receives, and where it stops.
package client

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
	"github.com/setnxlock/setnxlock/compat/race/internal/memo"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/rwlock"
)

// An Agent is one client: the shipping code, run attempt after attempt, with
// all that reaches it from outside going through ask. Both engines run it, and
// differ in ask alone.
type Agent struct {
	Setup   *plan.Setup
	ID      int // from 0
	Ask     func(Request) Answer
	Leaving bool // it has been stopped: nothing is asked any more

	State
	Results []Result // since the engine last looked
	Closed  bool     // a connection was closed since then
	fresh   bool     // the clock was read and nothing asked since
	// answered: an operation has ended, and what comes of it is not settled yet. The clock
	// is read then to note when, and again before anything is done.
	answered bool
	ms       int64 // what was read
	Issued   int   // tokens of this attempt
	asks     int   // acquisitions of this attempt

	lock    *compat.Lock // that it holds, through the Locker
	leased  compat.Lease // what the algorithm last said of it
	current *wire        // the connection that it used last
	Open    int          // connections that it has
	all     bool         // it remembers all: more than one lease can matter
	adopts  bool         // what it reads on the key becomes its lease
	timer   func()       // of its Locker
	due     int64        // when that is due, by its own clock; 0: whenever
	renewed error        // what its Locker's last renewal came to
	sent    int          // writes of this attempt
	times   int          // how often it has begun to hold the lock in this attempt

	Memory   memory
	Timeless *[OpAgain]bool // operations that ignore the time they are given
	Shift    time.Duration  // by which that time is then wrong
}

// Crashed unwinds a client's code.
type Crashed struct{}

// request asks the world, and stops the client if it is not to go on.
func (a *Agent) request(r Request) Answer {
	if a.Leaving {
		return Answer{Lost: true}
	}
	if r.Kind != ReadsClock {
		a.fresh, a.answered = false, false
		a.believe()
	}
	if r.Kind == Sends {
		a.sent++
	}
	got := a.Ask(r)
	if got.Lost || slices.ContainsFunc(got.Replies, isRefusal) {
		a.Lossy = true
	}
	return got
}

// isRefusal reports whether a server refused a command with this reply (Refuse).
func isRefusal(reply any) bool {
	e, ok := reply.(redis.Error)
	return ok && (strings.HasPrefix(string(e), "EXECABORT") || strings.Contains(string(e), "maxmemory"))
}

// now reads the client's clock. It is read once between two requests: time that passes between two
// readings with nothing sent in between is measured and not acted upon. One reading more notes when an
// answer came.
func (a *Agent) now() time.Time {
	if a.answered {
		a.answered = false
		a.ms = a.request(Request{Kind: ReadsClock, Along: true}).Now
		if a.all || a.adopts {
			a.Memory.Past.Number(uint64(a.ms))
		} else {
			a.Memory.Past.Number(memo.Truth(plan.Instant(a.ms).Before(a.leased.Until)))
		}
		return plan.Instant(a.ms)
	}
	if !a.fresh {
		a.ms = a.request(Request{Kind: ReadsClock}).Now
		a.fresh = true
		if a.all {
			a.Memory.Past.Number(uint64(a.ms))
		}
		if a.Phase == Idle {
			a.Phase, a.Asked = Acquiring, a.ms
		}
	}
	return plan.Instant(a.ms)
}

// Run makes one attempt: it takes the lock, works, and releases.
func (a *Agent) Run(k int) {
	a.State = State{Attempt: k, Asked: -1}
	a.Issued, a.asks, a.fresh, a.answered = 0, 0, false, false
	a.Memory = memory{}
	a.lock, a.leased, a.current, a.Open, a.timer, a.due, a.renewed, a.sent, a.times = nil, compat.Lease{}, nil, 0, nil, 0, nil, 0, 0
	a.all, a.adopts = a.Setup.Batch, false
	algo := a.recorder()
	if a.Setup.IsBare(a.ID) {
		a.runBare(algo)
	} else {
		a.runShipped(algo)
	}
	a.unpin()
	a.lock = nil
}

// runShipped runs one attempt through the shipping Locker.
func (a *Agent) runShipped(algo protocol.Algorithm) {
	o := compat.Options{Clock: ticker{a: a}, Rand: func() float64 { return 0 }, NoRenew: !a.Setup.Batch}
	if a.Setup.Batch {
		o.Observer = observer{a}.Observe
	}
	k := compat.NewOn(a.source(), algo, o)
	ctx := context.Background()
	if a.Setup.Wait {
		ctx = k.WaitingAs(ctx, plan.Token(a.ID, 0, 0))
	}
	if a.Setup.Poll && !a.free(k) {
		return
	}
	lock, err := k.TryLock(ctx, a.Setup.Key, a.Setup.TTL)
	a.end(OpAcquire, err)
	if err != nil {
		return
	}
	a.holdLock(lock)
	a.work()
	if a.Setup.Batch {
		a.batch(ctx, k)
	}
	var given compat.Handle
	if a.Setup.StaleHandle {
		given = lock.Handle()
	}
	if a.Setup.Handoff {
		next := a.handoff(ctx, lock)
		if a.Setup.StaleHandle && next != lock {
			a.stale(func() error { return k.ReleaseHandle(ctx, given) })
		}
		lock = next
	}
	for _, ttl := range a.Setup.Extensions() {
		if lock = a.extend(lock, func() error { return lock.Extend(ctx, ttl) }); lock == nil {
			break
		}
	}
	if a.Setup.Downgrade && lock != nil && !a.Setup.Entry(a.ID).Among {
		lock = a.downgrade(ctx, lock)
	}
	if a.Setup.Detach && lock != nil {
		lock = a.detach(ctx, k, lock)
	}
	if lock == nil {
		lock = a.lock // lost: its release says so once more
	}
	if a.letGo(); !a.Setup.Keep && lock != nil {
		a.end(OpRelease, lock.Release(ctx))
	}
}

// extend makes one extension of a lock; nil: it was lost.
func (a *Agent) extend(lock *compat.Lock, by func() error) *compat.Lock {
	a.begin(Extending)
	err := by()
	a.end(OpExtend, err)
	if errors.Is(err, compat.ErrLost) {
		a.Holds = false
		a.unpin()
		return nil
	}
	a.holdLock(lock)
	a.work()
	return lock
}

// detach gives the lock away with its handle, and takes it up by the handle: the client after it may
// be another process. nil: it has no lock any more.
func (a *Agent) detach(ctx context.Context, k *compat.Locker, lock *compat.Lock) *compat.Lock {
	a.adopts = true
	a.letGo()
	a.begin(Extending)
	sent := a.sent
	h, err := lock.Detach(ctx)
	switch {
	case errors.Is(err, compat.ErrLost):
		a.end(OpExtend, err)
		a.unpin()
		return nil
	case err != nil: // it is held on
		if a.sent > sent {
			a.end(OpExtend, err)
		}
		a.holdLock(lock)
		a.work()
		return lock
	}
	a.unpin()
	a.Memory.Past.Text(h.Token, a.ID)
	next, err := k.AdoptHandle(ctx, h, a.Setup.TTL)
	a.end(OpExtend, err)
	a.lock = next
	if err != nil {
		return nil
	}
	a.holdLock(next)
	a.work()
	return next
}

// downgrade makes a reader of a writer. nil: it has no lock any more.
func (a *Agent) downgrade(ctx context.Context, lock *compat.Lock) *compat.Lock {
	a.adopts = true
	a.letGo()
	a.begin(Extending)
	sent := a.sent
	readers := compat.NewOn(a.source(), recorder{a.Setup.Readers(a.ID, a.token), a},
		compat.Options{Clock: ticker{a: a}, Rand: func() float64 { return 0 }, NoRenew: true})
	next, err := rwlock.Downgrade(ctx, lock, readers, a.Setup.TTL)
	if err != nil && lock.Context().Err() == nil { // it was not detached
		if a.sent > sent {
			a.end(OpExtend, err)
		}
		a.holdLock(lock)
		a.work()
		return lock
	}
	a.end(OpExtend, err)
	a.lock = next
	if err != nil {
		return nil
	}
	a.Reads = true
	a.holdLock(next)
	return next
}

// stale releases by a handle from before the hand-off.
func (a *Agent) stale(by func() error) {
	a.begin(Extending)
	a.end(OpStale, by())
	a.Phase, a.fresh = Holding, false
}

// batch takes a second lock, and has the Locker renew both in one write, as soon as this may be due or
// later.
func (a *Agent) batch(ctx context.Context, k *compat.Locker) {
	timer := a.timer
	second, err := k.TryLock(ctx, a.Setup.Key+".2", a.Setup.TTL)
	a.Phase, a.Lossy = Holding, false
	if err != nil {
		return
	}
	const margin = 250 // a Lock's context ends that much before its lease, at most
	if a.due = a.ms + a.Setup.TTL.Milliseconds()/3 + 1; a.due >= a.Until-margin {
		a.due = 0 // it is not due before its end
	}
	a.renewed = errors.ErrUnsupported // not renewed at all
	a.begin(Extending)
	timer()
	if err := a.renewed; !errors.Is(err, errors.ErrUnsupported) {
		a.end(OpExtend, err)
	}
	switch {
	case errors.Is(a.renewed, compat.ErrLost):
		a.Holds = false
	default:
		a.holdLock(a.lock)
		a.work()
	}
	second.Release(ctx) //nolint:errcheck // it is there to be renewed beside the other
}

// An observer is told what the Locker's own renewals came to.
type observer struct{ a *Agent }

func (o observer) Observe(e compat.Event) {
	if e.Key != o.a.Setup.Key {
		return
	}
	switch e.Kind {
	case compat.EventExtended:
		o.a.renewed = nil
	case compat.EventFailed, compat.EventLost:
		o.a.renewed = e.Err
	}
}

// handoff passes the lock in one process: the old holder relies on the lock no more before the new one
// begins to. Without a command, if the lease is fresh and no fence is drawn: then nothing was asked,
// and nothing has ended.
func (a *Agent) handoff(ctx context.Context, lock *compat.Lock) *compat.Lock {
	sent := a.sent
	a.letGo()
	a.begin(Extending)
	next, err := lock.Handoff(ctx, a.Setup.TTL)
	if err == nil {
		lock = next
	}
	if err != nil || a.sent > sent {
		a.end(OpExtend, err)
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

// A believer has its own way to think of an extension whose outcome is open.
type believer interface {
	Believes(l, next compat.Lease) compat.Lease
}

// unpin does the Locker's background work: it returns a lost lease's pinned connection. To the server
// it is one that begins anew.
func (a *Agent) unpin() {
	if w := a.current; w != nil && !w.gone {
		w.Close()
	}
}

// free looks before it tries, as Locker.Lock does between attempts.
func (a *Agent) free(k *compat.Locker) bool {
	st, err := k.Inspect(context.Background(), a.Setup.Key)
	a.answered = false
	return err != nil || st.Status == compat.StatusFree || st.Status == compat.StatusDead
}

// runBare runs one attempt by the algorithm alone, with a program's least addition: it releases an
// unknown outcome.
func (a *Agent) runBare(algo recorder) {
	w := a.wire()
	lease, err := algo.Acquire(protocol.NewConn(w), a.now(), a.Setup.Key, a.Setup.TTL)
	a.end(OpAcquire, bareError(lease, err))
	if err != nil {
		if !knownOutcome(err) && !lease.Ambiguous {
			a.Phase = Releasing // and lossy still: what is released perhaps never was
			w = a.redial(w)
			a.end(OpRelease, forgiven(bareError(lease, a.releaseBare(algo, w, lease))))
		}
		w.Close()
		return
	}
	a.hold(lease)
	a.work()
	if h, ok := algo.Algorithm.(handoffer); ok && a.Setup.Handoff {
		a.letGo()
		given := lease
		lease = h.Handoff(a.now(), lease, a.Setup.TTL)
		a.hold(lease)
		a.work()
		if a.Setup.StaleHandle {
			a.stale(func() error { return bareError(given, a.releaseBare(algo, w, given)) })
			w = a.redial(w)
		}
	}
	for _, ttl := range a.Setup.Extensions() {
		lease = a.extendBare(algo, w, lease, ttl)
		if w = a.redial(w); !a.Holds {
			break
		}
		a.hold(lease)
		a.work()
	}
	if a.letGo(); !a.Setup.Keep {
		a.end(OpRelease, bareError(lease, a.releaseBare(algo, w, lease)))
	}
	w.Close()
}

func (a *Agent) extendBare(algo recorder, w *wire, lease compat.Lease, ttl time.Duration) compat.Lease {
	a.begin(Extending)
	now := a.now()
	next, ch, err := algo.Extend(now, lease, ttl, false)
	if err == nil && ch.Custom == nil && !now.Before(lease.Until) {
		err = compat.ErrLost // as the Locker does it
		ch.Observe(err)
	} else if err == nil {
		a.Until = plan.Millis(a.believes(algo, lease, next).Until)
		var replies []any
		if replies, err = protocol.NewConn(w).Run(ch); err == nil && ch.TakeFence {
			next.Fence, err = redis.Int64(replies[len(replies)-1], nil)
		}
	}
	a.end(OpExtend, bareError(next, err))
	switch {
	case errors.Is(err, compat.ErrLost):
		a.Holds = false
	case err == nil:
		return next
	case !knownOutcome(err):
		lease.Until = a.believes(algo, lease, next).Until
	}
	return lease
}

func (a *Agent) releaseBare(algo recorder, w *wire, l compat.Lease) error {
	a.now()
	_, err := protocol.NewConn(w).Run(algo.Release(l))
	return err
}

// believes picks the lease to believe in while l may have become next: the one with the earlier end.
func (a *Agent) believes(algo recorder, l, next compat.Lease) compat.Lease {
	if b, ok := algo.Algorithm.(believer); ok {
		return b.Believes(l, next)
	}
	if next.Until.Before(l.Until) {
		l.Until = next.Until
	}
	return l
}

func (a *Agent) redial(w *wire) *wire {
	if w.err == nil {
		return w
	}
	w.Close()
	return a.wire()
}

// forgiven drops the ErrLost of a release after an unknown acquisition.
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

func (a *Agent) begin(p Phase) { a.Phase, a.Lossy, a.answered = p, false, false }

// end notes how an operation ended.
func (a *Agent) end(op operation, err error) {
	how := failed
	switch {
	case err == nil:
		how = Done
	case errors.Is(err, compat.ErrUnknown):
		how = Unknown
	case errors.Is(err, compat.ErrHeld):
		how = Held
	case errors.Is(err, compat.ErrLost):
		how = Lost
	}
	a.Got = false
	a.Results = append(a.Results, Result{Op: op, How: how, Until: a.Until, Lossy: a.Lossy})
}

func (a *Agent) hold(l compat.Lease) {
	a.Phase, a.Holds, a.Lossy, a.Asked = Holding, true, false, -1
	a.fresh, a.answered = false, false // what it does next, it may do later
	a.Until, a.Fence, a.Value = plan.Millis(l.Until), l.Fence, l.Value
	a.Memory.holds(l, a.ID, a.all)
	a.times++
	a.Memory.Past.Number(uint64(a.times)) // which of what it does with the lock comes next
}

// holdLock holds a Lock of the Locker's. Its token is asked for only where several stand on the key: a
// lock whose token is known to somebody is not the same any more.
func (a *Agent) holdLock(lock *compat.Lock) {
	a.lock = lock
	l := a.leased
	l.Until, l.Fence = lock.Until(), lock.Fence()
	if a.Setup.Form() == plan.Members {
		l.Value = lock.Token()
	}
	a.hold(l)
	a.believe()
}

// believe updates the client's belief from its Lock: an extension under way can make the lease
// shorter, and a lost lock ends its context.
func (a *Agent) believe() {
	if a.lock == nil || !a.Holds {
		return
	}
	a.Until = plan.Millis(a.lock.Until())
	a.Holds = a.lock.Context().Err() == nil
}

// letGo ends the client's reliance on the lock, before its release is on the way.
func (a *Agent) letGo() {
	a.now()
	a.begin(Releasing)
	a.Holds = false
}

// work writes to the lock's storage, unless it is a reader's. The decision to write is as old as the
// lease: a client that stops between the two writes late.
func (a *Agent) work() {
	if a.Setup.Write && !a.Setup.Entry(a.ID).Among {
		a.request(Request{Kind: Works})
	}
}

// token makes the client's own values.
func (a *Agent) token() string {
	a.Issued++
	return plan.Token(a.ID, a.Attempt, a.Issued)
}

// A ticker is the clock that a client's Locker is given. Its timers never fire by themselves:
// what a client does late, it does because it was scheduled late. The Locker's own timer is
// fired where the client renews (Config.Batch). Every other way to wait panics on the nil clock
// inside.
type ticker struct {
	clock.Clock
	a *Agent
}

// Unattended tells the Locker: nothing runs behind the client's back.
func (ticker) Unattended() {}

// Now reads the client's clock. The first reading of a timer that was fired early is the moment for
// which it was set.
func (t ticker) Now() time.Time {
	now := t.a.now()
	if due := t.a.due; due > 0 {
		t.a.due = 0
		if due > plan.Millis(now) {
			return plan.Instant(due)
		}
	}
	return now
}

// Since and Until are used to measure, never to decide: they read nothing.
func (t ticker) Since(m time.Time) time.Duration { return plan.Instant(t.a.ms).Sub(m) }
func (t ticker) Until(m time.Time) time.Duration { return m.Sub(plan.Instant(t.a.ms)) }

func (t ticker) Timer(d time.Duration) *clock.Timer { return clock.NewMock().Timer(max(d, 1)) }

// AfterFunc keeps the last function: a Locker with a new lock has set its own timer.
func (t ticker) AfterFunc(d time.Duration, f func()) *clock.Timer {
	t.a.timer = f
	return clock.NewMock().AfterFunc(d, f)
}
