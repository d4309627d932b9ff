package race

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
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

	Server   string // a version or profile of oldredis; default "2.4"
	Clients  int    // default 2, at most 4
	Attempts int    // of each client; default 2, at most 9

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
	Signal      bool // releases wake a client that waits elsewhere
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

	// keepHistory tells histories apart that come to the same memory, for tests.
	keepHistory bool

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

const defaultKey = "lock.report"

func (c *Config) workers() int {
	if c.Workers > 0 {
		return c.Workers
	}
	return runtime.GOMAXPROCS(0)
}

// maxClients is how many a state has room for.
const maxClients = 4

// complete returns c with its defaults, or what is wrong with it.
func (c Config) complete() (*Config, error) {
	c.Server = cmp.Or(c.Server, "2.4")
	c.Key = cmp.Or(c.Key, defaultKey)
	c.Clients, c.Attempts, c.TTL = cmp.Or(c.Clients, 2), cmp.Or(c.Attempts, 2), cmp.Or(c.TTL, 10*time.Second)
	c.MaxStates, c.MaxMemory = cmp.Or(c.MaxStates, 50_000_000), cmp.Or(c.MaxMemory, 1500<<20)
	if c.Algorithm == "" && c.New != nil {
		c.Algorithm = "own"
	}
	c.Name = cmp.Or(c.Name, c.Algorithm+" on "+c.Server)
	if err := c.wrong(); err != nil {
		return nil, err
	}
	if c.New == nil {
		for _, name := range strings.Split(c.Algorithm, "+") {
			if _, ok := c.Locks.entry(name); !ok {
				return nil, fmt.Errorf("race: no algorithm %q: there are %s", name, strings.Join(Algorithms(c.Locks), ", "))
			}
		}
	}
	if c.Invariants == nil {
		c.Invariants = c.applicable()
	}
	for _, v := range c.Invariants {
		if err := firstOf([]check{
			{!slices.Contains(Invariants(), v),
				fmt.Sprintf("no invariant %q: there are %s", v, strings.Join(Invariants(), ", "))},
			{v == "fencing" && !c.Write, "the invariant fencing needs Write"},
			{v == "fairness" && !c.Wait, "the invariant fairness needs Wait: who asks once has no claim to a turn"},
			{v == "fence-order" && !c.Fence, "the invariant fence-order needs Fence"},
			{v == "ownership" && c.form() == quorum,
				"ownership is not checked over several servers: the content of one of them says little"},
		}); err != nil {
			return nil, err
		}
	}
	if c.Within == 0 {
		c.Within = c.patience()
	}
	return &c, nil
}

// A check is something that may be wrong.
type check struct {
	wrong bool
	says  string
}

func firstOf(checks []check) error {
	for _, x := range checks {
		if x.wrong {
			return errors.New("race: " + x.says)
		}
	}
	return nil
}

// wrong is what is wrong with a number, a time or a combination.
func (c *Config) wrong() error {
	if c.Clients < 1 || c.Clients > maxClients {
		return fmt.Errorf("race: %d clients, want 1 to %d", c.Clients, maxClients)
	}
	servers, f := append(oldredis.Versions(), oldredis.Profiles()...), &c.Faults
	odd := func(d, atLeast time.Duration) bool { return d < atLeast || d > time.Hour || d%time.Millisecond != 0 }
	whole := "want whole milliseconds, an hour at most"
	several := c.New != nil || c.servers() > 0
	list := []check{
		{c.Attempts < 1 || c.Attempts > 9, fmt.Sprintf("%d attempts, want 1 to 9", c.Attempts)},
		{odd(c.TTL, 0), fmt.Sprintf("a ttl of %v, %s", c.TTL, whole)},
		{len(c.Skew) > c.Clients, fmt.Sprintf("%d clocks for %d clients", len(c.Skew), c.Clients)},
		{!slices.Contains(servers, c.Server),
			fmt.Sprintf("no server %q: there are %s", c.Server, strings.Join(servers, ", "))},
		{c.StaleHandle && !c.Handoff, "a handle gets stale by a hand-off"},
		{f.LateRequests > 1, fmt.Sprintf("%d requests on their way, want 0 or 1", f.LateRequests)},
		{f.Refusals > 3, fmt.Sprintf("%d refusals, want 0 to 3", f.Refusals)},
		{f.Late < -1 || f.Late > 7, fmt.Sprintf("%d late clients, want -1 to 7", f.Late)},
		{f.Down > 0 && !several, "a server that answers no more is one of several: name a lock that has several"},
		{f.Failover > 0 && c.servers() > 0, "of several servers none has a replica"},
		{c.Ticks < 0 || c.Ticks > 15, fmt.Sprintf("%d jumps of time, want 0 to 15", c.Ticks)},
	}
	for _, n := range f.counts() {
		list = append(list, check{*n < 0 || *n > 7, fmt.Sprintf("%d faults of a kind, want 0 to 7", *n)})
	}
	for _, d := range c.ExtendTo {
		list = append(list, check{odd(d, 1), fmt.Sprintf("an extension to %v, %s", d, whole)})
	}
	for _, d := range c.Skew {
		list = append(list, check{odd(d.Abs(), 0), fmt.Sprintf("a clock off by %v, %s", d, whole)})
	}
	for i := range c.Clients {
		list = append(list,
			check{c.Batch && c.entry(i).pinned > 0, "leases that pin their connections are not renewed in one write"},
			check{c.Downgrade && !c.entry(i).turns, "only writers of rw:write go on as readers"})
	}
	return firstOf(list)
}

// applicable are the invariants that hold of a lock without being asked for:
// fencing needs a storage, fence-order fences, and fairness clients that wait.
func (c *Config) applicable() []string {
	list := []string{"exclusion", "ownership", "progress", "accuracy"}
	if c.form() == quorum {
		list = slices.DeleteFunc(list, func(v string) bool { return v == "ownership" })
	}
	if c.Write {
		list = append(list, "fencing")
	}
	if c.Fence {
		list = append(list, "fence-order")
	}
	if c.Wait {
		list = append(list, "fairness")
	}
	return list
}

// patience is the ttl and a margin: a second for servers that count in whole
// ones, another for those that poll, the difference of the clocks twice; and
// for locks that are repaired, the ttl once more, during which they are watched.
func (c *Config) patience() time.Duration {
	longest := c.TTL
	for _, ttl := range c.ExtendTo {
		longest = max(longest, ttl)
	}
	d := longest + 2*time.Second + c.TTL/10
	var skew time.Duration
	for _, s := range c.Skew {
		skew = max(skew, s.Abs())
	}
	d += slices.Max(append([]time.Duration{0}, c.entry(c.Clients-1).Margins...))
	if c.algorithm(&agent{c: c}).Traits().Repair != nil {
		d += c.TTL + time.Second
	}
	return d + 2*skew
}

// skew of a client's clock, in milliseconds.
func (c *Config) skew(client int) int64 {
	if client < len(c.Skew) {
		return c.Skew[client].Milliseconds()
	}
	return 0
}

// runs is the name of the algorithm that a client runs.
func (c *Config) runs(client int) string {
	names := strings.Split(c.Algorithm, "+")
	return names[min(client, len(names)-1)]
}

// algorithm is a's own, its values told apart from all others'.
func (c *Config) algorithm(a *agent) protocol.Algorithm { return c.algorithmOf(a, a.id) }

// algorithmOf is what a runs in the place of a client.
func (c *Config) algorithmOf(a *agent, client int) protocol.Algorithm {
	if c.New != nil {
		return c.New(a.token)
	}
	switch e, _ := c.Locks.entry(c.runs(client)); {
	case e.form == quorum:
		return overServers{a, a.token}
	default:
		return e.New(a.token, c.Fence)
	}
}

// readers is the algorithm of the readers beside a writer.
func (c *Config) readers(a *agent) protocol.Algorithm {
	e, _ := c.Locks.entry(strings.Replace(c.runs(a.id), "rw:write", "rw:read", 1))
	return e.New(a.token, c.Fence)
}

func (c *Config) bare(client int) bool { return c.Bare || c.entry(client).Bare }

// entry is what is known of a client's algorithm.
func (c *Config) entry(client int) entry {
	if c.New != nil {
		return entry{Lock: Lock{Bare: c.Bare}}
	}
	e, _ := c.Locks.entry(c.runs(client))
	return e
}

// extensions are the ttls to which a holder extends, in order.
func (c *Config) extensions() []time.Duration {
	if c.Extend && len(c.ExtendTo) == 0 {
		return []time.Duration{c.TTL}
	}
	return c.ExtendTo
}

// form is that of the lock. Clients whose locks differ in it do not exclude each other.
func (c *Config) form() form {
	var f form
	for i := range max(c.Clients, 1) {
		f = max(f, c.entry(i).form)
	}
	return f
}

// alike reports whether two clients differ in nothing but their name.
func (c *Config) alike(i, j int) bool {
	return i == j || c.skew(i) == c.skew(j) && c.runs(i) == c.runs(j) && !c.entry(i).apart
}

// checks reports whether an invariant is to be checked.
func (c *Config) checks(invariant string) bool { return slices.Contains(c.Invariants, invariant) }

func (f *Faults) counts() []*int {
	return []*int{&f.LostReplies, &f.LostRequests, &f.LateRequests, &f.Cuts, &f.Refusals, &f.Restart, &f.Failover, &f.Evict, &f.Down}
}

// happens reports whether a fault that is counted may happen.
func (f *Faults) happens() bool {
	return slices.ContainsFunc(f.counts(), func(n *int) bool { return *n > 0 })
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
