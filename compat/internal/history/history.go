// Package history judges locks by what their clients believed. A Judge takes a history, event by event, and says who
// held a key beside whom, whose fence fell, who was told of a loss that was none, or of no loss when there was one,
// whose context outlived its lease, whose lock another process removed, and what was left.
//
// It has no goroutine, no clock and no I/O. Moments are nanoseconds of any clock that the clients of a history share.
// A verdict comes with the event that shows it. A false loss on a key that nobody observes shows when all is over.
package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// An Op is what an event tells.
type Op string

// The events. A hold is one client's belief in one key, from Got on.
const (
	Got      Op = "got"      // the client is told that it has Key, for which it asked at Asked
	Holds    Op = "holds"    // it has believed in the lock until now, and goes on until Until
	Works    Op = "works"    // the lock's context goes on
	Ends     Op = "ends"     // the client gives the lock up, or its context has ended
	Again    Op = "again"    // the client has it still: what was to give it up has failed
	Released Op = "released" // the call that gave it up has returned
	Lost     Op = "lost"     // the client is told that the lock is lost
	Kept     Op = "kept"     // the client is told of no loss: Text says how
	Crashed  Op = "crashed"  // the process By died, between At and Until
	Changed  Op = "changed"  // By, or time, changed what is on Key
	Forgot   Op = "forgot"   // servers may forget Key, between At and Until: what they said before is counted apart
	Left     Op = "left"     // Key is there when all is over: Text says how
)

// An Event is a line of a history. Each Op uses some of the fields.
type Event struct {
	Op       Op     `json:"op"`
	At       int64  `json:"at"`
	ID       string `json:"id,omitempty"` // the hold
	By       string `json:"by,omitempty"` // the process; Changed: "" is time
	Key      string `json:"key,omitempty"`
	Asked    int64  `json:"asked,omitempty"`
	Until    int64  `json:"until,omitempty"`
	Fence    int64  `json:"fence,omitempty"`
	Shared   bool   `json:"shared,omitempty"`   // Got: a reader has it
	Most     int    `json:"most,omitempty"`     // Got: so many may have it, each in a slot; 0: it is no semaphore
	Slot     int    `json:"slot,omitempty"`     // Got: the slot, to which the fence belongs
	From     string `json:"from,omitempty"`     // Got: the hold of the writer that it was until then
	Unplaced bool   `json:"unplaced,omitempty"` // Got: it was over when it was told, and nobody knows since when
	There    bool   `json:"there,omitempty"`    // Changed: the key has a value
	Owner    string `json:"owner,omitempty"`    // Changed: whose value it is
	Other    bool   `json:"other,omitempty"`    // Lost: said by another server than the one that gave the lock
	Kind     Kind   `json:"kind,omitempty"`     // Forgot: explains verdicts of this kind alone
	Text     string `json:"text,omitempty"`
}

// A Kind is what a verdict is about.
type Kind string

// The kinds of verdicts.
const (
	Exclusion  Kind = "exclusion"     // two hold a key at once, and are not both readers, or more hold a semaphore than may
	Fencing    Kind = "fencing"       // a fence falls, or is missing
	FalseLoss  Kind = "false loss"    // "lost", and its time was not up, and nobody took the key
	UntoldLoss Kind = "loss not told" // the client of a lock that is gone believes in it, or is told of no loss
	Outlived   Kind = "outlived"      // a context goes on when its lease has ended
	Ownership  Kind = "ownership"     // a process removed or changed what another has
	Leak       Kind = "leak"          // something is there when all is over
)

// A Verdict is one thing that is wrong.
type Verdict struct {
	Kind  Kind
	Key   string
	Who   string // the hold; "": nobody's
	At    int64
	Text  string
	Apart bool // servers that forgot may explain it
}

func (v Verdict) String() string { return fmt.Sprintf("%s: %s: %s", v.Kind, v.Key, v.Text) }

// A Hold is what a client believed of a key.
type Hold struct {
	ID, Key, By      string
	Asked, Got       int64 // one that was told when its lease was over had it before Until, if at all
	Until, End, Gone int64 // Gone is when its release had returned; Never: not yet
	Fence            int64
	Shared, Unplaced bool
	Most, Slot       int    // of a semaphore
	How              string // what its Ends said

	from   *Hold // the writer that it was
	fence  int64 // the last
	told   []ack // each time that it was told of a later end
	lost   Event // zero: it was told of no loss
	judged bool  // what follows counts no more
	since  int   // the changes of its key before it
}

// An ack is a moment at which a client was told how long it has a lock.
type ack struct{ at, until int64 }

// acknowledged is when h's client was told that it has the lock beyond a moment.
func (h *Hold) acknowledged(beyond int64) int64 {
	for _, a := range h.told {
		if a.until > beyond {
			return a.at
		}
	}
	return h.Got
}

// Never is not yet.
const Never = math.MaxInt64

// Over is when the client stopped to believe, as far as is known.
func (h *Hold) Over() int64 { return min(h.Until, h.End) }

// Judged returns what is wrong with a whole history. Events of the same moment stand in their order.
func (j *Judge) Judged(events []Event) (all []Verdict) {
	j.Found = func(v Verdict) { all = append(all, v) }
	inTime := func(a, b Event) int { return cmp.Compare(a.At, b.At) }
	for _, e := range slices.SortedStableFunc(slices.Values(events), inTime) {
		j.Add(e)
	}
	j.Finish()
	return all
}
