package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A server is one of the quorum's. Its Backend settles by reading what a lost reply left
// unknown (compat.Settled), as a Locker does for a lock on one server: the quorum's own value
// can't be read, but each part can.
type server struct {
	compat.Backend
	name  string
	late  atomic.Int32          // steps that nobody waits for any more, and that do not end
	lags  atomic.Bool           // it did not answer in time, the last time
	unfit atomic.Pointer[error] // why it can't be part of the quorum, when it last answered
}

// vote asks for one part, and remembers if the server can vote.
func (s *server) vote(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (compat.Grant, error) {
	l, err := s.Acquire(ctx, now, key, ttl)
	switch {
	case errors.Is(err, compat.ErrUnsafeServer), errors.Is(err, compat.ErrInvalid):
		s.unfit.Store(&err)
	case err == nil, errors.Is(err, compat.ErrHeld):
		s.unfit.Store(nil)
	}
	return l, err
}

// prolong extends our part. One that is in doubt gets a new value, so that what was sent to it
// before has no effect any more.
func (s *server) prolong(ctx context.Context, now func() time.Time, l compat.Grant, p part, ttl time.Duration) (compat.Grant, error) {
	l, err := s.look(ctx, now, l, p)
	if err != nil {
		return l, err
	}
	l.Rotate = l.Rotate || p.doubt
	return s.Extend(ctx, now, l, ttl)
}

// drop releases our part.
func (s *server) drop(ctx context.Context, now func() time.Time, l compat.Grant, p part) error {
	l, err := s.look(ctx, now, l, p)
	if err != nil {
		return err
	}
	return s.Release(ctx, now, l)
}

// look reads the value and the end of a part in doubt: it may not have been taken or extended when the others were. l
// is the part's lease if it followed them.
func (s *server) look(ctx context.Context, now func() time.Time, l compat.Grant, p part) (compat.Grant, error) {
	if !p.doubt {
		return l, nil
	}
	st, err := s.Inspect(ctx, now, l.Key)
	if err != nil {
		return l, protocol.NotSent.Mark(unmarked(err))
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

// open reports whether err leaves the outcome of a step unknown.
func open(err error) bool { return protocol.OutcomeOf(err) == protocol.Unknown }

func isLost(err error) bool { return errors.Is(err, compat.ErrLost) }

// gone reports whether nothing of ours is left after a release with this error.
func gone(err error) bool { return err == nil || isLost(err) }

// mayHold reports whether a server may hold part after an acquisition with this error, in a way for a release to tell.
// A release can't tell a value that others may write too: that is left to its end.
func mayHold(part compat.Grant, err error) bool {
	return part.Value != "" && (err == nil || open(err) && !part.Ambiguous)
}

// tooSlow replaces a cancellation by ErrTimeout: the step's time was up, and nobody cancelled it.
func tooSlow(err error) error {
	if err == nil || !errors.Is(err, context.Canceled) || errors.Is(err, compat.ErrTimeout) {
		return err
	}
	slow := fmt.Errorf("%w (%v)", compat.ErrTimeout, err)
	if protocol.OutcomeOf(err) == protocol.NotSent {
		return protocol.NotSent.Mark(slow)
	}
	return slow
}
