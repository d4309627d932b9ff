package rwlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

var (
	// ErrUpgrade means that a reader asked for the write lock, or that a Write was given a reader's
	// lock to adopt. It would wait for itself, and two such readers for each other, for ever.
	// Nothing was done. Release the read lock first, and under the write lock read again what you
	// had read. A reader that asks is recognised only if it sets Options.Client.
	ErrUpgrade = fmt.Errorf("%w: a reader can't become the writer, because two readers that both waited for that would wait for each other for ever: release the read lock first", protocol.ErrInvalid)

	// ErrDowngrade means that the writer asked for a read lock, and would wait for itself. Use
	// [Downgrade]. A writer that asks is recognised only if it sets Options.Client.
	ErrDowngrade = fmt.Errorf("%w: the client that would read is the writer, and would wait for itself: use rwlock.Downgrade, or release the write lock first", protocol.ErrInvalid)
)

// Downgrade turns a writer into a reader, with no moment for another writer to take the lock: the reader reads what the
// writer wrote. lock comes from a Locker of [Write]; readers is a Locker of [Read] on the same keys. The reader's lease
// ends ttl from now, and it has a new fence if they draw them. Waiting readers go in beside it.
//
// As soon as Downgrade begins, lock is over, whatever the result: its context ends with cause
// [compat.ErrDetached], because work under it might still write. On an error nothing is held: what
// was on the server has been released, or ends with its lease. [protocol.ErrLost] means that the
// writer had lost its lock. Only if ctx had already ended, or if lock can't be detached, lock stays
// as it was.
//
// A reader can't become a writer: see [ErrUpgrade].
func Downgrade(ctx context.Context, lock *compat.Lock, readers *compat.Locker, ttl time.Duration) (*compat.Lock, error) {
	separates := func(r rune) bool { return strings.ContainsRune("*~^!|,", r) }
	parts := strings.FieldsFunc(lock.Token(), separates) // of a quorum, or a set
	if !slices.ContainsFunc(parts, func(part string) bool { return strings.HasPrefix(part, writer) }) {
		return nil, fmt.Errorf("%w: %q is not held by a writer of this package", protocol.ErrInvalid, lock.Key())
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h, err := lock.Detach(ctx)
	if err != nil {
		return nil, err
	}
	l, err := readers.AdoptHandle(ctx, h, ttl)
	if err != nil && !errors.Is(err, protocol.ErrLost) {
		ctx, done := cleaning.Group(ctx)
		defer done()
		readers.ReleaseHandle(ctx, h) //nolint:errcheck // it may have become the other
		var unknown *protocol.UnknownError
		if errors.As(err, &unknown) {
			h.Token = unknown.Lease.Value
			readers.ReleaseHandle(ctx, h) //nolint:errcheck // it may never have been
		}
	}
	return l, err
}
