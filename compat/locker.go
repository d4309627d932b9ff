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
	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/internal/lease"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/queue"
	"github.com/setnxlock/setnxlock/compat/internal/schedule"
	"github.com/setnxlock/setnxlock/compat/internal/slot"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A Locker takes, renews and releases locks. It is safe for concurrent use. It uses at most one connection for each
// lock that it waits for or holds; simultaneous steps share a few (see Source.Keep). A second after its last step it
// has none, except one for each key on which it waits for a wake-up.
type Locker struct {
	resolver
	abilities Abilities
	invalid   error // its Backend is another Locker's
	o         Options
	plain     context.Context // that of most steps, without a limit
	scheduler schedule.Scheduler[*held]
	queues    queue.Queues[unattached]
	tasks     sync.WaitGroup // in the background
	jobs      *cleaning.Jobs // for what a Backend leaves to be done behind a step
}

// New returns a Locker for a over connections from pool.
func New(pool Pool, a protocol.Algorithm, o Options) *Locker { return NewOn(Pooled(pool), a, o) }

// NewOn returns a Locker for a over connections from source: a cluster's or a Sentinel group's, for example.
func NewOn(source Source, a protocol.Algorithm, o Options) *Locker {
	return NewLocker(NewBackend(source, a), o)
}

// owned returns a Backend for one Locker alone. A wrapper shares the server below it, so a second Locker over
// that server gets ErrInvalid.
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

// NewLocker returns a Locker over a Backend. Several Lockers may share one from [NewBackend], or one made of
// several. A Backend that wraps one from NewBackend and returns its Abilities belongs to the first Locker; a
// later Locker over it returns [ErrInvalid] from every call that names a key.
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
	jobs := cleaning.New(o.Clock, o.Cleanup)
	b, err := owned(b)
	k := &Locker{o: o, invalid: err, abilities: b.Abilities(), plain: cleaning.With(context.Background(), jobs), jobs: jobs}
	k.resolver = resolver{backend: b, now: o.Clock.Now, step: k.stepContext, cleanup: jobs.After, limit: o.Timeout}
	k.queues = queue.Queues[unattached]{Now: o.Clock.Now, Pause: o.least(), Longest: o.Poll, Run: k.background}
	k.queues.Undo = func(ctx context.Context, h *unattached) { k.undo(ctx, h, nil) } //nolint:errcheck // what stays ends with its lease
	k.scheduler.Clock, k.scheduler.Renew = o.Clock, k.renewAll
	k.scheduler.End = func(l *held, at time.Time) { l.on(lease.Event{Kind: lease.Tick, At: at}, Grant{}) }
	if s := k.abilities.server; s != nil && err == nil {
		s.keep(jobs)
		if k.queues.NoHandOff = s.inTurn(); jobs.Attended() && !jobs.Stands() { // else nobody would hear of it in time
			k.queues.Signals = s.signals(k.now, jobs.Pause, func(ctx context.Context) (context.Context, func()) { return k.step(ctx, o.Timeout) }, k.cleanup)
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
	if !k.jobs.Enter() {
		return nil, ErrClosed
	}
	defer k.jobs.Leave()
	op, end := k.jobs.Operation(ctx)
	defer end()
	l, err := k.attempt(op, key, ttl, 1)
	if err != nil {
		return nil, k.closed(k.refusal(op, key, ttl, err))
	}
	return forUser(k.hold(ctx, false, l, ttl, !k.o.NoRenew, start, 1))
}

// forUser wraps an obtained lock for its user.
func forUser(l *held, err error) (*Lock, error) {
	if err != nil {
		return nil, err
	}
	return l.lock(), nil
}

// closed turns the error of a call into ErrClosed if the call sent nothing because Close came in between.
func (k *Locker) closed(err error) error {
	if k.queues.Closed() && protocol.OutcomeOf(err) == protocol.NotSent {
		return ErrClosed
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
//
// Another Do, or [Locker.Lock], of the same key by this Locker with f's context would wait for itself, and returns
// [ErrInvalid] at once. Readers may be in readers, and a semaphore's holder in another.
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

// Inspect reads the key and changes nothing. By the time it returns, the state may have
// changed.
func (k *Locker) Inspect(ctx context.Context, key string) (State, error) {
	key, err := k.name(key)
	if err != nil {
		return State{}, err
	}
	if !k.jobs.Enter() {
		return State{}, ErrClosed
	}
	defer k.jobs.Leave()
	return k.inspect(ctx, key, k.o.Timeout)
}

// Close ends every wait with [ErrClosed], releases the held locks, ends the renewals, and waits for calls under
// way and work in the background. It returns the errors of releases that failed or were not done within
// Options.Cleanup of ctx's end; those locks end with their leases. Detach a lock first if it is to live on. A Do
// whose lock is released so returns ErrClosed. After Close nothing is sent, and every call that would returns
// ErrClosed. A program that ends without Close may not have woken those who waited for its last lock elsewhere: they
// look at the key once in each Options.Poll.
func (k *Locker) Close(ctx context.Context) error {
	k.queues.Close()
	k.jobs.Close()
	locks := k.scheduler.Close()
	errs := make([]error, len(locks))
	all, end := k.jobs.Operation(ctx)
	defer end()
	schedule.AtOnce(len(locks), func(i int) {
		if err := locks[i].close(all); !errors.Is(err, ErrReleased) && !errors.Is(err, ErrDetached) && !errors.Is(err, ErrHandedOff) {
			errs[i] = err
		}
	})
	waits := k.jobs.Wait(ctx)
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
	return errors.Join(append(errs, cmp.Or(waits, k.jobs.Wait(ctx)))...)
}

// background runs f so that Close can wait for it.
func (k *Locker) background(f func()) {
	k.tasks.Add(1)
	go func() {
		defer k.tasks.Done()
		f()
	}()
}

// name returns the key with its prefix, or an error if the key is empty or this Locker can't be used.
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

// valid returns the key with its prefix after it checked the key and ttl of a lock to take.
func (k *Locker) valid(key string, ttl time.Duration) (string, error) {
	key, err := k.name(key)
	if err != nil {
		return "", err
	}
	if err := slot.Taken(key); err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := k.validTTL(key, ttl); err != nil || k.o.Hold <= 0 {
		return key, err
	}
	return key, k.validTTL(key, k.o.Hold)
}

// validTTL returns ErrInvalid for a ttl outside the range of all locks, or of this Locker's.
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
