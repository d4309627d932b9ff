package explore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/search"
)

// A Matrix says what every algorithm of this module promises on every server under every fault.
type Matrix struct {
	Cells   []Cell
	States  int
	Elapsed time.Duration
}

// A Cell is one algorithm on one server under one fault, with one number of
// clients.
type Cell struct {
	Algorithm string `json:"algorithm"`
	Server    string `json:"server"`
	Fault     string `json:"fault"` // a name of AllFaults
	Clients   int    `json:"clients"`

	// Refused says why the algorithm's own Check refuses the server; it is then not explored. "" if
	// it does not refuse.
	Refused string `json:"refused,omitempty"`

	Bounds  string        `json:"bounds"`
	States  int           `json:"states"`
	Bound   string        `json:"bound,omitempty"`  // not "": there was no room for more states or memory, and nothing is proved
	Breaks  []Break       `json:"breaks,omitempty"` // by invariant; none: it holds within the bounds
	Elapsed time.Duration `json:"-"`
}

// A Break is a broken invariant with a shortest schedule that breaks it.
type Break struct {
	Invariant string `json:"invariant"`
	Steps     int    `json:"steps"`
	Schedule  string `json:"schedule"`
	Text      string `json:"text"`
}

// Holds reports whether every invariant holds within the bounds.
func (c Cell) Holds() bool { return c.Refused == "" && c.Bound == "" && len(c.Breaks) == 0 }

// A Fault is a column of the guarantees: what goes wrong.
type Fault struct {
	Name string
	Says string
	set  func(*plan.Setup)

	// among says on how many servers it can happen: one of several, or the only
	// one there is.
	among number

	fenced bool // it befalls those that have fences

	// only says whom else it befalls; nil: all. wide: with three clients it is
	// explored on the newest server alone, for what that costs, and never with four.
	only func(plan.Entry) bool
	wide bool
}

type number uint8

const (
	anyNumber number = iota
	one
	several
)

// AllFaults returns the columns, in order. In all of them time jumps, and clients are interleaved
// in every way.
func AllFaults() []Fault { return slices.Clone(faults) }

// FaultsOf returns an algorithm's faults in the matrix.
func FaultsOf(algorithm string) []Fault {
	c := Cell{Algorithm: algorithm, Clients: 2}.setup()
	return slices.DeleteFunc(AllFaults(), func(x Fault) bool {
		return x.among == one && c.Servers() > 0 || x.among == several && c.Servers() == 0 || x.fenced && c.Entry(0).NoFence ||
			x.only != nil && !x.only(c.Entry(0))
	})
}

// Bounds returns the bounds of the fault's exploration, with two clients and with more.
func (x Fault) Bounds() []string {
	var all []string
	example := exampleOf(x)
	everywhere := clientsOf(example, "", x.Name)
	for _, clients := range clientsOf(example, newest, x.Name) {
		c := Cell{Algorithm: example, Server: newest, Fault: x.Name, Clients: clients}.Config()
		full, err := plan.Complete(c)
		if err != nil {
			continue
		}
		bounds := full.Bounds()
		if !slices.Contains(everywhere, clients) {
			bounds += ", on " + newest + " alone"
		}
		all = append(all, bounds)
	}
	return all
}

// exampleOf returns the first algorithm of the matrix with this fault.
func exampleOf(x Fault) string {
	for _, a := range Guaranteed() {
		if slices.ContainsFunc(FaultsOf(a), func(y Fault) bool { return x.Name == y.Name }) {
			return a
		}
	}
	return ""
}

var faults = []Fault{
	{Name: "none", Says: "nothing goes wrong but that time passes", set: func(*plan.Setup) {}},
	{Name: "crash", Says: "clients die for good, anywhere", set: func(c *plan.Setup) { c.Faults.Crash = true }},
	{Name: "lost reply", Says: "one answer never comes", set: func(c *plan.Setup) { c.Faults.LostReplies = 1 }},
	{Name: "two lost replies", Says: "two answers never come", wide: true, only: onOneServer, set: func(c *plan.Setup) { c.Faults.LostReplies, c.Attempts = 2, 1 }},
	{Name: "lost request", Says: "one write never arrives", set: func(c *plan.Setup) { c.Faults.LostRequests = 1 }},
	{Name: "cut", Says: "the connection breaks once between two commands of one write", set: func(c *plan.Setup) { c.Faults.Cuts = 1 }},
	{Name: "refused", Says: "the server refuses one command that writes; before 2.6.5 the rest of its transaction runs", set: func(c *plan.Setup) { c.Faults.Refusals = 1 }},
	{Name: "late", Says: "a client stops twice between reading its clock and what it does on it", set: func(c *plan.Setup) { c.Faults.Late = 2 }},
	{Name: "unreaped", Says: "expired keys may still be in memory", set: func(c *plan.Setup) { c.Faults.Unreaped = true }},
	{Name: "skew", Says: "one clock is 3 s fast",
		set: func(c *plan.Setup) { c.Skew = []time.Duration{0, 3 * time.Second} }},
	{Name: "restart", Says: "the server, or one of several, restarts empty, once", set: func(c *plan.Setup) { c.Faults.Restart = 1 }},
	{Name: "failover", Says: "a replica takes over that lacks the last write", set: func(c *plan.Setup) { c.Faults.Failover = 1 }, among: one},
	{Name: "server down", Says: "one of several servers answers no more, and clients die", set: func(c *plan.Setup) { c.Faults.Down, c.Faults.Crash = 1, true }, among: several},
	{Name: "evict", Says: "the server, or one of several, drops the key, once", set: func(c *plan.Setup) { c.Faults.Evict = 1 }},
	{Name: "pause", Says: "a holder stops and writes late, without a fence", only: onOneNumber, set: func(c *plan.Setup) { c.Write = true; c.Attempts = 1 }},
	{Name: "pause, fenced", Says: "a holder stops and writes late, with a fence", set: func(c *plan.Setup) { c.Write, c.Fence = true, true; c.Attempts = 1 }, fenced: true, only: onOneNumber},
	{Name: "no release", Says: "holders release nothing, and their leases run out", set: func(c *plan.Setup) {
		c.Keep = true
		if c.Clients == 2 && c.Form() != plan.OneKey {
			c.Ticks = 2 * lifetime(c.Algorithm)
		} else if c.Clients == 2 { // a second takeover, and a client that was late for the first
			c.Attempts, c.Ticks = 3, 2*lifetime(c.Algorithm)
		}
	}},
	{Name: "renewal", Says: "each holder extends once", set: func(c *plan.Setup) { c.Extend = true; c.Attempts = 1 }},
	{Name: "hand-off", Says: "each holder hands the lock off once, to the next in its process, with a new fence if there are any", set: func(c *plan.Setup) {
		c.Handoff, c.Attempts, c.Fence = true, 1, !c.Entry(0).NoFence
	}},
	{Name: "shorter lease", Says: "each holder extends once, to a fifth of its lease, and one answer never comes", wide: true, only: onOneServer,
		set: func(c *plan.Setup) {
			c.ExtendTo, c.Faults.LostReplies, c.Attempts = []time.Duration{2 * time.Second}, 1, 1
		}},
	{Name: "longer lease", Says: "each holder extends once, to twice its lease, and one answer never comes", wide: true, only: onOneServer,
		set: func(c *plan.Setup) {
			c.ExtendTo, c.Faults.LostReplies, c.Attempts = []time.Duration{20 * time.Second}, 1, 1
		}},
	{Name: "detached", Says: "each holder extends once and detaches the lock, the handle is adopted, and one answer never comes", wide: true, only: onOneServer,
		set: func(c *plan.Setup) { c.Extend, c.Detach, c.Faults.LostReplies, c.Attempts = true, true, 1, 1 }},
	{Name: "old handle", Says: "each holder gives a handle away and hands the lock off, the handle's owner tries to release it, and one answer never comes",
		wide: true, only: func(e plan.Entry) bool { return onOneServer(e) && !e.Among },
		set: func(c *plan.Setup) { c.Handoff, c.StaleHandle, c.Faults.LostReplies, c.Attempts = true, true, 1, 1 }},
	{Name: "batch", Says: "each holder has a second lock, both are renewed in one write, and one answer never comes",
		wide: true, only: func(e plan.Entry) bool { return e.Form == plan.OneKey && e.Pinned == 0 },
		set: func(c *plan.Setup) { c.Batch, c.Faults.LostReplies, c.Attempts, c.Ticks = true, 1, 1, min(c.Ticks, 3) }},
	{Name: "one connection", Says: "a client has no second connection, each holder extends once, and one answer never comes",
		wide: true, only: func(e plan.Entry) bool { return e.Pinned > 0 },
		set: func(c *plan.Setup) { c.OneConn, c.Extend, c.Faults.LostReplies, c.Attempts = true, true, 1, 1 }},
	{Name: "downgrade", Says: "each writer goes on as a reader, and one answer never comes", only: takesTurns,
		set: func(c *plan.Setup) { c.Downgrade, c.Faults.LostReplies, c.Attempts = true, 1, 1 }},
	{Name: "waiting", Says: "clients that were refused wait and ask again, and no time passes", only: takesTurns,
		set: func(c *plan.Setup) { c.Wait, c.Attempts, c.Ticks = true, 4, 0 }},
	{Name: "late request", Says: "each holder extends once, and one write arrives only after its connection was given up, at any later time",
		wide: true, only: func(e plan.Entry) bool { return e.Form == plan.OneKey },
		set: func(c *plan.Setup) { c.Extend, c.Faults.LateRequests, c.Attempts = true, 1, 1 }},
}

// onOneNumber reports whether a storage can order all holders by one number: a semaphore has one for
// each slot.
func onOneNumber(e plan.Entry) bool { return e.Most == 0 }

func takesTurns(e plan.Entry) bool { return e.Turns }

func onOneServer(e plan.Entry) bool { return e.Form != plan.Quorum }

// Guaranteed returns the algorithms of the matrix, in order. If the name has a plus sign, the first
// client runs the first algorithm, the second the second, and a third client the first again.
func Guaranteed() []string {
	return []string{"getset:classic", "getset:classic/seconds", "getset:classic/margin", "getset:guarded", "getset:guarded/margin", "getset:guarded/pinned", "getset:listed",
		"tx:classic", "tx:classic/published", "tx:classic/never", "tx:classic/pinned", "tx:guarded", "tx:guarded/pinned", "tx:renamed", "tx:renamed/pinned", "tx:renamed/listcas",
		"set:ifeq", "set:lua", "set:watch", "set:watch/pinned", "set:published", "set:script",
		"rw:read+rw:write", "rw:read/published+rw:write/published", "semaphore", "redlock"}
}

// serversOf lists an algorithm's servers: all; but slow locks of several keys or servers run only on
// the first and the last accepted one, and on one refused one; and locks for the servers of today on
// two of them.
func serversOf(algorithm string) []string {
	switch c := (Cell{Algorithm: algorithm, Clients: 2}).setup(); c.Form() {
	case plan.Members:
		return []string{"2.0", "2.2", "7.0"}
	case plan.Quorum:
		return []string{"2.6", "7.0"}
	}
	if algorithm == "set:ifeq" {
		return []string{"7.0", "8.6", newestToday}
	}
	return append(oldredis.Versions(), oldredis.Profiles()...)
}

// newest is the server on which the most clients are explored, and newestToday the one of those that compare by themselves.
const newest, newestToday = "7.0", "valkey-9.1"

// clientsOf lists an algorithm's numbers of clients. Of readers and writers three are enough where
// something breaks, and on three servers there is no room for more than two. A margin makes many more
// states than it is worth.
func clientsOf(algorithm, server, fault string) []int {
	wide := slices.ContainsFunc(faults, func(x Fault) bool { return x.Name == fault && x.wide })
	most := (server == newest || server == newestToday) && algorithm != "getset:guarded/margin"
	switch c := (Cell{Algorithm: algorithm, Fault: fault, Clients: 2}).setup(); {
	case c.Form() == plan.Quorum, wide && (c.Form() == plan.Members || !most):
		return []int{2}
	case c.Form() == plan.Members && c.Happens():
		return []int{3}
	case c.Form() == plan.OneKey && most && !wide:
		return []int{2, 3, 4}
	}
	return []int{2, 3}
}

// Cells returns the matrix, with nothing explored yet.
func Cells() (list []Cell) {
	for _, a := range Guaranteed() {
		for _, v := range serversOf(a) {
			for _, x := range FaultsOf(a) {
				for _, clients := range clientsOf(a, v, x.Name) {
					list = append(list, Cell{Algorithm: a, Server: v, Fault: x.Name, Clients: clients})
				}
			}
		}
	}
	return list
}

// Guarantees computes the matrix on all processors. seen, if not nil, is called with each finished
// cell, one at a time.
func Guarantees(ctx context.Context, seen func(Cell)) (Matrix, error) {
	m := Matrix{Cells: Cells()}
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var wg sync.WaitGroup
	seenOne := func(c *Cell) {
		mu.Lock()
		defer mu.Unlock()
		m.States += c.States
		if seen != nil {
			seen(*c)
		}
	}
	type job struct {
		list    []*Cell
		archive *search.Archive
	}
	next := make(chan job)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for j := range next {
				if err := fill(ctx, j.list, j.archive, seenOne); err != nil {
					cancel(err)
				}
			}
		})
	}
	var a *search.Archive // of the family
	family := ""
	for _, list := range m.alike() {
		if f := list[0].family(); a == nil || f != family {
			a, family = search.NewArchive(), f
		}
		next <- job{list, a}
	}
	close(next)
	wg.Wait()
	m.Elapsed = time.Since(began)
	return m, context.Cause(ctx)
}

// alike groups the cells with the same client code: its runs on one server serve the next. Those of
// one family come together, for they share an archive; of families and in each the longest come first.
func (m *Matrix) alike() [][]*Cell {
	groups, size := map[string][]*Cell{}, map[string]int{}
	for i := range m.Cells {
		c := m.Cells[i].Config()
		key := fmt.Sprint(c.Algorithm, c.Clients, c.Attempts, c.Skew, c.Keep, c.Extend, c.ExtendTo, c.Handoff,
			c.StaleHandle, c.Detach, c.Batch, c.OneConn, c.Downgrade, c.Wait, c.Write, c.Fence, c.Faults.LateRequests)
		groups[key] = append(groups[key], &m.Cells[i])
		size[m.Cells[i].family()]++
	}
	list := slices.Collect(maps.Values(groups))
	slices.SortFunc(list, func(a, b []*Cell) int {
		f, g := a[0].family(), b[0].family()
		return cmp.Or(cmp.Compare(size[g], size[f]), cmp.Compare(f, g), cmp.Compare(len(b), len(a)), cmp.Compare(a[0].Clients, b[0].Clients), cmp.Compare(a[0].Algorithm, b[0].Algorithm),
			cmp.Compare(a[0].Fault, b[0].Fault))
	})
	return list
}

// family returns the common part of a lock's variants.
func (c *Cell) family() string {
	name, _, _ := strings.Cut(c.Algorithm, "/")
	return name
}

// fill computes cells with the same client code.
func fill(ctx context.Context, list []*Cell, a *search.Archive, seen func(*Cell)) error {
	f := filler{archive: a}
	for _, c := range list {
		began := time.Now()
		if err := f.fill(ctx, c); err != nil {
			return fmt.Errorf("%s on %s, %s: %w", c.Algorithm, c.Server, c.Fault, err)
		}
		c.Elapsed = time.Since(began)
		seen(c)
	}
	return nil
}

// A filler remembers from cell to cell what the clients' code does, and what
// was proved under each fault.
type filler struct {
	rs      *search.Runs
	proofs  map[string][]*search.Proof
	archive *search.Archive // nil: nothing is known from others' cells
}

// Config returns a cell's configuration.
func (c Cell) Config() plan.Config { return c.setup().Config }

func (c Cell) setup() *plan.Setup {
	cfg := &plan.Setup{Config: plan.Config{Algorithm: c.Algorithm, Server: c.Server, Clients: c.Clients, Attempts: 2,
		Faults: plan.Faults{Late: -1}}}
	if c.Clients >= 3 {
		cfg.Attempts = 1
		if first, _, several := strings.Cut(c.Algorithm, "+"); several {
			cfg.Algorithm = first + "+" + c.Algorithm
		}
	}
	cfg.Ticks = lifetime(c.Algorithm) + 1
	for _, x := range faults {
		if x.Name == c.Fault {
			x.set(cfg)
		}
	}
	if cfg.Form() == plan.Quorum && cfg.Happens() {
		cfg.Attempts = 1
	}
	if reads, writes, ok := strings.Cut(c.Algorithm, "+"); ok && cfg.Write { // two who write
		cfg.Algorithm = writes
		if c.Clients == 3 {
			cfg.Algorithm = reads + "+" + writes
		}
	}
	return cfg
}

// lifetime counts the jumps of time until an unreleased lease is over: to the holder's believed end,
// and for a TTL to the key's death; for a timestamp to it, past it, and the same again for a margin.
func lifetime(algorithm string) int {
	switch {
	case strings.HasSuffix(algorithm, "/margin"):
		return 5
	case strings.HasPrefix(algorithm, "getset:"):
		return 3
	}
	return 2
}

func (f *filler) fill(ctx context.Context, c *Cell) error {
	cfg := c.Config()
	cfg.Each = true
	full, err := plan.Complete(cfg)
	if err != nil {
		return err
	}
	c.Bounds = full.Bounds()
	if c.Refused, err = client.Refusal(full); c.Refused != "" || err != nil {
		return err
	}
	p, err := f.proof(ctx, full, c.Fault)
	if err != nil {
		return err
	}
	c.States, c.Bound = p.Result.States, p.Result.Bound
	for _, w := range p.Ways {
		t, err := retrace(full, w)
		if err != nil {
			return err
		}
		at := t.Events[t.Verdict.Step-1]
		c.Breaks = append(c.Breaks, Break{Invariant: w.Invariant, Steps: len(t.Events), Schedule: t.Schedule, Text: at.Violation.Text})
	}
	return nil
}

// proof finds a proof for c, or searches.
func (f *filler) proof(ctx context.Context, c *plan.Setup, fault string) (*search.Proof, error) {
	if f.archive == nil {
		f.archive = search.NewArchive()
	}
	for _, p := range f.proofs[fault] {
		if ok, err := p.HoldsOn(c, f.archive); ok || err != nil {
			return p, err
		}
	}
	if f.rs == nil {
		f.rs = search.NewRuns(c)
	}
	p, err := search.Prove(ctx, c, f.rs, f.archive)
	if err != nil {
		return nil, err
	}
	if f.proofs == nil {
		f.proofs = map[string][]*search.Proof{}
	}
	f.proofs[fault] = append(f.proofs[fault], p)
	return p, nil
}
