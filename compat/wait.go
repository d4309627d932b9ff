package compat

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/queue"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A wait keeps the state of one call of Lock or Do.
type wait struct {
	k     *Locker
	key   string
	ttl   time.Duration
	bound bool // the lock ends with the caller's context
	start time.Time
	tries int // attempts made

	queue *queue.Queue[unattached]
	entry *queue.Entry[unattached] // its place in the queue; nil: it is at the head

	ctx    context.Context // the caller's, with the waiter's name if the lock has to do with who waits
	waiter string

	yield  time.Duration // others have the first go: look after so long; 0: nobody has
	late   time.Duration // the pause while the end that was known has come, and the key is there; 0: it has not come
	held   *HeldError    // what was in the way, when it was last looked
	holder string        // the last value that was
	open   *Grant        // what an attempt may have left on a server that is being replaced; nil: nothing
	failed time.Time     // since when nothing but errors came; zero: the last step went well
	asked  time.Time     // when the first of the steps began that failed, or else the last step
}

// lock waits for the lock, until ctx ends or an error comes that waiting does not cure.
func (k *Locker) lock(ctx context.Context, bound bool, key string, ttl time.Duration) (*held, error) {
	start := k.now()
	key, err := k.valid(key, ttl)
	if err != nil {
		return nil, err
	}
	if l := k.within(ctx, key); l != nil && !k.abilities.Shared && l.h.ended() == nil {
		return nil, fmt.Errorf("%w: this call is made under the lock of %q, and would wait for itself", ErrInvalid, key)
	}
	if !k.jobs.Enter() {
		return nil, ErrClosed
	}
	defer k.jobs.Leave()
	q, entry, first, err := k.queues.Join(key, ttl)
	if err != nil {
		return nil, err
	}
	op, end := k.jobs.Operation(ctx)
	defer end()
	w := wait{k: k, key: key, ttl: ttl, bound: bound, start: start, queue: q, entry: entry}
	w.name(op)
	return w.run(ctx, first)
}

// run goes from turn to turn: to the head of the queue, an attempt, and a pause until the next is worth making.
func (w *wait) run(ctx context.Context, g queue.Grant[unattached]) (l *held, err error) {
	acquired := false
	defer func() {
		if w.open != nil && !errors.Is(err, ErrUnknown) {
			if why := w.k.undo(w.ctx, newUnattached(*w.open, w.ttl, w.k.now()), err); l == nil {
				err = why
			}
		}
		if w.entry == nil {
			w.k.queues.Leave(w.queue)
		}
		if w.tries > 0 && !acquired {
			w.leave(err)
		}
	}()
	for err = w.yieldTo(ctx, g); err == nil; {
		if w.entry != nil {
			if l, err = w.await(ctx); l != nil || err != nil {
				return l, err
			}
			continue
		}
		if w.k.queues.Closed() {
			return nil, ErrClosed
		}
		var g Grant
		w.tries++
		if g, err = w.attempt(); err == nil {
			acquired = true
			return w.hold(ctx, g)
		}
		err = w.failedBy(ctx, g, err)
	}
	return nil, err
}

// hold makes a Lock of the lease at the end of the wait.
func (w *wait) hold(ctx context.Context, g Grant) (*held, error) {
	return w.k.hold(ctx, w.bound, g, w.ttl, !w.k.o.NoRenew, w.start, w.tries)
}

// await waits in the queue for the lock itself, or for the head. A waiter that can't extend its passed-on lock
// goes to the head.
func (w *wait) await(ctx context.Context) (*held, error) {
	g, granted := w.k.queues.Await(ctx, w.entry)
	switch {
	case !granted:
		return nil, w.gaveUp(ctx, nil)
	case g.Failed != nil:
		return nil, g.Failed
	}
	w.entry = nil
	if g.Passed != nil {
		var err error
		onPanic(func() { err = w.k.inherit(w.ctx, w.queue, g.Passed, w.k.term(w.ttl)) }, func() { w.k.undo(w.ctx, g.Passed, nil) }) //nolint:errcheck // a panic is on its way
		if err == nil {
			return w.hold(ctx, g.Passed.current())
		}
		if ctx.Err() != nil {
			return nil, w.gaveUp(ctx, err)
		}
	}
	return nil, w.yieldTo(ctx, g)
}

// failedBy pauses after an attempt failed with err, or returns the error that ends the wait. Such an error also
// ends the waits behind it, as far as it concerns them.
func (w *wait) failedBy(ctx context.Context, g Grant, err error) error {
	if err = w.after(ctx, g, err); err == nil {
		return nil
	}
	if !limit.Ended(ctx) && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrUnknown) {
		w.k.queues.Fail(w.queue, err, w.concerns(err))
	}
	return w.k.closed(err)
}

// asks notes that a step begins.
func (w *wait) asks() {
	if w.failed.IsZero() {
		w.asked = w.k.now()
	}
}

// attempt makes one attempt. First it removes the possible lease of an earlier one.
func (w *wait) attempt() (Grant, error) {
	w.asks()
	if w.open != nil {
		if err := w.k.undo(w.ctx, newUnattached(*w.open, w.ttl, w.k.now()), nil); err != nil {
			return *w.open, err
		}
		w.open = nil
	}
	return w.k.attempt(w.ctx, w.key, w.ttl, w.tries)
}

// WaitingAs returns a context in which TryLock and Inspect are parts of one wait by the client called waiter. It
// is for a program that waits by itself, with a lock whose waiters take turns (rwlock): a waiter gets its turn by
// its name, and a client that asks only once gets none. Lock and Do are such waits, each under its own name.
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

// leave removes the wait's own entries beside the key. It does not ask a silent server once more: the entries go
// by themselves.
func (w *wait) leave(err error) {
	s := w.k.abilities.server
	if w.waiter == "" || s == nil || errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnsafeServer) {
		return
	}
	step, done := w.k.cleanup(w.ctx)
	defer done()
	s.leave(step, w.key, w.waiter)
}

// after returns once another attempt is worth making after err, or a lock of ours has the key. In the second case
// the wait has an entry in the queue. after returns an error if it ends the wait.
func (w *wait) after(ctx context.Context, g Grant, err error) error {
	var held *HeldError
	var unknown *UnknownError
	switch {
	case limit.Ended(ctx):
		return w.gaveUp(ctx, err)
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
		return err
	case errors.Is(err, ErrLost):
		return nil // taken, and run out before the reply came: ask again
	case w.tries == 1 || w.failing(err):
		return err
	}
	_, err = w.sleep(ctx, time.Time{})
	return err
}

// yieldTo lets others go first if it is their turn. A woken client has the key soon, and any other for a moment.
func (w *wait) yieldTo(ctx context.Context, g queue.Grant[unattached]) (err error) {
	if w.yield = g.Yield; w.yield == 0 {
		return nil
	}
	if g.Woken {
		return w.untilFree(ctx, time.Time{})
	}
	_, err = w.sleep(ctx, time.Time{})
	return err
}

// untilFree only looks at the key, until an attempt may succeed. A refused write costs the AOF and the replicas,
// and on 2.2.0–2.2.9 only a read makes the server notice an expired key.
func (w *wait) untilFree(ctx context.Context, until time.Time) error {
	for unwoken := false; ; {
		try, err := w.sleep(ctx, until)
		if w.entry != nil || try || err != nil {
			return err
		}
		w.asks()
		st, err := w.k.inspect(w.ctx, w.key, w.ttl)
		switch {
		case limit.Ended(ctx):
			return w.gaveUp(ctx, err)
		case errors.Is(err, ErrForeign):
			return err
		case err != nil && w.failing(err):
			return err
		case err != nil:
			until = time.Time{}
			continue
		}
		w.failed = time.Time{}
		if st.Status == StatusFree || st.Status == StatusDead || st.Open {
			pause := w.k.queues.Unwoken(w.queue)
			if pause == 0 || unwoken || w.late > 0 || st.Status != StatusFree {
				return nil
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

// saw notes the holder in the way, for the error, and whether the key has changed hands.
func (w *wait) saw(held *HeldError) {
	changed := false
	if held != nil {
		w.held = held
	}
	if held != nil && held.Value != "" {
		changed = w.holder != "" && w.holder != held.Value
		w.holder = held.Value
	}
	w.k.queues.TakenElsewhere(w.ctx, w.queue, changed)
}

// repair gives an end to a key after it stood unchanged without one for a ttl: its holder died before it set one
// (tx/crash-before-expire). The wait tells a dead holder from one about to set an end (tx/ttl-repair), or from one
// whose clock shows another time than ours (getset/skewed-takeover).
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

// sleep pauses until another look, at most a little past until. A random part of up to half comes off the pause so
// waiters spread out, and the little is as random: waiters for one end would else all come at the same moment, and
// with getset:classic overwrite each other's lease. Events wake it: a lock of ours takes the key (then the wait
// has an entry in the queue), or a try or a look becomes worth while.
func (w *wait) sleep(ctx context.Context, until time.Time) (try bool, err error) {
	k := w.k
	entry, news, d, err := k.queues.Wakeable(w.queue, w.ttl)
	if w.entry = entry; entry != nil || err != nil {
		return false, err
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
			return false, nil
		case <-news:
			try, err := k.queues.Heard(w.queue)
			if err != nil {
				return false, err
			}
			if try || w.yield == 0 {
				w.yield = 0
				return try, nil
			}
		case <-ctx.Done():
			return false, w.gaveUp(ctx, nil)
		}
	}
}

// jittered shortens d by up to half at random.
func (w *wait) jittered(d time.Duration) time.Duration {
	return d - time.Duration(w.k.o.Rand()*float64(d)/2)
}
