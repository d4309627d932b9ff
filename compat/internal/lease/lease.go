// Package lease decides how long a process may believe in a lock that it holds. Its State is a state machine
// without clock, connection, goroutine or mutex. Every lock of the engine has one State: renewed alone or in a
// batch, pinned, handed off, detached, adopted, on one server or on many. The engine passes each event to the
// State and obeys the Verdict. No other code decides how an outcome changes a lock.
//
// A State keeps five invariants, whatever is lost, late, shortened or cancelled, in any order
// (TestInvariants tries every sequence of events up to a length):
//
//   - Belief ≤ grant: Until is never later than the moment up to which the server is known
//     to keep the key for us. While a request that may shorten the lease is under way, the
//     State believes in the shorter end.
//   - A fence never falls.
//   - A lost lock never comes back: the end of a lock is final. The cause of the end is final too.
//   - A lock is scheduled or has ended: every lock has an end on the schedule.
//   - No client knows a successor's value before the successor does: a disclosed value is never
//     handed off, and a holder forgets the value when it has handed the lock off.
package lease

import (
	"slices"
	"time"
)

// Drift returns the margin taken off a lease of ttl: a hundredth of the ttl and two milliseconds, for clocks
// that run at different rates and timers that fire late. (The figures are Redlock's.)
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Until returns the end of a lease of ttl, asked for at the given moment.
func Until(asked time.Time, ttl time.Duration) time.Time { return asked.Add(ttl - Drift(ttl)) }

// Past reports whether until has come, by the monotonic clock or by the wall clock. The monotonic clock
// stands still while a machine is suspended, and the wall clock can be set: a lease lasts only while both
// clocks agree.
func Past(now, until time.Time) bool {
	return !now.Before(until) || !now.Round(0).Before(until.Round(0))
}

// A Claim describes a lease that the server granted, or may have granted: Value on the key, ours to Until.
type Claim struct {
	Value string
	Until time.Time
	TTL   time.Duration // the requested ttl
	Fence int64         // 0: no fence was taken, or its number was lost
}

// maxUnresolved limits the unresolved extensions of a lock: each may have put another value on the key.
const maxUnresolved = 16

// A State is the state machine of one lock. New makes a State; the zero State is not ready to use.
type State struct {
	held        Claim
	unresolved  []Claim // extensions of unknown outcome: they may have run, or may still run
	sent        term    // of the extension under way; zero: none is under way
	renewAt     time.Time
	renews      bool
	released    bool // a release of unknown outcome was sent
	leaving     bool // the holder has asked for the release
	open        bool // the lock has ended, but a release may still find the key ours
	undisclosed bool // no code outside the engine knows the value
	cause       Cause
}

// New returns the State of a lock with the granted Claim c. With renews, the lock is renewed until it ends.
func New(c Claim, renews bool, now time.Time) State {
	s := State{held: c, renews: renews, undisclosed: true}
	s.renewIn(now, c.TTL/3)
	return s
}

// On changes the State by an event. No other function changes a lock's value, fence or end.
func (s *State) On(e Event) Verdict {
	if s.cause != None && (e.Kind < Release || e.Kind > ReleaseNotSent) {
		if e.Kind == Found && s.open {
			return OK // a release may still find our value
		}
		return Over
	}
	switch e.Kind {
	case Ask:
		return s.ask(e.At)

	case Send:
		if v := s.ask(e.At); v != OK && v != Read { // Read: the key was read, and an outcome is still unknown
			return v
		}
		s.sent = term{Until: Until(e.At, e.Claim.TTL), TTL: e.Claim.TTL}
		s.renewAt = time.Time{} // under way

	case Done:
		s.sent = term{}
		if e.Final {
			s.unresolved = nil
		}
		asked := e.Claim.Until.Add(Drift(e.Claim.TTL) - e.Claim.TTL) // long before e.At, if the reply was slow
		for i, d := range s.unresolved {                             // a late extension runs after this one
			s.unresolved[i].Until = Until(asked, d.TTL)
			if d.Value == s.held.Value { // the late extension changes no value
				s.unresolved[i].Value = e.Claim.Value
			}
		}
		if e.Claim.Value != s.held.Value && !e.Kept {
			s.undisclosed = true
		}
		e.Claim.Fence = max(e.Claim.Fence, s.held.Fence)
		s.held = e.Claim
		s.renewIn(e.At, s.held.TTL/3)
		return s.ask(e.At)

	case Refused, NotSent:
		s.sent = term{}
		s.renewIn(e.At, s.retryIn())

	case Unknown:
		s.sent = term{}
		s.addUnresolved(e.Claim)
		s.renewIn(e.At, s.retryIn())

	case NotOurs:
		if s.otherValue() {
			s.sent = term{}
			s.renewIn(e.At, s.retryIn())
			return Read // the key may hold the value of an unresolved extension
		}
		return s.end(Lost)

	case Found:
		if e.Claim.Value == s.held.Value {
			return OK // the unresolved extensions stay: they may still arrive
		}
		for _, d := range s.unresolved {
			if d.Value == e.Claim.Value && d.Value != "" {
				d.Fence = s.held.Fence // the extension's own fence was lost with its reply
				s.held, s.unresolved, s.undisclosed = d, nil, true
				return OK
			}
		}
		return s.end(Lost)

	case Tick:
		if Past(e.At, s.End()) {
			return s.expire()
		}

	case Postpone:
		s.renewIn(e.At, s.retryIn())

	case Release:
		if !e.At.IsZero() && s.allPast(e.At) { // nothing of ours is left to remove
			if s.cause == None {
				s.cause = Lost
			}
			s.open = false
			return Over
		}
		switch {
		case s.cause == None:
			s.leaving = true
			s.renewAt = time.Time{}
		case !s.open:
			return Over
		}

	case ReleaseDone:
		s.finish(Released)

	case ReleaseNotOurs:
		if s.released { // the earlier release removed the key
			s.finish(Released)
		} else {
			s.finish(Lost)
		}

	case ReleaseUnknown, ReleaseNotSent:
		s.released = s.released || e.Kind == ReleaseUnknown
		if s.cause == None {
			s.cause = Released
		}
		s.open = true

	case Disclose:
		s.undisclosed = false

	case Handoff:
		switch {
		case s.leaving:
			s.sent = term{}
			e.Claim.Fence = max(e.Claim.Fence, s.held.Fence)
			if s.held = e.Claim; e.Final { // the release must find the key's new value
				s.unresolved = nil
			}
			return Over
		case Past(e.At, e.Claim.Until):
			return s.expire()
		case !s.undisclosed && (e.Claim.Value == s.held.Value || e.Kept),
			s.held.Fence > 0 && e.Claim.Fence <= s.held.Fence,
			len(s.unresolved) > 0 && !e.Final:
			return Read
		}
		s.giveAway(HandedOff)

	case Pass:
		if Past(e.At, s.Until()) || len(s.unresolved) > 0 {
			return Read
		}
		s.giveAway(HandedOff)
		s.cause = Released // the holder asked for a release, not for a hand-off

	case Detach:
		if v := s.ask(e.At); v != OK {
			return v
		}
		if len(s.unresolved) > 0 { // an extension may still arrive, and change the next holder's lock
			return Read
		}
		s.giveAway(Detached)

	case Forsake:
		s.renews, s.renewAt = false, time.Time{}
	}
	return OK
}

// allPast reports whether every lease of ours has ended on the server too. The server may count in whole seconds.
func (s *State) allPast(now time.Time) bool {
	ended := func(c Claim) bool { return Past(now, c.Until.Add(Drift(c.TTL)+time.Second)) }
	return ended(s.held) && !slices.ContainsFunc(s.unresolved, func(d Claim) bool { return !ended(d) })
}

// addUnresolved keeps track of an extension of unknown outcome: it may still run. Of extensions with the same
// value, the shortest counts: otherwise a lock that can't change its value would reach maxUnresolved by lost
// replies alone.
func (s *State) addUnresolved(c Claim) {
	for i, d := range s.unresolved {
		if d.Value == c.Value {
			s.unresolved[i].Until, s.unresolved[i].TTL = earlier(d.Until, c.Until), min(d.TTL, c.TTL)
			return
		}
	}
	s.unresolved = append(s.unresolved[:len(s.unresolved):len(s.unresolved)], c)
}

// ask decides whether an operation under the lease may begin.
func (s *State) ask(now time.Time) Verdict {
	switch {
	case s.cause != None || s.leaving:
		return Over
	case Past(now, s.Until()):
		return s.expire()
	case len(s.unresolved) >= maxUnresolved:
		return Doubt
	case s.otherValue():
		return Read
	}
	return OK
}

// otherValue reports whether the key may hold another value of ours than held.Value.
func (s *State) otherValue() bool {
	for _, d := range s.unresolved {
		if d.Value != s.held.Value {
			return true
		}
	}
	return false
}

// expire ends a lock after its time has run out. The key may still exist, for a release.
func (s *State) expire() Verdict {
	if s.open = true; s.leaving { // the release under way may have come in time
		return s.end(Released)
	}
	return s.end(Lost)
}

func (s *State) end(c Cause) Verdict {
	s.cause, s.renewAt = c, time.Time{}
	return Over
}

// finish ends a lock after a release of known outcome.
func (s *State) finish(c Cause) {
	if s.cause == None || s.cause == Released && c == Lost {
		s.cause = c
	}
	s.open = false
}

// giveAway ends a lock and leaves its key to another holder.
func (s *State) giveAway(c Cause) {
	s.end(c)
	if c == HandedOff {
		s.held.Value, s.unresolved = "", nil
	}
}

func (s *State) renewIn(now time.Time, d time.Duration) {
	s.renewAt = time.Time{}
	if s.renews && !s.leaving && s.cause == None {
		if left := s.End().Sub(now); d >= left { // the end came nearer
			d = max(left/2, time.Millisecond)
		}
		s.renewAt = now.Add(d)
	}
}

// retryIn returns the pause before a failed renewal is tried again.
func (s *State) retryIn() time.Duration { return max(s.held.TTL/20, time.Millisecond) }

// Claim returns the value and the fence of the lock, and the end that holds whatever the outcome of the requests
// under way.
func (s *State) Claim() Claim {
	c := s.held
	c.Until = s.Until()
	return c
}

// Until returns the earliest possible end of the lease, after requests under way and unresolved ones.
func (s *State) Until() time.Time {
	until := s.held.Until
	for _, d := range s.unresolved {
		until = earlier(until, d.Until)
	}
	if !s.sent.Until.IsZero() {
		until = earlier(until, s.sent.Until)
	}
	return until
}

// End returns the end of the lock's context: shortly before the earliest possible end of the lease.
func (s *State) End() time.Time {
	end := s.held.end()
	for _, d := range s.unresolved {
		end = earlier(end, d.end())
	}
	if !s.sent.Until.IsZero() {
		end = earlier(end, Claim{Until: s.sent.Until, TTL: s.sent.TTL}.end())
	}
	return end
}

// end returns the end of the context under c. It leaves a fiftieth of the TTL for the reactions to that end, but
// at least a millisecond and at most a quarter of a second.
func (c Claim) end() time.Time {
	return c.Until.Add(-min(max(time.Millisecond, c.TTL/50), 250*time.Millisecond))
}

// RenewAt returns the time of the next renewal, or zero if none is due, or one is under way.
func (s *State) RenewAt() time.Time { return s.renewAt }

// Cause returns the reason for the lock's end, or None before the end.
func (s *State) Cause() Cause { return s.cause }

// Leaving reports whether the holder has asked for the release.
func (s *State) Leaving() bool { return s.leaving }

// Renews reports whether the lock is renewed until it ends.
func (s *State) Renews() bool { return s.renews }

// Rotate reports whether the next extension must put a new value on the key: an earlier extension with the
// present value may still arrive.
func (s *State) Rotate() bool { return len(s.unresolved) > 0 }

// FreshFor reports whether the next holder can take the lock for ttl without an extension: the lock has no
// fence, an undisclosed value, and three quarters of ttl left.
func (s *State) FreshFor(ttl time.Duration, now time.Time) bool {
	left := s.Until().Sub(now)
	return s.held.Fence == 0 && s.undisclosed && left >= (ttl-Drift(ttl))/4*3 && left <= ttl
}

// Passable reports whether the release can pass the lock to the next holder: no outcome is unknown, the value is
// undisclosed or can be changed, and a quarter of ttl is left for the next holder's extension.
func (s *State) Passable(rotates bool, ttl time.Duration, now time.Time) bool {
	return s.cause == None && len(s.unresolved) == 0 && (s.undisclosed || rotates) && s.Until().Sub(now) >= ttl/4
}

// Undisclosed reports whether the value is known to the engine only.
func (s *State) Undisclosed() bool { return s.undisclosed }

// Value returns the i-th value of ours that the key may hold, the likeliest first.
func (s *State) Value(i int) (value string, ok bool) {
	if i == 0 {
		return s.held.Value, true
	}
	for n := len(s.unresolved) - 1; n >= 0; n-- {
		if v := s.unresolved[n].Value; v != "" && v != s.held.Value {
			if i--; i == 0 {
				return v, true
			}
		}
	}
	return "", false
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
