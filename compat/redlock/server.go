package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// A server is one of the quorum's. Its steps settle by reading what a lost
// reply left unknown, as a Locker does for a lock on one server: the quorum's own
// value can't be read, but each part can.
type server struct {
	compat.Backend
	name string
	late atomic.Int32 // steps that nobody waits for any more
}

// take asks for one part. If the reply was lost the key tells whether it is
// ours; extending it proves that, and gives it its TTL if the connection broke
// before that was sent. If it is free, it is asked for once more: an idle connection
// that the server had closed must not cost its vote.
func (s *server) take(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	for try := 1; ; try++ {
		l, err := s.Acquire(ctx, now, key, ttl)
		if !open(err) || l.Ambiguous || ctx.Err() != nil {
			return l, err
		}
		st, readErr := s.Inspect(ctx, now, key)
		switch {
		case readErr != nil:
			return l, err
		case st.Holds(l.Value):
			next, extErr := s.Extend(ctx, now, l, ttl)
			if extErr == nil {
				next.How = compat.Resolved
				return next, nil
			}
			if next.Value != l.Value { // the extension may have run for all that
				s.giveBack(ctx, now, next) //nolint:errcheck // l is given back too, and that is looked at
			}
			return l, errors.Join(err, extErr)
		case st.Status != compat.StatusFree && st.Status != compat.StatusDead:
			return l, &compat.HeldError{Key: key, Value: st.Value, Until: st.Until, Foreign: st.Status == compat.StatusForeign}
		case try == 2:
			return l, compat.NotDone(err)
		}
	}
}

// prolong extends our part. An extension whose reply was lost is looked for, and
// asked for once more if it did not run.
func (s *server) prolong(ctx context.Context, now func() time.Time, l compat.Lease, p part, ttl time.Duration) (compat.Lease, error) {
	l, err := s.look(ctx, now, l, p)
	for try := 1; err == nil; try++ {
		next, err := s.Extend(ctx, now, l, ttl)
		if !open(err) || ctx.Err() != nil {
			return next, err
		}
		st, readErr := s.Inspect(ctx, now, l.Key)
		switch {
		case readErr != nil, try == 2:
			return next, err
		case st.Holds(next.Value) && next.Value != l.Value:
			return next, nil
		case !st.Holds(l.Value):
			return l, compat.ErrLost
		}
	}
	return l, err
}

// drop releases our part.
func (s *server) drop(ctx context.Context, now func() time.Time, l compat.Lease, p part) error {
	l, err := s.look(ctx, now, l, p)
	if err != nil {
		return err
	}
	return s.giveBack(ctx, now, l)
}

// giveBack releases l, and once more if the key still holds it after a reply
// that was lost: the release compares. With a value that another client may
// write too it is not repeated.
func (s *server) giveBack(ctx context.Context, now func() time.Time, l compat.Lease) error {
	inTime := now().Before(l.Until)
	for try := 1; ; try++ {
		err := s.Release(ctx, now, l)
		if !open(err) || l.Ambiguous || try == 2 || ctx.Err() != nil {
			return err
		}
		st, readErr := s.Inspect(ctx, now, l.Key)
		switch {
		case readErr != nil:
			return err
		case !st.Holds(l.Value) && inTime:
			return nil // it got through
		case !st.Holds(l.Value):
			return compat.ErrLost
		}
	}
}

// look finds out which of a doubtful part's values the key holds, and until
// when: it may not have been taken or extended when the others were. l is the
// part's lease if it followed them.
func (s *server) look(ctx context.Context, now func() time.Time, l compat.Lease, p part) (compat.Lease, error) {
	if !p.doubt {
		return l, nil
	}
	st, err := s.Inspect(ctx, now, l.Key)
	if err != nil {
		why, _ := compat.Settled(err)
		return l, compat.NotDone(why)
	}
	value, until := p.in(st)
	if value == "" {
		return l, compat.ErrLost
	}
	l.Value = value
	if !until.IsZero() {
		l.Until = until
	}
	return l, nil
}

// open reports that err leaves it open whether the step was done.
func open(err error) bool {
	_, known := compat.Settled(err)
	return err != nil && !known
}

func isLost(err error) bool { return errors.Is(err, compat.ErrLost) }

// gone reports that after a release that ended with err nothing of ours is left.
func gone(err error) bool { return err == nil || isLost(err) }

// mayHold reports that a server on which an acquisition of part ended with err
// may hold it, and that a release can tell. With a value that others may write
// too it can't: that is left to its end.
func mayHold(part compat.Lease, err error) bool {
	return part.Value != "" && (err == nil || open(err) && !part.Ambiguous)
}

var errSlow = errors.New("setnxlock: no answer in time")

// tooSlow says of a step whose time was up that it was, and not that somebody
// cancelled it.
func tooSlow(err error) error {
	if err == nil || !errors.Is(err, context.Canceled) || errors.Is(err, errSlow) {
		return err
	}
	why, known := compat.Settled(err)
	err = fmt.Errorf("%w (%v)", errSlow, why)
	if known {
		err = compat.NotDone(err)
	}
	return err
}
