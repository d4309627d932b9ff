package dialect

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Finding is one way to read a key's value.
type Finding struct {
	Kind       Kind
	What       string      // the grammar in words: "float seconds", "host:pid"
	Candidates []Candidate // the clients that can have written it, the likeliest first: those with nothing against them, or else all that write this grammar
	Owner      string      // the holder, if the value says so
	Until      time.Time   // the deadline; zero if there is none
	Clock      string      // whose clock decides: "clients" (a time) or "server" (a TTL)
	Status     Status
	Wrong      []string // what is wrong with it, one sentence each, without a full stop
}

// A Candidate is a client that may have written a value.
type Candidate struct {
	Format     string // its name, for Lookup
	Confidence Confidence
	Reasons    []string // what speaks for it and against it, one clause each, without a full stop
}

// Confidence says how likely it is that a client wrote a value. It is never certain: a program can
// write anything on a key.
type Confidence string

const (
	Likely   Confidence = "likely"   // the value or the key's name is hardly another client's, and nothing speaks against it
	Possible Confidence = "possible" // nothing speaks against it, but others write the same
	Unlikely Confidence = "unlikely" // the name of the key or its TTL is not as this client has it
)

// A Status says whether a lock is still held.
type Status string

const (
	Alive      Status = "alive"      // its deadline has not passed, or the key's TTL runs
	Dead       Status = "dead"       // its deadline has passed: its clients take it over
	Persistent Status = "persistent" // it has no TTL: only a release ends it
	TwoPart    Status = "two-key"    // its deadline is on another key: lock:expire:NAME
)

// long is further away than any real lock's deadline.
const long = 366 * 24 * time.Hour

// slack is by how much a TTL and a time that a client wrote for the same lease differ: its "+1",
// its rounding and the server's.
const slack = 2 * time.Second

// Formats returns the names of the candidates.
func (f Finding) Formats() []string {
	names := make([]string, len(f.Candidates))
	for i, c := range f.Candidates {
		names[i] = c.Format
	}
	return names
}

// Confidence returns the likeliest candidate's.
func (f Finding) Confidence() Confidence {
	if len(f.Candidates) == 0 {
		return Unlikely
	}
	return f.Candidates[0].Confidence
}

// Recognise returns the ways to read a key's value, the likeliest first. Several Findings, or
// several candidates in one, mean that the value is ambiguous; no Finding means that it is not a
// known lock. Each reads the complete value. ttl is the key's, negative if it has none; now must
// come from a clock that agrees with the clients'.
//
// A key with a TTL is held, whatever time it holds. So a time that ends before the TTL is read as a
// token first, and an expired time only as a token, unless it is from a client that writes both: a
// client that read it as a deadline would take over a held lock.
func Recognise(key, value string, ttl time.Duration, now time.Time) []Finding {
	var all []Finding
	var fits, outlasts bool
	for _, g := range grammars {
		until, owner, ok := g.read(value)
		if !ok {
			continue
		}
		left := until.Sub(now)
		f := Finding{Kind: g.kind, What: g.what, Owner: owner, Until: until, Candidates: candidates(g, key, ttl, left)}
		good := f.Confidence() != Unlikely
		if g.token.time() && (ttl < 0 || !good) {
			continue // a number is a token only where a client is known to write one
		}
		if g.kind.Timed() && ttl >= 0 && !good {
			outlasts = outlasts || ttl > left-time.Second
			if left <= 0 {
				continue
			}
		}
		fits = fits || good
		all = append(all, f.judged(key, ttl, now))
	}
	if fits {
		all = slices.DeleteFunc(all, func(f Finding) bool { return f.Confidence() == Unlikely && !f.Kind.Timed() })
	} else if outlasts || len(all) == 0 && value != "" {
		g := grammar{kind: Owned, what: string(TokenText), token: TokenText}
		if outlasts {
			g.what = "a time that serves as a token"
		}
		f := Finding{Kind: g.kind, What: g.what, Owner: value, Candidates: candidates(g, key, ttl, 0)}
		all = slices.DeleteFunc(all, func(f Finding) bool { return !f.Kind.Timed() })
		all = append([]Finding{f.judged(key, ttl, now)}, all...)
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return b.score() - a.score() })
	return all
}

// score orders findings: confidence counts for one, each fault against it.
func (f Finding) score() int { return f.Confidence().rank() - len(f.Wrong) }

func (c Confidence) rank() int { return slices.Index([]Confidence{Unlikely, Possible, Likely}, c) }

// A grammar is one form in which a value can be read.
type grammar struct {
	kind  Kind
	what  string
	stamp Stamp
	token Token
	sure  bool // hardly any other program writes such a value
}

var grammars = []grammar{
	{kind: Seconds, what: "integer seconds", stamp: seconds},
	{kind: FloatSeconds, what: "float seconds", stamp: floats},
	{kind: Millis, what: "integer milliseconds", stamp: millis},
	{kind: Nanos, what: "integer nanoseconds", stamp: nanos},
	{kind: OwnedSeconds, what: "seconds-pid", stamp: Stamp{Unit: time.Second, Owner: OwnerPIDThread}},
	{kind: OwnedSeconds, what: "seconds:pid", stamp: Stamp{Unit: time.Second, Owner: OwnerColonPID}},
	{kind: OwnedMillis, what: "uuid:milliseconds", stamp: Stamp{Unit: time.Millisecond, Owner: OwnerUUID}, sure: true},
	{kind: BinSeconds, what: "eight bytes of seconds", stamp: Stamp{Unit: time.Second, Binary: true}},
	{kind: Scripted, what: string(TokenMillis), token: TokenMillis},
	{kind: Scripted, what: string(TokenStart), token: TokenStart},
	{kind: InAction, what: string(TokenUUID), token: TokenUUID},
	{kind: Python, what: string(TokenHex), token: TokenHex},
	{kind: Scripted, what: string(TokenBase64), token: TokenBase64},
	{kind: Scripted, what: string(TokenBase64Pad), token: TokenBase64Pad},
	{kind: Scripted, what: string(TokenBase64URL), token: TokenBase64URL},
	{kind: Scripted, what: string(TokenLetters), token: TokenLetters},
	{kind: Scripted, what: string(TokenLetters16), token: TokenLetters16},
	{kind: Scripted, what: string(TokenHex24), token: TokenHex24},
	{kind: Scripted, what: string(TokenUUIDCount), token: TokenUUIDCount},
	{kind: Owned, what: string(TokenHostPID), token: TokenHostPID},
	{kind: Owned, what: string(TokenPID), token: TokenPID},
	{kind: Owned, what: string(TokenBeaker), token: TokenBeaker, sure: true},
	{kind: Owned, what: string(TokenShedLock), token: TokenShedLock, sure: true},
	{kind: Owned, what: string(TokenSpring), token: TokenSpring, sure: true},
	{kind: Scripted, what: string(TokenBytes), token: TokenBytes},
	{kind: Flag, what: string(TokenFlag), token: TokenFlag},
}

func (g grammar) read(value string) (until time.Time, owner string, ok bool) {
	if g.token != "" {
		owner, ok = g.token.Read(value)
		return time.Time{}, owner, ok
	}
	if g.kind == FloatSeconds && !strings.Contains(value, ".") {
		return time.Time{}, "", false // integer seconds, which float clients read too
	}
	return g.stamp.Parse(value)
}

// writes reports whether f's clients write this grammar.
func (g grammar) writes(f Format) bool {
	switch {
	case g.token != "":
		return f.Token == g.token && f.Kind != TwoKeys
	case g.kind == OwnedSeconds:
		return f.Kind == g.kind && (f.Stamp.Owner == OwnerColonPID) == (g.stamp.Owner == OwnerColonPID)
	}
	return f.Kind == g.kind
}

// candidates returns the clients with this grammar: those with such names of keys and such a TTL, or, if there are
// none, all of them. left is the time to the deadline that the value tells, if it tells one.
func candidates(g grammar, key string, ttl, left time.Duration) []Candidate {
	var all, fit []Candidate
	named := 0
	anothers := slices.ContainsFunc(formats(), func(f Format) bool { return f.named(key) && f.telling() })
	for _, f := range formats() {
		if !g.writes(f) && !(g.token == TokenHostPID && f.Kind == TwoKeys && f.named(key)) {
			continue
		}
		c := Candidate{Format: f.Name, Confidence: Possible, Reasons: []string{"it writes " + g.what}}
		switch {
		case f.named(key):
			c.Reasons = append(c.Reasons, "its keys are called "+f.KeyName)
			named++
			if f.telling() {
				c.Confidence = Likely
			} else if anothers {
				c.against("keys of this name are another client's")
			}
		case !f.raw():
			c.against("its keys are called %s", f.KeyName)
		case anothers:
			c.against("keys of this name are another client's")
		}
		switch off := left - ttl; {
		case ttl >= 0 && f.TTL == TTLNone:
			c.against("it sets no TTL")
		case ttl >= 0 && f.Kind.Timed() && (off < -slack || off > slack):
			c.against("its TTL ends with the time that it writes")
		case ttl < 0 && f.TTL == TTLAtomic && f.Bounded():
			c.against("its keys always have a TTL")
		}
		all = append(all, c)
		if c.Confidence != Unlikely {
			fit = append(fit, c)
		}
	}
	if fit == nil {
		return all
	}
	for i := range fit {
		c := &fit[i]
		if only := len(fit) == 1 && named == 1; only || g.sure {
			c.Confidence = Likely
		}
		if len(fit) == 1 && g.token != TokenText {
			c.Reasons = append(c.Reasons, "no other client that is known writes such a value there")
		}
	}
	slices.SortStableFunc(fit, func(a, b Candidate) int {
		if d := b.Confidence.rank() - a.Confidence.rank(); d != 0 {
			return d
		}
		return len(b.Reasons) - len(a.Reasons)
	})
	return fit
}

func (c *Candidate) against(format string, args ...any) {
	c.Confidence = Unlikely
	c.Reasons = append(c.Reasons, "but "+fmt.Sprintf(format, args...))
}

// judged adds the end, the status and the faults to a finding.
func (f Finding) judged(key string, ttl time.Duration, now time.Time) Finding {
	if f.Kind.Timed() {
		f.judgeTime(ttl, now)
	} else {
		f.judgeToken(key, ttl, now)
	}
	f.judgeName(key)
	if best, err := Lookup(f.Candidates[0].Format); err == nil && (f.Kind == InAction || f.Kind == Python) {
		f.Kind = best.Kind // a UUID, or hexadecimal digits, of many clients
	}
	return f
}

func (f *Finding) judgeTime(ttl time.Duration, now time.Time) {
	f.Clock, f.Status = "clients", Alive
	left := f.Until.Sub(now)
	if f.Until.Before(now) && ttl < 0 {
		f.Status = Dead
	}
	switch {
	case ttl < 0 || slices.ContainsFunc(f.Candidates, func(c Candidate) bool { return c.setsTTL() && c.Confidence != Unlikely }):
	case ttl < left-time.Second:
		f.wrong("the key has a TTL of %v, which ends the lock before its deadline: a client repaired it as if it were a token", ttl)
	default:
		f.wrong("the key has a TTL of %v, which clients that write timestamps don't set: they remove it again, and enter when the time ends, although the TTL runs", ttl)
	}
	switch {
	case left > long:
		f.wrong("the deadline is in %d: no lease is that long; it means no timeout, or a clock or a unit is wrong", f.Until.UTC().Year())
	case left < -long:
		f.wrong("the deadline was in %d: no client has asked for the lock since, or no client reads this format any more", f.Until.UTC().Year())
	}
}

func (c Candidate) setsTTL() bool {
	f, err := Lookup(c.Format)
	return err == nil && f.TTL != TTLNone
}

func (f *Finding) judgeToken(key string, ttl time.Duration, now time.Time) {
	f.Clock = "server"
	if ttl < 0 && strings.HasPrefix(key, ownerKey) && slices.Contains(f.Formats(), "mlanett-redis-lock") {
		f.Clock, f.Status = "clients", TwoPart
	} else {
		*f = f.ends(ttl, now)
	}
	if f.Kind == Flag {
		f.wrong("the value is the same for every holder: a late release deletes the successor's lock")
	}
}

// ends adds the end of a key's TTL to a finding.
func (f Finding) ends(ttl time.Duration, now time.Time) Finding {
	if ttl < 0 {
		f.Status = Persistent
		f.wrong("a token without a TTL: nothing but a release ends it. Some clients write it so; others stopped before they set one, or lost it to a client that writes timestamps")
		return f
	}
	f.Status, f.Until = Alive, now.Add(ttl)
	if ttl > long {
		f.wrong("the TTL is %v: a deadline was set as if it were a duration", ttl.Round(time.Hour))
	}
	return f
}

// judgeName compares the finding with the usual values of keys of this name, unless it is as common as lock:NAME.
func (f *Finding) judgeName(key string) {
	var usual []string
	for _, c := range formats() {
		if !c.named(key) || !c.telling() {
			continue
		}
		if slices.Contains(f.Formats(), c.Name) || c.Kind == f.Kind || c.Kind == TwoKeys {
			return
		}
		usual = append(usual, fmt.Sprintf("%s (%s)", c.Name, c.Kind))
	}
	if usual != nil {
		f.wrong("%s is not what keys of this name hold: %s", f.What, strings.Join(usual, ", "))
	}
}

func (f *Finding) wrong(format string, args ...any) {
	f.Wrong = append(f.Wrong, fmt.Sprintf(format, args...))
}
