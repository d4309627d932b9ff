package multilock

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

	// Cleanup bounds the release of what was taken of a set that can't be had, which goes on
	// when the step's context has ended. Default: 250 ms, as the Locker's own.
	Cleanup time.Duration
}

// inTurn is the Backend that takes its keys one after the other, in the order of their bytes,
// each as one lock of an algorithm's. The step that is refused a key releases those it had, the
// last one first.
//
// A lease's value is the values of its keys, in their order, and where an extension of a key is
// open both of that key's. No single read tells whether it stands, and a part of it may: so the outcome of each key is settled for that key, and the
// leases are ambiguous, which keeps the Locker from judging by what it reads.
type inTurn struct {
	one       compat.Backend // settles what a lost reply left open
	counters  compat.Backend
	o         Options
	ambiguous atomic.Bool // the algorithm's leases are

	mu   sync.Mutex
	open map[[2]string]compat.Lease // by key and value, which is not every dialect's own: extensions of sets whose outcome is unknown
}

// New returns the Backend that locks sets of keys over any algorithm, one key after the other:
// on a cluster each on the server that has it. It is for compat.NewLocker. The algorithm must be
// safe on all servers.
//
// While it takes a set, others may see a part of it held; a client that is refused for such a
// part asks again. A client that dies between two keys leaves the first ones held until their
// time runs out.
func New(source compat.Source, a compat.Algorithm, o Options) compat.Backend {
	if o.Clock == nil {
		o.Clock = clock.New()
	}
	if o.Cleanup <= 0 {
		o.Cleanup = 250 * time.Millisecond
	}
	return &inTurn{one: compat.Settled(compat.NewBackend(source, a)), counters: compat.NewBackend(source, counter{}), o: o, open: map[[2]string]compat.Lease{}}
}

// Abilities are the algorithm's: a set of readers is shared as each of them is.
func (b *inTurn) Abilities() compat.Abilities {
	one := b.one.Abilities()
	return compat.Abilities{Shared: one.Shared, Rotates: one.Rotates, Epoch: one.Epoch, Valid: func(key string, ttl time.Duration) error {
		keys, err := Split(key)
		if err == nil && one.Valid != nil {
			err = one.Valid(keys[0], ttl)
		}
		return err
	}}
}

// Acquire takes the keys in turn. The lease ends with the first of its keys.
func (b *inTurn) Acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	keys, err := Split(key)
	if err != nil {
		return compat.Lease{Key: key}, err
	}
	parts := make([]part, len(keys))
	for i, k := range keys {
		if parts[i].Lease, err = b.take(ctx, now, k, ttl); err != nil {
			return b.giveUp(ctx, now, key, parts, i, err)
		}
	}
	l, err := b.fenced(ctx, now, key, parts, ttl)
	if err != nil {
		return b.giveUp(ctx, now, key, parts, len(parts), err)
	}
	return l, nil
}

// take takes one key. An attempt of unknown outcome is undone, and made once more. With an
// error comes the lease that may stand for all that, or one without a value.
func (b *inTurn) take(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	for try := 1; ; try++ {
		l, err := b.one.Acquire(ctx, now, key, ttl)
		switch o := compat.OutcomeOf(err); {
		case o == compat.Done:
			b.ambiguous.Store(l.Ambiguous)
			return l, nil
		case o != compat.Unknown:
			return compat.Lease{Key: key}, err
		case l.Ambiguous || try == 2 || ctx.Err() != nil || !b.undone(ctx, now, part{Lease: l}):
			return l, err
		}
	}
}

// giveUp releases the first n parts of a set that can't be had, then the next one if it may be
// ours, and returns why; or, if anything may be left, a lease of that.
func (b *inTurn) giveUp(ctx context.Context, now func() time.Time, key string, parts []part, n int, why error) (compat.Lease, error) {
	ctx, done := b.cleanup(ctx)
	defer done()
	left := !b.released(ctx, now, parts[:n])
	if n < len(parts) && parts[n].Value != "" && (parts[n].Ambiguous || !b.released(ctx, now, parts[n:n+1])) {
		left = true
	}
	switch {
	case left:
		return joined(key, parts), inPart{why}
	case compat.OutcomeOf(why) == compat.Unknown:
		why = compat.NotSent.Mark(why)
	}
	return compat.Lease{Key: key}, why
}

// undone is released for what is to be released although ctx may have ended.
func (b *inTurn) undone(ctx context.Context, now func() time.Time, parts ...part) bool {
	ctx, done := b.cleanup(ctx)
	defer done()
	return b.released(ctx, now, parts)
}

// released releases parts, the last one first, takes the values of those that are gone, and
// reports whether all are.
func (b *inTurn) released(ctx context.Context, now func() time.Time, parts []part) bool {
	all := true
	for i := len(parts) - 1; i >= 0; i-- {
		if err := b.release(ctx, now, parts[i]); err != nil && !lostOne(err) {
			all = false
		} else {
			parts[i].Value, parts[i].or = "", nil
		}
	}
	return all
}

// Extend extends the keys in turn. One that is lost loses the set.
func (b *inTurn) Extend(ctx context.Context, now func() time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	parts, err := b.split(l)
	if err != nil {
		return l, err
	}
	for i := range parts {
		parts[i], err = b.extend(ctx, now, parts[i], ttl)
		switch {
		case err == nil:
			b.ambiguous.Store(parts[i].Ambiguous)
		case lostOne(err):
			b.undone(ctx, now, parts...) // what is left ends with its time
			return l, fmt.Errorf("%w: %q, and with it the set", compat.ErrLost, parts[i].Key)
		case i == 0 && compat.OutcomeOf(err) != compat.Unknown:
			return l, err // nothing has changed yet
		default:
			return b.unknown(now, joined(l.Key, parts), err)
		}
	}
	next, err := b.fenced(ctx, now, l.Key, parts, ttl)
	if err != nil {
		return b.unknown(now, next, err)
	}
	return next, nil
}

// extend extends one key, by each value that it may hold.
func (b *inTurn) extend(ctx context.Context, now func() time.Time, p part, ttl time.Duration) (next part, err error) {
	values := p.values()
	for i, v := range values {
		p.Value = v
		next.Lease, err = b.one.Extend(ctx, now, p.Lease, ttl)
		if lostOne(err) && i+1 < len(values) {
			continue
		}
		if err != nil {
			for _, v := range values[i:] {
				if v != next.Value {
					next.or = append(next.or, v)
				}
			}
		}
		break
	}
	return next, err
}

// release releases one key, by each value that it may hold.
func (b *inTurn) release(ctx context.Context, now func() time.Time, p part) (err error) {
	for _, v := range p.values() {
		p.Value = v
		if err = b.one.Release(ctx, now, p.Lease); !lostOne(err) {
			break
		}
	}
	return err
}

// unknown is an extension that stopped on the way: l is what may stand, and ends with the first
// of its keys, extended or not. It is remembered until then, for Inspect to recognise.
func (b *inTurn) unknown(now func() time.Time, l compat.Lease, err error) (compat.Lease, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := now()
	maps.DeleteFunc(b.open, func(_ [2]string, l compat.Lease) bool { return !t.Before(l.Until) })
	b.open[[2]string{l.Key, l.Value}] = l
	return l, &compat.UnknownError{Lease: l, Err: inPart{err}}
}

// recognised are the values of extensions of unknown outcome that the keys show to be ours.
func (b *inTurn) recognised(key string, states []compat.State) (all []compat.Holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.open {
		if l.Key != key {
			continue
		}
		h, ours := compat.Holder{Value: l.Value}, true
		parts, err := b.split(l)
		for i, p := range parts {
			until, yes := p.heldBy(states[i])
			h.Until, ours = earliest(h.Until, until), ours && yes
		}
		if err == nil && ours {
			all = append(all, h)
		}
	}
	return all
}

// Release releases all keys that are ours, the last one first.
func (b *inTurn) Release(ctx context.Context, now func() time.Time, l compat.Lease) error {
	parts, err := b.split(l)
	if err != nil {
		return err
	}
	cleanup := sync.OnceValues(func() (context.Context, func()) { return b.cleanup(ctx) })
	var lost, open error
	for i := len(parts) - 1; i >= 0; i-- {
		step := ctx
		if ctx.Err() != nil { // the rest is released all the same
			var done func()
			step, done = cleanup()
			defer done()
		}
		err := b.release(step, now, parts[i])
		switch {
		case lostOne(err):
			lost = fmt.Errorf("%w: %q", compat.ErrLost, parts[i].Key)
		case err != nil:
			open = inPart{fmt.Errorf("%q: %w", parts[i].Key, err)}
		}
	}
	if open != nil {
		return &compat.UnknownError{Lease: l, Err: errors.Join(lost, open)}
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
	values := make([]part, len(keys))
	var until time.Time
	for i, k := range keys {
		if states[i], err = b.one.Inspect(ctx, now, k); err != nil {
			return compat.State{Key: key, TTL: compat.NoTTL}, err
		}
		values[i].Value, until = states[i].Value, earliest(until, states[i].Until)
	}
	st := together(key, states)
	if st.Status != compat.StatusFree {
		all := compat.Holder{Value: list(values), Until: until}
		st.Holders = append(append([]compat.Holder{all}, b.recognised(key, states)...), st.Holders...)
		if !repairable(st) { // Repair needs the value of that very key
			st.Value = all.Value
		}
	}
	return st, nil
}

// Find returns the lease that value stands for if any of its keys is still ours: Extend and
// Release then find that not all are, and release those that are.
func (b *inTurn) Find(ctx context.Context, now func() time.Time, key, value string) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: value, Ambiguous: true}
	parts, err := b.split(l)
	if err != nil {
		return l, err
	}
	ours := 0
	for _, p := range parts {
		st, err := b.one.Inspect(ctx, now, p.Key)
		if err != nil {
			return l, err
		}
		if until, yes := p.heldBy(st); yes {
			ours++
			l.Until = earliest(l.Until, until)
		}
	}
	if ours == 0 {
		return l, fmt.Errorf("%w: %q does not hold this token", compat.ErrLost, key)
	}
	return l, nil
}

// end is when value's hold of a key ends; zero if it is not known.
func end(st compat.State, value string) time.Time {
	for _, h := range st.Holders {
		if h.Value == value {
			return h.Until
		}
	}
	return st.Until
}

// repairable reports whether the Locker may come to repair what s shows.
func repairable(s compat.State) bool { return s.Status == compat.StatusPersistent || s.Watch > 0 }

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

// cleanup is the context of what must be done although ctx has ended.
func (b *inTurn) cleanup(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	t := b.o.Clock.AfterFunc(b.o.Cleanup, func() { cancel(compat.ErrTimeout) })
	return ctx, func() { t.Stop(); cancel(nil) }
}
