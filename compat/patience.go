package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/oneline"
)

// elects reports whether another server may take the place of the silent one.
func (w *wait) elects(err error) bool {
	return errors.Is(err, ErrElection) || errors.Is(err, ErrTimeout) && w.k.abilities.Epoch != nil
}

// waitedOut reports whether err must come for a whole ttl before it ends a wait.
func (w *wait) waitedOut(err error) bool {
	return !errors.Is(err, ErrUnknown) && answer.Passes(err) || w.elects(err)
}

// concerns returns the longest ttl of a wait that err would have ended too, had it begun when the server last
// answered. The waits behind this one with such a ttl need not ask. A short ttl of this one proves nothing to the
// others.
func (w *wait) concerns(err error) time.Duration {
	silent := w.k.now().Sub(w.asked)
	if silent >= w.k.o.Timeout && !w.waitedOut(err) {
		return math.MaxInt64 // the limit of a first attempt, whatever the ttl
	}
	return silent
}

// failing reports whether the server has not answered for a whole ttl.
func (w *wait) failing(err error) bool {
	now := w.k.now()
	if w.failed.IsZero() {
		w.failed = now
	}
	return now.Sub(w.failed) >= w.ttl
}

// gaveUp returns the error of a wait after its context ended it. The error never is ErrHeld: the caller gave up,
// whatever the key holds. It includes an outcome that stayed unknown.
func (w *wait) gaveUp(ctx context.Context, err error) error {
	if ctx.Err() == nil { // a connection noticed first; a caller who asks the context is to hear the same
		select {
		case <-ctx.Done():
		case <-limit.After(w.k.o.Cleanup):
		}
	}
	why := cmp.Or(ctx.Err(), context.DeadlineExceeded)
	var u *UnknownError
	if errors.As(err, &u) {
		return fmt.Errorf("setnxlock: waiting for %q: %w", w.key, oneline.Join(why, u))
	}
	if w.held != nil {
		return gaveUp{fmt.Errorf("setnxlock: waiting for %q: %w (last seen: %v)", w.key, why, w.held), w.held}
	}
	return fmt.Errorf("setnxlock: waiting for %q: %w", w.key, why)
}

// A gaveUp error shows errors.As the [*HeldError] that was seen last, and is not ErrHeld: the caller gave up, whatever
// the key holds.
type gaveUp struct {
	error
	held *HeldError
}

func (e gaveUp) Unwrap() error { return e.error }

func (e gaveUp) As(target any) bool { return errors.As(e.held, target) }
