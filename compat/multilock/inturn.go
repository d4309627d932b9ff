package multilock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
)

// Options are New's. The zero value is ready to use.
type Options struct {
	// Clock runs the timer of Cleanup: the Locker's clock. nil: clock.New().
	Clock clock.Clock

	// Cleanup bounds giving back what was taken of a set that is not to be had,
	// which goes on when the step's context has ended. Default: 250 ms, as the
	// Locker's own.
	Cleanup time.Duration
}

// inTurn is the Backend that takes its keys one after the other, in the order
// of their bytes, each as one lock of an algorithm's. The step that is refused a
// key gives back those it had, the last one first.
//
// A lease's value is the values of its keys, in their order. No single read
// tells whether it stands, and a part of it may: so a message that was lost is
// cleared up here, for its key, and the leases are ambiguous, which keeps the Locker
// from judging by what it reads.
type inTurn struct {
	one       compat.Backend
	counters  compat.Backend
	o         Options
	ambiguous atomic.Bool // the algorithm's leases are
}

// New returns the Backend that locks sets of keys over any algorithm, one key
// after the other: on a KeySource, a cluster, each on the server that has it.
// It is for compat.NewLocker. The algorithm must be safe on all servers.
//
// While it takes a set, others may see a part of it held; who is refused for
// such a part asks again. A client that dies between two keys leaves the first
// ones held until their time runs out.
func New(source compat.Source, a compat.Algorithm, o Options) compat.Backend {
	if o.Clock == nil {
		o.Clock = clock.New()
	}
	if o.Cleanup <= 0 {
		o.Cleanup = 250 * time.Millisecond
	}
	return &inTurn{one: compat.NewBackend(source, a), counters: compat.NewBackend(source, counter{}), o: o}
}

// Acquire takes the keys in turn. The lease ends with the first of its keys.
func (b *inTurn) Acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	keys, err := Split(key)
	if err != nil {
		return compat.Lease{Key: key}, err
	}
	parts := make([]compat.Lease, len(keys))
	for i, k := range keys {
		if parts[i], err = b.take(ctx, now, k, ttl); err != nil {
			return b.giveUp(ctx, now, key, parts, i, err)
		}
		if !now().Before(parts[0].Until) {
			return b.giveUp(ctx, now, key, parts, i+1, fmt.Errorf("%w: %q ran out before the whole set was taken", compat.ErrLost, keys[0]))
		}
	}
	l, err := b.fenced(ctx, now, key, parts, ttl)
	if err != nil {
		return b.giveUp(ctx, now, key, parts, len(parts), err)
	}
	return l, nil
}

// take takes one key. An attempt of unknown outcome is undone, and made once
// more. With an error comes the lease that may stand for all that, or one without a value.
func (b *inTurn) take(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	undo := func(l compat.Lease) error {
		ctx, done := b.cleanup(ctx)
		defer done()
		return b.undo(ctx, now, l)
	}
	for try := 1; ; try++ {
		l, err := b.one.Acquire(ctx, now, key, ttl)
		switch {
		case err == nil:
			b.ambiguous.Store(l.Ambiguous)
			return l, nil
		case certain(err):
			return compat.Lease{Key: key}, err
		case l.Ambiguous || undo(l) != nil:
			return l, err
		case try == 2 || ctx.Err() != nil:
			return compat.Lease{Key: key}, err
		}
	}
}

// giveUp gives back the first n parts of a set that is not to be had, the last
// one first, and returns why; or, if anything may be left, a lease of that.
func (b *inTurn) giveUp(ctx context.Context, now func() time.Time, key string, parts []compat.Lease, n int, why error) (compat.Lease, error) {
	ctx, done := b.cleanup(ctx)
	defer done()
	left := n < len(parts) && parts[n].Value != ""
	for i := n - 1; i >= 0; i-- {
		if b.undo(ctx, now, parts[i]) != nil {
			left = true
		} else {
			parts[i].Value = ""
		}
	}
	if left {
		return whole(key, parts), vague{why}
	}
	return compat.Lease{Key: key}, compat.NotDone(why)
}

// undo gives one key back. There is nothing to undo if it is not ours.
func (b *inTurn) undo(ctx context.Context, now func() time.Time, l compat.Lease) error {
	err := b.release(ctx, now, l)
	if errors.Is(err, compat.ErrLost) || errors.Is(err, compat.ErrForeign) {
		return nil
	}
	return err
}

// release gives one key back. If the reply is lost it is done again: it
// compares, so it never removes another client's lock (any/lost-reply-to-release);
// unless two clients can write the same value.
func (b *inTurn) release(ctx context.Context, now func() time.Time, l compat.Lease) error {
	inTime := now().Before(l.Until)
	err := b.one.Release(ctx, now, l)
	if certain(err) || b.ambiguous.Load() {
		return err
	}
	err = b.one.Release(ctx, now, l)
	if errors.Is(err, compat.ErrLost) && inTime {
		return nil // the first got through
	}
	return err
}

// Extend extends the keys in turn. One that is lost loses the set.
func (b *inTurn) Extend(ctx context.Context, now func() time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	parts, err := split(l)
	if err != nil {
		return l, err
	}
	for i := range parts {
		parts[i], err = b.extend(ctx, now, parts[i], ttl)
		if errors.Is(err, compat.ErrLost) || errors.Is(err, compat.ErrForeign) {
			err = fmt.Errorf("%w: %q, and with it the set", compat.ErrLost, parts[i].Key)
			rest := slices.Delete(parts, i, i+1)
			b.giveUp(ctx, now, l.Key, rest, len(rest), err) //nolint:errcheck // what is left ends with its time
			return l, err
		}
		if err != nil {
			return inPart(l, whole(l.Key, parts), err)
		}
	}
	next, err := b.fenced(ctx, now, l.Key, parts, ttl)
	if err != nil {
		return inPart(l, next, err)
	}
	return next, nil
}

// extend extends one key. If the reply is lost it looks, and extends once more if
// the key holds the old value.
func (b *inTurn) extend(ctx context.Context, now func() time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	for try := 1; ; try++ {
		next, err := b.one.Extend(ctx, now, l, ttl)
		if err == nil {
			b.ambiguous.Store(next.Ambiguous)
			return next, nil
		}
		if certain(err) {
			return l, err
		}
		st, readErr := b.one.Inspect(ctx, now, l.Key)
		switch {
		case readErr != nil:
			return next, err
		case next.Value != l.Value && st.Holds(next.Value):
			return next, nil
		case !st.Holds(l.Value):
			return l, compat.ErrLost
		case try == 2:
			return l, err
		}
	}
}

// inPart is an extension that stopped on the way: next is what may stand. If its
// values are the old ones, so is the lease; else the Locker has to find out
// which of the two the keys hold.
func inPart(l, next compat.Lease, err error) (compat.Lease, error) {
	if next.Value == l.Value {
		return l, err
	}
	return next, &compat.UnknownError{Lease: next, Err: vague{err}}
}

// Release gives back all keys that are ours, the last one first.
func (b *inTurn) Release(ctx context.Context, now func() time.Time, l compat.Lease) error {
	parts, err := split(l)
	if err != nil {
		return err
	}
	cleanup := sync.OnceValues(func() (context.Context, func()) { return b.cleanup(ctx) })
	var lost, unknown error
	for i := len(parts) - 1; i >= 0; i-- {
		step := ctx
		if ctx.Err() != nil { // the rest is given back all the same
			var done func()
			step, done = cleanup()
			defer done()
		}
		err := b.release(step, now, parts[i])
		switch {
		case errors.Is(err, compat.ErrLost) || errors.Is(err, compat.ErrForeign):
			lost = fmt.Errorf("%w: %q", compat.ErrLost, parts[i].Key)
		case err != nil:
			unknown = vague{fmt.Errorf("%q: %w", parts[i].Key, err)}
		}
	}
	if unknown != nil {
		return unknown
	}
	return lost
}

// Inspect reads the keys in turn.
func (b *inTurn) Inspect(ctx context.Context, now func() time.Time, key string) (compat.State, error) {
	keys, err := Split(key)
	if err != nil {
		return compat.State{Key: key, TTL: compat.NoTTL}, err
	}
	states := make([]compat.State, len(keys))
	values := make([]string, len(keys))
	var until time.Time
	for i, k := range keys {
		if states[i], err = b.one.Inspect(ctx, now, k); err != nil {
			return compat.State{Key: key, TTL: compat.NoTTL}, err
		}
		values[i], until = states[i].Value, earliest(until, states[i].Until)
	}
	st := together(key, states)
	if st.Status != compat.StatusFree {
		all := compat.Holder{Value: list(values), Until: until}
		st.Holders = append([]compat.Holder{all}, st.Holders...)
		if !repairable(st) { // Repair needs the value of that very key
			st.Value = all.Value
		}
	}
	return st, nil
}

// Find returns the lease that value stands for if any of its keys is still ours:
// it is for Extend and Release to find that not all are, and to give back those.
func (b *inTurn) Find(ctx context.Context, now func() time.Time, key, value string) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: value, Ambiguous: true}
	parts, err := split(l)
	if err != nil {
		return l, err
	}
	ours := 0
	for _, p := range parts {
		st, err := b.one.Inspect(ctx, now, p.Key)
		if err != nil {
			return l, err
		}
		if p.Value != "" && st.Holds(p.Value) {
			ours++
			l.Until = earliest(l.Until, st.Until)
		}
	}
	if ours == 0 {
		return l, fmt.Errorf("%w: %q does not hold this token", compat.ErrLost, key)
	}
	if l.Until.IsZero() { // nothing will end it: any time to come will do
		l.Until = now().Add(time.Minute)
	}
	return l, nil
}

// repairable reports whether the Locker may come to repair what s shows.
func repairable(s compat.State) bool { return s.Status == compat.StatusEndless || s.Watch > 0 }

// Repair repairs the key of the set that holds st.Value, if it is still as it was seen.
func (b *inTurn) Repair(ctx context.Context, now func() time.Time, st compat.State, ttl time.Duration) error {
	keys, err := Split(st.Key)
	if err != nil {
		return err
	}
	for _, k := range keys {
		one, err := b.one.Inspect(ctx, now, k)
		if err != nil {
			return err
		}
		if repairable(one) && one.Value == st.Value {
			return b.one.Repair(ctx, now, one, ttl)
		}
	}
	return compat.ErrHeld
}

var errSlow = errors.New("setnxlock: no answer in time")

// cleanup is the context of what must be done although ctx has ended.
func (b *inTurn) cleanup(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	t := b.o.Clock.AfterFunc(b.o.Cleanup, func() { cancel(errSlow) })
	return ctx, func() { t.Stop(); cancel(nil) }
}
