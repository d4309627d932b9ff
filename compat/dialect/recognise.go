package dialect

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Finding is one way in which a key's value can be read.
type Finding struct {
	Kind    Kind
	What    string    // the grammar in words: "float seconds", "host:pid"
	Formats []string  // the clients that can have written it: those that name keys like this one, or else all that write this grammar
	Owner   string    // the holder, if the value says so
	Until   time.Time // the deadline; zero if there is none
	Clock   string    // whose clock decides: "clients" (a time) or "server" (a TTL)
	Status  Status
	Wrong   []string // what is wrong with it, one sentence each, without a full stop
}

// A Status says whether a lock is still held.
type Status string

const (
	Alive      Status = "alive"      // its deadline has not passed
	Dead       Status = "dead"       // its deadline has passed: its clients take it over
	Persistent Status = "persistent" // it has no TTL: only a release ends it
	TwoPart    Status = "two-key"    // its deadline is on another key: lock:expire:NAME
)

// long is further away than any real lock's deadline.
const long = 366 * 24 * time.Hour

// Recognise returns what a key's value can be, the likeliest first. Several Findings mean that the
// value is ambiguous; none means that it is not a known lock. Every reading covers the complete
// value. ttl is the key's, negative if it has none; now is the time by a clock that agrees with the
// clients'.
func Recognise(key, value string, ttl time.Duration, now time.Time) []Finding {
	var all []Finding
	for _, g := range grammars {
		until, owner, ok := g.read(value)
		if !ok || g.kind == Scripted && len(all) > 0 && ttl < 0 {
			continue // a timestamp without a TTL is not a token
		}
		f := Finding{Kind: g.kind, What: g.what, Owner: owner, Until: until, Formats: writers(g, key)}
		if g.kind.Timed() {
			f.judgeTime(ttl, now)
		} else {
			f.judgeToken(key, ttl, now)
		}
		f.judgeName(key)
		all = append(all, f)
	}
	if len(all) == 0 && value != "" {
		f := Finding{Kind: Owned, What: string(TokenText), Owner: value, Formats: writers(grammar{kind: Owned, token: TokenText}, key)}
		f.judgeToken(key, ttl, now)
		f.judgeName(key)
		return []Finding{f}
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return len(a.Wrong) - len(b.Wrong) })
	return all
}

// A grammar is one form in which a value can be read.
type grammar struct {
	kind  Kind
	what  string
	stamp Stamp
	token Token
}

var grammars = []grammar{
	{kind: Seconds, what: "integer seconds", stamp: seconds},
	{kind: FloatSeconds, what: "float seconds", stamp: floats},
	{kind: Millis, what: "integer milliseconds", stamp: millis},
	{kind: Nanos, what: "integer nanoseconds", stamp: nanos},
	{kind: OwnedSeconds, what: "seconds-pid", stamp: Stamp{Unit: time.Second, Owner: OwnerPIDThread}},
	{kind: OwnedSeconds, what: "seconds:pid", stamp: Stamp{Unit: time.Second, Owner: OwnerColonPID}},
	{kind: OwnedMillis, what: "uuid:milliseconds", stamp: Stamp{Unit: time.Millisecond, Owner: OwnerUUID}},
	{kind: BinSeconds, what: "eight bytes of seconds", stamp: Stamp{Unit: time.Second, Binary: true}},
	{kind: Scripted, what: string(TokenMillis), token: TokenMillis},
	{kind: InAction, what: string(TokenUUID), token: TokenUUID},
	{kind: Python, what: string(TokenHex), token: TokenHex},
	{kind: Owned, what: string(TokenHostPID), token: TokenHostPID},
	{kind: Owned, what: string(TokenBeaker), token: TokenBeaker},
	{kind: Owned, what: string(TokenShedLock), token: TokenShedLock},
	{kind: Owned, what: string(TokenSpring), token: TokenSpring},
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
		return f.Token == g.token
	case g.kind == OwnedSeconds:
		return f.Kind == g.kind && (f.Stamp.Owner == OwnerColonPID) == (g.stamp.Owner == OwnerColonPID)
	}
	return f.Kind == g.kind
}

// writers returns the names of the formats that write this grammar; if some of them name their keys
// like this one, only those.
func writers(g grammar, key string) []string {
	var all, named []string
	for _, f := range formats {
		if g.writes(f) {
			all = append(all, f.Name)
			if f.named(key) {
				named = append(named, f.Name)
			}
		}
	}
	if named != nil {
		return named
	}
	return all
}

// withTTL returns the named formats that put a TTL on their keys.
func withTTL(names []string) []Format {
	var list []Format
	for _, f := range formats {
		if f.TTL != TTLNone && slices.Contains(names, f.Name) {
			list = append(list, f)
		}
	}
	return list
}

func (f *Finding) judgeTime(ttl time.Duration, now time.Time) {
	f.Clock, f.Status = "clients", Alive
	if f.Until.Before(now) {
		f.Status = Dead
	}
	left := f.Until.Sub(now)
	if own := withTTL(f.Formats); ttl >= 0 && len(own) > 0 && left-ttl > -time.Second && left-ttl < 2*time.Second {
		f.Formats = nil // a TTL as long as the lease, but for "+1" and rounding: these clients set it
		for _, format := range own {
			f.Formats = append(f.Formats, format.Name)
		}
	} else if ttl >= 0 && ttl < left-time.Second {
		f.wrong("the key has a TTL of %v, which ends the lock before its deadline: a client repaired it as if it were a token", ttl)
	} else if ttl >= 0 {
		f.wrong("the key has a TTL of %v, which clients that write timestamps remove again", ttl)
	}
	switch {
	case left > long:
		f.wrong("the deadline is in %d: no lease is that long; it means no timeout, or a clock or a unit is wrong", f.Until.UTC().Year())
	case left < -long:
		f.wrong("the deadline was in %d: no client has asked for the lock since, or no client reads this format any more", f.Until.UTC().Year())
	}
}

func (f *Finding) judgeToken(key string, ttl time.Duration, now time.Time) {
	f.Clock = "server"
	if ttl < 0 && strings.HasPrefix(key, ownerKey) && slices.Contains(f.Formats, "mlanett-redis-lock") {
		f.Clock, f.Status = "clients", TwoPart
	} else if ttl < 0 {
		f.Status = Persistent
		f.wrong("a token without a TTL: nothing but a release ends it. Some clients write it so; others stopped before they set one, or lost it to a client that writes timestamps")
	} else {
		f.Status, f.Until = Alive, now.Add(ttl)
		if ttl > long {
			f.wrong("the TTL is %v: a deadline was set as if it were a duration", ttl.Round(time.Hour))
		}
	}
	if f.Kind == Flag {
		f.wrong("the value is the same for every holder: a late release deletes the successor's lock")
	}
}

// judgeName compares the finding with the usual values of keys of this name.
func (f *Finding) judgeName(key string) {
	var usual []string
	for _, c := range formats {
		if !c.named(key) {
			continue
		}
		if slices.Contains(f.Formats, c.Name) || c.Kind == f.Kind || c.Kind == TwoKeys {
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
