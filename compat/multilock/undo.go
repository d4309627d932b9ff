package multilock

import (
	"context"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
)

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
func (b *inTurn) giveUp(ctx context.Context, now func() time.Time, key string, parts []compat.Lease, n int, why error) (compat.Lease, error) {
	left := !b.undone(ctx, now, parts[:n]...)
	if n < len(parts) && parts[n].Value != "" && (parts[n].Ambiguous || !b.undone(ctx, now, parts[n:n+1]...)) {
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

// undone releases parts although ctx may have ended, the last one first, takes the values of those
// that are gone, and reports whether all are.
func (b *inTurn) undone(ctx context.Context, now func() time.Time, parts ...compat.Lease) bool {
	ctx, done := cleanup(ctx)
	defer done()
	all := true
	for i := len(parts) - 1; i >= 0; i-- {
		if err := b.one.Release(ctx, now, parts[i]); err != nil && !lostOne(err) {
			all = false
		} else {
			parts[i].Value, parts[i].Or = "", nil
		}
	}
	return all
}

// cleanup is the context of what must be done although ctx has ended: the Locker's
// Options.Cleanup bounds it.
func cleanup(ctx context.Context) (context.Context, func()) {
	return cleaning.Of(ctx, alone).Begin(ctx)
}

// alone cleans up where no Locker is, in the default of its Options.Cleanup.
var alone = cleaning.New(clock.New(), 250*time.Millisecond, compat.ErrTimeout)
