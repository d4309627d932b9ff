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

// survivors has the locks that are for use, and have no known flaw, follow the schedule: those that it
// does not break first, and of them those that go along for longest. That it breaks nothing here does
// not say that no other order does.
func (q Question) survivors(progress func(Progress)) ([]Follower, error) {
	p, err := q.position()
	if err != nil {
		return nil, err
	}
	if p.Trace.Verdict.Violated == "" {
		return nil, errors.New("race: nothing is broken, and nothing to be survived")
	}
	list := []Follower{}
	for n, l := range locks.All() {
		if l.New == nil || l.Instead != "" || l.Flaw != "" || l.Name == p.Config.Algorithm ||
			(l.Family() == "rw") != strings.HasPrefix(p.Config.Algorithm, "rw:") || (l.Family() == "semaphore") != strings.HasPrefix(p.Config.Algorithm, "semaphore") {
			continue
		}
		c := p.Config
		c.Algorithm, c.Bare, c.New, c.Invariants = l.Name, false, nil, []string{p.Trace.Verdict.Violated}
		if l.Family() == "rw" {
			c.Algorithm = "rw:read+rw:write"
		}
		if l.Family() != "getset" {
			c.Given = nil // a timestamp is nobody's lock there
		}
		t, err := race.Follow(c, p.Choices)
		if err != nil {
			continue // a schedule that is not for it
		}
		f := Follower{Algorithm: c.Algorithm, Schedule: t.Schedule, Violated: t.Verdict.Violated, Holds: t.Verdict.Violated == "", Parts: parting(p.Trace, t)}
		if !slices.ContainsFunc(list, func(o Follower) bool { return o.Algorithm == f.Algorithm }) {
			list = append(list, f)
		}
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

// parting is the first step, from 1, that is not the same in two traces.
func parting(a, b race.Trace) int {
	n := 0
	for n < len(a.Events) && n < len(b.Events) && a.Events[n].Who == b.Events[n].Who && a.Events[n].Cmd == b.Events[n].Cmd && a.Events[n].Reply == b.Events[n].Reply {
		n++
	}
	return n + 1
}
