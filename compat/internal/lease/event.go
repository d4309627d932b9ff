package lease

import (
	"time"
)

// Cause explains the end of a lock.
type Cause uint8

const (
	None      Cause = iota // the lock has not ended
	Released               // the holder released it
	Lost                   // the lease ran out, or the key holds another value
	HandedOff              // another holder in this process took it
	Detached               // another process may take it
)

// Verdict answers an event.
type Verdict uint8

const (
	OK    Verdict = iota // go on
	Read                 // the key may hold one of several values: read it first
	Doubt                // too many outcomes are unknown: send nothing more
	Over                 // the lock has ended: Cause gives the reason
)

// Kind names an event.
type Kind uint8

const (
	// Ask: an operation under the lease is about to begin. Any verdict.
	Ask Kind = iota
	// Send: an extension to Claim.TTL is about to be sent. Follows an Ask with verdict OK.
	Send
	// Done: the server extended the lease to Claim. Final says that no earlier extension can take
	// effect any more.
	Done
	// Refused: the server answered, and changed nothing. The lock may still be ours.
	Refused
	// NotSent: nothing was sent.
	NotSent
	// Unknown: the extension to Claim may have run, or may still run.
	Unknown
	// NotOurs: the server answered that the key does not hold the value in the request.
	NotOurs
	// Found: the key was read and holds Claim.Value; "" means that the key is gone.
	Found
	// Tick: time has passed.
	Tick
	// Postpone: the renewal is due, and another operation is under way.
	Postpone

	// Release: the holder releases the lock. Verdict OK: send the release, for each Value.
	Release
	// ReleaseDone: the server removed the key.
	ReleaseDone
	// ReleaseNotOurs: the key held no value of ours.
	ReleaseNotOurs
	// ReleaseUnknown: the server may have removed the key.
	ReleaseUnknown
	// ReleaseNotSent: nothing was sent, and the key was not removed.
	ReleaseNotSent

	// Disclose: code outside the engine has learned the value.
	Disclose
	// Handoff: the lock becomes Claim for another holder, after an extension with outcome Done, or without one.
	// Verdict Read: this value or this fence can't be handed off; extend first, with new ones.
	Handoff
	// Pass: the release passes the lock to the next holder in this process. The next holder must extend the
	// lease before relying on it, with a new value unless Undisclosed.
	Pass
	// Detach: the lock leaves the process with its value.
	Detach

	// Forsake: no code can reach the lock any more. Renewals stop, and the lock ends with its lease.
	Forsake
)

// An Event tells the State what happened to its lock, at a moment of the Locker's clock.
type Event struct {
	Kind  Kind
	At    time.Time
	Claim Claim
	Final bool
	Kept  bool // the claim's value may have a part of the value held before
}

// A term is the end of a lease of TTL.
type term struct {
	Until time.Time
	TTL   time.Duration
}
