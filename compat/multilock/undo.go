package multilock

import (
	"context"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// take takes one key. With an error comes the lease that may stand for all that, or one without
// a value.
func (b *inTurn) take(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (compat.Grant, error) {
	l, err := b.one.Acquire(ctx, now, key, ttl)
	switch protocol.OutcomeOf(err) {
	case protocol.Done:
		b.ambiguous.Store(l.Ambiguous)
	case protocol.Refused, protocol.NotSent:
		l = compat.Grant{Lease: protocol.Lease{Key: key}}
	}
	return l, err
}

// giveUp releases the first n parts of a set, and the next one if it may be ours, and returns why. If anything may be
// left, it returns a lease of that.
func (b *inTurn) giveUp(ctx context.Context, now func() time.Time, key string, parts []compat.Grant, n int, why error) (compat.Grant, error) {
	next := n < len(parts) && parts[n].Value != ""
	keys := n
	if next && !parts[n].Ambiguous {
		keys++
	}
	rest := &shares{ctx: ctx, n: keys}
	defer rest.done()
	left := !b.undone(rest, now, parts[:n])
	if next && (parts[n].Ambiguous || !b.undone(rest, now, parts[n:n+1])) {
		left = true
	}
	switch {
	case left:
		return joined(key, parts), inPart{why}
	case protocol.OutcomeOf(why) == protocol.Unknown:
		why = protocol.NotSent.Mark(why)
	}
	return compat.Grant{Lease: protocol.Lease{Key: key}}, why
}

// undone releases parts, the last one first, and reports whether all are gone. It takes their values from those.
func (b *inTurn) undone(rest *shares, now func() time.Time, parts []compat.Grant) bool {
	all := true
	for i := len(parts) - 1; i >= 0; i-- {
		step, done := rest.of(i + 1)
		err := b.one.Release(step, now, parts[i])
		if done(); err != nil && !lostOne(err) {
			all = false
		} else {
			parts[i].Value, parts[i].OtherValues = "", nil
		}
	}
	return all
}

// shares are the contexts in which a set's keys are released in turn: the caller's own, and when that
// has ended, or is a cleanup already, equal shares of the cleanup.
type shares struct {
	ctx context.Context
	n   int // of the cleanup; 0: as many as there are keys left when it begins
	end func()
}

// of returns the context of the next key, with so many left. If n is set, the cleanup begins with the first of them.
func (s *shares) of(left int) (context.Context, func()) {
	if s.end == nil && (s.n > 0 || limit.Over(s.ctx) != nil || cleaning.Late(s.ctx)) {
		s.ctx, s.end = cleanup(s.ctx)
		s.n = max(s.n, left)
	}
	return limit.Share(s.ctx, max(s.n, 1))
}

func (s *shares) done() {
	if s.end != nil {
		s.end()
	}
}

// cleanup returns a context for work to be done although ctx has ended: the Locker's Options.Cleanup bounds it. Each
// key has its share, so that one whose server does not answer leaves the others theirs.
func cleanup(ctx context.Context) (context.Context, func()) {
	return cleaning.Of(ctx, cleaning.Alone).After(ctx)
}
