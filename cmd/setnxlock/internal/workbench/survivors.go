package workbench

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/race"
)

// A Follower is another lock under the schedule that broke one, as far as it can make it.
type Follower struct {
	Algorithm string `json:"algorithm"`
	Schedule  string `json:"schedule"`
	Holds     bool   `json:"holds"`
	Violated  string `json:"violated,omitempty"`
	Parts     int    `json:"parts"` // the first step that differs, from 1
}

// survivors makes the schedule with each usable lock without a known flaw: unbroken ones first, then
// by the length of the common part. That it breaks nothing here does not say that no other order does.
func (q Question) survivors(progress func(Progress)) ([]Follower, error) {
	p, err := q.position()
	if err != nil {
		return nil, err
	}
	if p.Trace.Verdict.Violated == "" {
		return nil, errors.New("race: nothing is broken, and nothing to be survived")
	}
	list := []Follower{}
	for n, c := range p.rivals() {
		c.Invariants = []string{p.Trace.Verdict.Violated}
		t, err := race.Follow(c, p.Choices)
		if err != nil {
			continue // a schedule that is not for it
		}
		f := Follower{Algorithm: c.Algorithm, Schedule: t.Schedule, Violated: t.Verdict.Violated, Holds: t.Verdict.Violated == "", Parts: parting(p.Trace, t)}
		list = append(list, f)
		if progress != nil {
			progress(Progress{States: n + 1})
		}
	}
	slices.SortStableFunc(list, func(a, b Follower) int {
		if a.Holds != b.Holds {
			if a.Holds {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Parts, a.Parts)
	})
	return list, nil
}

// rivals lists the usable locks without a known flaw, in the place of the running one.
func (p Position) rivals() []race.Config {
	var list []race.Config
	for _, l := range locks.All() {
		if l.New == nil || l.Instead != "" || l.Flaw != "" || l.Name == p.Config.Algorithm ||
			(l.Family() == "rw") != strings.HasPrefix(p.Config.Algorithm, "rw:") || (l.Family() == "semaphore") != strings.HasPrefix(p.Config.Algorithm, "semaphore") {
			continue
		}
		c := p.Config
		c.Algorithm, c.Bare, c.New = l.Name, false, nil
		if l.Family() == "rw" {
			c.Algorithm = "rw:read+rw:write"
		}
		if l.Family() != "getset" {
			c.Given = nil // a timestamp is nobody's lock there
		}
		if c.Algorithm != p.Config.Algorithm && !slices.ContainsFunc(list, func(o race.Config) bool { return o.Algorithm == c.Algorithm }) {
			list = append(list, c)
		}
	}
	return list
}

// A Second is another lock under the same schedule, move by move: what it can't do is left out.
type Second struct {
	Algorithm string     `json:"algorithm"`
	Trace     race.Trace `json:"trace"`
	Parts     int        `json:"parts"`  // the first step that differs, from 1
	Others    []string   `json:"others"` // that it could be
}

// second makes the moves with a lock beside the running one; without a name with a usable one, guarded
// if possible, and of the same family. nil: there is none.
func (p Position) second(name string) *Second {
	rivals := slices.DeleteFunc(p.rivals(), func(c race.Config) bool {
		_, err := At(c, nil)
		return err != nil
	})
	if len(rivals) == 0 {
		return nil
	}
	family, _, _ := strings.Cut(p.Config.Algorithm, ":")
	like := func(c race.Config) int {
		switch c.Algorithm {
		case name:
			return 0
		case family + ":guarded":
			return 1
		case "tx:guarded":
			return 2
		}
		return 3
	}
	s, chosen := &Second{}, rivals[0]
	for _, c := range rivals {
		s.Others = append(s.Others, c.Algorithm)
		if like(c) < like(chosen) {
			chosen = c
		}
	}
	at, err := At(chosen, nil)
	if err != nil {
		return nil
	}
	var made []race.Choice
	for _, c := range p.Choices {
		if next, cant := At(chosen, append(slices.Clone(made), c)); cant == nil {
			at, made = next, append(made, c)
		}
	}
	s.Algorithm, s.Trace, s.Parts = chosen.Algorithm, at.Trace, parting(p.Trace, at.Trace)
	return s
}

// parting returns the first different step of two traces, from 1.
func parting(a, b race.Trace) int {
	n := 0
	for n < len(a.Events) && n < len(b.Events) && a.Events[n].Who == b.Events[n].Who && a.Events[n].Cmd == b.Events[n].Cmd && a.Events[n].Reply == b.Events[n].Reply {
		n++
	}
	return n + 1
}
