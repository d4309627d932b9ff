package race

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// An agent is one client: the shipping code, run attempt after attempt, with
// all that reaches it from outside going through ask. Both engines run it, and
// differ in ask alone.
type agent struct {
	c       *Config
	id      int // from 0
	ask     func(request) answer
	leaving bool // it has been stopped: nothing is asked any more

	stance
	results []result // since the engine last looked
	closed  bool     // a connection was closed since then
	fresh   bool     // the clock was read and nothing asked since
	ms      int64    // what was read
	issued  int      // tokens of this attempt
	asks    int      // acquisitions of this attempt

	pinned   bool // its lease keeps the connection
	memory   memory
	timeless *[opAgain]bool // operations that ignore the time they are given
	shift    time.Duration  // by which that time is then wrong
}

// A stance is what a client is doing and what it believes, between two requests.
type stance struct {
	phase   phase
	attempt int
	holds   bool
	until   int64 // end of its lease by its own clock
	fence   int64
	value   string // what its lease says is on the key
	asked   int64  // when this attempt began, by its own clock; -1: it has not
	lossy   bool   // a message of the operation under way was lost, or a command refused
	got     bool   // the algorithm has said "yours", the client does not know yet
}

type phase uint8

const (
	idle phase = iota
	acquiring
	holding
	extending
	releasing
	finished
)

// A result is how an operation ended.
type result struct {
	op    operation
	how   ending
	until int64 // of the lease before it, by the client's clock
	lossy bool
}

type operation uint8

const (
	opNone operation = iota
	opAcquire
	opExtend
	opRelease
	opInspect
	opAgain // the Locker asks again within one attempt: what it left behind is not this one's
)

func (o operation) String() string {
	return [...]string{"", "acquire", "extend", "release", "inspect", "again"}[o]
}

type ending uint8

const (
	done    ending = iota // nil
	held                  // ErrHeld
	lost                  // ErrLost
	unknown               // ErrUnknown
	failed                // any other error
)

func (e ending) String() string {
	return [...]string{"done", "refused: held", "lost", "unknown", "failed"}[e]
}

// crashed unwinds a client's code.
type crashed struct{}

// request asks the world, and stops the client if it is not to go on.
func (a *agent) request(r request) answer {
	if a.leaving {
		return answer{lost: true}
	}
	if r.kind != readsClock {
		a.fresh = false
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
// not acted upon.
func (a *agent) now() time.Time {
	if !a.fresh {
		a.ms = a.request(request{kind: readsClock}).ms
		a.fresh = true
		if a.phase == idle {
			a.phase, a.asked = acquiring, a.ms
		}
	}
	return instant(a.ms)
}

// epoch is when every run begins: the start of a second, with the ten digits
// that times of our days have.
var epoch = time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC)

func instant(ms int64) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
func millis(t time.Time) int64   { return t.Sub(epoch).Milliseconds() }

// run makes one attempt: it takes the lock, works, and releases.
func (a *agent) run(k int) {
	a.stance = stance{attempt: k, asked: -1}
	a.issued, a.asks, a.fresh = 0, 0, false
	a.memory = memory{}
	a.pinned = false
	algo := a.recorder()
	if a.c.bare(a.id) {
		a.runBare(algo)
	} else {
		a.runShipped(algo)
	}
}

// runShipped runs one attempt through the shipping Locker.
func (a *agent) runShipped(algo compat.Algorithm) {
	k := compat.New(a, algo, compat.Options{Clock: ticker{a: a}, Rand: func() float64 { return 0 }, MaxPinned: a.c.entry(a.id).pinned})
	ctx := context.Background()
	if a.c.Poll && !a.free(k) {
		return
	}
	lock, err := k.TryLock(ctx, a.c.Key, a.c.TTL)
	a.end(opAcquire, err)
	if err != nil {
		return
	}
	a.hold(lock.Lease())
	a.work()
	if a.c.Handoff {
		lock = a.handoff(ctx, lock)
	}
	if a.c.Extend {
		a.begin(extending)
		err := lock.Extend(ctx, a.c.TTL)
		a.end(opExtend, err)
		if errors.Is(err, compat.ErrLost) {
			a.holds = false
			a.unpin()
		} else {
			a.hold(lock.Lease())
			a.work()
		}
	}
	if a.letGo(); !a.c.Keep {
		a.end(opRelease, lock.Release(ctx))
	}
	a.unpin() // when its lease ends
}

// handoff is one client after another in one process: the old holder relies on the
// lock no more before the new one begins to. Without a command, if the lease is fresh
// and no fence is drawn: then nothing was asked, and nothing has ended.
func (a *agent) handoff(ctx context.Context, lock *compat.Lock) *compat.Lock {
	old := lock.Lease()
	a.letGo()
	a.begin(extending)
	next, err := lock.HandOn(ctx, a.c.TTL)
	if err == nil {
		lock = next
	}
	if l := lock.Lease(); err != nil || l.Until != old.Until || l.Fence != old.Fence {
		a.end(opExtend, err)
	}
	if errors.Is(err, compat.ErrLost) {
		a.unpin()
		return lock
	}
	a.hold(lock.Lease())
	a.work()
	return lock
}

// A handoffer is an algorithm that has its own way to make one holder's lease
// another's.
type handoffer interface {
	Handoff(now time.Time, l compat.Lease, ttl time.Duration) compat.Lease
}

// unpin is what the Locker does in the background: it returns the connection that a
// lost lease pinned. To the server it is one that begins anew.
func (a *agent) unpin() {
	a.closed, a.pinned = a.closed || a.pinned, false
}

// free looks before it tries, as Locker.Lock does between attempts.
func (a *agent) free(k *compat.Locker) bool {
	st, err := k.Inspect(context.Background(), a.c.Key)
	return err != nil || st.Status == compat.StatusFree || st.Status == compat.StatusDead
}

// runBare runs one attempt by the algorithm alone, with the least that a
// program must add to it: an unknown outcome is released.
func (a *agent) runBare(algo compat.Algorithm) {
	c := &wire{a: a}
	lease, err := algo.Acquire(c, a.now(), a.c.Key, a.c.TTL)
	a.end(opAcquire, bareError(lease, err))
	if err != nil {
		if !knownOutcome(err) && !lease.Ambiguous {
			a.phase = releasing // and lossy still: what is released perhaps never was
			c = a.redial(c)
			a.end(opRelease, forgiven(bareError(lease, algo.Release(c, a.now(), lease))))
		}
		c.Close()
		return
	}
	a.hold(lease)
	a.work()
	if h, ok := algo.(recorder).Algorithm.(handoffer); ok && a.c.Handoff {
		a.letGo()
		lease = h.Handoff(a.now(), lease, a.c.TTL)
		a.hold(lease)
		a.work()
	}
	if a.c.Extend {
		a.begin(extending)
		next, err := algo.Extend(c, a.now(), lease, a.c.TTL)
		a.end(opExtend, bareError(next, err))
		c = a.redial(c)
		if errors.Is(err, compat.ErrLost) {
			a.holds = false
		} else {
			if err == nil {
				lease = next
			}
			a.hold(lease)
			a.work()
		}
	}
	if a.letGo(); !a.c.Keep {
		a.end(opRelease, bareError(lease, algo.Release(c, a.now(), lease)))
	}
	c.Close()
}

func (a *agent) redial(c *wire) *wire {
	if c.err == nil {
		return c
	}
	c.Close()
	return &wire{a: a}
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

func (a *agent) begin(p phase) { a.phase, a.lossy = p, false }

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
	a.fresh = false // what it does next, it may do later
	a.until, a.fence, a.value = millis(l.Until), l.Fence, l.Value
	a.memory.holds(l, a.id)
	a.memory.past.number(truth(a.pinned))
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
	if a.c.Write && !a.c.entry(a.id).shared {
		a.request(request{kind: works})
	}
}

// token is what makes the client's values its own: twelve digits, the first six
// zeros so that they weigh nothing in a timestamp.
func (a *agent) token() string {
	a.issued++
	return token(a.id, a.attempt, a.issued)
}

func token(client, attempt, n int) string {
	return fmt.Sprintf("0000007%d%02d%d7", client+1, attempt+1, n%10)
}

// A ticker is the clock that a client's Locker is given. Its timers never fire:
// what a client does late, it does because it was scheduled late. Every other
// way to wait panics on the nil clock inside.
type ticker struct {
	clock.Clock
	a *agent
}

func (t ticker) Now() time.Time                  { return t.a.now() }
func (t ticker) Until(m time.Time) time.Duration { return m.Sub(t.a.now()) }

// Since is used to measure, never to decide: it reads nothing.
func (t ticker) Since(m time.Time) time.Duration { return instant(t.a.ms).Sub(m) }

func (t ticker) Timer(d time.Duration) *clock.Timer { return clock.NewMock().Timer(max(d, 1)) }

func (t ticker) AfterFunc(d time.Duration, f func()) *clock.Timer {
	return clock.NewMock().AfterFunc(d, f)
}
