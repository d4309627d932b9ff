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
	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
)

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
func New(source compat.Source, a compat.Algorithm) compat.Backend {
	return &inTurn{one: compat.Settled(compat.NewBackend(source, a)), counters: compat.NewBackend(source, counter{}), open: map[[2]string]compat.Lease{}}
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

// take takes one key. With an error comes the lease that may stand for all that, or one without
// a value.
func (b *inTurn) take(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := b.one.Acquire(ctx, now, key, ttl)
	switch compat.OutcomeOf(err) {
	case compat.Done:
		b.ambiguous.Store(l.Ambiguous)
	case compat.Refused, compat.NotSent:
		l = compat.Lease{Key: key}
	}
	return l, err
}

// giveUp releases the first n parts of a set that can't be had, then the next one if it may be
// ours, and returns why; or, if anything may be left, a lease of that.
func (b *inTurn) giveUp(ctx context.Context, now func() time.Time, key string, parts []part, n int, why error) (compat.Lease, error) {
	ctx, done := cleanup(ctx)
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
	ctx, done := cleanup(ctx)
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

// Release releases all keys that are ours, the last one first.
func (b *inTurn) Release(ctx context.Context, now func() time.Time, l compat.Lease) error {
	parts, err := b.split(l)
	if err != nil {
		return err
	}
	late := sync.OnceValues(func() (context.Context, func()) { return cleanup(ctx) })
	var lost, open error
	for i := len(parts) - 1; i >= 0; i-- {
		step := ctx
		if ctx.Err() != nil { // the rest is released all the same
			var done func()
			step, done = late()
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

// cleanup is the context of what must be done although ctx has ended: the Locker's
// Options.Cleanup bounds it.
func cleanup(ctx context.Context) (context.Context, func()) {
	return cleaning.Of(ctx, alone).Begin(ctx)
}

// alone cleans up where no Locker is, in the default of its Options.Cleanup.
var alone = cleaning.New(clock.New(), 250*time.Millisecond, compat.ErrTimeout)
