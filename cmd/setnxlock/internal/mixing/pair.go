package mixing

import (
	"context"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race"
)

// A Verdict tells how two fleets fare on the same key.
type Verdict struct {
	A, B Party // in the order of Parties; the same party twice is a fleet by itself

	Clash *Clash  // two hold the lock at once; nil: never within the bounds
	Stuck []Stuck // keys that one of the two never gets again

	States int
}

// A Clash is a shortest way to two holders among the least demanding ones.
type Clash struct {
	Grade    Grade  `json:"grade"`
	Needs    Needs  `json:"-"`
	Steps    int    `json:"steps"`
	Schedule string `json:"schedule"` // race.ReplaySchedule runs it
	Text     string `json:"text"`     // "C1 and C2 both hold the lock"
	Takes    string `json:"takes"`    // the clients: "one client of each"
}

// A Grade tells how much it takes for two clients to hold a lock at once. Each grade takes more than the one
// before.
type Grade string

const (
	AtOnce   Grade = "at once"     // no time passes: one takes what the other holds
	Takeover Grade = "at takeover" // no time passes, and a dead client's lock is on the key
	Early    Grade = "early"       // no client is slow: one takes over before the other's lease ends
	Late     Grade = "late"        // a client pauses between two commands, or works past the end of its lease
)

// Needs says how many clients it takes.
type Needs string

const (
	OneOfEach Needs = "one of each"
	TwoOfA    Needs = "two of A"
	TwoOfB    Needs = "two of B"
)

// A Stuck is a key that a client of By never gets again, however long it waits.
type Stuck struct {
	Of       string `json:"of"` // a name of Parties
	By       string `json:"by"`
	When     When   `json:"when"`
	Schedule string `json:"schedule"`
}

// When names the event before the key was stuck.
type When string

const (
	Holding When = "died holding it" // a client of Of; every crash leads to this
	Halfway When = "died half-way"   // a client of Of, between two of its commands
	Orderly When = "all went well"   // no client died: one of each acquired and released
)

// Safe reports whether two fleets may share a key: no two clients hold it at once, and both can
// take the lock of a dead client of either.
func (v Verdict) Safe() bool { return v.Clash == nil && len(v.Stuck) == 0 }

// among names the clients of two fleets in words.
func (n Needs) among(a, b string) string {
	switch {
	case a == b && n == OneOfEach:
		return "two clients"
	case a == b:
		return "three clients"
	case n == OneOfEach:
		return "one client of each"
	case n == TwoOfA:
		return "two clients of " + a + " and one of " + b
	}
	return "two clients of " + b + " and one of " + a
}

// patience is how long a waiter waits before the key counts as stuck: many times longer than any
// lease, grace or margin.
const patience = 2 * time.Minute

// phase is how far all clocks are ahead of the server's, so that runs do not begin at a full
// second, where cutting off the fraction makes no difference.
const phase = 900 * time.Millisecond

// base returns the configuration of all explorations. Its server has every command of the parties.
func base(clients, attempts, ticks int, parties ...string) race.Config {
	c := race.Config{
		Algorithm: strings.Join(parties, "+"), Locks: Locks(), Server: "2.8",
		Clients: clients, Attempts: attempts, Ticks: ticks, TTL: lease, Within: patience,
		Faults: race.Faults{Late: -1},
	}
	for range clients {
		c.Skew = append(c.Skew, phase)
	}
	return c
}

// A stage is an exploration for two holders, under its conditions.
type stage struct {
	Grade
	ticks int
	keep  bool
	given bool
	late  int
}

// stages are ordered by their conditions, the weakest first.
var stages = []stage{
	{Grade: AtOnce, late: -1},
	{Grade: Takeover, late: -1, given: true},
	{Grade: Early, late: -1, ticks: 3, keep: true},
	{Grade: Late, late: 1, ticks: 4}, // and those that waits returns
}

// pairing explores one pair.
type pairing struct {
	ctx  context.Context
	v    *Verdict
	self func(Party) (Verdict, error) // the verdict on a fleet by itself
}

// Pair explores two fleets on one key.
func Pair(ctx context.Context, a, b Party) (Verdict, error) { return pair(ctx, a, b, alone(ctx)) }

// alone explores fleets by themselves, each once.
func alone(ctx context.Context) func(Party) (Verdict, error) {
	known := map[string]Verdict{}
	return func(p Party) (v Verdict, err error) {
		v, ok := known[p.Name]
		if !ok {
			v, err = pair(ctx, p, p, nil)
			known[p.Name] = v
		}
		return v, err
	}
}

// pair explores two fleets. For two different fleets, self gives the verdict on each by itself.
func pair(ctx context.Context, a, b Party, self func(Party) (Verdict, error)) (Verdict, error) {
	v := Verdict{A: a, B: b}
	p := pairing{ctx, &v, self}
	if err := p.exclusion(); err != nil {
		return v, err
	}
	orders := [][2]Party{{a, b}, {b, a}}
	if a.Name == b.Name {
		orders = orders[:1]
	}
	for _, o := range orders {
		if err := p.progress(o[0], o[1]); err != nil {
			return v, err
		}
	}
	return v, nil
}

// exclusion looks for two holders: in each stage first with one client of each fleet, then with two
// of one.
func (p pairing) exclusion() error {
	a, b := p.v.A, p.v.B
	for _, s := range stages {
		few := s.ticks // with three clients
		if s.Grade == Late {
			s.ticks += p.waits()
			few = s.ticks - 1
		}
		manyA, err := p.several(a, s.Grade)
		if err != nil {
			return err
		}
		manyB, err := p.several(b, s.Grade)
		if err != nil {
			return err
		}
		attempts := 2
		if s.keep || s.given {
			attempts = 1
		}
		for _, x := range []struct {
			needs Needs
			c     race.Config
		}{
			{OneOfEach, base(2, attempts, s.ticks, a.Name, b.Name)},
			{TwoOfA, base(3, 1, few, manyA, manyA, b.Name)},
			{TwoOfB, base(3, 1, few, manyB, manyB, a.Name)},
		} {
			if x.needs == TwoOfB && a.Name == b.Name {
				continue
			}
			x.c.Keep, x.c.Faults.Late = s.keep, s.late
			if found, err := p.clash(s, x.needs, x.c); found || err != nil {
				return err
			}
		}
	}
	return nil
}

// waits returns how many more jumps of time it takes until both see every value of either as
// expired.
func (p pairing) waits() int {
	later := map[time.Duration]bool{}
	for _, of := range []Party{p.v.A, p.v.B} {
		for _, m := range of.margins {
			if m > 0 {
				later[m] = true
			}
		}
	}
	return len(later)
}

// several names the party of two clients of a fleet. If the fleet is unsafe by itself under no worse
// conditions, only overlaps with the other fleet count.
func (p pairing) several(of Party, g Grade) (string, error) {
	if p.v.A.Name == p.v.B.Name {
		return of.Name, nil
	}
	alone, err := p.self(of)
	if err == nil && alone.Clash != nil && !worse(alone.Clash.Grade, g) {
		return of.among(), nil
	}
	return of.Name, err
}

// worse reports whether a needs more than b.
func worse(a, b Grade) bool {
	for _, s := range stages {
		switch s.Grade {
		case a:
			return false
		case b:
			return true
		}
	}
	return false
}

// clash explores c; in the takeover stage it starts with the value of a dead client of either fleet.
func (p pairing) clash(s stage, needs Needs, c race.Config) (bool, error) {
	c.Invariants = []string{"exclusion"}
	for _, given := range p.givens(s) {
		c.Given = given
		r, err := p.explore(c)
		if err != nil {
			return false, err
		}
		if t := r.Trace; t != nil {
			p.v.Clash = &Clash{s.Grade, needs, len(t.Events), t.Schedule, t.Events[t.Verdict.Step-1].Violation.Text, needs.among(p.v.A.Name, p.v.B.Name)}
			return true, nil
		}
	}
	return false, nil
}

// givens returns the possible values at the beginning: none, or one by a dead client of either fleet.
func (p pairing) givens(s stage) [][]string {
	if !s.given {
		return [][]string{nil}
	}
	var list [][]string
	for _, of := range []Party{p.v.A, p.v.B} {
		if !of.Kind.Timed() || len(list) > 0 && p.v.A.Name == p.v.B.Name {
			continue // tokens disappear with their keys
		}
		list = append(list, []string{"SET {key} " + of.oldValue()})
	}
	return list
}

// longAgo is when the dead clients wrote their locks. (Five days before a run begins, because its
// eight bytes contain no space.)
var longAgo = time.Date(2019, 12, 28, 0, 0, 0, 0, time.UTC)

// oldValue returns an old value of a client of the fleet.
func (p Party) oldValue() string {
	s := oldredis.MustNew("2.8", oldredis.Options{})
	defer s.Close()
	l, err := p.make(func() string { return "000000790197" }).Acquire(protocol.NewConn(s.Dial()), longAgo, "k", lease)
	if err != nil {
		panic("mixing: " + p.Name + " can't take a free key: " + err.Error())
	}
	return l.Value
}

// progress checks whether clients of one fleet can take a lock left behind by a client of the other: after it
// died holding it (it keeps the lock until its lease ends); after it died anywhere; and after both released
// normally.
func (p pairing) progress(of, by Party) error {
	kept := base(1, 1, 4, of.Name, by.Name)
	kept.Keep = true
	dead := base(1, 1, 2, of.Name, by.Name)
	dead.Faults.Crash = true
	gone := base(2, 1, 3, of.Name, by.Name)
	for _, x := range []struct {
		when When
		c    race.Config
	}{{Holding, kept}, {Halfway, dead}, {Orderly, gone}} {
		x.c.Invariants = []string{"progress"}
		r, err := p.explore(x.c)
		if err != nil {
			return err
		}
		if r.Trace != nil {
			p.v.Stuck = append(p.v.Stuck, Stuck{Of: of.Name, By: by.Name, When: x.when, Schedule: r.Trace.Schedule})
			return nil
		}
	}
	return nil
}

func (p pairing) explore(c race.Config) (race.Result, error) {
	r, err := race.Explore(p.ctx, c)
	p.v.States += r.States
	return r, err
}
