// Package history judges locks by the beliefs of their clients. A Judge takes a history, event by event, and finds
// every violation of exclusion, fencing and ownership, every false loss and untold loss, every context that outlived
// its lease, and every key that stayed behind.
//
// The package has no goroutine, no clock and no I/O. Moments are nanoseconds of any clock that the clients of a
// history share. A verdict comes with the event that shows it. A false loss on a key that nobody observes shows at
// the end of the history.
package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// An Op is the kind of an event.
type Op string

// The events. A hold is one client's belief in one key, from Got on.
const (
	Got      Op = "got"      // the client learns that it holds Key, which it requested at Asked
	Holds    Op = "holds"    // the client has believed in the lock until now, and goes on until Until
	Works    Op = "works"    // the lock's context goes on
	Ends     Op = "ends"     // the client gives the lock up, or the lock's context has ended
	Again    Op = "again"    // the client still holds the lock: the call that should give it up has failed
	Released Op = "released" // the call that gave the lock up has returned
	Lost     Op = "lost"     // the client learns that the lock is lost
	Kept     Op = "kept"     // a call about the lock reports no loss: Text names the call
	Crashed  Op = "crashed"  // the process By died, between At and Until
	Changed  Op = "changed"  // By, or time, changed the value of Key
	Forgot   Op = "forgot"   // servers may forget Key, between At and Until: the loss excuses verdicts about earlier replies
	Left     Op = "left"     // Key exists at the end of the history: Text says in which state
)

// An Event is one line of a history. Each Op uses some of the fields.
type Event struct {
	Op       Op     `json:"op"`
	At       int64  `json:"at"`
	ID       string `json:"id,omitempty"` // the hold
	By       string `json:"by,omitempty"` // the process; Changed: "" is the end of a ttl
	Key      string `json:"key,omitempty"`
	Asked    int64  `json:"asked,omitempty"`
	Until    int64  `json:"until,omitempty"`
	Fence    int64  `json:"fence,omitempty"`
	Shared   bool   `json:"shared,omitempty"`   // Got: the client is a reader
	Most     int    `json:"most,omitempty"`     // Got: the size of the semaphore; 0: the lock is not a semaphore
	Slot     int    `json:"slot,omitempty"`     // Got: the slot of the semaphore, to which the fence belongs
	From     string `json:"from,omitempty"`     // Got: the hold of the writer that became this reader
	Unplaced bool   `json:"unplaced,omitempty"` // Got: the lease was over before the reply, and its start is unknown
	There    bool   `json:"there,omitempty"`    // Changed: the key has a value
	Owner    string `json:"owner,omitempty"`    // Changed: the process that wrote the value
	Other    bool   `json:"other,omitempty"`    // Lost: another server reports the loss than the one that gave the lock
	Kind     Kind   `json:"kind,omitempty"`     // Forgot: the only kind of verdict that the loss excuses; "": every kind
	Text     string `json:"text,omitempty"`
}

// A Kind is the rule that a verdict finds violated.
type Kind string

// The kinds of verdicts.
const (
	Exclusion  Kind = "exclusion"     // two clients, not both readers, hold a key at once, or too many hold a semaphore
	Fencing    Kind = "fencing"       // a fence falls, or is missing
	FalseLoss  Kind = "false loss"    // a client learns of a loss before the end of its lease, and nobody took the key
	UntoldLoss Kind = "loss not told" // a client believes in a lock that is gone, or a call after the loss reports none
	Outlived   Kind = "outlived"      // a lock's context goes on after its lease
	Ownership  Kind = "ownership"     // a process removed or changed the lock of another
	Leak       Kind = "leak"          // a key exists at the end of the history
)

// A Verdict is one violation.
type Verdict struct {
	Kind    Kind
	Key     string
	Who     string // the hold; "": no hold
	At      int64
	Text    string
	Excused bool // servers that forgot the key may explain the violation
}

func (v Verdict) String() string { return fmt.Sprintf("%s: %s: %s", v.Kind, v.Key, v.Text) }

// A Hold is a client's belief that it holds a key.
type Hold struct {
	ID, Key, By      string
	Asked, Got       int64 // Got is at most Until: a reply that came after the lease gave the lock before its end, if at all
	Until, End, Gone int64 // Gone is the moment at which the release had returned; Never: not yet
	Fence            int64
	Shared, Unplaced bool
	Most, Slot       int    // of a semaphore
	How              string // the text of its Ends

	from   *Hold // the writer that became this reader
	fence  int64 // the newest
	acks   []ack // the replies that moved the end of the lease
	lost   Event // the zero Event: no loss was reported
	judged bool  // one verdict is enough: later events of this hold count no more
	since  int   // the number of changes of the key before this hold
}

// An ack is a reply that told a client the end of its lease.
type ack struct{ at, until int64 }

// acknowledged returns the moment of the reply that moved the end of h's lease past beyond.
func (h *Hold) acknowledged(beyond int64) int64 {
	for _, a := range h.acks {
		if a.until > beyond {
			return a.at
		}
	}
	return h.Got
}

// Never is a moment after all others.
const Never = math.MaxInt64

// Over returns the known end of the client's belief.
func (h *Hold) Over() int64 { return min(h.Until, h.End) }

// Judged returns the violations in a complete history. Events of the same moment keep their order.
func (j *Judge) Judged(events []Event) (all []Verdict) {
	j.Found = func(v Verdict) { all = append(all, v) }
	inTime := func(a, b Event) int { return cmp.Compare(a.At, b.At) }
	for _, e := range slices.SortedStableFunc(slices.Values(events), inTime) {
		j.Add(e)
	}
	j.Finish()
	return all
}
