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

// A process is one program with its Lockers, its clock and its connections. A crash ends them all at
// once.
type process struct {
	w     *world
	id    int
	clock *Clock

	// Guarded by the world's mutex.
	messages map[string]int // the number of messages, by server and key
	conns    map[*conn]bool
	faulted  time.Time     // the moment until which calls may see a fault; zero: no fault yet
	bursts   time.Time     // the moment of the last fault of a message
	cutOff   time.Time     // the moment until which no message arrives
	jumped   time.Time     // the moment of the clock's last jump
	crashed  bool          // between a crash and the next start
	ending   bool          // the program ends by itself
	stands   time.Time     // the moment until which the process stands still
	blocked  time.Duration // the sum of all delays by observers
	lives    int           // the number of starts
	pools    []*redis.Pool
	lockers  []*compat.Locker
	readers  []*compat.Locker
	options  compat.Options // of the Lockers
	moved    bool           // this life uses the lock that the fleet moves to
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
		token := func(digits string, n int) string { // the same in each run of a seed; no client guesses tokens
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

// observe is the Observer of the Lockers. Now and then it blocks.
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

// A client is a Locker of one life of a process.
type client struct {
	*compat.Locker
	p    *process
	life int
	half
}

// A half tells the Lockers apart that can't take each other's locks: readers' and writers', and those before and after
// the move of a fleet.
type half struct{ shared, moved bool }

// client returns the i-th Locker of the present life; ok is false between two lives.
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

// shut calls close for the Lockers, and closes the pools. The program must not start again meanwhile.
func (p *process) shut(close func(k *compat.Locker)) {
	for _, k := range slices.Concat(p.lockers, p.readers) {
		close(k)
	}
	for _, pool := range p.pools {
		pool.Close()
	}
}

// crash ends the program between two instructions: no later message arrives. Then crash closes the
// Lockers and pools, without effect on the servers, and starts the program again.
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
	p.shut(func(k *compat.Locker) { k.Close(over) }) //nolint:errcheck // no release arrives
	p.again(away)
}

// again restarts the program after a while.
func (p *process) again(after time.Duration) {
	time.Sleep(after)
	p.w.mu.Lock()
	p.begin()
	p.w.mu.Unlock()
	p.w.judge.note("P%d starts again", p.id)
}

// leave closes the Lockers while the goroutines still use them, and starts the program again.
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

// cleanup returns Options.Cleanup, or its default.
func (w *world) cleanup() time.Duration { return cmp.Or(w.Options.Cleanup, 250*time.Millisecond) }

// stand makes the process stand still for d: its messages arrive that much later.
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

// end closes the Lockers at the end of a run. Without faults, Close must succeed.
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

// misfortunes draws misfortunes for servers and processes, until stop is closed.
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

// A mishap is a misfortune of one server or process, of a drawn length.
type mishap struct {
	*world
	i int // the index of the server
	s *server
	p *process
	d time.Duration
	r *rand.Rand
}

// away makes the server unreachable while do runs.
func (m mishap) away(do func()) {
	m.set(func() { m.s.down = true })
	m.cut(m.i)
	do()
	m.set(func() { m.s.down = false })
}

// misfortunes has all misfortunes, each as likely as another.
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
	{"stands still", true, func(m mishap) { m.p.stand(3 * m.d); m.befallAll(3 * m.d) }},
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
		by := 3 * m.d // as after the suspension of its machine
		if m.r.IntN(2) > 0 {
			by = -by
		}
		m.judge.jump(m.p, by)
	}},
	{"ends and starts again", true, func(m mishap) { m.p.leave(m.d) }},
	{"loses its replica", false, func(m mishap) {
		m.judge.replica(m.i, false)
		m.befallAll(5 * m.d)
		time.Sleep(5 * m.d)
		m.judge.replica(m.i, true)
	}},
}

// misfortune runs one misfortune. A run to which the drawn one does not apply gets another.
func (w *world) misfortune(n int, r *rand.Rand) {
	m := mishap{world: w, i: r.IntN(len(w.servers)), p: w.all[r.IntN(len(w.all))], r: r}
	m.s = w.servers[m.i]
	what := r.IntN(len(misfortunes))
	switch {
	case what == 3 && (!w.Faults.Forget || w.Kind.Replicated), what == 8 && !w.Elects:
		what = 2
	case what == 11 && !w.Kind.Replicated:
		what = 0
	case what == 9 && !w.Kind.AnyClock: // another client could rightly take the lock over
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
	w.befallAll(0) // calls under way may see the misfortune
	m.d = time.Duration(r.Int64N(int64(2 * time.Second)))
	is.befall(m)
	w.befallAll(0)
}

// echo is the time after a fault in which calls may still see it: on an idle connection that broke,
// or after a swallowed request.
const echo = 2 * patience

// befall records that p's calls may see a fault, for an echo and d. The world's mutex is held.
func (p *process) befall(d time.Duration) {
	if until := time.Now().Add(echo + d); until.After(p.faulted) {
		p.faulted = until
	}
}

// befallAll records a fault for all processes.
func (w *world) befallAll(d time.Duration) {
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

// late runs f after a while. The end of the run waits for f.
func (w *world) late(after time.Duration, f func()) {
	w.under.Go(func() {
		time.Sleep(after)
		f()
	})
}

func (p *process) name() string { return fmt.Sprintf("P%d", p.id) }
