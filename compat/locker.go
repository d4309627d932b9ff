package compat

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/benbjohnson/clock"
)

// Options are a Locker's. The zero value is ready to use.
type Options struct {
	// Clock tells the time and runs every timer. nil: clock.New(). Tests hand
	// in a *clock.Mock and move it.
	Clock clock.Clock

	// Prefix is put before every key. Default: none.
	Prefix string

	// Renew makes Lock, TryLock and Adopt renew what they return, as Do
	// always does.
	Renew bool

	// MinPoll and MaxPoll bound the pause between two looks at a held key.
	// It begins at MinPoll (default 10 ms), doubles with each look and stops at MaxPoll
	// (default 500 ms); each pause is shortened by up to half at random, and
	// never goes past the moment at which the lease on the server is known to end.
	MinPoll, MaxPoll time.Duration

	// Timeout bounds each step, waiting for a connection included. Default:
	// 5 s. A step never takes longer than the ttl it is for.
	Timeout time.Duration

	// Cleanup bounds what is done after a context has ended: giving back what
	// a cancelled Lock may have taken, and a Release whose context is done.
	// Default: 250 ms. It is at the same time the longest that Lock goes on
	// after its context, when the server does not answer.
	Cleanup time.Duration

	// MaxPinned is how many held locks may keep the connection that took them, one
	// each, under WATCH: such a lock is extended and released in one round trip
	// instead of two. Locks beyond it, those of algorithms that are no Keepers, and one
	// whose connection has died take the other way. Default: 0, none.
	//
	// The price is a connection for as long as the lock is held. A pool with
	// MaxActive must let that many more be open, or steps wait for one that nobody
	// gives back; and a server that closes idle connections sooner than locks are
	// extended or released (its "timeout") makes the others of it.
	MaxPinned int

	// MaxHandOvers is how often in a row a released lock may be handed to the next
	// goroutine that waits for it in this process, without releasing it on the
	// server: each is a holder of its own, with a new fence if the algorithm draws
	// them, and a lease that was extended if less than three quarters were left. Nor
	// does it go on for longer than half a lease, or with less than a quarter left. Then
	// the lock is released, and clients elsewhere get a chance. A holder that
	// lost the lock without knowing is not told by a Release that hands it on; the next one
	// learns it. Negative: never. Default: 16.
	MaxHandOvers int

	// Signal makes a release wake one client of ours, in whatever process, that
	// waits for the key with Signal too, and makes waiters listen for that: on one more
	// connection for each key that a process waits for. It needs RPOPLPUSH
	// and BLPOP, so a Redis since 2.0 and no proxy, and connections whose read timeout
	// is not below three seconds. Where that fails, among clients that don't
	// signal, and for a lock on several servers, waiters poll.
	Signal bool

	// Observer sees everything that happens. Default: none.
	Observer Observer

	// Rand is where the jitter comes from: numbers from 0 to 1, without 1.
	// nil: math/rand/v2.
	Rand func() float64
}

// A Locker takes, keeps and gives back locks. It is safe for concurrent use. At
// any time it uses at most one connection for each lock that is waited for or
// held, and none while it sleeps, but for those of Options.MaxPinned and Options.Signal.
type Locker struct {
	backend Backend
	o       Options
	now     func() time.Time // o.Clock.Now
	plain   *limited         // the context of most steps
	agenda  agenda
	lines   lines
	shared  bool // many may hold a key at once
}

// New returns a Locker that runs a over connections from source.
func New(source Source, a Algorithm, o Options) *Locker {
	return NewLocker(NewBackend(source, a), o)
}

// NewLocker returns a Locker over a Backend of its own kind.
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
	if o.MinPoll <= 0 {
		o.MinPoll = 10 * time.Millisecond
	}
	if o.MaxPoll <= 0 {
		o.MaxPoll = 500 * time.Millisecond
	}
	o.MaxPoll = max(o.MinPoll, o.MaxPoll)
	if o.MaxHandOvers == 0 {
		o.MaxHandOvers = 16
	}
	k := &Locker{backend: b, o: o, now: o.Clock.Now, plain: &limited{context.Background(), o.Timeout}}
	k.agenda.clock, k.agenda.renew = o.Clock, k.renewAll
	if b, ok := b.(keeping); ok {
		b.keep(o.MaxPinned, o.Clock)
	}
	if b, ok := b.(Shared); ok {
		k.shared = b.Shared()
	}
	return k
}

// unkeep gives back the connection that l keeps, if it keeps one.
func (k *Locker) unkeep(l Lease) {
	if b, ok := k.backend.(keeping); ok {
		b.unkeep(l)
	}
}

// TryLock makes one attempt. It returns ErrHeld (a *HeldError) if another
// client has the lock; ErrUnknown (an *UnknownError) if it could not learn
// whether it got it, and then the key frees itself within ttl.
//
// ttl is how long the lock lasts if nobody extends or releases it. The lock is
// not renewed unless Options.Renew says so; use Do for that.
func (k *Locker) TryLock(ctx context.Context, key string, ttl time.Duration) (*Lock, error) {
	start := k.now()
	key, err := k.valid(key, ttl)
	if err != nil {
		return nil, err
	}
	l, err := k.attempt(ctx, key, ttl, 1)
	if err != nil {
		return nil, err
	}
	return k.hold(ctx, false, l, ttl, k.o.Renew, start, 1), nil
}

// Lock waits until it has the lock or ctx is done. Who waits for one key with one
// Locker is served in the order of coming, and while a lock of the same Locker has
// the key nobody asks the server. In the second case the error
// wraps ctx.Err(), and what was taken has been given back, or is ErrUnknown
// as well. Errors that waiting does not cure (ErrUnsafeServer, ErrForeign
// for a key that is no string, a server that can't be reached at the first
// attempt or for a whole ttl) end the wait. A cluster that moves the key's slot,
// or elects who serves it, is waited for: for a whole ttl.
//
// ctx bounds the waiting, not the lock: it may end once Lock has returned.
func (k *Locker) Lock(ctx context.Context, key string, ttl time.Duration) (*Lock, error) {
	return k.lock(ctx, false, key, ttl, k.o.Renew)
}

// Do waits for the lock, calls f while holding and renewing it, and releases
// it. The context that f gets ends, with cause ErrLost, before the lease does: f
// must have stopped writing by then. Do returns f's error, joined with the
// release's if that failed: ErrLost if the lock was lost on the way.
func (k *Locker) Do(ctx context.Context, key string, ttl time.Duration, f func(ctx context.Context) error) (err error) {
	lock, err := k.lock(ctx, true, key, ttl, true)
	if err != nil {
		return err
	}
	defer func() { // deferred, so that a panic in f gives the lock back too
		released := lock.Release(ctx)
		switch {
		case released == nil || errors.Is(err, ErrLost) && errors.Is(released, ErrLost):
			// f's own error, as it is
		case err == nil:
			err = released
		default:
			err = errors.Join(err, released)
		}
	}()
	return f(lock.Context())
}

// Adopt takes over the lock that another process or goroutine of ours holds
// and has handed to us: token is its Lock.Token at that moment. It extends the
// lease to ttl, which proves it ours, and draws a new fence if the algorithm
// has them. It returns ErrLost if the key does not hold token any more. The
// handle that gave the token away must not be used again.
func (k *Locker) Adopt(ctx context.Context, key, token string, ttl time.Duration) (*Lock, error) {
	start := k.now()
	key, err := k.valid(key, ttl)
	if err != nil {
		return nil, err
	}
	return k.adopt(ctx, key, token, ttl, start)
}

// adopt is Adopt of a key with its prefix.
func (k *Locker) adopt(ctx context.Context, key, token string, ttl time.Duration, start time.Time) (*Lock, error) {
	l, err := k.handedOver(ctx, key, token, ttl)
	if err != nil {
		return nil, err
	}
	l.How = Adopted
	next, err := k.extend(ctx, l, ttl)
	if err != nil && !definite(err) {
		return nil, &UnknownError{Lease: next, Err: err}
	}
	if err != nil {
		return nil, err
	}
	return k.hold(ctx, false, next, ttl, k.o.Renew, start, 1), nil
}

// ReleaseToken releases a lock by its token alone, without a handle: it removes
// the key if, and only if, it holds token. It returns ErrLost if it does not.
func (k *Locker) ReleaseToken(ctx context.Context, key, token string) error {
	key, err := k.valid(key, time.Second)
	if err != nil {
		return err
	}
	return k.releaseToken(ctx, key, token)
}

func (k *Locker) releaseToken(ctx context.Context, key, token string) error {
	l, err := k.handedOver(ctx, key, token, k.o.Timeout)
	if err != nil {
		return err
	}
	_, err = k.release(ctx, l, true)
	return err
}

// handedOver returns the lease that token stands for.
func (k *Locker) handedOver(ctx context.Context, key, token string, ttl time.Duration) (Lease, error) {
	if f, ok := k.backend.(Finder); ok {
		step, done := k.step(ctx, ttl)
		defer done()
		return f.Find(step, k.now, key, token)
	}
	st, err := k.inspect(ctx, key, ttl)
	if err != nil {
		return Lease{}, err
	}
	if !st.Holds(token) {
		return Lease{}, fmt.Errorf("%w: %q does not hold this token", ErrLost, key)
	}
	until := st.until(token)
	if until.IsZero() { // nothing will end it: it is ours until we say otherwise
		until = k.now().Add(ttl)
	}
	return Lease{Key: key, Value: token, Until: until}, nil
}

// Inspect reads the key and changes nothing. By the time it returns, the state
// may have changed.
func (k *Locker) Inspect(ctx context.Context, key string) (State, error) {
	key, err := k.valid(key, time.Second)
	if err != nil {
		return State{}, err
	}
	return k.inspect(ctx, key, k.o.Timeout)
}

func (k *Locker) inspect(ctx context.Context, key string, ttl time.Duration) (State, error) {
	step, done := k.step(ctx, ttl)
	defer done()
	return k.backend.Inspect(step, k.now, key)
}

func (k *Locker) valid(key string, ttl time.Duration) (string, error) {
	switch {
	case key == "":
		return "", fmt.Errorf("%w: the key is empty", ErrInvalid)
	case ttl <= 0:
		return "", fmt.Errorf("%w: a ttl of %v", ErrInvalid, ttl)
	}
	return k.o.Prefix + key, nil
}

func (k *Locker) lock(ctx context.Context, bound bool, key string, ttl time.Duration, renew bool) (*Lock, error) {
	start := k.now()
	key, err := k.valid(key, ttl)
	if err != nil {
		return nil, err
	}
	ln, seat := k.lines.join(key)
	w := wait{k: k, key: key, ttl: ttl, line: ln, pause: k.o.MinPoll}
	defer func() {
		if seat == nil {
			k.leave(key, ln)
		}
	}()
	for tries := 0; ; {
		if seat != nil {
			t, called := k.await(ctx, key, seat)
			if !called {
				return nil, w.gaveUp(ctx, nil)
			}
			if t.failed != nil {
				return nil, t.failed
			}
			seat = nil
			if t.lease != nil {
				l, err := k.inherit(ctx, ln, *t.lease, ttl)
				if err == nil {
					return k.hold(ctx, bound, l, ttl, renew, start, tries), nil
				}
				if ctx.Err() != nil {
					return nil, w.gaveUp(ctx, err)
				}
			}
			if seat, err = w.yield(ctx, t); err != nil {
				return nil, err
			}
			if seat != nil {
				continue
			}
		}
		tries++
		asked := k.now()
		l, err := k.attempt(ctx, key, ttl, tries)
		if err == nil {
			return k.hold(ctx, bound, l, ttl, renew, start, tries), nil
		}
		if seat, err = w.after(ctx, err, tries); err != nil {
			if !ended(ctx) && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrUnknown) && k.now().Sub(asked) >= min(k.o.Timeout, ttl) {
				k.lines.fail(ln, err)
			}
			return nil, err
		}
	}
}

// attempt makes one attempt and settles what it left unknown.
func (k *Locker) attempt(ctx context.Context, key string, ttl time.Duration, n int) (Lease, error) {
	start := k.now()
	l, err := k.acquire(ctx, key, ttl)
	if closed(err) && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrHeld) && ctx.Err() == nil {
		// The pool's connection was dead, and the key was found free: ask over a live one.
		l, err = k.acquire(ctx, key, ttl)
	}
	k.see(Event{Kind: EventAttempt, Key: key, Lease: l, Took: k.since(start), Tries: n, Err: err})
	if errors.Is(err, ErrHeld) {
		k.see(Event{Kind: EventRefused, Key: key, Lease: l, Took: k.since(start), Tries: n, Err: err})
	}
	return l, err
}

// acquire asks once, and settles.
func (k *Locker) acquire(ctx context.Context, key string, ttl time.Duration) (Lease, error) {
	step, done := k.step(ctx, ttl)
	l, err := k.backend.Acquire(step, k.now, key, ttl)
	done()
	switch {
	case err == nil && ctx.Err() != nil:
		// Taken, but nobody is waiting for it any more.
		err = k.giveBack(ctx, l, context.Cause(ctx))
	case err == nil && !k.now().Before(l.Until):
		// The reply took longer than the lease lasts (any/lease-counted-from-reply).
		err = k.giveBack(ctx, l, fmt.Errorf("%w: the reply came after the lease had run out", ErrLost))
	case err != nil && !definite(err):
		l, err = k.settle(ctx, l, ttl, err)
	}
	return l, err
}

// definite reports that err leaves nothing open: what was asked for was not done.
func definite(err error) bool {
	var u unsent
	return errors.Is(err, errors.ErrUnsupported) || errors.As(err, &u) || errors.Is(err, ErrHeld) || errors.Is(err, ErrLost) ||
		errors.Is(err, ErrForeign) || errors.Is(err, ErrUnsafeServer) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrAborted)
}

// settle learns by reading the key, on another connection, whether an attempt
// whose reply was lost has succeeded (any/lost-reply). If the key holds our
// value, extending it proves the lease ours, gives it its TTL if the connection
// broke before that was sent, and draws the fence whose number was lost.
func (k *Locker) settle(ctx context.Context, l Lease, ttl time.Duration, why error) (Lease, error) {
	if l.Ambiguous {
		return l, &UnknownError{Lease: l, Err: why}
	}
	if ctx.Err() != nil {
		return l, k.undo(ctx, l, context.Cause(ctx))
	}
	st, err := k.inspect(ctx, l.Key, ttl)
	switch {
	case err != nil:
		return l, k.undo(ctx, l, why)
	case !st.Holds(l.Value) && st.Status != StatusFree && st.Status != StatusDead:
		return l, &HeldError{Key: l.Key, Value: st.Value, Until: st.Until, Foreign: st.Status == StatusForeign}
	case !st.Holds(l.Value):
		return l, fmt.Errorf("setnxlock: not obtained, %q is free: %w", l.Key, why)
	}
	step, done := k.step(ctx, ttl)
	defer done()
	next, err := k.backend.Extend(step, k.now, l, ttl)
	if err != nil {
		why = errors.Join(why, err)
		if next.Value != l.Value { // the extension may have run for all that
			why = k.undo(ctx, next, why)
		}
		return l, k.undo(ctx, l, why)
	}
	next.How = Resolved
	return next, nil
}

// undo gives back what may have been taken, and returns why; or ErrUnknown if
// it can't be told whether what the key holds is ours.
func (k *Locker) undo(ctx context.Context, l Lease, why error) error {
	if l.Ambiguous {
		return &UnknownError{Lease: l, Err: why}
	}
	return k.giveBack(ctx, l, why)
}

// giveBack releases, in a context of its own, and returns why; or, if that is
// not known to have worked, ErrUnknown too. The release compares: undoing what
// was never done must not remove another client's lock (any/release-of-unknown).
func (k *Locker) giveBack(ctx context.Context, l Lease, why error) error {
	step, done := k.cleanup(ctx)
	defer done()
	_, err := k.giveUp(step, l, true)
	if err == nil || errors.Is(err, ErrLost) {
		return why
	}
	return &UnknownError{Lease: l, Err: errors.Join(why, err)}
}

// extend extends l and settles what was left unknown: it returns the lease
// that the key was found to hold. What was found not to have run is tried once
// more.
func (k *Locker) extend(ctx context.Context, l Lease, ttl time.Duration) (Lease, error) {
	for try := 1; ; try++ {
		step, done := k.step(ctx, ttl)
		next, err := k.backend.Extend(step, k.now, l, ttl)
		done()
		if err == nil || definite(err) || errors.Is(err, ErrUnknown) {
			return next, err
		}
		st, readErr := k.inspect(ctx, l.Key, ttl)
		switch {
		case readErr != nil:
			return next, err
		case st.Holds(next.Value) && next.Value != l.Value:
			return next, nil
		case !st.Holds(l.Value):
			return l, fmt.Errorf("%w: %q", ErrLost, l.Key)
		case try == 2 || ctx.Err() != nil:
			return l, err // the key holds l still: extended or not, its end is l's at the earliest
		}
	}
}

// release releases l. If the outcome is unknown it looks, and releases once
// more if the key still holds l's value: it compares, so a second one never
// removes another client's lock (any/lost-reply-to-release). A key that is not ours
// any more, in time, was released; unless nothing was sent, or a server answers
// that may never have had it (any/failover).
//
// signal has it wake a client that waits elsewhere, if there is one: woken.
func (k *Locker) release(ctx context.Context, l Lease, signal bool) (woken bool, err error) {
	inTime := k.now().Before(l.Until)
	sent := false
	for try := 1; ; try++ {
		cleaning := ctx.Err() != nil
		step, done := k.orCleanup(ctx)
		woken, err = k.giveUp(step, l, signal && try == 1)
		never := err != nil && errors.As(err, new(unsent))
		if err == nil || definite(err) && !never {
			done()
			return woken, err
		}
		sent = sent || !never
		if l.Ambiguous && sent || try == 2 {
			done()
			return woken, &UnknownError{Lease: l, Err: err}
		}
		if !cleaning && ended(ctx) { // in the middle
			done()
			step, done = k.cleanup(ctx)
		}
		st, readErr := k.backend.Inspect(step, k.now, l.Key)
		done()
		switch {
		case readErr != nil:
			return woken, &UnknownError{Lease: l, Err: err}
		case st.Holds(l.Value):
			// it did not get through: once more
		case !inTime:
			return woken, fmt.Errorf("%w: %q: its time has run out", ErrLost, l.Key)
		case !sent || k.era() != l.era:
			return woken, fmt.Errorf("%w: %q is not ours on the server that answers now: %w", ErrLost, l.Key, err)
		default:
			return woken, nil // it got through
		}
	}
}

// era is that of the server which answers, if it can be replaced.
func (k *Locker) era() uint64 {
	if b, ok := k.backend.(interface{ era() uint64 }); ok {
		return b.era()
	}
	return 0
}

// ended reports whether ctx has ended, or is about to: a connection notices a
// deadline before the context does.
func ended(ctx context.Context) bool {
	at, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(at)
}

// orCleanup is a step's context, or a cleanup's if ctx has ended.
func (k *Locker) orCleanup(ctx context.Context) (context.Context, func()) {
	if ctx.Err() != nil {
		return k.cleanup(ctx)
	}
	return k.step(ctx, k.o.Timeout)
}

// step bounds one step by ctx, Options.Timeout and ttl. A context that can't be
// cancelled needs no goroutine to watch it: redigo's own time limit does.
func (k *Locker) step(ctx context.Context, ttl time.Duration) (context.Context, func()) {
	d := min(k.o.Timeout, ttl)
	switch {
	case ctx.Done() != nil:
		return k.within(ctx, d)
	case d == k.plain.limit && ctx == k.plain.Context:
		return k.plain, func() {}
	}
	return &limited{ctx, d}, func() {}
}

// A limited is a context with a time limit: for the whole step, or, if it can't
// be cancelled, for each command.
type limited struct {
	context.Context
	limit time.Duration
}

type ofLimited struct{}

// Value finds the limit below whatever a Backend has put on top of it.
func (l *limited) Value(key any) any {
	if key == (ofLimited{}) {
		return l
	}
	return l.Context.Value(key)
}

var errSlow = errors.New("setnxlock: no answer in time")

// cleanup is the context of what must be done although ctx has ended.
func (k *Locker) cleanup(ctx context.Context) (context.Context, func()) {
	return k.within(context.WithoutCancel(ctx), k.o.Cleanup)
}

func (k *Locker) within(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := k.o.Clock.AfterFunc(d, func() { cancel(errSlow) })
	return &limited{ctx, d}, func() { t.Stop(); cancel(nil) }
}

// since measures a time for an Observer; nobody else asks.
func (k *Locker) since(start time.Time) time.Duration {
	if k.o.Observer == nil {
		return 0
	}
	return k.o.Clock.Since(start)
}

func (k *Locker) see(e Event) {
	if k.o.Observer != nil {
		k.o.Observer.Observe(e)
	}
}
