package lease

import (
	"time"
)

// Cause is why a lock has ended.
type Cause uint8

const (
	None      Cause = iota // it has not
	Released               // by its holder
	Lost                   // ran out, or the key is somebody else's
	HandedOff              // to another holder in this process
	Detached               // to another process
)

// Verdict is the answer to an event.
type Verdict uint8

const (
	OK    Verdict = iota // go on
	Read                 // the key may hold one of several values: read it first
	Doubt                // too many outcomes are unknown: nothing more may be asked
	Over                 // the lock has ended: Cause says why
)

// Kind says what happened.
type Kind uint8

const (
	// Ask: an operation that needs the lease is about to begin. Any verdict.
	Ask Kind = iota
	// Send: an extension to Claim.TTL is about to be sent. Follows an Ask with verdict OK.
	Send
	// Done: the server extended; Claim is what the key holds. Final says that no extension
	// sent before it can take effect any more.
	Done
	// Refused: the server answered, and changed nothing. The lock may still be ours.
	Refused
	// NotSent: nothing was sent.
	NotSent
	// Unknown: the extension may have run, or may still run; Claim is what it asked for.
	Unknown
	// NotOurs: the server answered that the key does not hold the value it was asked with.
	NotOurs
	// Found: the key was read and holds Claim.Value; "" for a key that is gone.
	Found
	// Tick: time has passed.
	Tick
	// Postpone: the renewal is due, and something else is under way.
	Postpone

	// Release: the holder gives the lock up. Verdict OK: send it, for each Value.
	Release
	// ReleaseDone: the server removed the key.
	ReleaseDone
	// ReleaseNotOurs: no value of ours was on it.
	ReleaseNotOurs
	// ReleaseUnknown: it may have been removed. ReleaseNotSent: it was not.
	ReleaseUnknown
	ReleaseNotSent

	// Disclose: somebody outside the engine has learned the value.
	Disclose
	// Handoff: the lock becomes Claim, another holder's, by an extension that was Done, or as
	// it is. Verdict Read: not with this value and this fence; extend first, with new ones.
	Handoff
	// Pass: its release passes the lock to the next holder in this process, which has to
	// extend it before it may be believed, with a new value unless Secret.
	Pass
	// Detach: the lock leaves the process with its value.
	Detach

	// Forsake: nobody can reach the lock any more. It is not renewed, and ends with its lease.
	Forsake
)

// An Event is one thing that happened to a lock, at a moment of its Locker's clock.
type Event struct {
	Kind  Kind
	At    time.Time
	Claim Claim
	Final bool
	Kept  bool // a part of the claim's value may be one that was held before
}

// A term is the end of a lease of TTL.
type term struct {
	Until time.Time
	TTL   time.Duration
}
