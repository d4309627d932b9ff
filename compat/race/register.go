package race

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// A Registration is an algorithm that schedules and Config.Algorithm can name.
type Registration struct {
	Name string
	Says string // one line
	Bare bool   // it makes sense only without compat.Locker

	// Among says that its overlaps with others of its kind don't count: with
	// several of a fleet that is unsafe by itself, only what befalls the others is
	// looked for.
	Among bool

	// Margins are the moments, after the time that a value says or before it, at
	// which it begins to see something else in the value: where it leaves a lease
	// alone for longer, or counts in whole seconds.
	Margins []time.Duration

	// New makes one whose values are token's.
	New func(token func() string) compat.Algorithm
}

// Register adds to Algorithms. It is to be called by an init function, and
// panics if there is the name already.
func Register(r Registration) {
	if _, ok := registry[r.Name]; ok {
		panic("race: a second algorithm " + r.Name)
	}
	registry[r.Name] = entry{
		make:   func(_ *Config, token func() string) compat.Algorithm { return r.New(token) },
		bare:   r.Bare,
		says:   r.Says,
		shared: r.Among,
	}
	margins[r.Name] = r.Margins
}

// margins are Registration.Margins, by name.
var margins = map[string][]time.Duration{}

// Now is the client's clock, for algorithms that read it in the midst of an
// attempt, as those of this module don't.
func (w *wire) Now() time.Time { return w.a.now() }

// Redial is what a client library does behind its user's back when its
// connection has broken: it makes another.
func (w *wire) Redial() redis.Conn {
	w.Close()
	return &wire{a: w.a}
}
