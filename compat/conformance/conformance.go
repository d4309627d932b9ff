// Package conformance is the suite that every lock of this module passes on every server where it
// says that it is safe. A lock must exclude; only its holder may release it; it ends when its
// holder dies, and not before; it can be extended, renewed, adopted, detached and handed off;
// fences grow; and whatever single message is lost, the caller gets a true answer. On a server
// where it is not safe, a lock must refuse and write nothing.
//
// A lock on one server is an [Algorithm], and [Everywhere] runs it on all [Servers]: the embedded
// Redis in each of its versions, a real redis-server, and the addresses in SETNXLOCK_TEST_REDIS. A
// lock made of several servers or keys is a [Lock], and [Run] runs one. Both also test locks that
// are not of this module:
//
//	func TestConformance(t *testing.T) {
//		conformance.Everywhere(t, conformance.Algorithm{
//			Name: "mine",
//			New:  func(fence bool) protocol.Algorithm { return mine.Lock{Fence: fence} },
//		})
//	}
//
//	func TestMain(m *testing.M) { conformance.Main(m) }
//
// Every key that the suite uses begins with a random prefix, and is removed.
package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
	"go.uber.org/goleak"
)

// A Lock is one kind of lock where it runs, and what may be expected of it.
type Lock struct {
	Name    string // for the log: "tx:renamed"
	Server  string // for the log: "oldredis-2.4"
	Version string // the server's, for the log; "" if there is none to tell

	// New returns a client, made with o. It must pass every Source that it uses through wrap, where
	// the suite loses messages.
	New func(wrap func(compat.Source) compat.Source, o compat.Options) *compat.Locker

	// Rival returns a client that New's clients must exclude. nil: New.
	Rival func(wrap func(compat.Source) compat.Source, o compat.Options) *compat.Locker

	// Shared says that New's clients hold a key together: readers. Rival is
	// then the writer.
	Shared bool

	// Most is how many of New's clients hold a key together, if Shared. 0: any number.
	Most int

	// Counter returns the key that the fence of a lock of key was counted by, by the lock's token, where a key has several
	// counters (a semaphore has one for each slot): fences grow by each. nil: it has one.
	Counter func(prefix, key, token string) string

	// Turns says that waiters of all processes take turns, so a release hands nothing off.
	Turns bool

	// Key turns a name into a key that can be locked. nil: the key is the name.
	Key func(name string) string

	// Sources are all servers that the lock writes to.
	Sources []compat.Source

	// Keys returns the keys that a lock of key may leave on the servers: the suite looks for them
	// after a refusal and removes them at the end. nil: prefix+key and its fence.
	Keys func(prefix, key string) []string

	Fence     bool          // New's clients draw fences
	Ambiguous bool          // its values are not its own: a reply that was lost may stay unknown
	TTL       time.Duration // the shortest lease that the suite may ask for. Default: a second

	algorithm protocol.Algorithm      // nil: it is not one algorithm on one server
	anew      func(t testing.TB) Lock // the same on a server of its own, that needs no network; nil: on these Sources alone
}

// Run runs the suite over l, its checks in parallel, and logs a line with the verdict. A lock that refuses the server
// by its own check must have written nothing, and be right: a server that has all abilities is not refused. On an
// embedded server each check has its own server and virtual time.
func Run(t *testing.T, l Lock) {
	t.Helper()
	c := must.Get(newSuite(l))(t)
	t.Cleanup(func() { c.clean(t) })
	if why := c.refuses(t); why != nil {
		t.Logf("%-20s Redis %-8s %-24s refused: %v", l.Server, l.Version, l.Name, why)
		return
	}
	for _, check := range checks {
		if check.only != nil && !check.only(l) {
			continue
		}
		t.Run(check.name, func(t *testing.T) {
			t.Parallel()
			if l.anew == nil {
				check.run(c, t)
				return
			}
			bubbles <- struct{}{}
			defer func() { <-bubbles }()
			synctest.Test(t, func(t *testing.T) { // no lease is waited for, and no processor is too busy
				c := must.Get(newSuite(l.anew(t)))(t)
				c.virtual = true
				t.Cleanup(func() { c.clean(t) })
				check.run(c, t)
			})
		})
	}
	t.Cleanup(func() { // after the parallel checks
		verdict := "holds"
		if t.Failed() {
			verdict = "FAILS"
		}
		t.Logf("%-20s Redis %-8s %-24s %s", l.Server, l.Version, l.Name, verdict)
	})
}

// Refuses returns the reason of l's own check against the server; nil if it has none.
func Refuses(t testing.TB, l Lock) error {
	t.Helper()
	c := must.Get(newSuite(l))(t)
	defer c.clean(t)
	return c.refuses(t)
}

// bubbles lets as many checks on virtual time run as there are processors: they keep them busy, and
// the checks on real servers wait for leases beside them.
var bubbles = make(chan struct{}, runtime.GOMAXPROCS(0))

// Main runs a package's tests, as its TestMain. The checks that wait for a lease to end run at the same time. It fails
// if a lock left a goroutine behind.
func Main(m *testing.M, known ...goleak.Option) {
	flag.Parse()
	flag.Set("test.parallel", "128") //nolint:errcheck // a flag that exists
	goleak.VerifyTestMain(m, known...)
}

// A suite is a Lock under test.
type suite struct {
	Lock
	prefix  string
	keys    sync.Map // names that were used
	virtual bool     // its time is virtual

	mu      sync.Mutex
	clients []*compat.Locker // whose shared connections read until they are closed
}

func newSuite(l Lock) (*suite, error) {
	if l.Rival == nil {
		if l.Shared {
			return nil, fmt.Errorf("%s is shared, and there is no Rival that it keeps out", l.Name)
		}
		l.Rival = l.New
	}
	if l.Key == nil {
		l.Key = func(name string) string { return name }
	}
	if l.Keys == nil {
		l.Keys = func(prefix, key string) []string { return []string{prefix + key, protocol.Aux(prefix+key, "fence")} }
	}
	if l.TTL == 0 {
		l.TTL = time.Second
	}
	c := &suite{Lock: l, prefix: "setnxlock-test:" + protocol.NewToken() + ":"}
	for _, client := range []*func(func(compat.Source) compat.Source, compat.Options) *compat.Locker{&c.New, &c.Rival} {
		open := *client
		*client = func(wrap func(compat.Source) compat.Source, o compat.Options) *compat.Locker {
			k := open(wrap, o)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.clients = append(c.clients, k)
			return k
		}
	}
	return c, nil
}

func plain(s compat.Source) compat.Source { return s }

func (c *suite) options() compat.Options {
	o := compat.Options{Prefix: c.prefix, Poll: 250 * time.Millisecond, Cleanup: 5 * time.Second, NoRenew: true}
	if !c.virtual {
		o.Timeout, o.Cleanup = time.Minute, time.Minute // others keep the processors busy
	}
	return o
}

// client returns a new client.
func (c *suite) client() *compat.Locker { return c.New(plain, c.options()) }

// rival returns a new client of the other kind.
func (c *suite) rival() *compat.Locker { return c.Rival(plain, c.options()) }

// take takes a free key. Among readers it may have to wait: a writer that was refused may have left word that it waits.
func (c *suite) take(ctx context.Context, k *compat.Locker, key string, ttl time.Duration) (*compat.Lock, error) {
	if c.Shared {
		return k.Lock(ctx, key, ttl)
	}
	return k.TryLock(ctx, key, ttl)
}

// taken takes a free key, or ends the test.
func (c *suite) taken(t testing.TB, ctx context.Context, k *compat.Locker, key string, ttl time.Duration) *compat.Lock {
	t.Helper()
	lock := must.Get(c.take(ctx, k, key, ttl))(t)
	return lock
}

// release releases a lock.
func release(t testing.TB, ctx context.Context, lock *compat.Lock) {
	t.Helper()
	if err := lock.Release(ctx); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// want checks an error.
func want(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || want != compat.ErrLost && errors.Is(err, compat.ErrLost) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func (c *suite) key(name string) string {
	key := c.Key(name)
	c.keys.Store(key, true)
	return key
}

func (c *suite) clean(t testing.TB) {
	ctx := within(t)
	for _, k := range c.clients {
		k.Close(ctx) //nolint:errcheck // what it held is removed
	}
	c.keys.Range(func(k, _ any) bool {
		c.remove(t, ctx, k.(string))
		return true
	})
}

// remove removes key, behind every client's back.
func (c *suite) remove(t testing.TB, ctx context.Context, key string) {
	for _, source := range c.Sources {
		for _, key := range c.Keys(c.prefix, key) {
			if _, err := do(ctx, source, key, "DEL", key); err != nil {
				t.Errorf("cleaning up: %v", err)
			}
		}
	}
}

// do runs one command on the server of key.
func do(ctx context.Context, source compat.Source, key, name string, args ...any) (any, error) {
	conn, err := source.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.Do(name, args...)
}

// refuses returns the reason of the lock's own check against the server; nil if it has none. A lock with a reason has
// written nothing.
func (c *suite) refuses(t testing.TB) error {
	ctx := within(t)
	key := c.key("refused")
	lock, err := c.take(ctx, c.client(), key, patient)
	if err == nil {
		release(t, ctx, lock)
		return nil
	}
	var unsafe *compat.UnsafeServerError
	var reply redis.Error
	switch {
	case errors.Is(err, compat.ErrUnanswered): // a proxy that closes the connection: nothing more is known
	case errors.As(err, &unsafe):
		if unsafe.Why == "" || unsafe.Use == "" {
			t.Errorf("refused without reason or remedy: %+v", unsafe)
		}
	case c.anew != nil || !errors.As(err, &reply):
		t.Fatalf("TryLock at first: %v, want a lock, ErrUnsafeServer, or ErrUnanswered behind a proxy", err)
	}
	able := true
	for _, source := range c.Sources {
		for _, written := range c.Keys(c.prefix, key) {
			if n, err := redis.Int(do(ctx, source, written, "EXISTS", written)); err != nil || n != 0 {
				t.Errorf("EXISTS %q after the refusal: %d, %v; want 0", written, n, err)
			}
		}
		r, err := probe.Ask(ctx, source, probe.Options{Prefix: c.prefix})
		able = able && err == nil && can(r, unsafe)
	}
	if able {
		t.Errorf("the lock refuses a server that can do all that locks need: %v", err)
	}
	return err
}

// can reports whether a server has all abilities of locks. Most lack its own compare-and-set: that counts if it is the
// reason why.
func can(r probe.Report, why *compat.UnsafeServerError) bool {
	deletes := r.Can(ability.DelIfEq) || r.Can(ability.DelEx)
	compares := r.Can(ability.SetIfEq) && deletes
	if why != nil && (strings.Contains(why.Why, "IFEQ") || strings.Contains(why.Why, "DELEX")) {
		return compares
	}
	return !slices.ContainsFunc(ability.All(), func(a ability.Ability) bool {
		return !r.Can(a) && a != ability.SetIfEq && a != ability.DelIfEq && a != ability.DelEx
	})
}

// within returns a context of five minutes: on a real server, where others keep the processors busy, checks take
// their time.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
