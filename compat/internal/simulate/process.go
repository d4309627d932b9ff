package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// A process is one program: its Lockers, its clock and its connections, which a crash ends all at
// once.
type process struct {
	w     *world
	id    int
	clock *Clock

	// Guarded by the world's mutex.
	messages map[string]int // about each key, to each server
	conns    map[*conn]bool
	faulted  time.Time     // until when a fault of its messages or of a server may show; zero: there was none
	bursts   time.Time     // when a fault befell what it sent last
	cutOff   time.Time     // until when nothing of it arrives
	jumped   time.Time     // when its clock did last
	crashed  bool          // between a crash and its next start
	ending   bool          // … or while it ends by itself
	stands   time.Time     // until when it stands still
	blocked  time.Duration // by its observers, all together
	lives    int           // how often it was started
	pools    []*redis.Pool
	lockers  []*compat.Locker
	readers  []*compat.Locker
	options  compat.Options // of its Lockers
	moved    bool           // in this life it is of the fleet's other half
}

func newProcess(w *world, id int) *process {
	p := &process{w: w, id: id, clock: NewClock(), conns: map[*conn]bool{}, messages: map[string]int{}}
	p.clock.Set(w.Skew * time.Duration(id) / time.Duration(w.Processes))
	p.begin()
	w.judge.chosen(p.options)
	return p
}

// begin starts the program.
func (p *process) begin() {
	w := p.w
	p.lives++
	p.crashed, p.ending = false, false
	p.moved = w.Kind.moved != nil && (p.id+p.lives)%2 == 0
	p.pools, p.lockers, p.readers = nil, nil, nil
	sources := make([]compat.Source, len(w.servers))
	for i := range w.servers {
		pool := &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) { return p.dial(ctx, i) }, MaxIdle: 4}
		if w.Pool > 0 {
			pool.MaxActive, pool.MaxIdle, pool.Wait = w.Pool, w.Pool, true
		}
		p.pools = append(p.pools, pool)
		sources[i] = compat.Pooled(pool)
		sources[i].Get = func(ctx context.Context, key string) (redis.Conn, error) {
			return pool.GetContext(context.WithValue(ctx, ofKey{}, key))
		}
		sources[i].Keep = w.Keep
		if w.Elects {
			sources[i].Epoch = w.servers[i].epoch.Load
		}
	}
	for i := range w.Lockers {
		o := w.Options
		o.Clock = p.clock
		r := rand.New(rand.NewPCG(w.Seed, uint64(1000+100*p.id+10*i+p.lives)))
		tokens := rand.New(rand.NewPCG(w.Seed+1, uint64(1000+100*p.id+10*i+p.lives)))
		o.Rand = func() float64 {
			w.mu.Lock()
			defer w.mu.Unlock()
			return r.Float64()
		}
		o.Observer = p.observe
		token := func(digits string, n int) string { // guessed by nobody in a simulation, and the same each time
			w.mu.Lock()
			defer w.mu.Unlock()
			b := make([]byte, n)
			for i := range b {
				b[i] = digits[tokens.IntN(len(digits))]
			}
			return string(b)
		}
		p.options = o
		m, make := making{sources, o, token, w.Millis}, w.Kind.make
		if p.moved {
			make = w.Kind.moved
		}
		p.lockers = append(p.lockers, make(m))
		if w.Kind.reader != nil {
			p.readers = append(p.readers, w.Kind.reader(m))
		}
	}
}

// observe is the Locker's Observer: one that blocks, now and then.
func (p *process) observe(e compat.Event) {
	w := p.w
	w.judge.count("event: " + string(e.Kind))
	w.mu.Lock()
	p.messages["observed"]++
	r := rand.New(rand.NewPCG(w.Seed+99, uint64(p.id*1_000_000+p.messages["observed"])))
	d := time.Duration(0)
	if !w.calm && w.Faults.Every > 0 && r.IntN(100) == 0 {
		d = time.Duration(r.Int64N(int64(300 * time.Millisecond)))
		p.blocked += d
	}
	w.mu.Unlock()
	w.judge.note("P%d observes %s of %s (%s, fence %d, until %v) %v", p.id, e.Kind, e.Key, e.Lease.How, e.Lease.Fence, w.at(e.Lease.Until), e.Err)
	if d > 0 {
		time.Sleep(d)
	}
}

// A client is a Locker of one life of its process.
type client struct {
	*compat.Locker
	p    *process
	life int
	half
}

// A half is whose locks a Locker can have: those of writers or of readers, of a fleet that has moved on to another
// lock or has not.
type half struct{ shared, moved bool }

// locker returns the i-th Locker of the present life; ok is false between two lives.
func (p *process) client(i int, reader bool) (c client, ok bool) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.crashed || p.ending {
		return client{}, false
	}
	c = client{Locker: p.lockers[i], p: p, life: p.lives, half: half{moved: p.moved}}
	if reader && p.readers != nil {
		c.Locker, c.shared = p.readers[i], true
	}
	return c, true
}

// shut closes what the program has, by close its Lockers. Nothing starts the program meanwhile.
func (p *process) shut(close func(k *compat.Locker)) {
	for _, k := range slices.Concat(p.lockers, p.readers) {
		close(k)
	}
	for _, pool := range p.pools {
		pool.Close()
	}
}

// crash ends the program between two instructions: nothing that it sends from here on arrives.
// What is left of it in this process of ours is closed.
func (p *process) crash(away time.Duration) {
	w := p.w
	w.mu.Lock()
	p.crashed = true
	conns := slices.Collect(maps.Keys(p.conns))
	w.mu.Unlock()
	w.judge.crashed(p)
	for _, c := range conns {
		c.Break(errCut)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	p.shut(func(k *compat.Locker) { k.Close(over) }) //nolint:errcheck // it can't release anything
	p.again(away)
}

// again starts the program once more, after a while.
func (p *process) again(after time.Duration) {
	time.Sleep(after)
	p.w.mu.Lock()
	p.begin()
	p.w.mu.Unlock()
	p.w.judge.note("P%d starts again", p.id)
}

// leave ends the program as one does that ends well, in the middle of whatever its goroutines do.
func (p *process) leave(away time.Duration) {
	w := p.w
	w.mu.Lock()
	p.ending = true
	blocked := p.blocked
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), away)
	defer cancel()
	ends := time.Now().Add(away)
	p.shut(func(k *compat.Locker) {
		began := time.Now()
		err := k.Close(ctx)
		w.judge.count("Close: " + nameOf(err))
		w.mu.Lock()
		limit := w.cleanup() + p.blocked - blocked
		stood := p.stands
		w.mu.Unlock()
		if late := min(time.Since(began), time.Since(ends), time.Since(stood)); late > limit+50*time.Millisecond {
			w.judge.broken("waits: Close of P%d went on for %v after its context had ended, where %v are allowed", p.id, late, limit)
		}
	})
	w.judge.crashed(p)
	p.again(away)
}

// cleanup is Options.Cleanup, or its default.
func (w *world) cleanup() time.Duration { return cmp.Or(w.Options.Cleanup, 250*time.Millisecond) }

// stand makes the process stand still: what it sends is under way for that much longer.
func (p *process) stand(d time.Duration) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.stands = time.Now().Add(d)
}

func (p *process) standsFor() time.Duration {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return max(time.Until(p.stands), 0)
}

func (p *process) isDead() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.crashed
}

// end closes the Lockers, as a program does that ends well.
func (p *process) end() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p.shut(func(k *compat.Locker) {
		err := k.Close(ctx)
		p.w.judge.count("Close: " + nameOf(err))
		if err != nil {
			p.w.judge.broken("nothing goes wrong any more, and Close of P%d: %v", p.id, err)
		}
		if _, err := k.TryLock(ctx, p.w.keys()[0], shortest); !errors.Is(err, compat.ErrClosed) {
			p.w.judge.broken("TryLock of P%d after Close: %v", p.id, err)
		}
	})
}

// misfortunes befall the servers and the processes, until stop is closed.
func (w *world) misfortunes(stop <-chan struct{}) {
	if w.Faults.Every == 0 {
		return
	}
	for n := 1; ; n++ {
		r := rand.New(rand.NewPCG(w.Seed+7, uint64(n)))
		t := time.NewTimer(time.Duration(r.Int64N(int64(2 * w.Faults.Every))))
		select {
		case <-stop:
			t.Stop()
			return
		case <-t.C:
		}
		w.misfortune(n, r)
	}
}

// A mishap is a misfortune that befalls a server or a process, for a while.
type mishap struct {
	*world
	i int // of the server
	s *server
	p *process
	d time.Duration
	r *rand.Rand
}

// away is what happens to a server that nobody reaches meanwhile.
func (m mishap) away(what func()) {
	m.set(func() { m.s.down = true })
	m.cut(m.i)
	what()
	m.set(func() { m.s.down = false })
}

// misfortunes are all, as often one as another.
var misfortunes = [...]struct {
	name      string
	ofProcess bool
	befall    func(m mishap)
}{
	{"every connection is cut", false, func(m mishap) { m.cut(m.i) }},
	{"unreachable for a while", false, func(m mishap) { m.away(func() { time.Sleep(m.d) }) }},
	{"restarts with its keys", false, func(m mishap) {
		m.away(func() { m.s.Restart(oldredis.Keeping); time.Sleep(m.d / 4) })
	}},
	{"restarts without its keys", false, func(m mishap) {
		m.away(func() { m.judge.forgets(); m.s.Restart(oldredis.Empty); time.Sleep(m.d / 4) })
	}},
	{"is full for a while", false, func(m mishap) {
		m.set(func() { m.s.full = true })
		m.s.SetMaxMemoryReached(true)
		time.Sleep(m.d)
		m.s.SetMaxMemoryReached(false)
		m.set(func() { m.s.full = false })
	}},
	{"forgets its scripts", false, func(m mishap) { m.cut(m.i); m.s.Restart(oldredis.Keeping) }},
	{"crashes", true, func(m mishap) { m.p.crash(m.d) }},
	{"stands still", true, func(m mishap) { m.p.stand(3 * m.d); m.everybody(3 * m.d) }},
	{"is replaced by a replica", false, func(m mishap) {
		m.away(func() {
			time.Sleep(m.d)
			m.s.Restart(oldredis.Keeping)
			switch {
			case m.Kind.Replicated:
				m.judge.promoted(m.i, m.r)
			case m.Faults.Forget:
				m.judge.lags(m.i, m.r)
			}
			m.s.epoch.Add(1)
		})
	}},
	{"has its clock set", true, func(m mishap) {
		m.set(func() { m.p.jumped = time.Now() })
		if m.r.IntN(2) == 0 { // as when its machine was suspended
			m.p.clock.Set(3 * m.d)
		} else {
			m.p.clock.Set(-3 * m.d)
		}
	}},
	{"ends and starts again", true, func(m mishap) { m.p.leave(m.d) }},
	{"loses its replica", false, func(m mishap) {
		m.judge.replica(m.i, false)
		m.everybody(5 * m.d)
		time.Sleep(5 * m.d)
		m.judge.replica(m.i, true)
	}},
}

// misfortune is one of them.
func (w *world) misfortune(n int, r *rand.Rand) {
	m := mishap{world: w, i: r.IntN(len(w.servers)), p: w.all[r.IntN(len(w.all))], r: r}
	m.s = w.servers[m.i]
	what := r.IntN(len(misfortunes))
	switch {
	case what == 3 && (!w.Faults.Forget || w.Kind.Replicated), what == 8 && !w.Elects:
		what = 2
	case what == 11 && !w.Kind.Replicated:
		what = 0
	case what == 9 && !w.Kind.AnyClock: // others would take over what it holds, and rightly
		what = 7
	}
	is := misfortunes[what]
	id := "N" + strconv.Itoa(n)
	if w.Skip[id] {
		return
	}
	who := "S" + strconv.Itoa(m.i)
	if is.ofProcess {
		who = m.p.name()
	}
	w.judge.fault(id, "%s %s", who, is.name)
	w.judge.count("misfortune: " + is.name)
	w.everybody(0) // whoever is in the middle of something may see it
	m.d = time.Duration(r.Int64N(int64(2 * time.Second)))
	is.befall(m)
	w.everybody(0)
}

// echo is for how long after a fault calls may still be told of it: a connection that broke while
// it was idle, a request that was swallowed.
const echo = 2 * patience

// befall says that a fault may show in what p's calls return, for longer than an echo by d. The
// world's mutex is held.
func (p *process) befall(d time.Duration) {
	if until := time.Now().Add(echo + d); until.After(p.faulted) {
		p.faulted = until
	}
}

// everybody says it of all processes.
func (w *world) everybody(d time.Duration) {
	w.set(func() {
		for _, p := range w.all {
			p.befall(d)
		}
	})
}

// cut ends every connection to a server.
func (w *world) cut(i int) {
	w.mu.Lock()
	var conns []*conn
	for _, p := range w.all {
		for c := range p.conns {
			if c.to == i {
				conns = append(conns, c)
			}
		}
	}
	w.mu.Unlock()
	for _, c := range conns {
		c.Break(errCut)
	}
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) unreachable(s *server) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.down
}

// late runs f after a while. The end of the run waits for it.
func (w *world) late(after time.Duration, f func()) {
	w.under.Go(func() {
		time.Sleep(after)
		f()
	})
}

func (p *process) name() string { return fmt.Sprintf("P%d", p.id) }
