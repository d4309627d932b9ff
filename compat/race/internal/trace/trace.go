// Package trace has what package race shows of a run: a Trace, step by step, and its JSON.
package trace

import (
	"strconv"
	"strings"
)

// TraceFormat names the JSON form of a [Trace]. It changes when an older reader would misread the
// new form.
const TraceFormat = "setnxlock-trace/1"

// A Trace is one run of a lock, step by step: what was sent, what came back,
// what each client believed and what was true. It is the only source of every
// picture: the terminal's timeline, Mermaid, the HTML page. Times are seconds
// since the run began, never a clock's own; timestamps on the key are written
// as "t=10s", tokens as the client that wrote them, "«C1»".
type Trace struct {
	Format    string `json:"format"`              // TraceFormat
	Scenario  string `json:"scenario,omitempty"`  // "getset/double-takeover"; "" for a trace that was found
	Title     string `json:"title"`               // one line
	Objective string `json:"objective,omitempty"` // what the reader is asked to bring about
	Text      string `json:"text,omitempty"`      // what there is to know beforehand; paragraphs
	Algorithm string `json:"algorithm"`           // "getset:classic", or a name of the catalogue
	Server    string `json:"server"`              // "2.4", "twemproxy", …
	Key       string `json:"key"`                 // "lock.report"
	TTL       int64  `json:"ttl_ms"`              // the lease that was asked for

	Clients  []Client `json:"clients"`
	Start    Server   `json:"start"` // before the first event
	Events   []Event  `json:"events"`
	Verdict  Verdict  `json:"verdict"`
	Argument Argument `json:"argument"`

	// Schedule is the choices that make this trace, as `setnxlock race replay`
	// takes them.
	Schedule string `json:"schedule"`

	Servers []string `json:"servers,omitempty"` // the versions on which it was shown
	Sources []Source `json:"sources,omitempty"`
	Instead string   `json:"instead,omitempty"` // what our library does instead
}

// ReplayLine returns the command for the same trace.
func (t Trace) ReplayLine() string {
	return "setnxlock race replay '" + strings.ReplaceAll(t.Schedule, "'", `'\''`) + "'"
}

// Seconds writes a number of milliseconds as a trace does: 10s, 1.5s, 3600s.
func Seconds(ms int64) string {
	return strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64) + "s"
}

// A Client of a trace.
type Client struct {
	Name string `json:"name"`           // "C1"
	Skew int64  `json:"skew_ms"`        // its clock, less the server's
	Runs string `json:"runs,omitempty"` // its algorithm, where clients differ
	Note string `json:"note,omitempty"` // "a redis-py 2.9 client"
}

// An Event is one step, with the state after it.
type Event struct {
	N   int    `json:"n"`     // from 1
	At  int64  `json:"at_ms"` // the server's time
	Who string `json:"who"`   // a client's name; "time", "redis", "network"

	// Cmd is the command as it was sent, with times and tokens readable, and
	// Reply the answer as received. A step that is no command has a Note:
	// "time +9s", "stops (garbage collection)", "crashes".
	Cmd   string `json:"cmd,omitempty"`
	Reply string `json:"reply,omitempty"`
	Note  string `json:"note,omitempty"`
	Lost  string `json:"lost,omitempty"` // "reply": ran, the answer never came; "request": never arrived; "late": it is still on its way; "cut": the connection broke between two commands of one write

	Why     string            `json:"why"`               // one sentence: why this client does this now, or what just happened
	Changed []string          `json:"changed,omitempty"` // "key", "ttl", "fence", "storage", "C1" …: what differs from the step before
	Server  Server            `json:"server"`            // after the step
	Belief  map[string]Belief `json:"belief"`            // of each client, after the step

	Violation *Violation `json:"violation,omitempty"` // broken by this step
}

// A Server is the true state of the server.
type Server struct {
	Value   string   `json:"value"`             // decoded: "t=10s", "«C1»"; "" if there is no key; of several servers "«C1» - gone"
	Raw     string   `json:"raw,omitempty"`     // the bytes
	TTL     int64    `json:"ttl_ms"`            // -1: none
	Dead    bool     `json:"dead,omitempty"`    // expired and not reaped yet
	Writer  string   `json:"writer,omitempty"`  // who wrote the value that is on the key: a client, "somebody before", "several"
	Fence   int64    `json:"fence,omitempty"`   // the counter
	Watched []string `json:"watched,omitempty"` // "C1", "C2 (touched)"
	Storage *Storage `json:"storage,omitempty"` // the protected thing, where a scenario has one
	Each    []Server `json:"each,omitempty"`    // of several servers, what each has: value, bytes, ttl and writer
	Others  []string `json:"others,omitempty"`  // other keys: "{lock.report}:«C1» = «C1» ttl 10s"
}

// Storage is the resource that the lock protects.
type Storage struct {
	Writer string `json:"writer"`
	Fence  int64  `json:"fence"`
}

// A Belief is what a client thinks, by its own clock.
type Belief struct {
	State string `json:"state"`    // one of the States
	Until int64  `json:"until_ms"` // of its lease, by its own clock; -1: it has none
	Now   int64  `json:"now_ms"`   // its own clock
	Fence int64  `json:"fence,omitempty"`
	Next  string `json:"next,omitempty"` // the command it is about to send
}

// The States of a belief. The mark is the left edge of a client's column in a
// timeline: readable without colour.
const (
	Idle    = "idle"              // ' '
	Asking  = "asking"            // ' '
	Holds   = "holds"             // '#'
	RunOut  = "holds but run out" // '.' its lease has ended and it has not noticed, or stopped in time
	Paused  = "paused"            // ':'
	Acts    = "acts"              // '!' writes to what the lock protects
	Unknown = "unknown"           // '?' its last outcome is not known to it
	Lost    = "lost"              // ' ' and it knows
	Dead    = "dead"              // 'x'
)

// A Violation is an invariant broken by a step.
type Violation struct {
	Invariant string `json:"invariant"` // "exclusion", "fencing", "ownership", "progress", "accuracy", "fence-order", "fairness"
	Text      string `json:"text"`      // "C1 and C2 both hold the lock"
}

// A Verdict is what a trace shows.
type Verdict struct {
	Violated string `json:"violated,omitempty"` // the invariant; "" if all held
	Step     int    `json:"step,omitempty"`     // the event that broke it
}

// An Argument explains a violation, in the form Let / Then / So / Fix.
type Argument struct {
	Let  []string `json:"let,omitempty"`
	Then []string `json:"then,omitempty"`
	So   string   `json:"so,omitempty"`
	Fix  string   `json:"fix,omitempty"`
}

// A Source describes a race.
type Source struct {
	Name string `json:"name"`
	URL  string `json:"url,omitempty"`
}
