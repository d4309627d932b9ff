package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

const (
	workers = 4 // of each side

	long = 5 * time.Second // a lease that no client here outlives unless the test wants it

	// slack is what a busy machine may add to a wait. It is less than long: a wait within it did
	// not wait for a lease to end.
	slack = 3 * time.Second

	// tick: a server reads its clock once per event loop, so a TTL may count from a little before
	// the command arrived.
	tick = 20 * time.Millisecond
)

// A row holds the results of one client and one of our algorithms.
type row struct {
	c client
	a algorithm

	theirs, ours int // sections
	alternations int // how often a section of one side followed one of the other side
	overlaps     int // only with a client that overwrites: see judge
	stalls       int // waits of theirs on a free key that did not end: see the page
	lost         int // our sections whose lock could not be released: see goneIsDead
	theirDeath   time.Duration
	ourDeath     time.Duration
	toUs, toThem time.Duration // from a release to the other side's acquisition
}

func (r *row) run(t *testing.T) {
	s := realredis.Run(t)
	r.sections(t, s.Addr)
	r.theyDie(t, s.Addr)
	r.weDieAndRelease(t, s.Addr)
}

// A side is our side of a test.
type side struct {
	addr  string
	key   string
	conn  *protocol.Conn
	a     protocol.Algorithm
	locks *compat.Locker
}

// us returns our side, with leases of at most lease.
func us(t testing.TB, addr string, c client, a algorithm, lease time.Duration) side {
	t.Helper()
	pool := &redis.Pool{MaxIdle: workers, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr, redis.DialReadTimeout(stepLimit)) }}
	conn := pool.Get()
	t.Cleanup(func() { conn.Close(); pool.Close() })
	alg := a.new(lease)
	return side{
		addr: addr, key: c.key(t), conn: protocol.NewConn(conn), a: alg,
		locks: compat.New(pool, alg, compat.Options{Poll: c.poll}),
	}
}

// value returns the key's value, or "" if it is missing.
func (s side) value(t testing.TB) string {
	t.Helper()
	v, err := redis.String(s.conn.Do("GET", s.key))
	if err != nil && err != redis.ErrNil {
		t.Fatal(err)
	}
	return v
}

// lock waits for the lock. The caller must release it.
func (s side) lock(t testing.TB, lease time.Duration) *compat.Lock {
	t.Helper()
	ctx, cancel := context.WithDeadline(context.Background(), deadline())
	defer cancel()
	l, err := s.locks.Lock(ctx, s.key, lease)
	if err != nil {
		t.Fatalf("our lock: %v; the key holds %q", err, s.value(t))
	}
	return l
}

// dead writes the lock of a dead holder in the dialect; its lease ends after left.
func (s side) dead(t testing.TB, c client, left time.Duration) {
	t.Helper()
	args := []any{s.key, "dead", "PX", left.Milliseconds()}
	if c.format(t).Kind.Timed() {
		d := must.Get(getsetlock.Named(c.dialect))(t)
		args = []any{s.key, d.Format(time.Now().Add(left-d.Plus), nil)}
	}
	must.Get(s.conn.Do("SET", args...))(t)
}

// sections makes four processes of theirs and four goroutines of ours run critical sections that
// only the lock protects.
func (r *row) sections(t *testing.T, addr string) {
	t.Helper()
	theirs, ours := 50, 60
	if r.c.slow {
		theirs = 15
	}
	lease := long
	if r.c.gone { // a lock that could not be released stays until it expires: keep that short
		lease = 2 * time.Second
		theirs, ours = 30, 40
	}
	s := us(t, addr, r.c, r.a, lease)
	var fleet []*process
	for range workers {
		fleet = append(fleet, r.c.start(t, addr, lease))
	}
	m := watch(t, addr)
	for _, p := range fleet {
		p.send("work %d", theirs)
	}
	var all sync.WaitGroup
	lost := make([]int, workers)
	for i := range workers {
		all.Go(func() { lost[i] = s.work(t, fmt.Sprintf("ours-%d", i), ours, lease, 4*r.c.poll) })
	}
	all.Wait()
	for _, p := range fleet {
		p.expect(fmt.Sprintf("worked %d lost 0", theirs))
		p.kill()
	}
	counted, err := redis.Int(s.conn.Do("GET", "interop:count"))
	if err != nil {
		t.Fatal(err)
	}
	if r.stalls, err = redis.Int(s.conn.Do("GET", "interop:stalls")); err != nil && err != redis.ErrNil {
		t.Fatal(err)
	}
	if r.stalls > 0 && r.c.dialect != "rueidislock" {
		t.Errorf("%d of their waits on a free key did not end", r.stalls)
	}
	seen := judge(t, m.stop(t), s.key)
	r.theirs, r.ours, r.alternations, r.overlaps = seen.theirs, seen.ours, seen.alternations, seen.overlaps
	if !r.c.overwrites && seen.overlaps > 0 {
		t.Errorf("%d overlaps", seen.overlaps)
	}

	total := 0
	for _, n := range lost {
		total += n
	}
	if total > 0 && !r.c.gone { // see goneIsDead
		t.Errorf("%d of our sections ended with ErrLost", total)
	}
	r.lost = total
	if want := workers * theirs; r.theirs != want {
		t.Errorf("%d sections of theirs, want %d", r.theirs, want)
	}
	if want := workers * ours; r.ours != want {
		t.Errorf("%d sections of ours, want %d", r.ours, want)
	}
	if lost := r.theirs + r.ours - counted; lost < 0 || lost > r.overlaps {
		t.Errorf("the counter is at %d after %d sections, with %d overlaps: updates were lost", counted, r.theirs+r.ours, r.overlaps)
	}
	if r.alternations < workers {
		t.Errorf("the sides took alternations %d times: they did not contend", r.alternations)
	}
}

// work does n sections, with pauses of up to pause between them, and returns how
// many of them ended with ErrLost.
func (s side) work(t testing.TB, who string, n int, lease, pause time.Duration) (lost int) {
	conn, err := redis.Dial("tcp", s.addr)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer conn.Close()
	ctx, cancel := context.WithDeadline(context.Background(), deadline())
	defer cancel()
	for range n {
		l, err := s.locks.Lock(ctx, s.key, lease)
		if err != nil {
			t.Errorf("our lock: %v", err)
			return lost
		}
		err = section(conn, who)
		switch released := l.Release(ctx); {
		case err != nil:
			t.Error(err)
		case errors.Is(released, compat.ErrLost):
			lost++
		case released != nil:
			t.Errorf("our release: %v", released)
		}
		<-time.After(rand.N(pause)) // let the others run
	}
	return lost
}

// section does what protocol.py's section does.
func section(c redis.Conn, who string) error {
	if _, err := c.Do("RPUSH", "interop:log", "enter "+who); err != nil {
		return err
	}
	n, err := redis.Int(c.Do("GET", "interop:count"))
	if err != nil && err != redis.ErrNil {
		return err
	}
	if _, err := c.Do("SET", "interop:count", n+1); err != nil {
		return err
	}
	_, err = c.Do("RPUSH", "interop:log", "leave "+who)
	return err
}

// rounding is the longest time that a value can outlast the lease: the client's "+1" and rounding.
func (c client) rounding(t testing.TB) time.Duration {
	f := c.format(t)
	if !f.Kind.Timed() {
		return tick
	}
	return f.Plus + 2*f.Stamp.Grain() + f.Grace
}

// theyDie: a process of theirs that holds the lock is killed (kill -9), and we wait for it. We get
// it when its lease has ended, not before.
func (r *row) theyDie(t *testing.T, addr string) {
	t.Helper()
	s := us(t, addr, r.c, r.a, r.c.lease)
	p := r.c.start(t, addr, r.c.lease)
	p.warm()
	asked := time.Now()
	p.acquire()
	p.kill()
	if s.value(t) == "" {
		t.Fatalf("they hold the lock, but %s does not exist", s.key)
	}
	l := s.lock(t, r.c.lease)
	r.theirDeath = time.Since(asked)
	if early := r.c.lease - tick - r.theirDeath; early > 0 {
		t.Errorf("we took their lock %v before its lease ended", early)
	}
	limit := r.c.lease + r.c.rounding(t) + slack
	if r.a.patient {
		limit += r.c.lease
	}
	if r.theirDeath > limit {
		t.Errorf("their lock was recovered after %v, want %v at most", r.theirDeath, limit)
	}
	if err := l.Release(context.Background()); err != nil {
		t.Errorf("our release: %v", err)
	}
}

// weDieAndRelease: we take the lock and abandon it; they wait for it. Then each side in turn holds
// the lock while the other waits, and releases it.
func (r *row) weDieAndRelease(t *testing.T, addr string) {
	t.Helper()
	s := us(t, addr, r.c, r.a, long)
	g := newGate(t, addr, s.key)
	p := r.c.start(t, g.addr, long)
	p.warm()

	asked := time.Now()
	dropped, err := s.a.Acquire(s.conn, asked, s.key, r.c.lease)
	if err != nil {
		t.Fatalf("a free key: %v", err)
	}
	p.acquire()
	took := time.Now()
	r.ourDeath = took.Sub(asked)
	if took.Before(dropped.Until) {
		t.Errorf("they took our lock %v before its lease ended", dropped.Until.Sub(took))
	}
	limit := r.c.lease + r.c.rounding(t) + slack
	if r.c.listens { // nobody tells it that a lock has expired: it asks again when its own lease would have ended
		limit += long
	}
	if r.ourDeath > limit {
		t.Errorf("our lock was recovered after %v, want %v at most", r.ourDeath, limit)
	}

	_, err = s.locks.TryLock(context.Background(), s.key, long)
	if !errors.Is(err, compat.ErrHeld) || errors.Is(err, compat.ErrForeign) {
		t.Errorf("they hold it: %v, want ErrHeld and not ErrForeign", err)
	}
	got := make(chan *compat.Lock, 1)
	go func() {
		ctx, cancel := context.WithDeadline(context.Background(), deadline())
		defer cancel()
		l, err := s.locks.Lock(ctx, s.key, long)
		if err != nil {
			t.Errorf("after their release: %v", err)
		}
		got <- l
	}()
	p.send("release")
	p.expect("released")
	released := time.Now()
	l := <-got
	if l == nil {
		return
	}
	if r.toUs = time.Since(released); r.toUs > slack {
		t.Errorf("they released, and we had the lock %v later", r.toUs)
	}

	asks, refused := r.c.acquires(), 2 // it asked twice: it was refused once
	if r.c.listens {
		refused = 1 // it asked; that it was told of the release is what is measured
	}
	n := g.count(asks)
	p.send("acquire")
	if answer := g.await(p, asks, n+refused); answer != "" {
		t.Fatalf("we hold the lock, and they say %q", answer)
	}
	if err := l.Release(context.Background()); err != nil {
		t.Errorf("our release: %v", err)
	}
	released = time.Now()
	p.expect("held")
	if r.toThem = time.Since(released); r.toThem > slack {
		t.Errorf("we released, and they had the lock %v later", r.toThem)
	}
	if got := p.do("release"); got != "released" || s.value(t) != "" {
		t.Errorf("they say %q, and the key holds %q", got, s.value(t))
	}
}

// alone makes as many of their processes as there are clients of both sides elsewhere contend among
// themselves, and returns how many of their waits on a free key did not end: if some do not, it is
// not our doing.
func (c client) alone(t *testing.T) (stalls int) {
	t.Helper()
	const each = 50
	s := us(t, realredis.Start(t), c, c.algorithms(t)[0], long)
	var fleet []*process
	for range 2 * workers {
		fleet = append(fleet, c.start(t, s.addr, long))
	}
	m := watch(t, s.addr)
	for _, p := range fleet {
		p.send("work %d", each)
	}
	for _, p := range fleet {
		p.expect(fmt.Sprintf("worked %d lost 0", each))
	}
	if v := judge(t, m.stop(t), s.key); v.theirs != 2*workers*each || v.overlaps != 0 {
		t.Errorf("%d sections, %d overlaps", v.theirs, v.overlaps)
	}
	stalls, err := redis.Int(s.conn.Do("GET", "interop:stalls"))
	if err != nil && err != redis.ErrNil {
		t.Fatal(err)
	}
	t.Logf("%d waits on a free key did not end", stalls)
	return stalls
}
