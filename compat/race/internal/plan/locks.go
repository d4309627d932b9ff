package plan

import (
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A Lock is an algorithm that a schedule and Config.Algorithm can name.
type Lock struct {
	Says string // one line
	Bare bool   // it makes sense only without compat.Locker

	// Among says that two holders of this same lock don't count as a violation: they are readers, or
	// their fleet is unsafe by itself, and only what it does to other fleets matters.
	Among bool

	// Most is how many hold it at most, if Among: one more is a violation. 0: any number may.
	Most int

	// Margins are the moments, relative to the time in a value, at which the lock begins to judge
	// the value differently: because of a margin, or because it counts in whole seconds.
	Margins []time.Duration

	// New makes one whose values are token's. fence is Config.Fence.
	New func(token func() string, fence bool) protocol.Algorithm
}

// Locks are algorithms by name. Those that are not this module's are in catalogue.Locks.
type Locks map[string]Lock

// entry finds an algorithm, this module's or one of locks.
func (locks Locks) entry(name string) (Entry, bool) {
	if e, ok := registry()[name]; ok {
		return e, true
	}
	l, ok := locks[name]
	return Entry{Lock: l}, ok
}

// Shipped reports whether an algorithm is this module's.
func Shipped(name string) bool {
	_, ok := registry()[name]
	return ok
}

// Algorithms returns the valid names for Config.Algorithm, sorted: this module's, and all in locks.
func Algorithms(locks Locks) []string {
	return slices.Sorted(func(yield func(string) bool) {
		for name := range registry() {
			if !yield(name) {
				return
			}
		}
		for name := range locks {
			if !yield(name) {
				return
			}
		}
	})
}

// Describe describes an algorithm of this module or of locks in one line; for several, with plus
// signs between them, it describes each.
func Describe(name string, locks Locks) string {
	var list []string
	for _, n := range strings.Split(name, "+") {
		e, _ := locks.entry(n)
		list = append(list, e.Says)
	}
	return strings.Join(list, "; ")
}
