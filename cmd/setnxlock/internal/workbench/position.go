package workbench

import (
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/race"
)

// A Position is where some choices lead.
type Position struct {
	Config  race.Config
	Choices []race.Choice
	Trace   race.Trace
}

// At makes the choices.
func At(c race.Config, choices []race.Choice) (Position, error) {
	t, err := race.Replay(c, choices)
	return Position{c, choices, t}, err
}

// Try makes a choice, if it can be made now, and returns its step.
func (p Position) Try(c race.Choice) (race.Event, bool) {
	t, err := race.Replay(p.Config, append(slices.Clone(p.Choices), c))
	if err != nil || len(t.Events) == 0 {
		return race.Event{}, false
	}
	return t.Events[len(t.Events)-1], true
}

// A Deadline is the next time at which something ends.
type Deadline struct {
	By   time.Duration // until a moment after it
	What string        // "C1's lease ends"
}

// Deadline finds it among the leases, the key's TTL and the time written on it.
func (p Position) Deadline() (best Deadline, ok bool) {
	n := len(p.Trace.Events)
	at, server := int64(0), p.Trace.Start
	if n > 0 {
		at, server = p.Trace.Events[n-1].At, p.Trace.Events[n-1].Server
	}
	add := func(ends int64, what string) {
		by := time.Duration(ends+1-at) * time.Millisecond // until just after
		if by > 0 && (!ok || by < best.By) {
			best, ok = Deadline{by, what}, true
		}
	}
	if n > 0 {
		for _, c := range p.Trace.Clients {
			if b := p.Trace.Events[n-1].Belief[c.Name]; b.Until >= 0 && b.State != race.Dead {
				add(at+b.Until-b.Now, c.Name+"'s lease ends")
			}
		}
	}
	if server.TTL >= 0 && !server.Dead {
		if ends, ok := p.expiry(at, server.TTL); ok {
			add(ends, "the key's ttl ends")
		}
	}
	if stamp, is := strings.CutPrefix(server.Value, "t="); is {
		if d, err := time.ParseDuration(strings.Fields(stamp)[0]); err == nil {
			for _, c := range p.Trace.Clients {
				add(d.Milliseconds()-c.Skew, "the time on the key is over for "+c.Name)
			}
		}
	}
	return best, ok
}

// expiry finds out by trying when the key is gone: old servers count in whole
// seconds.
func (p Position) expiry(at, ttl int64) (ends int64, ok bool) {
	whole := (at + ttl + 999) / 1000 * 1000
	for _, ends := range []int64{at + ttl, whole, whole + 1000, whole + 2000} {
		if ends < at {
			continue
		}
		pass := race.Choice{Verb: race.Pass, By: time.Duration(ends+1-at) * time.Millisecond}
		if e, ok := p.Try(pass); ok && e.Server.Value == "" {
			return ends, true
		}
	}
	return 0, false
}
