package compat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/handle"
	"github.com/setnxlock/setnxlock/compat/internal/lease"
)

// A Handle names a lock to another process: the key as it stands on the
// server, prefix included, and the token that proves whose it is.
type Handle struct {
	Key   string
	Token string
}

// String is the handle in letters, digits, '.', '-' and '_', so that any shell takes it as an
// argument or a variable. [Handle.UnmarshalText] reads it.
func (h Handle) String() string { return handle.Encode(h.Key, h.Token) }

// MarshalText is String.
func (h Handle) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what [Handle.String] wrote. It returns [ErrInvalid] for anything else, also
// for a handle that was cut or mistyped.
func (h *Handle) UnmarshalText(s []byte) error {
	key, token, ok := handle.Decode(string(s))
	if !ok {
		return fmt.Errorf("%w: %.20q is not a handle of a lock, or not all of one", ErrInvalid, s)
	}
	*h = Handle{Key: key, Token: token}
	return nil
}

func (l *held) Detach(ctx context.Context) (Handle, error) {
	if err := l.begin(ctx); err != nil {
		return Handle{}, err
	}
	defer l.end()
	for try := 1; ; try++ {
		le := l.current()
		switch l.on(lease.Event{Kind: lease.Detach, At: l.k.now()}, le) {
		case lease.OK:
			l.k.queues.Gone(&l.place)
			return Handle{Key: l.lease.Key, Token: l.current().Value}, nil
		case lease.Over:
			return Handle{}, l.over()
		}
		if try == 2 {
			return Handle{}, &UnknownError{Lease: le.Lease, Err: errLate}
		}
		if _, err := l.k.read(ctx, l); err != nil {
			return Handle{}, err
		}
	}
}

var errLate = errors.New("setnxlock: an extension that was sent may still arrive; extend once more")

// AdoptHandle is Adopt of the lock that h names.
func (k *Locker) AdoptHandle(ctx context.Context, h Handle, ttl time.Duration) (*Lock, error) {
	start := k.o.Clock.Now()
	if err := k.names(h, ttl); err != nil {
		return nil, err
	}
	return forUser(k.adopt(ctx, h.Key, h.Token, ttl, start))
}

// ReleaseHandle is ReleaseToken of the lock that h names.
func (k *Locker) ReleaseHandle(ctx context.Context, h Handle) error {
	if err := k.names(h, time.Second); err != nil {
		return err
	}
	return k.releaseToken(ctx, h.Key, h.Token)
}

// names checks that h names a lock of this Locker's.
func (k *Locker) names(h Handle, ttl time.Duration) error {
	key, ok := strings.CutPrefix(h.Key, k.o.Prefix)
	if !ok {
		return fmt.Errorf("%w: the handle is of %q, which does not begin with %q", ErrInvalid, h.Key, k.o.Prefix)
	}
	_, err := k.valid(key, ttl)
	return err
}
