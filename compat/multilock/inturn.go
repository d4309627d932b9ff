package multilock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/oneline"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// inTurn is the Backend that takes its keys one after the other, in the order of their bytes,
// each as one lock of an algorithm's:
//
//	acquire   a, then b, then c     refused one: those before it are released, the last one first
//	extend    a, then b, then c     one is lost: all are released, and the set is lost
//	release   c, then b, then a     each that is ours, whatever became of the others
//
// A lease's value is the values of its keys, in their order, and where an extension of a key is
// open both of that key's. No single read tells whether it stands, and a part of it may: so the
// outcome of each key is settled for that key, and the leases are ambiguous, which keeps the Locker
// from judging by what it reads.
type inTurn struct {
	one       compat.Backend // settles what a lost reply left open
	counters  compat.Backend
	ambiguous atomic.Bool // the algorithm's leases are

	mu   sync.Mutex
	open map[[2]string]compat.Grant // by key and value, which is not every dialect's own: extensions of sets whose outcome is unknown
}

// New returns a Backend to lock sets of keys over any algorithm, one key after the other: on a cluster each on the
// server that has it. It is for [compat.NewLocker]. The algorithm must be safe on all servers of source.
//
// While it takes a set, others may see a part of it held; a client that is refused for that reason asks again. A client
// that dies between two keys leaves the first ones held until their leases end. All keys of a set are one step: the
// Locker's Options.Timeout bounds them together.
func New(source compat.Source, a protocol.Algorithm) compat.Backend {
	return &inTurn{one: compat.Settled(compat.NewBackend(source, a)), counters: compat.NewBackend(source, counter{}), open: map[[2]string]compat.Grant{}}
}

// Acquire takes the keys in turn. The lease ends with the first of its keys.
func (b *inTurn) Acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (compat.Grant, error) {
	keys, err := lockable(key)
	if err != nil {
		return compat.Grant{Lease: protocol.Lease{Key: key}}, err
	}
	parts := make([]compat.Grant, len(keys))
	for i, k := range keys {
		if parts[i], err = b.take(ctx, now, k, ttl); err != nil {
			return b.giveUp(ctx, now, key, parts, i, err)
		}
	}
	l, err := b.fenced(ctx, now, key, parts, ttl)
	if err != nil {
		return b.giveUp(ctx, now, key, parts, len(parts), err)
	}
	return l, nil
}

// Extend extends the keys in turn. One that is lost loses the set.
func (b *inTurn) Extend(ctx context.Context, now func() time.Time, l compat.Grant, ttl time.Duration) (compat.Grant, error) {
	parts, err := b.split(l)
	if err != nil {
		return l, err
	}
	kept, final := false, true // kept: a value that was to be a new one
	for i, was := range parts {
		parts[i], err = b.one.Extend(ctx, now, was, ttl)
		switch {
		case err == nil:
			b.ambiguous.Store(parts[i].Ambiguous)
			kept = kept || parts[i].Rotate
			final = final && parts[i].Final
		case lostOne(err):
			rest := &shares{ctx: ctx, n: len(parts)}
			b.undone(rest, now, parts) // what is left ends with its time
			rest.done()
			return l, fmt.Errorf("%w: %q, and with it the set", protocol.ErrLost, parts[i].Key)
		case i == 0 && protocol.OutcomeOf(err) != protocol.Unknown:
			return l, err // nothing has changed yet
		default:
			return b.unknown(now, joined(l.Key, parts), err)
		}
	}
	next, err := b.fenced(ctx, now, l.Key, parts, ttl)
	if next.Rotate, next.Final = kept, final; err != nil {
		return b.unknown(now, next, err)
	}
	return next, nil
}

// Release releases all keys of ours, the last one first.
func (b *inTurn) Release(ctx context.Context, now func() time.Time, l compat.Grant) error {
	parts, err := b.split(l)
	if err != nil {
		return err
	}
	var lost, open error
	rest := &shares{ctx: ctx}
	defer rest.done()
	for i := len(parts) - 1; i >= 0; i-- {
		step, done := rest.of(i + 1)
		err := b.one.Release(step, now, parts[i])
		done()
		switch {
		case lostOne(err):
			lost = lostPart(parts[i].Key, err)
		case err != nil:
			open = inPart{fmt.Errorf("%q: %w", parts[i].Key, err)}
		}
	}
	if open != nil {
		return &protocol.UnknownError{Lease: l.Lease, Err: oneline.Join(lost, open)}
	}
	return lost
}
