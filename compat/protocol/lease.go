package protocol

import (
	"slices"
	"time"
)

// A Lease says that we hold Key until Until, by our own clock.
type Lease struct {
	Key   string
	Value string    // the exact bytes on the key; Extend and Release compare with them
	Until time.Time // counted from a moment before the request was sent, less a margin for drift
	Fence int64     // grows with every acquisition of the key; 0 if not asked for
	How   How       // how the lease was obtained

	// Ambiguous says that Value on the key does not prove the lease ours: another client can write the
	// same bytes, or a losing attempt of ours can leave them behind. The engine then never resolves an
	// unknown outcome by reading, and does not repeat a release of unknown outcome.
	Ambiguous bool

	_ struct{} // no positional literals
}

// How says how a lease was obtained.
type How string

const (
	Free      How = "free"       // no client held the key
	TakenOver How = "taken over" // the last holder's lease had run out
	Resolved  How = "resolved"   // the reply was lost, and the key was found to be ours
	Adopted   How = "adopted"    // by a handle or a token
	HandedOff How = "handed off" // from the holder before, in this process, without a release on the server
)

// A State describes a lock as its key shows it to a reader.
type State struct {
	Key    string
	Value  string
	Status Status
	Format string        // the format of the value: "token", "float seconds", …
	Until  time.Time     // when the lease ends, by our clock; zero if there is no end or it can't be read
	Clock  string        // the clock that decides: "server" (a TTL) or "clients" (a timestamp)
	TTL    time.Duration // the key's TTL, or NoTTL
	Watch  time.Duration // how long the value must stay unchanged before a repair, whatever Until says; 0: a ttl, if Status is persistent

	// Holders lists all holders, if a lock can have several (readers). Value and Until are then those
	// of the holder that keeps others out longest.
	Holders []Holder

	// Ambiguous says that Value proves no lease, as in [Lease].
	Ambiguous bool

	// Open says that an attempt makes sense although the key is held: a reader can join readers, and a
	// waiting writer must renew its ticket.
	Open bool

	_ struct{}
}

// A Holder describes one of several clients that hold a key.
type Holder struct {
	Value string
	Until time.Time // by our clock; zero if it is not known
}

// Holds reports whether value is on the key. The lease may have ended.
func (s State) Holds(value string) bool {
	if s.Status == StatusFree {
		return false
	}
	return s.Value == value || slices.ContainsFunc(s.Holders, func(h Holder) bool { return h.Value == value })
}

// End returns the latest end of value's lease by our clock, or zero if the end is not known. Until may be up to
// a second earlier: a server that counts the TTL in seconds rounds it down.
func (s State) End(value string) time.Time {
	end := s.Until
	for _, h := range s.Holders {
		if h.Value == value {
			end = h.Until
			break
		}
	}
	if s.Clock == "server" && s.TTL != NoTTL && !end.IsZero() {
		end = end.Add(time.Second)
	}
	return end
}

// Status says whether the key is free for an attempt.
type Status string

const (
	StatusFree       Status = "free"       // there is no such key
	StatusHeld       Status = "held"       // another client holds the key
	StatusDead       Status = "dead"       // the key exists, but its lease has run out
	StatusPersistent Status = "persistent" // the key is held, and has no TTL: its holder may be dead
	StatusForeign    Status = "foreign"    // the key can't be read as a lock of this kind

	NoTTL time.Duration = -1 // the TTL of a key that never expires
)

// Until returns the end of a lease of ttl that is asked for at now, by the clock of now. The holder must have
// stopped before that end. It is now + ttl, less a hundredth of the ttl and two milliseconds: for clocks that
// run at different rates and timers that fire late. (The figures are Redlock's.)
func Until(now time.Time, ttl time.Duration) time.Time {
	return now.Add(ttl - ttl/100 - 2*time.Millisecond) // lease.Until has the same
}
