package plan

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

// A Setup is a Config with its defaults, and all that follows from it.
type Setup struct {
	Config

	KeepHistory bool // tells histories apart that come to the same memory, for tests
}

// DefaultKey is the Key of a Config that names none.
const DefaultKey = "lock.report"

// Processors returns the number of processors for a search.
func (c *Setup) Processors() int {
	if c.Workers > 0 {
		return c.Workers
	}
	return runtime.GOMAXPROCS(0)
}

// MaxClients is how many a state has room for.
const MaxClients = 4

// Complete returns c with its defaults, or an error for an invalid setting.
func Complete(c Config) (*Setup, error) {
	s := &Setup{Config: c}
	if err := s.complete(); err != nil {
		return nil, err
	}
	return s, nil
}

func (c *Setup) complete() error {
	c.Server = cmp.Or(c.Server, "2.4")
	c.Key = cmp.Or(c.Key, DefaultKey)
	c.Clients, c.Attempts, c.TTL = cmp.Or(c.Clients, 2), cmp.Or(c.Attempts, 2), cmp.Or(c.TTL, 10*time.Second)
	c.MaxStates, c.MaxMemory = cmp.Or(c.MaxStates, 50_000_000), cmp.Or(c.MaxMemory, 1500<<20)
	if c.Algorithm == "" && c.New != nil {
		c.Algorithm = "own"
	}
	c.Name = cmp.Or(c.Name, c.Algorithm+" on "+c.Server)
	if err := c.wrong(); err != nil {
		return err
	}
	if c.New == nil {
		for _, name := range strings.Split(c.Algorithm, "+") {
			if _, ok := c.Locks.entry(name); !ok {
				return fmt.Errorf("race: no algorithm %q: there are %s", name, strings.Join(Algorithms(c.Locks), ", "))
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
			{v == "ownership" && c.Form() == Quorum,
				"ownership is not checked over several servers: the content of one of them says little"},
		}); err != nil {
			return err
		}
	}
	if c.Within == 0 {
		c.Within = c.patience()
	}
	return nil
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

// wrong checks numbers, times and combinations.
func (c *Setup) wrong() error {
	if c.Clients < 1 || c.Clients > MaxClients {
		return fmt.Errorf("race: %d clients, want 1 to %d", c.Clients, MaxClients)
	}
	servers, f := slices.Concat(oldredis.Versions(), oldredis.Profiles(), oldredis.Today()), &c.Faults
	counts := servers[slices.Index(servers, "2.6"):] // in milliseconds
	odd := func(d, atLeast time.Duration) bool { return d < atLeast || d > time.Hour || d%time.Millisecond != 0 }
	whole := "want whole milliseconds, an hour at most"
	several := c.New != nil || c.Servers() > 0
	list := []check{
		{c.Attempts < 1 || c.Attempts > 9, fmt.Sprintf("%d attempts, want 1 to 9", c.Attempts)},
		{odd(c.TTL, 0), fmt.Sprintf("a ttl of %v, %s", c.TTL, whole)},
		{len(c.Skew) > c.Clients, fmt.Sprintf("%d clocks for %d clients", len(c.Skew), c.Clients)},
		{!slices.Contains(servers, c.Server),
			fmt.Sprintf("no server %q: there are %s", c.Server, strings.Join(servers, ", "))},
		{c.Successor != "" && !(slices.Contains(counts, c.Server) && slices.Contains(counts, c.Successor)),
			fmt.Sprintf("%q can't take over from %q: both count in milliseconds", c.Successor, c.Server)},
		{c.StaleHandle && !c.Handoff, "a handle gets stale by a hand-off"},
		{f.LateRequests > 1, fmt.Sprintf("%d requests on their way, want 0 or 1", f.LateRequests)},
		{f.Refusals > 3, fmt.Sprintf("%d refusals, want 0 to 3", f.Refusals)},
		{f.Late < -1 || f.Late > 7, fmt.Sprintf("%d late clients, want -1 to 7", f.Late)},
		{f.Down > 0 && !several, "a server that answers no more is one of several: name a lock that has several"},
		{f.Failover > 0 && c.Servers() > 0, "of several servers none has a replica"},
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
			check{c.Batch && c.Entry(i).Pinned > 0, "leases that pin their connections are not renewed in one write"},
			check{c.Downgrade && !c.Entry(i).Turns, "only writers of rw:write go on as readers"})
	}
	return firstOf(list)
}

// applicable returns the invariants for a lock with this setup: fencing needs a storage, fence-order
// fences, and fairness clients in a queue.
func (c *Setup) applicable() []string {
	list := []string{"exclusion", "ownership", "progress", "accuracy"}
	if c.Form() == Quorum {
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

// patience returns the ttl and a margin: a second for servers with whole seconds, another for clients
// with a poll, the difference of the clocks twice; and for locks with a repair, the ttl once more,
// during which they are watched.
func (c *Setup) patience() time.Duration {
	longest := c.TTL
	for _, ttl := range c.ExtendTo {
		longest = max(longest, ttl)
	}
	d := longest + 2*time.Second + c.TTL/10
	var skew time.Duration
	for _, s := range c.Skew {
		skew = max(skew, s.Abs())
	}
	d += slices.Max(append([]time.Duration{0}, c.Entry(c.Clients-1).Margins...))
	nobodys := func() string { return Token(0, 0, 1) }
	if algo := c.AlgorithmOf(0, nobodys); algo != nil && algo.Traits().Repair != nil {
		d += c.TTL + time.Second
	}
	return d + 2*skew
}

// SkewOf returns by how much a client's clock runs ahead, in milliseconds.
func (c *Setup) SkewOf(client int) int64 {
	if client < len(c.Skew) {
		return c.Skew[client].Milliseconds()
	}
	return 0
}

// Runs names a client's algorithm.
func (c *Setup) Runs(client int) string {
	names := strings.Split(c.Algorithm, "+")
	return names[min(client, len(names)-1)]
}

// IsBare reports whether a client runs its algorithm without compat.Locker.
func (c *Setup) IsBare(client int) bool { return c.Bare || c.Entry(client).Bare }

// Entry returns the registry's entry of a client's algorithm.
func (c *Setup) Entry(client int) Entry {
	if c.New != nil {
		return Entry{Lock: Lock{Bare: c.Bare}}
	}
	e, _ := c.Locks.entry(c.Runs(client))
	return e
}

// Extensions returns the ttls of a holder's extensions, in order.
func (c *Setup) Extensions() []time.Duration {
	if c.Extend && len(c.ExtendTo) == 0 {
		return []time.Duration{c.TTL}
	}
	return c.ExtendTo
}

// Form returns the lock's form. Clients whose locks differ in it do not exclude each other.
func (c *Setup) Form() Form {
	var f Form
	for i := range max(c.Clients, 1) {
		f = max(f, c.Entry(i).Form)
	}
	return f
}

// Stands returns the key with a holder's value, of several the first.
func (c *Setup) Stands() string {
	if beside := c.Entry(0).beside; beside != "" {
		return protocol.Aux(c.Key, beside)
	}
	return c.Key
}

// Alike reports whether two clients differ in nothing but their name.
func (c *Setup) Alike(i, j int) bool {
	return i == j || c.SkewOf(i) == c.SkewOf(j) && c.Runs(i) == c.Runs(j) && !c.Entry(i).distinct
}

// Checks reports whether an invariant is to be checked.
func (c *Setup) Checks(invariant string) bool { return slices.Contains(c.Invariants, invariant) }

// Happens reports whether a counted fault may happen.
func (c *Setup) Happens() bool {
	return slices.ContainsFunc(c.Faults.counts(), func(n *int) bool { return *n > 0 })
}

// AlgorithmOf makes a client's algorithm, with values from token; nil: a quorum, made of the client's
// connections.
func (c *Setup) AlgorithmOf(client int, token func() string) protocol.Algorithm {
	if c.New != nil {
		return c.New(token)
	}
	e := c.Entry(client)
	if e.Form == Quorum {
		return nil
	}
	return e.New(token, c.Fence)
}

// Readers makes the readers' algorithm beside a writer.
func (c *Setup) Readers(client int, token func() string) protocol.Algorithm {
	e, _ := c.Locks.entry(strings.Replace(c.Runs(client), "rw:write", "rw:read", 1))
	return e.New(token, c.Fence)
}

// Servers counts the lock's servers; 0: one, and no choice names it.
func (c *Setup) Servers() int {
	n := 0
	for i := range max(c.Clients, 1) {
		n = max(n, c.Entry(i).servers)
	}
	return n
}
