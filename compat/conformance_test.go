package compat_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/oldredis/realredis"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// TestConformance runs one suite over every algorithm on every server: the
// embedded Redis in all its versions and profiles, a real redis-server (one of
// them with EVAL renamed away), and the addresses in SETNXLOCK_TEST_REDIS. It
// logs a line for each server and algorithm. Every key it uses begins with a
// random prefix, and is removed.
func TestConformance(t *testing.T) {
	for _, s := range servers(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			v := version(t, s.source)
			for _, a := range algorithms {
				t.Run(a.name, func(t *testing.T) {
					t.Parallel()
					conform(t, s, v, a)
				})
			}
		})
	}
}

type testServer struct {
	name    string
	source  *redis.Pool
	profile string // of the embedded server; "" elsewhere
}

func servers(t *testing.T) []testServer {
	var all []testServer
	for _, v := range append(oldredis.Versions(), oldredis.Profiles()...) {
		s, err := oldredis.New(v, oldredis.Options{Clock: clock.New()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		pool := s.Pool()
		pool.MaxIdle = 64
		all = append(all, testServer{"oldredis-" + v, pool, v})
	}
	real := realredis.Start(t)
	hardened := realredis.Start(t, "--rename-command", "EVAL", "", "--rename-command", "EVALSHA", "")
	all = append(all, testServer{"real-redis-server", dial(t, real), ""}, testServer{"real-without-EVAL", dial(t, hardened), ""})
	for _, addr := range strings.Split(os.Getenv("SETNXLOCK_TEST_REDIS"), ",") {
		if addr = strings.TrimSpace(addr); addr != "" {
			all = append(all, testServer{"at-" + addr, dial(t, addr), ""})
		}
	}
	return all
}

func dial(t *testing.T, addr string) *redis.Pool {
	p := &redis.Pool{MaxIdle: 64, DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", addr, redis.DialReadTimeout(20*time.Second))
	}}
	t.Cleanup(func() { p.Close() })
	return p
}

// version is the server's own word; a proxy that has none to say is "".
func version(t *testing.T, p *redis.Pool) string {
	c := p.Get()
	defer c.Close()
	info, err := redis.String(c.Do("INFO"))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(info, "redis_version:")
	v, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(v)
}

// older reports whether version v is before w; "" (a proxy) is not.
func older(v, w string) bool {
	var a, b [3]int
	fmt.Sscanf(v, "%d.%d.%d", &a[0], &a[1], &a[2])
	fmt.Sscanf(w, "%d.%d.%d", &b[0], &b[1], &b[2])
	for i := range a {
		if a[i] != b[i] {
			return v != "" && a[i] < b[i]
		}
	}
	return false
}

type testAlgorithm struct {
	name   string
	make   func(fence bool) compat.Algorithm
	since  string // the first Redis it is safe on
	watch  bool   // needs transactions, which proxies don't have
	noread bool   // its values are not its own: a lost reply stays unknown
	ttl    time.Duration
}

var algorithms = []testAlgorithm{
	{"getset:classic/float", getsetClassic(getsetlock.Float), "1.2", false, false, time.Second},
	{"getset:classic/seconds", getsetClassic(getsetlock.Seconds), "1.2", false, true, time.Second},
	{"getset:classic/millis", getsetClassic(getsetlock.Millis), "1.2", false, true, time.Second},
	{"getset:classic/nanos", getsetClassic(getsetlock.Nanos), "1.2", false, true, time.Second},
	{"getset:guarded/float", getsetGuarded(getsetlock.Float), "2.2", true, false, time.Second},
	{"getset:guarded/seconds", getsetGuarded(getsetlock.Seconds), "2.2", true, true, time.Second},
	{"getset:guarded/millis", getsetGuarded(getsetlock.Millis), "2.2", true, true, time.Second},
	{"tx:classic", func(f bool) compat.Algorithm { return txlock.Classic{Options: tx(f, false)} }, "2.2", true, false, time.Second},
	{"tx:guarded", func(f bool) compat.Algorithm { return txlock.Guarded{Options: tx(f, false)} }, "2.2", true, false, time.Second},
	{"tx:renamed", func(f bool) compat.Algorithm { return txlock.Renamed{Options: tx(f, false)} }, "2.4", true, false, time.Second},
	{"tx:classic/millis", func(f bool) compat.Algorithm { return txlock.Classic{Options: tx(f, true)} }, "2.6", true, false, time.Second},
	{"tx:guarded/millis", func(f bool) compat.Algorithm { return txlock.Guarded{Options: tx(f, true)} }, "2.6", true, false, time.Second},
	{"tx:renamed/millis", func(f bool) compat.Algorithm { return txlock.Renamed{Options: tx(f, true)} }, "2.6", true, false, time.Second},
}

func tx(fence, millis bool) txlock.Options { return txlock.Options{Fence: fence, Millis: millis} }

func getsetClassic(d getsetlock.Dialect) func(bool) compat.Algorithm {
	return func(f bool) compat.Algorithm {
		return getsetlock.Classic{Options: getsetlock.Options{Dialect: d, Fence: f}}
	}
}

func getsetGuarded(d getsetlock.Dialect) func(bool) compat.Algorithm {
	return func(f bool) compat.Algorithm {
		return getsetlock.Guarded{Options: getsetlock.Options{Dialect: d, Fence: f}}
	}
}

// conform is the suite, for one algorithm on one server.
func conform(t *testing.T, s testServer, v string, a testAlgorithm) {
	proxy := s.profile == "twemproxy" || s.profile == "" && v == ""
	prefix := "setnxlock-test:" + compat.NewToken() + ":"
	c := &suite{t: t, s: s, a: a, prefix: prefix, fence: !proxy}
	t.Cleanup(func() { c.clean() })
	if a.watch && proxy || older(v, a.since) {
		c.refuses()
		t.Logf("%-20s Redis %-8s %-24s refused: %v", s.name, v, a.name, c.why)
		return
	}
	for _, check := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"exclusion", c.exclusion}, {"holder only", c.holderOnly}, {"expiry", c.expiry}, {"extension", c.extension},
		{"renewal", c.renewal}, {"unknown", c.unknown}, {"fences", c.fences}, {"adoption", c.adoption},
	} {
		t.Run(check.name, func(t *testing.T) { t.Parallel(); check.run(t) })
	}
	t.Cleanup(func() { // after the parallel checks
		verdict := "holds"
		if t.Failed() {
			verdict = "FAILS"
		}
		t.Logf("%-20s Redis %-8s %-24s %s", s.name, v, a.name, verdict)
	})
}

// busy lets two of the checks that keep the processor busy run at a time, so
// that those which wait for a lease to end keep their time.
var busy = make(chan struct{}, 2)

type suite struct {
	t      *testing.T
	s      testServer
	a      testAlgorithm
	prefix string
	fence  bool
	why    error
	keys   sync.Map
}

// locker is a client of its own.
func (c *suite) locker(source compat.Source) *compat.Locker {
	return compat.New(source, c.a.make(c.fence), compat.Options{
		Prefix: c.prefix, MinPoll: time.Millisecond, MaxPoll: 20 * time.Millisecond, Cleanup: 5 * time.Second,
	})
}

func (c *suite) key(name string) string {
	c.keys.Store(name, true)
	return name
}

func (c *suite) clean() {
	conn := c.s.source.Get()
	defer conn.Close()
	c.keys.Range(func(k, _ any) bool {
		key := c.prefix + k.(string)
		if _, err := conn.Do("DEL", key); err != nil {
			c.t.Errorf("cleaning up: %v", err)
		}
		conn.Do("DEL", compat.FenceKey(key)) //nolint:errcheck // the same connection
		return true
	})
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// refuses: on a server where it excludes nobody the lock says so, by name, and
// writes nothing.
func (c *suite) refuses() {
	_, err := c.locker(c.s.source).TryLock(within(c.t, 10*time.Second), c.key("refused"), 10*time.Second)
	var unsafe *compat.UnsafeServerError
	if !errors.As(err, &unsafe) || !errors.Is(err, compat.ErrUnsafeServer) {
		c.t.Fatalf("TryLock on a server without what it needs: %v, want ErrUnsafeServer", err)
	}
	if unsafe.Why == "" || unsafe.Use == "" {
		c.t.Errorf("refused without reason or remedy: %+v", unsafe)
	}
	conn := c.s.source.Get()
	defer conn.Close()
	if n, err := redis.Int(conn.Do("EXISTS", c.prefix+"refused")); err != nil || n != 0 {
		c.t.Errorf("EXISTS after the refusal: %d, %v; want 0", n, err)
	}
	c.why = err
}

// exclusion: 32 clients never stand in the section together.
func (c *suite) exclusion(t *testing.T) {
	busy <- struct{}{}
	defer func() { <-busy }()
	const clients, rounds = 32, 3
	var inside, overlaps atomic.Int32
	counter := 0
	var wg sync.WaitGroup
	ctx := within(t, 60*time.Second)
	for range clients {
		wg.Go(func() {
			k := c.locker(c.s.source)
			for range rounds {
				lock, err := k.Lock(ctx, c.key("exclusion"), 20*time.Second)
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					overlaps.Add(1)
				}
				seen := counter
				if _, err := k.Inspect(ctx, "exclusion"); err != nil { // some time passes inside
					t.Error(err)
				}
				counter = seen + 1
				inside.Add(-1)
				if err := lock.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := overlaps.Load(); n != 0 || counter != clients*rounds {
		t.Errorf("%d overlaps, counter at %d, want 0 and %d", n, counter, clients*rounds)
	}
}

// holderOnly: nobody but the holder releases, and it only once.
func (c *suite) holderOnly(t *testing.T) {
	ctx := within(t, 20*time.Second)
	key := c.key("holder")
	a, b := c.locker(c.s.source), c.locker(c.s.source)
	lock, err := a.TryLock(ctx, key, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryLock(ctx, key, 10*time.Second); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("TryLock of a held key: %v, want ErrHeld", err)
	}
	if err := b.ReleaseToken(ctx, key, "0000000000.000"); !errors.Is(err, compat.ErrLost) {
		t.Errorf("ReleaseToken with another's token: %v, want ErrLost", err)
	}
	st, err := b.Inspect(ctx, key)
	if err != nil || st.Value != lock.Token() || st.Status != compat.StatusHeld {
		t.Errorf("Inspect: %+v, %v; want held by %q", st, err, lock.Token())
	}
	if err := lock.Release(ctx); err != nil {
		t.Error(err)
	}
	second, err := b.TryLock(ctx, key, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(ctx); !errors.Is(err, compat.ErrLost) {
		t.Errorf("second Release: %v, want ErrLost", err)
	}
	if st, err := a.Inspect(ctx, key); err != nil || st.Value != second.Token() {
		t.Errorf("after another's second Release: %+v, %v; want %q still there", st, err, second.Token())
	}
	if err := second.Release(ctx); err != nil {
		t.Error(err)
	}
}

// expiry: a holder that dies is taken over when its lease has ended, not before.
func (c *suite) expiry(t *testing.T) {
	ctx := within(t, 30*time.Second)
	key := c.key("expiry")
	start := time.Now()
	if _, err := c.locker(c.s.source).TryLock(ctx, key, c.a.ttl); err != nil {
		t.Fatal(err)
	}
	lock, err := c.locker(c.s.source).Lock(ctx, key, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < c.a.ttl-compat.Drift(c.a.ttl) {
		t.Errorf("taken over after %v, within the lease of %v", took, c.a.ttl)
	}
	if err := lock.Release(ctx); err != nil {
		t.Error(err)
	}
}

// extension: an extended lock is held past its first end, and its context lives on.
func (c *suite) extension(t *testing.T) {
	ctx := within(t, 30*time.Second)
	key := c.key("extension")
	lock, err := c.locker(c.s.source).TryLock(ctx, key, 2*c.a.ttl)
	if err != nil {
		t.Fatal(err)
	}
	first := lock.Until()
	if err := lock.Extend(ctx, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if !lock.Until().After(first.Add(10 * time.Second)) {
		t.Errorf("Until %v after an extension to 20 s, was %v", lock.Until(), first)
	}
	st, err := c.locker(c.s.source).Inspect(ctx, key)
	if err != nil || st.Status != compat.StatusHeld || time.Until(st.Until) < 15*time.Second || st.Value != lock.Token() {
		t.Errorf("Inspect after the extension: %+v, %v", st, err)
	}
	if err := lock.Release(ctx); err != nil {
		t.Error(err)
	}
	if err := lock.Extend(ctx, time.Second); !errors.Is(err, compat.ErrLost) {
		t.Errorf("Extend after Release: %v, want ErrLost", err)
	}
}

// renewal: Do keeps the lock for longer than its ttl.
func (c *suite) renewal(t *testing.T) {
	ctx := within(t, 30*time.Second)
	key := c.key("renewal")
	err := c.locker(c.s.source).Do(ctx, key, c.a.ttl, func(held context.Context) error {
		waiter, cancel := context.WithTimeout(held, 2*c.a.ttl)
		defer cancel()
		if _, err := c.locker(c.s.source).Lock(waiter, key, c.a.ttl); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock beside a renewed lock, for two leases: %v, want its deadline", err)
		}
		return context.Cause(held)
	})
	if err != nil {
		t.Error(err)
	}
}

// unknown: whatever single message of acquire, extend or release is lost, the
// caller learns the truth or that it is unknown, and afterwards the key is
// free, or ours, as it was told.
func (c *suite) unknown(t *testing.T) {
	busy <- struct{}{}
	defer func() { <-busy }()
	ctx := within(t, 60*time.Second)
	for n := 1; ; n++ {
		ran := 0
		for _, f := range []fault{lostRequest, lostReply} {
			net := &network{Source: c.s.source}
			key := c.key(fmt.Sprintf("unknown-%d-%d", n, f))
			k := c.locker(net)
			if _, err := k.Inspect(ctx, key); err != nil { // the network works
				t.Fatal(err)
			}
			net.lose(func(i int, _ string) fault {
				if i == n {
					return f
				}
				return none
			})
			c.told(t, ctx, k, key)
			ran = max(ran, net.count())
		}
		if n > ran {
			return
		}
	}
}

// told runs acquire, extend and release over k and checks what each tells
// against what stands on the server.
func (c *suite) told(t *testing.T, ctx context.Context, k *compat.Locker, key string) {
	value := func() string {
		st, err := c.locker(c.s.source).Inspect(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		return st.Value
	}
	lock, err := k.TryLock(ctx, key, 20*time.Second)
	var unknown *compat.UnknownError
	switch {
	case errors.As(err, &unknown):
		if !c.a.noread {
			t.Errorf("TryLock: %v, although the key can be read", err)
		}
		if v := value(); v != "" && v != unknown.Lease.Value {
			t.Errorf("an unknown outcome left %q, its lease says %q", v, unknown.Lease.Value)
		}
		return
	case err != nil:
		if v := value(); v != "" {
			t.Errorf("TryLock: %v, and yet the key holds %q", err, v)
		}
		return
	}
	if v := value(); v != lock.Token() {
		t.Errorf("held by the token %q, but the key holds %q", lock.Token(), v)
	}
	if err := lock.Extend(ctx, 30*time.Second); errors.Is(err, compat.ErrLost) {
		t.Errorf("Extend: %v, although nobody took it", err)
	}
	err = lock.Release(ctx)
	switch v := value(); {
	case err == nil && v != "":
		t.Errorf("released, and yet the key holds %q", v)
	case errors.Is(err, compat.ErrUnknown) && !c.a.noread:
		t.Errorf("Release: %v, although it can be repeated", err)
	case errors.Is(err, compat.ErrLost):
		t.Errorf("Release: %v, although nobody took it", err)
	}
}

// fences: numbers grow from acquisition to acquisition.
func (c *suite) fences(t *testing.T) {
	if !c.fence {
		return // no MULTI: getsetlock refuses to draw one, see TestFenceNeedsMulti
	}
	ctx := within(t, 20*time.Second)
	key := c.key("fences")
	last := int64(0)
	for range 5 {
		lock, err := c.locker(c.s.source).TryLock(ctx, key, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if lock.Fence() <= last {
			t.Errorf("fence %d after %d", lock.Fence(), last)
		}
		last = lock.Fence()
		if _, err := c.locker(c.s.source).TryLock(ctx, key, 10*time.Second); !errors.Is(err, compat.ErrHeld) {
			t.Error(err)
		}
		if err := lock.Extend(ctx, 10*time.Second); err != nil || lock.Fence() != last {
			t.Errorf("Extend: %v, fence %d, want %d", err, lock.Fence(), last)
		}
		if err := lock.Release(ctx); err != nil {
			t.Error(err)
		}
	}
}

// adoption: a token is enough to go on with a lock; a wrong one is not.
func (c *suite) adoption(t *testing.T) {
	ctx := within(t, 20*time.Second)
	key := c.key("adoption")
	a, b := c.locker(c.s.source), c.locker(c.s.source)
	lock, err := a.TryLock(ctx, key, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Adopt(ctx, key, "0000000000.000", 10*time.Second); !errors.Is(err, compat.ErrLost) {
		t.Errorf("Adopt with a wrong token: %v, want ErrLost", err)
	}
	adopted, err := b.Adopt(ctx, key, lock.Token(), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if c.fence && adopted.Fence() <= lock.Fence() {
		t.Errorf("adopted with fence %d, it was %d before", adopted.Fence(), lock.Fence())
	}
	if err := adopted.Release(ctx); err != nil {
		t.Error(err)
	}
	if err := lock.Release(ctx); !errors.Is(err, compat.ErrLost) {
		t.Errorf("Release by the handle that gave it away: %v, want ErrLost", err)
	}
}
