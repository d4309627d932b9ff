package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/oneline"
	"github.com/setnxlock/setnxlock/compat/internal/queue"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A wait is what one waiter knows: what it last saw on the key, and since when the server has not answered.
type wait struct {
	k     *Locker
	key   string
	ttl   time.Duration
	queue *queue.Queue[loose]
	yield time.Duration // others have the first go: look after so long; 0: nobody has
	late  time.Duration // the pause while the end that was known has come, and the key is there; 0: it has not come

	ctx    context.Context // the caller's, with the waiter's name if the lock has to do with who waits
	waiter string

	held   *HeldError // what was in the way, when it was last looked
	holder string     // the last value that was
	open   *Grant     // what an attempt may have left on a server that is being replaced; nil: nothing
	failed time.Time  // since when nothing but errors came; zero: the last step went well
	asked  time.Time  // when the first of the steps began that failed, or else the last step
}

// asks notes that a step begins.
func (w *wait) asks() {
	if w.failed.IsZero() {
		w.asked = w.k.now()
	}
}

// attempt makes the n-th attempt, once what an earlier one may have left is gone.
func (w *wait) attempt(n int) (Grant, error) {
	w.asks()
	if w.open != nil {
		if err := w.k.undo(w.ctx, newLoose(*w.open, w.ttl, w.k.now()), nil); err != nil {
			return *w.open, err
		}
		w.open = nil
	}
	return w.k.attempt(w.ctx, w.key, w.ttl, n)
}

// WaitingAs returns a context in which TryLock and Inspect are parts of one wait by the client
// called waiter. It is for a program that waits by itself, with a lock whose waiters take turns
// (rwlock): a waiter gets its turn by its name, and a client that asks only once gets none. Lock
// and Do are such waits, each under its own name.
func (k *Locker) WaitingAs(ctx context.Context, waiter string) context.Context {
	return context.WithValue(ctx, ofWaiter{}, waiter)
}

// name gives the wait a name, if the lock has turns or may be made of locks that have.
func (w *wait) name(ctx context.Context) {
	w.ctx = ctx
	if s := w.k.abilities.server; s == nil || s.inTurn() {
		w.waiter = protocol.NewToken()
		w.ctx = w.k.WaitingAs(ctx, w.waiter)
	}
}

// leave takes back what the wait has left beside the key. A server that does not answer is not
// asked once more: it goes by itself.
func (w *wait) leave(err error) {
	s := w.k.abilities.server
	if w.waiter == "" || s == nil || errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnsafeServer) {
		return
	}
	step, done := w.k.cleanup(w.ctx)
	defer done()
	s.leave(step, w.key, w.waiter)
}

// after returns when another attempt is worth making after the n-th ended with
// err; or, if a lock of ours has the key now, an entry in the queue; or the error that
// ends the wait.
func (w *wait) after(ctx context.Context, g Grant, err error, n int) (*queue.Entry[loose], error) {
	var held *HeldError
	var unknown *UnknownError
	switch {
	case limit.Ended(ctx):
		return nil, w.gaveUp(ctx, err)
	case errors.As(err, &unknown) && !unknown.Lease.Ambiguous && w.elects(err) && !w.failing(err):
		w.open = &g // looked for on the successor, which may have it
	case protocol.OutcomeOf(err) == protocol.Refused && errors.Is(err, ErrHeld):
		w.failed = time.Time{}
		var until time.Time
		if errors.As(err, &held) {
			until = held.Until
		}
		w.saw(held)
		return w.untilFree(ctx, until)
	case w.waitedOut(err) && !w.failing(err):
		// it passes
	case errors.Is(err, ErrUnsafeServer), errors.Is(err, ErrForeign), errors.Is(err, ErrInvalid), errors.Is(err, ErrUnknown), errors.Is(err, ErrClosed),
		errors.Is(err, ErrDenied), errors.Is(err, ErrUnanswered):
		return nil, err
	case errors.Is(err, ErrLost):
		return nil, nil // taken, and run out before the reply came: ask again
	case n == 1 || w.failing(err):
		return nil, err
	}
	e, _, err := w.sleep(ctx, time.Time{})
	return e, err
}

// yieldTo lets others go first, if it is their turn: a client that was woken has the key soon, and any other for a moment.
func (w *wait) yieldTo(ctx context.Context, g queue.Grant[loose]) (e *queue.Entry[loose], err error) {
	switch {
	case g.Woken:
		w.yield = 2 * w.k.o.least()
		return w.untilFree(ctx, time.Time{})
	case g.Yield > 0:
		w.yield = g.Yield
		e, _, err = w.sleep(ctx, time.Time{})
	}
	return e, err
}

// untilFree looks at the key, and only looks, until an attempt may succeed: a
// refused write costs the AOF and the replicas, and on 2.2.0–2.2.9 only a read
// makes the server notice that a key has expired.
func (w *wait) untilFree(ctx context.Context, until time.Time) (*queue.Entry[loose], error) {
	for unwoken := false; ; {
		e, try, err := w.sleep(ctx, until)
		if e != nil || try || err != nil {
			return e, err
		}
		w.asks()
		st, err := w.k.inspect(w.ctx, w.key, w.ttl)
		switch {
		case limit.Ended(ctx):
			return nil, w.gaveUp(ctx, err)
		case errors.Is(err, ErrForeign):
			return nil, err
		case err != nil && w.failing(err):
			return nil, err
		case err != nil:
			until = time.Time{}
			continue
		}
		w.failed = time.Time{}
		if st.Status == StatusFree || st.Status == StatusDead || st.Open {
			pause := w.k.queues.Unwoken(w.queue)
			if pause == 0 || unwoken || w.late > 0 || st.Status != StatusFree {
				return nil, nil
			}
			unwoken, until, w.yield = true, time.Time{}, pause
			continue
		}
		unwoken = false
		w.saw(&HeldError{Key: w.key, Value: st.Value, Until: st.Until, Foreign: st.Status == StatusForeign, Persistent: st.Status == StatusPersistent})
		w.repair(ctx, st)
		until = st.Until
	}
}

// saw notes what is in the way, for the error, and whether the key has changed hands.
func (w *wait) saw(held *HeldError) {
	changed := false
	if held != nil {
		w.held = held
	}
	if held != nil && held.Value != "" {
		changed = w.holder != "" && w.holder != held.Value
		w.holder = held.Value
	}
	w.k.queues.Elsewhere(w.ctx, w.queue, changed)
}

// repair gives an end to a key that has stood unchanged without one for a
// ttl: its holder died before it set one (tx/crash-before-expire). The
// wait is what tells it from a holder that is about to (tx/ttl-repair), or from
// one whose clock shows another time than ours (getset/skewed-takeover).
func (w *wait) repair(ctx context.Context, st State) {
	now := w.k.now()
	watched := st.Status == StatusPersistent || st.Watch > 0
	stood := w.k.queues.Unchanged(w.queue, st.Value, watched, now)
	if !watched || stood < max(w.ttl, st.Watch) {
		return
	}
	step, done := w.k.step(ctx, w.ttl)
	defer done()
	err := w.k.backend.Repair(step, w.k.now, st, w.ttl)
	w.k.queues.Repaired(w.queue, now)
	if err == nil {
		w.k.see(Event{Context: ctx, Kind: EventRepaired, Key: w.key, Lease: Lease{Key: w.key}}, nil)
	}
}

// elects reports that another server may take the place of the one that did not answer.
func (w *wait) elects(err error) bool {
	return errors.Is(err, ErrElection) || errors.Is(err, ErrTimeout) && w.k.abilities.Epoch != nil
}

// waitedOut reports that err does not end a wait before it has come for a whole ttl.
func (w *wait) waitedOut(err error) bool {
	return !errors.Is(err, ErrUnknown) && answer.Passes(err) || w.elects(err)
}

// concerns returns the longest ttl with which a wait would have ended with err, too, had it begun
// when the server last answered: those that wait behind this one need not ask. A short ttl of this one
// proves nothing to them.
func (w *wait) concerns(err error) time.Duration {
	silent := w.k.now().Sub(w.asked)
	if silent >= w.k.o.Timeout && !w.waitedOut(err) {
		return math.MaxInt64 // the limit of a first attempt, whatever the ttl
	}
	return silent
}

// failing reports that the server has not answered for a whole ttl.
func (w *wait) failing(err error) bool {
	now := w.k.now()
	if w.failed.IsZero() {
		w.failed = now
	}
	return now.Sub(w.failed) >= w.ttl
}

// sleep pauses, shortened by up to half at random so that waiters spread out, and not past until but for a little, which is
// as random: those who wait for one end would else all come at the same moment, and with getset:classic overwrite each
// other's lease. What happens in between wakes it: a lock of ours takes the key (then it returns an entry in the queue), or
// something makes it worth while to try, or to look.
func (w *wait) sleep(ctx context.Context, until time.Time) (e *queue.Entry[loose], try bool, err error) {
	k := w.k
	e, news, d, err := k.queues.Wakeable(w.queue, w.ttl)
	if e != nil || err != nil {
		return e, false, err
	}
	left := k.o.Clock.Until(until)
	if w.yield > 0 {
		d = w.yield
	} else if !until.IsZero() && left <= 0 { // a server with whole seconds takes up to one more
		w.late = min(max(2*w.late, k.o.least()), k.o.Poll)
		d = w.late
	} else {
		w.late = 0
	}
	if d = w.jittered(d); w.late == 0 && !until.IsZero() && left < d {
		d = min(d, left+time.Duration(k.o.Rand()*float64(k.o.least())))
	}
	t := k.o.Clock.Timer(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			w.yield = 0
			return nil, false, nil
		case <-news:
			try, err := k.queues.Heard(w.queue)
			if err != nil {
				return nil, false, err
			}
			if try || w.yield == 0 {
				w.yield = 0
				return nil, try, nil
			}
		case <-ctx.Done():
			return nil, false, w.gaveUp(ctx, nil)
		}
	}
}

// jittered is d, shortened by up to half at random.
func (w *wait) jittered(d time.Duration) time.Duration {
	return d - time.Duration(w.k.o.Rand()*float64(d)/2)
}

// gaveUp is the error of a wait that its context ended. It never is ErrHeld:
// the caller gave up, whatever the key holds; an outcome that stayed unknown is
// said too.
func (w *wait) gaveUp(ctx context.Context, err error) error {
	if ctx.Err() == nil { // a connection noticed first; a caller who asks the context is to hear the same
		select {
		case <-ctx.Done():
		case <-limit.After(w.k.o.Cleanup):
		}
	}
	why := cmp.Or(ctx.Err(), context.DeadlineExceeded)
	var u *UnknownError
	if errors.As(err, &u) || w.open != nil {
		if u == nil {
			u = &UnknownError{Lease: w.open.Lease, Err: ErrElection}
		}
		return fmt.Errorf("setnxlock: waiting for %q: %w", w.key, oneline.Join(why, u))
	}
	if w.held != nil {
		return gaveUp{fmt.Errorf("setnxlock: waiting for %q: %w (last seen: %v)", w.key, why, w.held), w.held}
	}
	return fmt.Errorf("setnxlock: waiting for %q: %w", w.key, why)
}

// A gaveUp error shows errors.As the [*HeldError] that was seen last, and is not ErrHeld: the caller gave up, whatever
// the key holds.
type gaveUp struct {
	error
	held *HeldError
}

func (e gaveUp) Unwrap() error { return e.error }

func (e gaveUp) As(target any) bool { return errors.As(e.held, target) }
