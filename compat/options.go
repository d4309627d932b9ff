package compat

import (
	"time"

	"github.com/benbjohnson/clock"
)

// Options are a Locker's. The zero value is ready to use.
type Options struct {
	// Clock tells the time, and runs the timers of leases, waits and renewals, and of the limits of
	// calls that can be cancelled. The limits of connections go by the real clock. nil: clock.New().
	// Tests can pass a [*clock.Mock].
	Clock clock.Clock

	// Prefix is put before every key. Default: none.
	Prefix string

	// NoRenew gives every lock a fixed lease, which ends after its ttl. Default: what Lock, TryLock, Do and Adopt return is
	// renewed when a third of its ttl has passed, until Release, Handoff, Detach, Close, a loss, or the end of Do, also
	// while Do's function works on after its context has ended. The ttl is then how long a dead process keeps others out;
	// a holder that hangs keeps them out until it ends. A lock that can't be extended is held for its ttl.
	NoRenew bool

	// Hold keeps every lock from others for at least that long after it was taken, for work that must be done once in
	// that time: jobs that many machines start by their own clocks, which differ. The lease is Hold at first, if the
	// ttl is shorter, so it outlasts a process that dies. Release before Hold has passed leaves the lock to its lease:
	// it says whether the lock was still ours, hands it to nobody, and removes nothing. So do Close and the end of Do.
	// With getsetlock a client whose clock is ahead sees the hold end sooner, and the key, which has no TTL, stays
	// until a client takes it over. Default: 0, none.
	Hold time.Duration

	// Poll bounds the pause between two looks at a held key, for a waiter that no release can wake. A pause begins at
	// a fiftieth of Poll and doubles with each look. At a key that changes hands, the waiting processes together look
	// so often that one of them notices a release after a fiftieth of Poll on average: the more they are, the less
	// often each looks. Each pause is shortened by up to half at random, and never goes past the moment at which the
	// lease on the server is known to end. A waiter that a release will wake looks once in each Poll; where more than
	// 16 wait, less often. Default: 500 ms.
	Poll time.Duration

	// Timeout bounds each step as a whole, whatever its context, the pool, its Dial and the server
	// do; waiting for a connection is part of the step. One attempt is a step, and so is one
	// extension, one release and one look at the key; a call may take several. A step of a set covers
	// all its keys, a step of a quorum all its servers. No step may take longer than its ttl either.
	// A step that reaches one of these limits ends with [ErrTimeout]. Default: 5 s.
	Timeout time.Duration

	// Cleanup bounds the work after a context has ended: releasing what a cancelled Lock may have
	// taken, and a Release whose context is done. All steps of a call share it, and so do the keys of
	// a set, in equal parts: every call returns at most that long after its context has ended, even
	// if no server answers. Default: 250 ms.
	Cleanup time.Duration

	// Observer sees everything that happens. Default: none.
	Observer Observer

	// Rand returns the random numbers, from 0 up to but not including 1, that shorten the pauses.
	// nil: math/rand/v2.
	Rand func() float64
}

// least returns the shortest pause between two looks.
func (o *Options) least() time.Duration { return max(o.Poll/50, 1) }
