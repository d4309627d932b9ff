package race

import (
	"context"
	"io"

	"github.com/setnxlock/setnxlock/compat/race/internal/explore"
	"github.com/setnxlock/setnxlock/compat/race/internal/live"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/search"
	"github.com/setnxlock/setnxlock/compat/race/internal/trace"
)

// What is explored: go doc compat/race/internal/plan Config, and so on, says what is in each.
type (
	// A Config is what is explored: which lock, on which server, with how many clients, and what may go wrong how
	// often. The zero value of a field is its default.
	Config = plan.Config
	// Faults are what may go wrong in a run, and how often.
	Faults = plan.Faults
	// A Lock is an algorithm that a schedule and Config.Algorithm can name.
	Lock = plan.Lock
	// Locks are algorithms by name. Those that are not this module's are in catalogue.Locks.
	Locks = plan.Locks
	// Stats say how far an exploration has come.
	Stats = plan.Stats
	// A Choice is one step of a schedule: who goes on, and what goes wrong.
	Choice = plan.Choice
	// A Verb says what a Choice does.
	Verb = plan.Verb
)

// The Verbs of a Choice: a client's up to Arrive, then those of time and of the server.
const (
	Step   = plan.Step
	Run    = plan.Run
	Drop   = plan.Drop
	Sever  = plan.Sever
	Cut    = plan.Cut
	Refuse = plan.Refuse
	Stall  = plan.Stall
	Look   = plan.Look
	Crash  = plan.Crash
	Pause  = plan.Pause
	Resume = plan.Resume
	Clock  = plan.Clock
	Stale  = plan.Stale
	Delay  = plan.Delay
	Arrive = plan.Arrive

	Pass         = plan.Pass
	PassUnreaped = plan.PassUnreaped
	Reap         = plan.Reap
	Restart      = plan.Restart
	Failover     = plan.Failover
	Evict        = plan.Evict
	Down         = plan.Down
	Jump         = plan.Jump
)

// Algorithms returns the valid names for Config.Algorithm, sorted: this module's, and all in locks.
func Algorithms(locks Locks) []string { return plan.Algorithms(locks) }

// Describe describes an algorithm of this module or of locks in one line; for several, with plus
// signs between them, it describes each.
func Describe(name string, locks Locks) string { return plan.Describe(name, locks) }

// Invariants returns the names of all invariants.
//
//	exclusion    at no moment do two clients hold the lock, each by its own clock
//	fencing      the storage accepts no write from a holder once a newer one has written; needs a fence to hold
//	ownership    no client removes or changes another's lock while its lease lasts; what reports success has succeeded
//	progress     when all clients are idle or dead, a client can acquire within Config.Within
//	accuracy     ErrLost if and only if the lock was lost; ErrHeld only if a client, or an attempt that is over, held it; unknown only if a message was lost
//	fence-order  fences grow in the order of acquisition
//	fairness     a client that goes on asking is served within as many turns as there are clients; needs Config.Wait
//
// Two readers may hold a lock at once. If a lock's holders are in several keys, or several in one
// key, ownership covers only the removal of another's value, not changes beside it. The order of
// acquisition is the order in which the clients get their replies. Over several servers ownership
// is not checked; of accuracy, only that no client is refused without a holder and that nothing is
// unknown without a loss. For fairness, a turn counts when another client came in between two
// attempts of a waiting client and the second attempt was refused: a client that does not ask is
// not passed over.
func Invariants() []string { return plan.Invariants() }

// Schedule returns c's configuration and the choices as one line, which is all that a replay needs:
//
//	tx:classic 2.4 2x1 : C1 C1 +9.898s C2 C1- C1.crash
//
// Algorithm, server, clients × attempts, and what is not a default: ttl=5s, successor=8.2,
// skew=0s,3s, key=k, within=20s, check=exclusion, given="SET {key} t=-2s", and the words bare,
// extend (or extend=2s,20s), handoff, stale-handle, detach, batch, one-conn, keep, poll, wait, downgrade, write
// and fence.
func Schedule(c Config, choices []Choice) string { return plan.Schedule(c, choices) }

// Words returns the choices alone.
func Words(choices []Choice) string { return plan.Words(choices) }

// ParseSchedule reads the output of [Schedule]. The words may also be written out: "C1 drop", "C1
// clock +3s", "redis restart". Without a colon, all of s is words.
func ParseSchedule(s string) (Config, []Choice, error) { return plan.ParseSchedule(s) }

// ParseWords reads the words of a schedule.
func ParseWords(s string) ([]Choice, error) { return plan.ParseWords(s) }

// Explore runs every schedule of c, breadth-first, and returns a shortest one with a violation, or the
// verdict: none.
//
// Every schedule means: within c's clients, attempts, faults and jumps of time; for one lock; as
// the embedded server behaves. States are identified by 64-bit fingerprints: for n states, the
// chance that two different ones have the same is n²/2⁶⁵. Time jumps to the moments at which
// something changes for a client. A client does not pause between two readings of its clock if it
// sends nothing in between.
//
// A lock that refuses the server is an error: exploring it would show nothing.
func Explore(ctx context.Context, c Config) (Result, error) { return explore.Explore(ctx, c) }

// Within returns c with the bounds of a schedule: its faults, each as often as it stands there, and as many jumps of time.
// The error is [ErrNotExplored] if the schedule has something that can be replayed but not explored.
func Within(c Config, choices []Choice) (Config, error) { return explore.Within(c, choices) }

// What an exploration found.
type (
	// A Looked says what an exploration looked for, and with which faults.
	Looked = plan.Looked
	// A Result is what an exploration found.
	Result = search.Result
	// A Report is a Result as programs read it.
	Report = search.Report
	// An Outcome is the verdict of an exploration.
	Outcome = search.Outcome
)

const (
	// Safe: every schedule within the bounds was run, and no invariant broke.
	Safe = search.Safe
	// Violated: an invariant broke.
	Violated = search.Violated
	// BoundReached: nothing broke until the states or the memory ran out. It proves nothing.
	BoundReached = search.BoundReached
)

// A run, step by step: go doc compat/race/internal/trace Trace, and so on, says what is in each.
type (
	// A Trace is one run of a lock, step by step: what was sent, what came back, what each client believed and what
	// was true. It is the only source of every picture: the terminal's timeline, Mermaid, the HTML page.
	Trace = trace.Trace
	// A Client of a trace.
	Client = trace.Client
	// A Server is the true state of the server.
	Server = trace.Server
	// Storage is the resource that the lock protects.
	Storage = trace.Storage
	// An Event is one step, with the state after it.
	Event = trace.Event
	// A Belief is what a client thinks, by its own clock.
	Belief = trace.Belief
	// A Violation is an invariant broken by a step.
	Violation = trace.Violation
	// A Verdict is what a trace shows.
	Verdict = trace.Verdict
	// An Argument explains a violation, in the form Let / Then / So / Fix.
	Argument = trace.Argument
	// A Source describes a race.
	Source = trace.Source
)

// TraceFormat names the JSON form of a [Trace]. It changes when an older reader would misread the new form.
const TraceFormat = trace.TraceFormat

// The States of a belief.
const (
	Idle    = trace.Idle
	Asking  = trace.Asking
	Holds   = trace.Holds
	RunOut  = trace.RunOut // its lease has ended and it has not noticed, or stopped in time
	Paused  = trace.Paused
	Acts    = trace.Acts    // writes to what the lock protects
	Unknown = trace.Unknown // its last outcome is not known to it
	Lost    = trace.Lost    // and it knows
	Dead    = trace.Dead
)

// ReadTrace reads a trace, from Trace.WriteJSON or by hand, and checks it for renderers.
func ReadTrace(r io.Reader) (Trace, error) { return trace.ReadTrace(r) }

// Seconds writes a number of milliseconds as a trace does: 10s, 1.5s, 3600s.
func Seconds(ms int64) string { return trace.Seconds(ms) }

// Script shortens an EVAL or EVALSHA for a reader: the script by the first digits of its hash, and no
// number of keys.
func Script(cmd []string, key string) []string { return live.Script(cmd, key) }

// Replay runs the choices, step by step, on a live server, and records each step. A choice that can't
// be made where it stands is an error; an invariant that breaks is not: the trace goes on to the end
// of the choices, and Trace.Verdict says where it broke first.
func Replay(c Config, choices []Choice) (Trace, error) {
	full, err := plan.Complete(c)
	if err != nil {
		return Trace{}, err
	}
	return live.Replay(full, choices)
}

// ReplaySchedule runs a whole line, as Schedule writes it. Its algorithms are this
// module's, or of locks.
func ReplaySchedule(line string, locks Locks) (Trace, error) { return live.ReplaySchedule(line, locks) }

// What is seen of a run on a live server.
type (
	// A Spot is the place in the code that a client has reached.
	Spot = live.Spot
	// A Line is one of a file of this module.
	Line = live.Line
	// A Graph is the states around a run, and where each choice leads.
	Graph = live.Graph
	// A GraphState is one state of a Graph.
	GraphState = live.GraphState
)

// Spots makes the choices and returns each client's place. For a client that is about to read its
// clock, it is the place after the reading.
func Spots(c Config, choices []Choice) ([]Spot, error) { return live.Spots(c, choices) }

// Follow makes the choices of another lock's schedule, and leaves out the impossible ones. Then each
// client that asks for something goes on until it has its answer, 12 steps at most. A lock that
// refuses the server is an error.
func Follow(c Config, choices []Choice) (Trace, error) { return live.Follow(c, choices) }

// Around returns the graph around a schedule: from each reachable state, every client's next step, the
// schedule's faults as often as they stand in it, and as many jumps of time: the schedule's, and the jumps
// that times returns for the run so far (nil: none). Of more than limit states it has the schedule's and
// the nearest to them. The algorithms are this module's, or of locks.
func Around(schedule string, limit int, locks Locks, times func([]Choice, Trace) []Choice) (Graph, error) {
	return live.Around(schedule, limit, locks, times)
}

// What is computed of this module's locks.
type (
	// A Matrix says what every algorithm of this module promises on every server under every fault.
	Matrix = explore.Matrix
	// A Cell is one algorithm on one server under one fault, with one number of clients.
	Cell = explore.Cell
	// A Break is a broken invariant with a shortest schedule that breaks it.
	Break = explore.Break
	// A Fault is a column of the guarantees: what goes wrong.
	Fault = explore.Fault
	// A Remedy is what helps against a violation, found by exploring: which faults of the schedule are
	// necessary, and which locks survive them.
	Remedy = explore.Remedy
)

// Guarantees computes the matrix on all processors. seen, if not nil, is called with each finished
// cell, one at a time.
func Guarantees(ctx context.Context, seen func(Cell)) (Matrix, error) {
	return explore.Guarantees(ctx, seen)
}

// Guaranteed returns the algorithms of the matrix, in order. If the name has a plus sign, the first
// client runs the first algorithm, the second the second, and a third client the first again.
func Guaranteed() []string { return explore.Guaranteed() }

// Cells returns the matrix, with nothing explored yet.
func Cells() []Cell { return explore.Cells() }

// AllFaults returns the columns, in order. In all of them time jumps, and clients are interleaved
// in every way.
func AllFaults() []Fault { return explore.AllFaults() }

// FaultsOf returns an algorithm's faults in the matrix.
func FaultsOf(algorithm string) []Fault { return explore.FaultsOf(algorithm) }

// ErrNotExplored means that there is no [Remedy], because the schedule has something that can be
// replayed but not explored, or because the search ran out of room.
var ErrNotExplored = explore.ErrNotExplored

// Remedies takes a trace with a violation, leaves out one of its faults after the other and explores
// again, and explores the other locks under the same faults. The algorithms are this module's and
// those in known.
func Remedies(ctx context.Context, t Trace, known Locks) (Remedy, error) {
	return explore.Remedies(ctx, t, known)
}
