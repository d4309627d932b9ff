// Package plan has what is explored and replayed: the Config, its defaults and what is wrong with it, the locks
// by name, and a schedule's words. It runs nothing.
package plan

import (
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A Config is what is explored: which lock, on which server, with how many clients, and what may go
// wrong how often. The zero value of a field is its default.
type Config struct {
	// Algorithm is a name of Algorithms: "tx:classic", "getset:guarded". With plus
	// signs, "getset:classic+tx:classic", it names one for each client, the last
	// one for all that remain.
	Algorithm string

	// Locks are what Algorithm can name beside this module's: catalogue.Locks, or
	// yours.
	Locks Locks

	// New makes an algorithm of your own. Its values must come from token, which
	// returns twelve digits, different for each client and call; everything
	// else from its arguments. Algorithm is then only what it is called.
	New func(token func() string) protocol.Algorithm

	// Bare runs the algorithm alone, without compat.Locker.
	Bare bool

	Server   string // a version or profile of oldredis, or one of today; default "2.4"
	Clients  int    // default 2, at most 4
	Attempts int    // of each client; default 2, at most 9

	// Anyway has a lock explored on a server that it refuses: what would happen if it did not.
	Anyway bool

	// Successor is what takes over after a failover: another version, which counts in milliseconds as Server does. "": one like
	// Server.
	Successor string

	TTL  time.Duration   // default 10 s
	Skew []time.Duration // what each client's clock shows more than the server's
	Key  string          // default "lock.report"

	// Given are commands that the server has run before: "SET {key} t=-2s",
	// where {key} is Key and t=-2s the timestamp of two seconds ago.
	Given []string

	Faults Faults
	Ticks  int // how often time jumps

	Extend  bool // holders extend once before they release
	Handoff bool // holders hand the lock off once, to the next in their process, before they release

	// ExtendTo are the ttls to which holders extend, one after the other: shorter ones, longer
	// ones. Default: with Extend the TTL, once.
	ExtendTo []time.Duration

	// These need the Locker.
	Wait        bool // a refused client asks again, attempt after attempt, as a waiter (compat.Locker.WaitingAs)
	Downgrade   bool // writers go on as readers before they release (rwlock.Downgrade)
	Detach      bool // holders detach the lock, and the handle is adopted, before they release
	StaleHandle bool // somebody releases by a handle from before the hand-off, or tries to
	Batch       bool // holders have another lock beside it, and the Locker renews both in one write
	OneConn     bool // a client has one connection: a step that needs a second waits for it in vain

	Keep  bool // holders release nothing: their leases run out
	Poll  bool // an attempt looks at the key first, as a waiting Lock does
	Write bool // holders write to a storage, which accepts no older fence than it has seen
	Fence bool // the algorithm draws fences

	Invariants []string      // default: all that apply; see Invariants
	Within     time.Duration // how soon a dead client's lock is free again; default: the ttl and a margin

	// Each goes on after an invariant broke, until all are broken or there is nothing left to
	// explore, as if each were explored alone. Result.Breaks has them all.
	Each bool

	MaxStates int   // 0: 50 million
	MaxMemory int64 // bytes; 0: 1.5 GB

	// Workers is the number of processors that a search uses; 0: all. The result is the same.
	Workers int

	// NoSymmetry distinguishes clients that are alike. With three of them there are six times as
	// many states, and nothing more is found.
	NoSymmetry bool

	// Verify runs all client code twice, to catch what is not deterministic.
	Verify bool

	Progress func(Stats) // called now and then, by Explore

	// Name is what the run is called in a trace.
	Name string
}

// Faults are what may go wrong in a run, and how often.
type Faults struct {
	LostReplies  int  // the command ran, the answer never came
	LostRequests int  // the command never arrived
	LateRequests int  // the write arrived after its connection was given up, at any later time, if the server has not restarted; at most 1
	Cuts         int  // the connection broke between two commands of one write
	Refusals     int  // the server answered a command with an error instead of running it; at most 3
	Crash        bool // clients die for good, anywhere
	Restart      int  // the server restarts empty; of several, one
	Failover     int  // a replica takes over that has not seen the last write
	Evict        int  // the server drops the key
	Down         int  // one of several servers answers no more
	Unreaped     bool // keys that have expired may still be in memory

	// Late is how often time may pass after a client has read its clock and before its next
	// command, or after a reply and before the client checks whether its lease still lasts. 0: as
	// often as time jumps; -1: never.
	Late int
}

func (f *Faults) counts() []*int {
	return []*int{&f.LostReplies, &f.LostRequests, &f.LateRequests, &f.Cuts, &f.Refusals, &f.Restart, &f.Failover, &f.Evict, &f.Down}
}

// Stats say how far an exploration has come.
type Stats struct {
	States      int
	Transitions int
	Depth       int // choices since the beginning
	Elapsed     time.Duration
	Memory      int64 // bytes that the search holds, about

	// Left is an estimate of how many states are still to be found, from how their number has grown
	// and shrunk with each depth; -1: too early to tell. Once half the states are found, the
	// estimated total is rarely wrong by more than half.
	Left int
}
