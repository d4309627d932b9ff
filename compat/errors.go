package compat

import (
	"errors"

	"github.com/setnxlock/setnxlock/compat/internal/queue"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Errors of a Locker's own. Test for them, and for those below, with errors.Is; the types carry the details.
var (
	// ErrReleased means that we have released the lock already. There is nothing to do.
	ErrReleased = errors.New("setnxlock: released already")

	// ErrHandedOff means that the lock belongs to its next holder in this process.
	ErrHandedOff = errors.New("setnxlock: handed off")

	// ErrDetached means that the lock has left this process: Locker.Adopt takes it up.
	ErrDetached = errors.New("setnxlock: detached")

	// ErrClosed means that the Locker was closed.
	ErrClosed = queue.ErrClosed
)

// Errors of a step. Package protocol says what each means.
var (
	ErrHeld         = protocol.ErrHeld
	ErrLost         = protocol.ErrLost
	ErrForeign      = protocol.ErrForeign
	ErrUnsafeServer = protocol.ErrUnsafeServer
	ErrDenied       = protocol.ErrDenied
	ErrUnknown      = protocol.ErrUnknown
	ErrTimeout      = protocol.ErrTimeout
	ErrElection     = protocol.ErrElection
	ErrAborted      = protocol.ErrAborted
	ErrUnanswered   = protocol.ErrUnanswered
	ErrInvalid      = protocol.ErrInvalid
)

// The errors that carry details, and what Inspect returns.
type (
	HeldError         = protocol.HeldError
	LostError         = protocol.LostError
	UnsafeServerError = protocol.UnsafeServerError
	DeniedError       = protocol.DeniedError
	UnknownError      = protocol.UnknownError

	State  = protocol.State
	Holder = protocol.Holder
	Status = protocol.Status
	Lease  = protocol.Lease
)

// The values of State.Status, and of State.TTL without a TTL.
const (
	StatusFree       = protocol.StatusFree
	StatusHeld       = protocol.StatusHeld
	StatusDead       = protocol.StatusDead
	StatusPersistent = protocol.StatusPersistent
	StatusForeign    = protocol.StatusForeign
	NoTTL            = protocol.NoTTL
)

// ranOut returns the error of a release that came too late.
func ranOut(key string) error {
	return &LostError{Key: key, Err: errors.New("its time had run out before it was released")}
}

// cause takes the reason out of an UnknownError, so that the next error does not say "unknown" twice.
func cause(err error) error {
	var u *UnknownError
	if errors.As(err, &u) && err == error(u) {
		return u.Err
	}
	return err
}

// onPanic runs f, and undo as well if f panics.
func onPanic(f, undo func()) {
	panics := true
	defer func() {
		if panics && undo != nil {
			undo()
		}
	}()
	f()
	panics = false
}
