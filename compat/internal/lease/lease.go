// Package lease is what a process may believe of one lock that it holds: a state
// machine without clock, connection, goroutine or mutex. Every lock of the engine is one
// State: renewed alone or in a batch, pinned, handed off, detached, adopted, on one server
// or on many. The engine tells it what happened and does what its answer says; nothing else
// decides what an outcome means for a lock.
//
// It keeps five invariants, whatever is lost, late, shortened or cancelled, in any order
// (TestInvariants tries every sequence of events up to a length):
//
//   - Belief ≤ grant: Until is never later than the moment up to which the server is known
//     to keep the key for us. From the moment a request is sent that may shorten the lease
//     until its outcome is known, the shorter end is believed.
//   - A fence never falls.
//   - A lost lock never comes back: Ended is final, and so is its cause.
//   - A lock is scheduled or has ended: there is no state in which nobody watches its end.
//   - A successor's value is known to nobody before it: a value that was disclosed is never
//     handed off, and a holder that has handed off or detached forgets it.
package lease

import (
	"slices"
	"time"
)

// Drift is taken off every lease: a hundredth of the ttl and two milliseconds, for clocks
// that run at different rates and a timer that fires late. (The figures are Redlock's.)
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Until is the end of a lease of ttl that was asked for at a moment.
func Until(asked time.Time, ttl time.Duration) time.Time { return asked.Add(ttl - Drift(ttl)) }

// Past reports that until has come, by the monotonic clock or by the wall clock. The first
// stands still while a machine is suspended, the second can be set: the lease is believed
// only while both agree.
func Past(now, until time.Time) bool {
	return !now.Before(until) || !now.Round(0).Before(until.Round(0))
}

// A Claim is what the server granted, or may have: Value on the key, kept for us to Until.
type Claim struct {
	Value string
	Until time.Time
	TTL   time.Duration // what was asked for
	Fence int64         // 0: none was drawn, or its number was lost
}

// most is how many values that extensions of unknown outcome may have put on the key are kept track of.
const most = 16

// A State is one lock. The zero State is not ready to use: New makes one.
type State struct {
	held     Claim
	doubts   []Claim // extensions that may have run, or may still run
	asked    term    // of an extension under way; zero: none is under way
	renewAt  time.Time
	renews   bool
	released bool // a release was sent whose outcome is unknown
	leaving  bool // the holder has asked for its release
	open     bool // ended, but a release may still find the key ours
	secret   bool // nobody outside the engine knows the value
	cause    Cause
}

// New is a lock whose Claim was granted. With renews it is to be renewed until it ends.
func New(c Claim, renews bool, now time.Time) State {
	s := State{held: c, renews: renews, secret: true}
	s.renewIn(now, c.TTL/3)
	return s
}

// On takes an event. It is the only place where a lock's belief changes.
func (s *State) On(e Event) Verdict {
	if s.cause != None && (e.Kind < Release || e.Kind > ReleaseNotSent) {
		if e.Kind == Found && s.open {
			return OK // a release may still find a value of ours
		}
		return Over
	}
	switch e.Kind {
	case Ask:
		return s.ask(e.At)

	case Send:
		if v := s.ask(e.At); v != OK && v != Read { // Read: it was read, and a doubt remains
			return v
		}
		s.asked = term{Until: Until(e.At, e.Claim.TTL), TTL: e.Claim.TTL}
		s.renewAt = time.Time{} // under way

	case Done:
		s.asked = term{}
		if e.Final {
			s.doubts = nil
		}
		for i, d := range s.doubts { // a late one counts from when it runs: after this one
			s.doubts[i].Until = Until(e.At, d.TTL)
			if d.Value == s.held.Value { // and leaves the value as it finds it
				s.doubts[i].Value = e.Claim.Value
			}
		}
		if e.Claim.Value != s.held.Value && !e.Kept {
			s.secret = true
		}
		e.Claim.Fence = max(e.Claim.Fence, s.held.Fence)
		s.held = e.Claim
		s.renewIn(e.At, s.held.TTL/3)
		return s.ask(e.At)

	case Refused, NotSent:
		s.asked = term{}
		s.renewIn(e.At, s.soon())

	case Unknown:
		s.asked = term{}
		s.doubt(e.Claim)
		s.renewIn(e.At, s.soon())

	case NotOurs:
		if s.otherValue() {
			s.asked = term{}
			s.renewIn(e.At, s.soon())
			return Read // it may hold what an unknown extension put there
		}
		return s.end(Lost)

	case Found:
		if e.Claim.Value == s.held.Value {
			return OK // a doubt remains: what was sent may still arrive
		}
		for _, d := range s.doubts {
			if d.Value == e.Claim.Value && d.Value != "" {
				d.Fence = s.held.Fence // the number it drew was lost with its reply
				s.held, s.doubts, s.secret = d, nil, true
				return OK
			}
		}
		return s.end(Lost)

	case Tick:
		if Past(e.At, s.End()) {
			return s.expire()
		}

	case Postpone:
		s.renewIn(e.At, s.soon())

	case Release:
		if !e.At.IsZero() && s.past(e.At) { // nothing of ours is left to be removed
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
		if s.released { // by the one that was sent before
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
		s.secret = false

	case Handoff:
		switch {
		case s.leaving:
			s.asked = term{}
			e.Claim.Fence = max(e.Claim.Fence, s.held.Fence)
			if s.held = e.Claim; e.Final { // its release has to find what the key holds now
				s.doubts = nil
			}
			return Over
		case Past(e.At, e.Claim.Until):
			return s.expire()
		case !s.secret && (e.Claim.Value == s.held.Value || e.Kept),
			s.held.Fence > 0 && e.Claim.Fence <= s.held.Fence,
			len(s.doubts) > 0 && !e.Final:
			return Read
		}
		s.leave(HandedOff)

	case Pass:
		if Past(e.At, s.Until()) || len(s.doubts) > 0 {
			return Read
		}
		s.leave(HandedOff)
		s.cause = Released // its holder released it

	case Detach:
		if v := s.ask(e.At); v != OK {
			return v
		}
		if len(s.doubts) > 0 { // what was sent may still arrive, at the next holder's lock
			return Read
		}
		s.leave(Detached)

	case Forsake:
		s.renews, s.renewAt = false, time.Time{}
	}
	return OK
}

// past reports that all leases have ended that the key may have as ours, on the server too: it may count in whole seconds.
func (s *State) past(now time.Time) bool {
	ended := func(c Claim) bool { return Past(now, c.Until.Add(Drift(c.TTL)+time.Second)) }
	return ended(s.held) && !slices.ContainsFunc(s.doubts, func(d Claim) bool { return !ended(d) })
}

// doubt keeps track of an extension that may still run. Of those that put the same value on the key the shortest
// counts: a lock that can't change its value is extended for as long as it is held, however many of its requests
// may still arrive.
func (s *State) doubt(c Claim) {
	for i, d := range s.doubts {
		if d.Value == c.Value {
			s.doubts[i].Until, s.doubts[i].TTL = earlier(d.Until, c.Until), min(d.TTL, c.TTL)
			return
		}
	}
	s.doubts = append(s.doubts[:len(s.doubts):len(s.doubts)], c)
}

// ask says whether an operation that needs the lease may begin.
func (s *State) ask(now time.Time) Verdict {
	switch {
	case s.cause != None || s.leaving:
		return Over
	case Past(now, s.Until()):
		return s.expire()
	case len(s.doubts) >= most:
		return Doubt
	case s.otherValue():
		return Read
	}
	return OK
}

// otherValue reports that the key may hold another value than the one that is held.
func (s *State) otherValue() bool {
	for _, d := range s.doubts {
		if d.Value != s.held.Value {
			return true
		}
	}
	return false
}

// expire ends a lock whose time has run out. Its key may still be there, for a release.
func (s *State) expire() Verdict {
	s.open = true
	return s.end(Lost)
}

func (s *State) end(c Cause) Verdict {
	s.cause, s.renewAt = c, time.Time{}
	return Over
}

// finish ends a lock that a release has settled.
func (s *State) finish(c Cause) {
	if s.cause == None || s.cause == Released && c == Lost {
		s.cause = c
	}
	s.open = false
}

// leave ends a lock whose key goes on to hold a value that is somebody else's from now on.
func (s *State) leave(c Cause) {
	s.end(c)
	if c == HandedOff {
		s.held.Value, s.doubts = "", nil
	}
}

func (s *State) renewIn(now time.Time, d time.Duration) {
	s.renewAt = time.Time{}
	if s.renews && !s.leaving && s.cause == None {
		if left := s.End().Sub(now); d >= left { // an end that came nearer
			d = max(left/2, time.Millisecond)
		}
		s.renewAt = now.Add(d)
	}
}

// soon is when a renewal that failed is tried again.
func (s *State) soon() time.Duration { return max(s.held.TTL/20, time.Millisecond) }

// Claim is what the lock believes: the value it knows of, its fence, and the end that
// stands whatever became of what is under way.
func (s *State) Claim() Claim {
	c := s.held
	c.Until = s.Until()
	return c
}

// Until is when the lease ends, at the latest that can be relied on.
func (s *State) Until() time.Time {
	until := s.held.Until
	for _, d := range s.doubts {
		until = earlier(until, d.Until)
	}
	if !s.asked.Until.IsZero() {
		until = earlier(until, s.asked.Until)
	}
	return until
}

// End is when the lock's context ends: shortly before the lease does, whichever of those that may be
// in force that is.
func (s *State) End() time.Time {
	end := s.held.end()
	for _, d := range s.doubts {
		end = earlier(end, d.end())
	}
	if !s.asked.Until.IsZero() {
		end = earlier(end, Claim{Until: s.asked.Until, TTL: s.asked.TTL}.end())
	}
	return end
}

// end leaves a fiftieth of the TTL for what a context's end sets off: between a millisecond and a
// quarter of a second.
func (c Claim) end() time.Time {
	return c.Until.Add(-min(max(time.Millisecond, c.TTL/50), 250*time.Millisecond))
}

// RenewAt is when the next renewal is due; zero: none is, or one is under way.
func (s *State) RenewAt() time.Time { return s.renewAt }

// Cause is why the lock has ended; None: it has not.
func (s *State) Cause() Cause { return s.cause }

// Leaving reports that its release has been asked for.
func (s *State) Leaving() bool { return s.leaving }

// Renews reports that it is renewed until it ends.
func (s *State) Renews() bool { return s.renews }

// Rotate reports that the next extension must put a new value on the key: another one, which
// may still arrive, was sent with the present value.
func (s *State) Rotate() bool { return len(s.doubts) > 0 }

// FreshFor reports that the lock can be another holder's for ttl as it is: without a fence, with
// a value that nobody knows, and with three quarters of ttl left.
func (s *State) FreshFor(ttl time.Duration, now time.Time) bool {
	left := s.Until().Sub(now)
	return s.held.Fence == 0 && s.secret && left >= (ttl-Drift(ttl))/4*3 && left <= ttl
}

// Passable reports that the lock can be passed on by its release: it is known what the key
// holds, a value can be put there that nobody knows, and a quarter of ttl is left, in which the
// next holder can extend it.
func (s *State) Passable(rotates bool, ttl time.Duration, now time.Time) bool {
	return s.cause == None && len(s.doubts) == 0 && (s.secret || rotates) && s.Until().Sub(now) >= ttl/4
}

// Secret reports that nobody outside the engine knows the value.
func (s *State) Secret() bool { return s.secret }

// Value is the i-th of those that the key may hold as ours, the likeliest first.
func (s *State) Value(i int) (value string, ok bool) {
	if i == 0 {
		return s.held.Value, true
	}
	for n := len(s.doubts) - 1; n >= 0; n-- {
		if v := s.doubts[n].Value; v != "" && v != s.held.Value {
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
