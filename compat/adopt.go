package compat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Adopt takes up a lock that another process or goroutine has detached, or held when it died: token
// is its [Lock.Token] at that moment. It extends the lease to ttl, which proves that it is ours,
// draws a new fence if the algorithm has them, and puts a new token on the key if the algorithm can
// (Traits.Rotates): any other client that has seen token, a second adopter or the former holder,
// then gets [ErrLost]. It returns ErrLost if the key no longer holds token. After an [ErrUnknown]
// the key may hold the new value of the extension: adopt with the [UnknownError]'s Lease.Value and,
// if that is ErrLost, with token. A former holder that is still alive must not use the lock again.
func (k *Locker) Adopt(ctx context.Context, key, token string, ttl time.Duration) (*Lock, error) {
	start := k.now()
	key, err := k.valid(key, ttl)
	if err != nil {
		return nil, err
	}
	return forUser(k.adopt(ctx, key, token, ttl, start))
}

// adopt adopts a key with its prefix. It asks once more if the lease ran out before the server's answer, or the
// clock was set ahead meanwhile: either tells nothing of a key in which nobody here had believed yet.
func (k *Locker) adopt(ctx context.Context, key, token string, ttl time.Duration, start time.Time) (*held, error) {
	if !k.jobs.Enter() {
		return nil, ErrClosed
	}
	defer k.jobs.Leave()
	for again := false; ; again = true {
		h, err := k.find(ctx, key, token, ttl)
		if err != nil {
			return nil, err
		}
		next, err := k.extend(ctx, h, extension{ttl: k.term(ttl), rotate: k.abilities.Rotates, redraw: true})
		switch {
		case err == nil:
			h.lease.How = protocol.Adopted
			return k.hold(ctx, false, h.current(), ttl, !k.o.NoRenew, start, 1)
		case errors.Is(err, ErrLost) && !again && ctx.Err() == nil:
		case protocol.OutcomeOf(err) == protocol.Unknown:
			return nil, &UnknownError{Lease: next.Lease, Err: cause(err)}
		default:
			if lost := (*LostError)(nil); errors.As(err, &lost) && protocol.OutcomeOf(lost.Err) == protocol.Unknown {
				err = &UnknownError{Lease: next.Lease, Err: lost.Err} // its time ran out, and nobody has answered
			}
			return nil, err
		}
	}
}

// ReleaseToken releases a lock by its token alone, without a handle: it removes the key if,
// and only if, it holds token. It returns ErrLost if it does not. It works when ctx has already
// ended, within Options.Cleanup.
func (k *Locker) ReleaseToken(ctx context.Context, key, token string) error {
	key, err := k.name(key)
	if err != nil {
		return err
	}
	return k.releaseToken(ctx, key, token)
}

func (k *Locker) releaseToken(ctx context.Context, key, token string) error {
	if !k.jobs.Enter() {
		return ErrClosed
	}
	defer k.jobs.Leave()
	ctx, end := k.jobs.Operation(ctx)
	defer end()
	if ctx.Err() != nil {
		var done func()
		ctx, done = k.cleanup(ctx)
		defer done()
	}
	h, err := k.find(ctx, key, token, k.o.Timeout)
	if err != nil {
		return err
	}
	return k.release(ctx, h)
}

// find returns the lease behind token. A lease without an end is ours until we say otherwise.
func (k *Locker) find(ctx context.Context, key, token string, ttl time.Duration) (*unattached, error) {
	step, done := k.step(ctx, ttl)
	defer done()
	l, err := k.backend.Find(step, k.now, key, token)
	if err != nil {
		return nil, err
	}
	now := k.now()
	if l.Until.IsZero() {
		l.Until = now.Add(max(ttl, k.o.Timeout))
	}
	return newUnattached(l, ttl, now), nil
}

// AdoptHandle adopts the lock of h, as [Locker.Adopt] does by its key and token.
func (k *Locker) AdoptHandle(ctx context.Context, h Handle, ttl time.Duration) (*Lock, error) {
	start := k.now()
	if err := k.names(h, ttl); err != nil {
		return nil, err
	}
	return forUser(k.adopt(ctx, h.Key, h.Token, ttl, start))
}

// ReleaseHandle releases the lock of h, as [Locker.ReleaseToken] does by its key and token.
func (k *Locker) ReleaseHandle(ctx context.Context, h Handle) error {
	if err := k.names(h, time.Second); err != nil {
		return err
	}
	return k.releaseToken(ctx, h.Key, h.Token)
}

// names returns ErrInvalid for the handle of another Locker's prefix, or for a key or ttl out of range.
func (k *Locker) names(h Handle, ttl time.Duration) error {
	key, ok := strings.CutPrefix(h.Key, k.o.Prefix)
	if !ok {
		return fmt.Errorf("%w: the handle is of %q, which does not begin with %q", ErrInvalid, h.Key, k.o.Prefix)
	}
	_, err := k.valid(key, ttl)
	return err
}
