package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/internal/lease"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/queue"
	"github.com/setnxlock/setnxlock/compat/internal/schedule"
	"github.com/setnxlock/setnxlock/compat/internal/slot"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Options are a Locker's. The zero value is ready to use.
type Options struct {
	// Clock tells the time, and runs the timers of leases, waits and renewals, and of the limits of what
	// can be cancelled. What bounds a connection goes by the real clock. nil: clock.New(). Tests can
	// pass a [*clock.Mock].
	Clock clock.Clock

	// Prefix is put before every key. Default: none.
	Prefix string

	// NoRenew gives every lock a fixed lease, which ends after its ttl. Default: what Lock, TryLock, Do and Adopt return is
	// renewed when a third of its ttl has passed, until Release, Handoff, Detach, Close, a loss, or the end of the context
	// of Do. The ttl is then how long a dead process keeps others out; a holder that hangs keeps them out until it ends. A
	// lock that can't be extended is held for its ttl.
	NoRenew bool

	// Poll bounds the pause between two looks at a held key, where no release will be heard of. A pause begins at a fiftieth
	// of Poll and doubles with each look. At a key that changes hands a process looks so often that a release is
	// noticed after a fiftieth of Poll, on average, by whichever of those that look; the more they are, the less often does
	// each. Each pause is shortened by up to half at random, and never goes past the moment at which the lease on the server
	// is known to end. A waiter that a release will wake looks once in each Poll; where more than 16 wait, less often.
	// Default: 500 ms.
	Poll time.Duration

	// Timeout bounds each step as a whole, whatever its context, the pool, its Dial and the server
	// do; waiting for a connection is part of the step. One attempt is a step, and so is one
	// extension, one release and one look at the key; a call may take several. A step of a set is
	// that of all its keys, one of a quorum that of all its servers. No step may take longer than its
	// ttl either. A step that reaches one of these limits ends with [ErrTimeout]. Default: 5 s.
	Timeout time.Duration

	// Cleanup bounds the work after a context has ended: releasing what a cancelled Lock may have
	// taken, and a Release whose context is done. All steps of a call share it, and so do the keys of
	// a set, in equal parts: every call returns at most that long after its context has ended, even
	// if no server answers. Default: 250 ms.
	Cleanup time.Duration

	// Observer sees everything that happens. Default: none.
	Observer Observer

	// Rand returns the random numbers, from 0 up to but not including 1, that shorten the pauses.
	// nil: math/rand/v2.
	Rand func() float64
}

// least is the shortest pause between two looks.
func (o *Options) least() time.Duration { return max(o.Poll/50, 1) }

// A Locker takes, renews and releases locks. It is safe for concurrent use. At any time it uses at
// most one connection for each lock that it waits for or holds, and none from a second after its last step
// on, but one for each key that it waits for and listens. Steps that are under way at once share a few: see Source.Keep.
type Locker struct {
	settler
	abilities Abilities
	invalid   error // its Backend is another Locker's
	o         Options
	plain     context.Context // that of most steps, without a limit
	scheduler schedule.Scheduler[*held]
	queues    queue.Queues[loose]
	tasks     sync.WaitGroup // in the background
	crew      *cleaning.Crew // for what a Backend leaves to be done behind a step
}

// New returns a Locker that runs a over connections from pool.
func New(pool Pool, a protocol.Algorithm, o Options) *Locker { return NewOn(Pooled(pool), a, o) }

// NewOn returns a Locker that runs a over connections from source: a cluster's or a Sentinel
// group's, for example.
func NewOn(source Source, a protocol.Algorithm, o Options) *Locker {
	return NewLocker(NewBackend(source, a), o)
}

// owned is b for a Locker alone. A wrapper leads to what it wraps, and that can be one Locker's only.
func owned(b Backend) (Backend, error) {
	switch s := b.Abilities().server; {
	case s == nil:
		return b, nil
	case any(b) == any(s):
		return s.anew(), nil
	case s.claim():
		return b, fmt.Errorf("%w: the Backend belongs to another Locker", ErrInvalid)
	}
	return b, nil
}

// NewLocker returns a Locker over a Backend. Several may have one from [NewBackend], or one that is made of several; a
// Backend that wraps one from NewBackend and returns its Abilities belongs to the first Locker, and another one that is
// made over it says [ErrInvalid].
func NewLocker(b Backend, o Options) *Locker {
	if o.Clock == nil {
		o.Clock = clock.New()
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Cleanup <= 0 {
		o.Cleanup = 250 * time.Millisecond
	}
	if o.Poll <= 0 {
		o.Poll = 500 * time.Millisecond
	}
	crew := cleaning.New(o.Clock, o.Cleanup)
	b, err := owned(b)
	k := &Locker{o: o, invalid: err, abilities: b.Abilities(), plain: cleaning.With(context.Background(), crew), crew: crew}
	k.settler = settler{backend: b, now: o.Clock.Now, step: k.stepContext, cleanup: crew.After, limit: o.Timeout}
	k.queues = queue.Queues[loose]{Now: o.Clock.Now, Pause: o.least(), Longest: o.Poll, Run: k.background}
	k.queues.Undo = func(ctx context.Context, h *loose) { k.undo(ctx, h, nil) } //nolint:errcheck // what stays ends with its lease
	k.scheduler.Clock, k.scheduler.Renew = o.Clock, k.renewAll
	k.scheduler.End = func(l *held, at time.Time) { l.on(lease.Event{Kind: lease.Tick, At: at}, Grant{}) }
	if s := k.abilities.server; s != nil && err == nil {
		s.keep(crew)
		if k.queues.Apart = s.inTurn(); crew.Attended() && !crew.Stands() { // else nobody would hear of it in time
			k.queues.Signals = s.signals(k.now, crew.Pause, func(ctx context.Context) (context.Context, func()) { return k.step(ctx, o.Timeout) }, k.cleanup)
		}
	}
	return k
}

// TryLock makes one attempt and does not wait. It returns [ErrHeld] (a [*HeldError]) if another
// client has the lock, and [ErrUnknown] (an [*UnknownError]) if it could not learn whether it got
// the lock; the error wraps ctx.Err() when that is the reason. A lock that it got too late has been
// released.
//
// It returns [ErrInvalid] for the name of a key that stands beside another lock, such as its fence
// (see [protocol.Aux]): names may come from users' input.
func (k *Locker) TryLock(ctx context.Context, key string, ttl time.Duration) (*Lock, error) {
	start := k.started()
	key, err := k.valid(key, ttl)
	if err != nil {
		return nil, err
	}
	if !k.crew.Enter() {
		return nil, ErrClosed
	}
	defer k.crew.Leave()
	op, end := k.crew.Operation(ctx)
	defer end()
	l, err := k.attempt(op, key, ttl, 1)
	if err != nil {
		return nil, k.closed(k.refusal(op, key, ttl, err))
	}
	return forUser(k.hold(ctx, false, l, ttl, !k.o.NoRenew, start, 1))
}

// forUser is a lock that was obtained, for its user.
func forUser(l *held, err error) (*Lock, error) {
	if err != nil {
		return nil, err
	}
	return l.lock(), nil
}

// closed is err of a call; ErrClosed if it did nothing, for Close came in between.
func (k *Locker) closed(err error) error {
	if k.queues.Closed() && protocol.OutcomeOf(err) == protocol.NotSent {
		return ErrClosed
	}
	return err
}

// refusal is err with what the key holds, if the algorithm was refused without a look at it:
// a key that is not a string is foreign, whichever lock was refused by it.
func (k *Locker) refusal(ctx context.Context, key string, ttl time.Duration, err error) error {
	held, ok := err.(*HeldError)
	if !ok || held.Value != "" || !held.Until.IsZero() || held.Foreign {
		return err
	}
	st, readErr := k.inspect(ctx, key, ttl)
	switch {
	case errors.Is(readErr, ErrForeign):
		return readErr
	case readErr == nil && st.Status != StatusFree && st.Status != StatusDead:
		return &HeldError{Key: held.Key, Value: st.Value, Until: st.Until, Foreign: st.Status == StatusForeign}
	}
	return err
}

// Lock waits until it has the lock or ctx is done. Callers that wait for one key with one Locker
// are served in the order in which they came; while a lock of that Locker has the key, none of them
// asks the server. If ctx ends, the error wraps ctx.Err(), and whatever was taken has been
// released; if that is not certain, the error is [ErrUnknown] as well. Errors that waiting does not
// cure end the wait: [ErrUnsafeServer], [ErrDenied], [ErrForeign] for a key that is not a string,
// and a server that can't be reached at the first attempt or for a whole ttl. While the server refuses
// what it will do later (a [DeniedError] that Passes), while a cluster moves the key's slot, or a cluster
// or a group of Sentinels elects a master ([ErrElection], or a master that does not answer), Lock
// waits for up to a whole ttl.
//
// ctx bounds the wait, not the lock: it may end once Lock has returned.
func (k *Locker) Lock(ctx context.Context, key string, ttl time.Duration) (*Lock, error) {
	return forUser(k.lock(ctx, false, key, ttl))
}

// Do waits for the lock, calls f while it holds it, and releases it. The context
// that f gets ends, with cause [ErrLost], before the lease does: f must then stop writing.
// [FromContext] returns the lock, for its fence. Do returns f's error, joined with the release's
// error if that failed: [ErrLost] if the lock was lost in the meantime, [ErrClosed] if Close has
// released it.
func (k *Locker) Do(ctx context.Context, key string, ttl time.Duration, f func(ctx context.Context) error) (err error) {
	l, err := k.lock(ctx, true, key, ttl)
	if err != nil {
		return err
	}
	defer func() { // deferred, so that a panic in f releases the lock too
		released := (&Lock{l}).Release(ctx)
		if errors.Is(released, ErrReleased) && l.isClosed() && !errors.Is(err, ErrClosed) {
			released = fmt.Errorf("%w: %q was released before its work was done", ErrClosed, l.lease.Key)
		}
		switch {
		case errors.Is(released, ErrReleased), errors.Is(released, ErrDetached), errors.Is(released, ErrHandedOff): // by f
		case released == nil || errors.Is(err, ErrLost) && errors.Is(released, ErrLost):
			// f's own error, as it is
		case err == nil:
			err = released
		default:
			err = errors.Join(err, released)
		}
	}()
	return f(l.Context())
}

// Adopt takes up a lock that another process or goroutine has detached, or held when it died: token
// is its [Lock.Token] at that moment. It extends the lease to ttl, which proves that it is ours,
// draws a new fence if the algorithm has them, and puts a new token on the key if the algorithm can
// (Traits.Rotates): whoever else has seen token, a second adopter or the former holder, then gets
// [ErrLost]. It returns ErrLost if the key no longer holds token. After an [ErrUnknown] the key may
// hold the new value of the extension: adopt with the [UnknownError]'s Lease.Value and, if that is
// ErrLost, with token. A former holder that is still alive must not use the lock again.
func (k *Locker) Adopt(ctx context.Context, key, token string, ttl time.Duration) (*Lock, error) {
	start := k.now()
	key, err := k.valid(key, ttl)
	if err != nil {
		return nil, err
	}
	if !k.crew.Enter() {
		return nil, ErrClosed
	}
	defer k.crew.Leave()
	return forUser(k.adopt(ctx, key, token, ttl, start))
}

// adopt is Adopt of a key with its prefix. That its time ran out before the server's answer, or that
// the clock was set ahead meanwhile, tells nothing of a key that nobody here had believed in yet: it
// is asked again, once.
func (k *Locker) adopt(ctx context.Context, key, token string, ttl time.Duration, start time.Time) (*held, error) {
	for again := false; ; again = true {
		h, err := k.find(ctx, key, token, ttl)
		if err != nil {
			return nil, err
		}
		next, err := k.extend(ctx, h, extension{ttl: ttl, rotate: k.abilities.Rotates, redraw: true})
		switch {
		case err == nil:
			h.lease.How = protocol.Adopted
			return k.hold(ctx, false, h.current(), ttl, !k.o.NoRenew, start, 1)
		case errors.Is(err, ErrLost) && !again && ctx.Err() == nil:
		case protocol.OutcomeOf(err) == protocol.Unknown:
			return nil, &UnknownError{Lease: next.Lease, Err: cause(err)}
		default:
			if lost := (*LostError)(nil); errors.As(err, &lost) && protocol.OutcomeOf(lost.Err) == protocol.Unknown {
				err = &UnknownError{Lease: next.Lease, Err: lost.Err} // its time ran out, and nobody has answered
			}
			return nil, err
		}
	}
}

// ReleaseToken releases a lock by its token alone, without a handle: it removes the key if,
// and only if, it holds token. It returns ErrLost if it does not. It works when ctx has already
// ended, within Options.Cleanup.
func (k *Locker) ReleaseToken(ctx context.Context, key, token string) error {
	key, err := k.name(key)
	if err != nil {
		return err
	}
	return k.releaseToken(ctx, key, token)
}

func (k *Locker) releaseToken(ctx context.Context, key, token string) error {
	if !k.crew.Enter() {
		return ErrClosed
	}
	defer k.crew.Leave()
	ctx, end := k.crew.Operation(ctx)
	defer end()
	if ctx.Err() != nil {
		var done func()
		ctx, done = k.cleanup(ctx)
		defer done()
	}
	h, err := k.find(ctx, key, token, k.o.Timeout)
	if err != nil {
		return err
	}
	return k.release(ctx, h)
}

// find returns the lease that token stands for. One that nothing will end is ours until we
// say otherwise.
func (k *Locker) find(ctx context.Context, key, token string, ttl time.Duration) (*loose, error) {
	step, done := k.step(ctx, ttl)
	defer done()
	l, err := k.backend.Find(step, k.now, key, token)
	if err != nil {
		return nil, err
	}
	now := k.now()
	if l.Until.IsZero() {
		l.Until = now.Add(max(ttl, k.o.Timeout))
	}
	return newLoose(l, ttl, now), nil
}

// Inspect reads the key and changes nothing. By the time it returns, the state may have
// changed.
func (k *Locker) Inspect(ctx context.Context, key string) (State, error) {
	key, err := k.name(key)
	if err != nil {
		return State{}, err
	}
	if !k.crew.Enter() {
		return State{}, ErrClosed
	}
	defer k.crew.Leave()
	return k.inspect(ctx, key, k.o.Timeout)
}

// Close ends every wait with [ErrClosed], releases what is held, ends the renewals, and waits for calls under way and for
// what runs in the background. It returns the errors of releases that failed or were not done within
// Options.Cleanup of ctx's end; those locks end with their leases. Detach first what is to live on. Do whose
// lock is released so returns ErrClosed. After Close nothing is sent, and every call that would returns ErrClosed.
func (k *Locker) Close(ctx context.Context) error {
	k.queues.Close()
	k.crew.Close()
	locks := k.scheduler.Close()
	errs := make([]error, len(locks))
	all, end := k.crew.Operation(ctx)
	defer end()
	schedule.AtOnce(len(locks), func(i int) {
		if err := locks[i].close(all); !errors.Is(err, ErrReleased) && !errors.Is(err, ErrDetached) && !errors.Is(err, ErrHandedOff) {
			errs[i] = err
		}
	})
	waits := k.crew.Wait(ctx)
	idle := make(chan struct{})
	go func() { k.tasks.Wait(); k.scheduler.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-ctx.Done():
		waits = limit.Cause(ctx)
	}
	if s := k.abilities.server; s != nil && k.invalid == nil {
		s.close()
	}
	return errors.Join(append(errs, cmp.Or(waits, k.crew.Wait(ctx)))...)
}

// background runs f so that Close can wait for it.
func (k *Locker) background(f func()) {
	k.tasks.Add(1)
	go func() {
		defer k.tasks.Done()
		f()
	}()
}

// name is key on the server.
func (k *Locker) name(key string) (string, error) {
	if key == "" {
		return "", fmt.Errorf("%w: the key is empty", ErrInvalid)
	}
	if k.invalid != nil {
		return "", k.invalid
	}
	if k.queues.Closed() {
		return "", ErrClosed
	}
	return k.o.Prefix + key, nil
}

// valid is name for a lock that is to be taken, for ttl.
func (k *Locker) valid(key string, ttl time.Duration) (string, error) {
	key, err := k.name(key)
	if err != nil {
		return "", err
	}
	if err := slot.Taken(key); err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return key, k.validTTL(key, ttl)
}

// validTTL returns ErrInvalid for a ttl that no lock can have, or that this one can't keep.
func (k *Locker) validTTL(key string, ttl time.Duration) error {
	if ttl >= time.Second && ttl <= 24*time.Hour && ttl%time.Second == 0 {
		return nil // every lock can
	}
	err := validTTL(ttl)
	if err == nil && k.abilities.Valid != nil {
		err = k.abilities.Valid(key, ttl)
	}
	return err
}

func (k *Locker) lock(ctx context.Context, bound bool, key string, ttl time.Duration) (_ *held, err error) {
	start := k.now()
	key, err = k.valid(key, ttl)
	if err != nil {
		return nil, err
	}
	if !k.crew.Enter() {
		return nil, ErrClosed
	}
	defer k.crew.Leave()
	q, entry, yield, err := k.queues.Join(key, ttl)
	if err != nil {
		return nil, err
	}
	op, end := k.crew.Operation(ctx)
	defer end()
	w := wait{k: k, key: key, ttl: ttl, queue: q}
	w.name(op)
	tries, acquired := 0, false
	defer func() {
		if entry == nil {
			k.queues.Leave(q)
		}
		if tries > 0 && !acquired {
			w.leave(err)
		}
	}()
	if yield > 0 {
		if entry, err = w.yieldTo(ctx, queue.Grant[loose]{Yield: yield}); err != nil {
			return nil, err
		}
	}
	for {
		if entry != nil {
			g, granted := k.queues.Await(ctx, entry)
			if !granted {
				return nil, w.gaveUp(ctx, nil)
			}
			if g.Failed != nil {
				return nil, g.Failed
			}
			entry = nil
			if g.Passed != nil {
				var err error
				onPanic(func() { err = k.inherit(op, q, g.Passed, ttl) }, func() { k.undo(op, g.Passed, nil) }) //nolint:errcheck // a panic is on its way
				if err == nil {
					return k.hold(ctx, bound, g.Passed.current(), ttl, !k.o.NoRenew, start, tries)
				}
				if ctx.Err() != nil {
					return nil, w.gaveUp(ctx, err)
				}
			}
			if entry, err = w.yieldTo(ctx, g); err != nil {
				return nil, err
			}
			if entry != nil {
				continue
			}
		}
		if k.queues.Closed() {
			return nil, ErrClosed
		}
		tries++
		l, err := w.attempt(tries)
		if err == nil {
			acquired = true
			return k.hold(ctx, bound, l, ttl, !k.o.NoRenew, start, tries)
		}
		if entry, err = w.after(ctx, l, err, tries); err != nil {
			if !limit.Ended(ctx) && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrUnknown) {
				k.queues.Fail(q, err, w.concerns(err))
			}
			return nil, k.closed(err)
		}
	}
}

// attempt makes one attempt and settles what it left unknown.
func (k *Locker) attempt(ctx context.Context, key string, ttl time.Duration, n int) (Grant, error) {
	start := k.started()
	var l Grant
	var err error
	for again := false; ; again = true {
		step, done := k.step(ctx, ttl)
		l, err = k.backend.Acquire(step, k.now, key, ttl)
		done()
		l, err = k.acquired(ctx, l, ttl, err)
		if again || !answer.Closed(err) || errors.Is(err, ErrUnknown) || errors.Is(err, ErrHeld) || ctx.Err() != nil {
			break
		} // else the pool's connection was dead, and the key was found free: ask over a live one
	}
	if k.o.Observer == nil {
		return l, err
	}
	k.see(Event{Context: ctx, Kind: EventAttempt, Key: key, Lease: l.Lease, Took: k.elapsed(start), Tries: n, Err: err}, func() {
		if err == nil {
			k.undo(ctx, newLoose(l, ttl, start), nil) //nolint:errcheck // a panic is on its way
		}
	})
	if errors.Is(err, ErrHeld) {
		k.see(Event{Context: ctx, Kind: EventRefused, Key: key, Lease: l.Lease, Took: k.elapsed(start), Tries: n, Err: err}, nil)
	}
	return l, err
}

// acquired settles what an attempt has left unknown.
func (k *Locker) acquired(ctx context.Context, l Grant, ttl time.Duration, err error) (Grant, error) {
	if o := protocol.OutcomeOf(err); o == protocol.Refused || o == protocol.NotSent {
		return l, err
	}
	now := k.now()
	if err == nil && ctx.Err() == nil && !lease.Past(now, l.Until) {
		return l, nil
	}
	h := newLoose(l, ttl, now)
	switch {
	case err != nil:
		err = k.settle(ctx, h, ttl, err)
	case ctx.Err() != nil: // taken, but nobody is waiting for it any more
		err = k.undo(ctx, h, limit.Cause(ctx))
	default: // the reply took longer than the lease lasts (any/lease-counted-from-reply)
		err = k.undo(ctx, h, &LostError{Key: l.Key, Err: errors.New("the answer came after its time had run out")})
	}
	return h.current(), err
}

// stepContext bounds one step by ctx, Options.Timeout and ttl.
func (k *Locker) stepContext(ctx context.Context, ttl time.Duration) (context.Context, func()) {
	d := min(k.o.Timeout, ttl)
	switch {
	case limit.Cancels(ctx):
		return limit.Within(cleaning.With(ctx, k.crew), k.o.Clock, d)
	case ctx == context.Background():
		return limit.Timed(k.plain, k.o.Clock, d), func() {}
	}
	return limit.Timed(cleaning.With(ctx, k.crew), k.o.Clock, d), func() {}
}

// started and elapsed measure a time for an Observer; nobody else asks.
func (k *Locker) started() (now time.Time) {
	if k.o.Observer != nil {
		now = k.now()
	}
	return now
}

func (k *Locker) elapsed(start time.Time) time.Duration {
	if k.o.Observer == nil {
		return 0
	}
	return k.o.Clock.Since(start)
}

// see shows e to the Observer, without the value, which is the proof that the lock is ours. If
// it panics, undo keeps the lock from being held by nobody.
func (k *Locker) see(e Event, undo func()) {
	if k.o.Observer == nil {
		return
	}
	e.Lease.Value = ""
	onPanic(func() { k.o.Observer(e) }, undo)
}
