package rwlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

var (
	// ErrUpgrade means that a client that reads asked to write: it would wait for itself, and
	// two that did so for each other, for ever. Nothing was done. Release the read lock first,
	// and look again at what was read under it once the write lock is there. It is known by
	// Options.Client, or because a reader's lock was given to a Write to adopt.
	ErrUpgrade = fmt.Errorf("%w: a reader can't become the writer, because two readers that both waited for that would wait for each other for ever: release the read lock first", compat.ErrInvalid)

	// ErrDowngrade means that the client that writes asked to read, and would wait for itself.
	// Downgrade is the way.
	ErrDowngrade = fmt.Errorf("%w: the client that would read is the writer, and would wait for itself: use rwlock.Downgrade, or release the write lock first", compat.ErrInvalid)
)

// Downgrade makes a reader of a writer, without a moment in between in which another writer could
// come in: what was written is what the reader reads. lock is of a Locker of Write, readers one of
// Read on the same keys; the reader's lease ends ttl from now, and it has a fence of its own if
// they draw them. Readers that wait go in beside it.
//
// lock is over as soon as Downgrade has begun, whatever comes of it: its context ends with cause
// ErrDetached, for what the writer may not have known is that it became a reader. On an error
// nothing is held; what may be left on the server was released, or ends with its lease. ErrLost:
// the writer had lost its lock. If ctx has ended before, or if lock can't be detached, lock is
// what it was.
//
// There is no way back: see ErrUpgrade.
func Downgrade(ctx context.Context, lock *compat.Lock, readers *compat.Locker, ttl time.Duration) (*compat.Lock, error) {
	if !strings.HasPrefix(lock.Token(), writer) {
		return nil, fmt.Errorf("%w: %q is not held by a writer of this package", compat.ErrInvalid, lock.Key())
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h, err := lock.Detach(ctx)
	if err != nil {
		return nil, err
	}
	l, err := readers.AdoptHandle(ctx, h, ttl)
	if err != nil && !errors.Is(err, compat.ErrLost) {
		ctx, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		readers.ReleaseHandle(ctx, h) //nolint:errcheck // it may have become the other
		var unknown *compat.UnknownError
		if errors.As(err, &unknown) {
			h.Token = unknown.Lease.Value
			readers.ReleaseHandle(ctx, h) //nolint:errcheck // it may never have been
		}
	}
	return l, err
}
