package workload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A trial is one subject under one workload.
type trial struct {
	Workload
	name    string
	number  int // among the subjects: each has separate keys
	turns   int // begun
	meter   *Meter
	clients []*Client
	spots   []spot
	err     error

	sections, failed, overlaps atomic.Int64
	measured                   time.Duration
	pingTime                   time.Duration
	sent                       Count
	used, serverUsed           time.Duration // processor time

	mu             sync.Mutex // for all below
	failure        error
	served         []int64 // by each goroutine
	self, selfProc int64   // sections that followed one of the same goroutine, or process
	hist           [kinds]histogram
}

// The measurements.
const (
	acquire = iota
	release
	pair
	section
	handOff
	other
	pings
	kinds
)

// A spot is the state of one key. The padding keeps neighbouring spots, which other goroutines use,
// on different cache lines.
type spot struct {
	inside atomic.Int32
	mu     sync.Mutex
	left   time.Time // when the last holder began to release
	last   int       // the last holder; -1: none yet
	_      [64]byte
}

// firstLockLimit limits the first lock: one that does not work on this server must not wait
// forever.
const firstLockLimit = 10 * time.Second

// open makes the clients and tries each once.
func (w Workload) open(ctx context.Context, s Subject, number int) *trial {
	t := &trial{Workload: w, name: s.Name, number: number, meter: NewMeter(w.Dial), spots: make([]spot, w.Keys), served: make([]int64, w.all())}
	for range w.Processes {
		c, err := s.Open(t.meter)
		if err != nil {
			t.err = err
			return t
		}
		t.clients = append(t.clients, c)
		if t.err = tryOut(ctx, c, fmt.Sprintf("%s%d:try", w.Prefix, number)); t.err != nil {
			return t
		}
	}
	return t
}

func tryOut(ctx context.Context, c *Client, key string) error {
	ctx, cancel := context.WithTimeout(ctx, firstLockLimit)
	defer cancel()
	held, err := c.Lock(ctx, key)
	if err != nil {
		return err
	}
	return held.Release(ctx)
}

// key returns the nth key of a turn. If waits are cut short, each turn has separate keys, so that a
// lock that a library did not release cannot block the next turn.
func (t *trial) key(turn, n int) string {
	if !t.contended() {
		turn = 1
	}
	return fmt.Sprintf("%s%d:%d:%d", t.Prefix, t.number, turn, n)
}

// cleaning limits the deletion of the keys.
const cleaning = 5 * time.Second

// close deletes the remaining keys and closes the clients.
func (t *trial) close() {
	if len(t.clients) > 0 && t.clients[0].Remove != nil {
		keys := []string{fmt.Sprintf("%s%d:try", t.Prefix, t.number)}
		for turn := range t.turns {
			for n := range t.Keys {
				keys = append(keys, t.key(turn+1, n))
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), cleaning)
		defer cancel()
		t.clients[0].Remove(ctx, keys...) //nolint:errcheck // on an error their TTL removes them
	}
	for _, c := range t.clients {
		if c.Close != nil {
			c.Close() //nolint:errcheck // it is no longer used
		}
	}
}

// The phases of a turn.
const (
	warming = iota
	counting
	over
)

// A turn is a span of time in which one lock has the server to itself.
type turn struct {
	*trial
	phase atomic.Int32
	ended chan struct{} // closed when Count is reached
	once  sync.Once
}

// grace is how long a goroutine that does not wait for a lock needs to finish.
const grace = 50 * time.Millisecond

// turn runs all goroutines for one turn.
func (t *trial) turn(ctx context.Context) {
	t.turns++
	for i := range t.spots {
		t.spots[i].last = -1
	}
	u := &turn{trial: t, ended: make(chan struct{})}
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	if !t.contended() {
		work = context.WithoutCancel(ctx)
	}
	var group sync.WaitGroup
	for i := range t.all() {
		group.Go(func() { u.worker(work, i) })
	}
	u.rest(ctx, t.WarmUp)
	cpu, server := cpuTime(), t.server()
	before, began := t.meter.Count(), time.Now() // last: from here on only counted sections send commands
	u.phase.CompareAndSwap(warming, counting)
	u.rest(ctx, t.Duration/time.Duration(t.Turns))
	u.phase.Store(over)
	t.measured += time.Since(began)
	t.sent = t.sent.add(t.meter.Count().sub(before))
	t.used += cpuTime() - cpu
	t.serverUsed += t.server() - server

	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		cancel()
		<-done
	}
}

// server returns the processor time that the server has used, if known.
func (t *trial) server() time.Duration {
	if t.Server == nil {
		return 0
	}
	return t.Server()
}

// rest waits for d, unless the turn ends first.
func (u *turn) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-u.ended:
	case <-ctx.Done():
	}
}

func (u *turn) end() { u.once.Do(func() { u.phase.Store(over); close(u.ended) }) }

// A sample is one lock, from its request to the end of its release.
type sample struct {
	acquire, section, release time.Duration
	handOff                   time.Duration // 0: no holder before
	other                     bool          // the previous holder was another goroutine
}

// chunk is how many samples a goroutine collects before it adds them to the trial's.
const chunk = 64

// worker runs one goroutine.
func (u *turn) worker(ctx context.Context, who int) {
	client, at := u.clients[who/u.Goroutines], &u.spots[who%u.Keys]
	key := u.key(u.turns, who%u.Keys)
	samples := make([]sample, 0, chunk)
	var served, self, selfProc int64
	flush := func() {
		u.add(samples, who, served, self, selfProc)
		samples, served, self, selfProc = samples[:0], 0, 0, 0
	}
	defer flush()

	for u.phase.Load() != over {
		asked := time.Now()
		held, err := client.Lock(ctx, key)
		if err != nil {
			u.fail(ctx, err)
			continue
		}
		got := time.Now()
		counted := u.phase.Load() == counting
		if at.inside.Add(1) != 1 {
			u.overlaps.Add(1)
		}
		s := sample{acquire: got.Sub(asked)}
		at.mu.Lock()
		last := at.last
		if last >= 0 {
			s.handOff, s.other = got.Sub(at.left), last != who
		}
		at.mu.Unlock()
		if u.Section > 0 {
			time.Sleep(u.Section)
		}
		at.inside.Add(-1)
		leaving := time.Now()
		at.mu.Lock()
		at.left, at.last = leaving, who
		at.mu.Unlock()
		err = held.Release(ctx)
		if err != nil {
			u.fail(ctx, err)
		}
		s.section, s.release = leaving.Sub(got), time.Since(leaving)
		if !counted || err != nil {
			continue
		}
		served++
		if last == who {
			self++
		}
		if last >= 0 && last/u.Goroutines == who/u.Goroutines {
			selfProc++
		}
		if n := u.sections.Add(1); u.Count > 0 && n >= int64(u.Count) {
			u.end()
		}
		if samples = append(samples, s); len(samples) == chunk {
			flush()
		}
	}
}

// add adds a goroutine's samples to the trial's.
func (t *trial) add(samples []sample, who int, served, self, selfProc int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.served[who] += served
	t.self += self
	t.selfProc += selfProc
	for _, s := range samples {
		t.hist[acquire].record(s.acquire)
		t.hist[release].record(s.release)
		t.hist[pair].record(s.acquire + s.release)
		t.hist[section].record(s.section)
		if s.handOff > 0 {
			t.hist[handOff].record(s.handOff)
			if s.other {
				t.hist[other].record(s.handOff)
			}
		}
	}
}

// hopeless is how many consecutive failures end a trial.
const hopeless = 100

// fail records an error, unless it is only the end of the turn.
func (u *turn) fail(ctx context.Context, err error) {
	if ctx.Err() != nil || u.phase.Load() == over {
		return
	}
	n := u.failed.Add(1)
	u.mu.Lock()
	if u.failure == nil {
		u.failure = err
	}
	if n >= hopeless && u.sections.Load() == 0 && u.err == nil {
		u.err = fmt.Errorf("%d failures and not one lock: %w", n, u.failure)
		u.end()
	}
	u.mu.Unlock()
	time.Sleep(time.Millisecond) // do not spin on a lock that is refused at once
}

// pingTurn measures two PINGs for a quarter of a turn.
func (t *trial) pingTurn(ctx context.Context) {
	if t.clients[0].Ping == nil {
		return
	}
	d := t.Duration / time.Duration(4*t.Turns)
	began := time.Now()
	end := began.Add(d)
	n := t.all()
	if t.contended() {
		n = 1
	}
	times := t.Count / n // per goroutine
	if t.Count == 0 {
		times = math.MaxInt
	}
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { t.ping(ctx, t.clients[i/t.Goroutines], end, times) })
	}
	group.Wait()
	t.pingTime += time.Since(began)
}

func (t *trial) ping(ctx context.Context, c *Client, end time.Time, times int) {
	took := make([]time.Duration, 0, chunk)
	for began := time.Now(); began.Before(end) && times > 0 && ctx.Err() == nil; began = time.Now() {
		if errors.Join(c.Ping(context.Background()), c.Ping(context.Background())) == nil {
			took = append(took, time.Since(began))
		}
		if times--; len(took) == chunk {
			t.addPings(took)
			took = took[:0]
		}
	}
	t.addPings(took)
}

func (t *trial) addPings(took []time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range took {
		t.hist[pings].record(d)
	}
}

// result summarizes a trial.
func (t *trial) result() Result {
	r := Result{Name: t.name, Sections: t.sections.Load(), Measured: t.measured, Failed: t.failed.Load(), Overlaps: t.overlaps.Load(), Connections: t.meter.Most()}
	if t.err != nil {
		r.Err = words(t.err)
	}
	if t.failure != nil {
		r.Failure = words(t.failure)
	}
	for i, s := range []*Spread{&r.Acquire, &r.Release, &r.Pair, &r.Section, &r.HandOff, &r.Other, &r.Pings} {
		*s = t.hist[i].spread()
	}
	n := float64(r.Sections)
	r.Rate = ratio(n, t.measured.Seconds())
	r.PingRate = ratio(float64(r.Pings.N), t.pingTime.Seconds())
	if t.Workload.Section > 0 {
		r.Ideal = r.Rate * r.Section.Mean.Seconds() / float64(min(t.Keys, t.all()))
	}
	r.Commands, r.Trips, r.Writes = ratio(float64(t.sent.Commands), n), ratio(float64(t.sent.Trips), n), ratio(float64(t.sent.Writes), n)
	r.Bytes = ratio(float64(t.sent.In+t.sent.Out), n)
	r.CPU, r.ServerCPU = time.Duration(ratio(float64(t.used), n)), time.Duration(ratio(float64(t.serverUsed), n))
	r.Self, r.SelfProc = ratio(float64(t.self), n), ratio(float64(t.selfProc), n)
	r.Least, r.Most = extremes(t.served)
	procs := make([]int64, t.Processes)
	for i, n := range t.served {
		procs[i/t.Goroutines] += n
	}
	r.LeastProc, r.MostProc = extremes(procs)
	return r
}

func extremes(list []int64) (least, most int64) {
	least, most = list[0], list[0]
	for _, n := range list {
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// words returns an error's text on one line.
func words(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
