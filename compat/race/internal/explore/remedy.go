package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/search"
	"github.com/setnxlock/setnxlock/compat/race/internal/trace"
)

// A Remedy is what helps against a violation, found by exploring: which faults of the schedule are
// necessary, and which locks survive them.
type Remedy struct {
	Invariant string
	Algorithm string
	Server    string

	// Takes are the necessary faults: if one of them is left out, no schedule within Bounds breaks
	// the invariant. Besides are the schedule's other faults.
	Takes, Besides []string
	Bounds         string // of the schedule: so many clients, attempts and faults of each kind

	// Survives are the locks of package locks that hold in every order of the same faults, Falls
	// those that don't, and Open those for which there was no room. Locks that refuse the server
	// are not tried, and none is tried after a failover or where there are several servers.
	Survives, Falls, Open []string
}

// remedyStates bounds each exploration of a Remedy.
const remedyStates = 100_000

// ErrNotExplored means that there is no [Remedy], because the schedule has something that can be
// replayed but not explored, or because the search ran out of room.
var ErrNotExplored = errors.New("race: what this schedule has is not explored")

// Remedies takes a trace with a violation, leaves out one of its faults after the other and explores
// again, and explores the other locks under the same faults. The algorithms are this module's and
// those in known.
func Remedies(ctx context.Context, t trace.Trace, known plan.Locks) (Remedy, error) {
	c, choices, err := plan.ParseSchedule(t.Schedule)
	if err != nil {
		return Remedy{}, err
	}
	c.Locks, c.Invariants = known, []string{t.Verdict.Violated}
	if t.Verdict.Violated == "" {
		return Remedy{}, errors.New("race: nothing is broken, and nothing to be helped")
	}
	if err := allow(&c, choices); err != nil {
		return Remedy{}, err
	}
	c.MaxStates = remedyStates
	r := Remedy{Invariant: t.Verdict.Violated, Algorithm: c.Algorithm, Server: cmp.Or(c.Server, "2.4")}
	full, err := plan.Complete(c)
	if err != nil {
		return r, err
	}
	r.Bounds = full.Bounds()
	if how, err := verdictOf(ctx, c); err != nil {
		return r, err
	} else if how != search.Violated {
		return r, ErrNotExplored
	}
	for _, x := range omissions {
		less := c
		if !x.omit(&less) {
			continue
		}
		switch how, err := verdictOf(ctx, less); {
		case err != nil:
			return r, err
		case how == search.Safe:
			r.Takes = append(r.Takes, x.name)
		case how == search.Violated && x.name != passing:
			r.Besides = append(r.Besides, x.name)
		}
	}
	return r, r.survivors(ctx, c)
}

func verdictOf(ctx context.Context, c plan.Config) (search.Outcome, error) {
	r, err := Explore(ctx, c)
	return r.Verdict, err
}

// Within gives c a schedule's bounds: its faults, each as often as it stands there, and as many jumps
// of time. ErrNotExplored says that the schedule has something that can be replayed but not explored.
func Within(c plan.Config, choices []plan.Choice) (plan.Config, error) {
	err := allow(&c, choices)
	return c, err
}

// allow gives c a schedule's faults and jumps of time.
func allow(c *plan.Config, choices []plan.Choice) error {
	f := plan.Faults{}
	late := 0
	for _, w := range choices {
		switch w.Verb {
		case plan.Drop:
			f.LostReplies++
		case plan.Sever:
			f.LostRequests++
		case plan.Delay:
			f.LateRequests = 1
		case plan.Cut:
			f.Cuts++
		case plan.Refuse:
			f.Refusals++
		case plan.Crash:
			f.Crash = true
		case plan.Restart:
			f.Restart++
		case plan.Failover:
			f.Failover++
		case plan.Evict:
			f.Evict++
		case plan.Down:
			f.Down++
		case plan.Pass:
			c.Ticks++
		case plan.PassUnreaped:
			c.Ticks++
			f.Unreaped = true
		case plan.Reap:
			f.Unreaped = true
		case plan.Stall, plan.Look:
			late++
		case plan.Clock, plan.Jump, plan.Stale:
			if w.Server == 0 {
				return ErrNotExplored
			}
			f.Evict++ // a key that ends early
		}
	}
	if f.Late = late; late == 0 {
		f.Late = -1
	}
	c.Faults, c.Ticks = f, min(c.Ticks, 15)
	return nil
}

const passing = "time that passes"

// omissions are what can be left out of a schedule; omit reports whether it was in it.
var omissions = []struct {
	name string
	omit func(*plan.Config) bool
}{
	{"the lost reply", func(c *plan.Config) bool { return take(&c.Faults.LostReplies) }},
	{"the lost request", func(c *plan.Config) bool { return take(&c.Faults.LostRequests) }},
	{"the request that arrives late", func(c *plan.Config) bool { return take(&c.Faults.LateRequests) }},
	{"the connection that breaks within a write", func(c *plan.Config) bool { return take(&c.Faults.Cuts) }},
	{"the refusal", func(c *plan.Config) bool { return take(&c.Faults.Refusals) }},
	{"the restart", func(c *plan.Config) bool { return take(&c.Faults.Restart) }},
	{"the failover", func(c *plan.Config) bool { return take(&c.Faults.Failover) }},
	{"the key that is gone before its time", func(c *plan.Config) bool { return take(&c.Faults.Evict) }},
	{"the server that answers no more", func(c *plan.Config) bool { return take(&c.Faults.Down) }},
	{"the crash", func(c *plan.Config) bool { was := c.Faults.Crash; c.Faults.Crash = false; return was }},
	{"the expired key that is still in memory", func(c *plan.Config) bool { was := c.Faults.Unreaped; c.Faults.Unreaped = false; return was }},
	{"the client that is late", func(c *plan.Config) bool { was := c.Faults.Late > 0; c.Faults.Late = -1; return was }},
	{"the clock that is wrong", func(c *plan.Config) bool {
		wrong := slices.ContainsFunc(c.Skew, func(d time.Duration) bool { return d != 0 })
		c.Skew = nil
		return wrong
	}},
	{passing, func(c *plan.Config) bool { return take(&c.Ticks) }},
}

// take sets a count to none, and reports whether it was any.
func take(n *int) bool {
	was := *n
	*n = 0
	return was > 0
}

// survivors explores the other locks under the same faults.
func (r *Remedy) survivors(ctx context.Context, c plan.Config) error {
	if of := (&plan.Setup{Config: c}); of.Form() == plan.Quorum || c.Faults.Failover > 0 {
		// What befalls one of several servers befalls no other lock. A replica lacks one write here: a
		// lock that has written twice by then survives that, and not one that lacks two.
		return nil
	}
	try := func(name, says string, fence bool) error {
		other := c
		other.Algorithm, other.Bare, other.Fence, other.New = name, false, c.Fence || fence, nil
		other.Given = nil
		if other.Ticks > 0 { // enough of them for a lease of this lock to run out
			other.Ticks = min(max(other.Ticks, lifetime(name)+1), 15)
		}
		full, err := plan.Complete(other)
		if err != nil {
			return nil // a row that is not for it
		}
		if refused, err := client.Refusal(full); refused != "" || err != nil {
			return err
		}
		switch found, err := explore(ctx, full, search.NewRuns(full)); {
		case err != nil:
			return err
		case found.Verdict == search.Safe:
			r.Survives = append(r.Survives, says)
		case found.Verdict == search.Violated:
			r.Falls = append(r.Falls, says)
		default:
			r.Open = append(r.Open, says)
		}
		return nil
	}
	for _, fence := range []bool{false, true} {
		if fence && (r.Invariant != "fencing" || c.Fence || len(r.Survives) > 0) {
			continue
		}
		for _, l := range candidates(c) {
			says := l.name
			if fence {
				says += " with a fence"
			}
			if fence && l.nofence || l.name == c.Algorithm && !fence {
				continue
			}
			if err := try(l.name, says, fence); err != nil {
				return err
			}
		}
	}
	return nil
}

// A candidate is a lock that could be used in place of another.
type candidate struct {
	name    string
	nofence bool
}

// candidates lists the usable locks of the same kind without a known flaw, in the table's order.
func candidates(c plan.Config) []candidate {
	switch of := (&plan.Setup{Config: c}); {
	case of.Entry(0).Most > 0:
		return []candidate{{"semaphore", false}}
	case of.Form() == plan.Members:
		return []candidate{{"rw:read+rw:write", false}}
	}
	var list []candidate
	for _, l := range locks.All() {
		if plan.Shipped(l.Name) && l.Flaw == "" && l.Family() != "rw" && !l.Shared {
			list = append(list, candidate{l.Name, !l.Fences})
		}
	}
	return list
}

// String writes the remedy in sentences.
func (r Remedy) String() string {
	var list []string
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	faults := slices.DeleteFunc(slices.Clone(r.Takes), func(s string) bool { return s == passing })
	switch {
	case len(faults) > 0:
		say("It takes %s: without, %s keeps %s in every order of the rest.", and(faults), r.Algorithm, r.Invariant)
	case len(r.Takes) > 0:
		say("It takes nothing but time that passes.")
	case len(r.Besides) == 0:
		say("It takes no fault.")
	}
	if len(r.Besides) > 0 {
		say("It breaks without %s, too.", alternatives(r.Besides))
	}
	switch {
	case len(r.Survives) > 0:
		say("In every order of the same steps and faults, %s %s on %s.", and(r.Survives), plural(len(r.Survives), "survives", "survive"), serverWords(r.Server))
	case len(r.Falls) > 0:
		say("No other lock here survives it on %s: tried %s.", serverWords(r.Server), and(r.Falls))
	}
	if len(r.Survives) == 0 && len(faults) > 0 {
		say("What helps is to keep %s away.", alternatives(faults))
	}
	return strings.Join(list, " ")
}

// serverWords names a server in a sentence.
func serverWords(s string) string {
	if s != "" && s[0] >= '0' && s[0] <= '9' {
		return "Redis " + s
	}
	return s
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func and(list []string) string          { return enumeration(list, "and") }
func alternatives(list []string) string { return enumeration(list, "or") }

// enumeration writes a list in a sentence.
func enumeration(list []string, word string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " " + word + " " + list[len(list)-1]
}
