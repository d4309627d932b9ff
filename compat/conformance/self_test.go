package conformance

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/internal/must"
)

// brokenLock is a lock with a fault, and the check that must find it.
type brokenLock struct {
	name  string
	check string
	lock  protocol.Algorithm
	says  string // what the check must say
	ttl   time.Duration
}

// broken are new ones each time: some remember what they were asked.
func broken() []brokenLock {
	return []brokenLock{
		{"takes what is held", "exclusion", takesHeld{fenced()}, "overlaps", time.Second},
		{"deletes what is not its own", "expiry", bareDel{fenced()}, "after a late Release", time.Second},
		{"lets others see nothing", "holder only", blind{fenced()}, "want held by", time.Second},
		{"sets a TTL after a refusal", "holder only", rearms{fenced()}, "moves the end of the lock by", time.Second},
		{"ends early", "expiry", endsEarly{fenced()}, "within the lease", time.Second},
		{"does not extend", "extension", noExtend{fenced()}, "after the extension", time.Second},
		{"does not renew", "renewal", noExtend{fenced()}, "a rival got a lock that is being renewed", time.Second / 8},
		{"takes a lost reply for a success", "unknown", lostIsWon{fenced()}, "but the key is", time.Second},
		{"counts backwards", "fences", sameFence{fenced()}, "fence 7 after 7", time.Second},
		{"lets anybody adopt", "adoption", anybodys{fenced()}, "Adopt with a wrong token", time.Second},
		{"tells of a shorter end too late", "lost extension", longer{fenced()}, "believed until", time.Second},
		{"is another in a wrapper", "forwarding", &fickle{Lua: fenced()}, "it behaves as", time.Second},
		{"lets others take what it detaches", "detachment", takesHeld{fenced()}, "between the two holders", time.Second},
	}
}

func fenced() setlock.Lua { return setlock.Lua{Options: setlock.Options{Fence: true}} }

type (
	takesHeld struct{ setlock.Lua }
	bareDel   struct{ setlock.Lua }
	endsEarly struct{ setlock.Lua }
	rearms    struct{ setlock.Lua }
	noExtend  struct{ setlock.Lua }
	lostIsWon struct{ setlock.Lua }
	sameFence struct{ setlock.Lua }
	anybodys  struct{ setlock.Lua }
	blind     struct{ setlock.Lua }
	longer    struct{ setlock.Lua }
)

// longer says that a lease lasts for longer than it asks the server for.
func (a longer) Extend(now time.Time, l compat.Lease, ttl time.Duration, rotate bool) (compat.Lease, protocol.Change, error) {
	l, ch, err := a.Lua.Extend(now, l, ttl, rotate)
	l.Until = protocol.Until(now, 2*ttl)
	return l, ch, err
}

// fickle has other traits for each Locker, which asks for them twice.
type fickle struct {
	setlock.Lua
	calls int
}

func (a *fickle) Traits() protocol.Traits {
	traits := a.Lua.Traits()
	a.calls++
	if traits.Rotates = a.calls%4 < 2; !traits.Rotates {
		traits.Check = nil
	}
	return traits
}

func (a takesHeld) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: protocol.NewToken(), Until: protocol.Until(now, ttl), Fence: 1}
	_, err := c.Do("SET", key, l.Value, "PX", ttl.Milliseconds())
	return l, err
}

func (a bareDel) Release(l compat.Lease) protocol.Change {
	return by(l, func(c *protocol.Conn) ([]any, error) {
		n, err := c.Do("DEL", l.Key)
		return []any{n}, err
	})
}

// by is a change that f carries out.
func by(l compat.Lease, f func(c *protocol.Conn) ([]any, error)) protocol.Change {
	return protocol.Change{Key: l.Key, Value: l.Value, Custom: f}
}

// nothing is a change that sends nothing and says that it was done.
func nothing(l compat.Lease) protocol.Change {
	return by(l, func(*protocol.Conn) ([]any, error) { return []any{int64(1)}, nil })
}

func (a endsEarly) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	return a.Lua.Acquire(c, now, key, ttl/4)
}

func (a rearms) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := a.Lua.Acquire(c, now, key, ttl)
	if errors.Is(err, compat.ErrHeld) {
		c.Do("PEXPIRE", key, ttl.Milliseconds()) //nolint:errcheck // a mistake of many
	}
	return l, err
}

func (a noExtend) Extend(now time.Time, l compat.Lease, ttl time.Duration, rotate bool) (compat.Lease, protocol.Change, error) {
	l.Until = protocol.Until(now, ttl)
	return l, nothing(l), nil
}

func (a lostIsWon) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := a.Lua.Acquire(c, now, key, ttl)
	if c.Err() != nil {
		err = nil
	}
	return l, err
}

func (a sameFence) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := a.Lua.Acquire(c, now, key, ttl)
	l.Fence = 7
	return l, err
}

func (a anybodys) Inspect(c *protocol.Conn, now time.Time, key string) (compat.State, error) {
	st, err := a.Lua.Inspect(c, now, key)
	st.Holders = append(st.Holders, compat.Holder{Value: nobodys, Until: now.Add(time.Minute)})
	return st, err
}

func (a anybodys) Extend(now time.Time, l compat.Lease, ttl time.Duration, rotate bool) (compat.Lease, protocol.Change, error) {
	l.Until = protocol.Until(now, ttl)
	return l, nothing(l), nil
}

func (a blind) Inspect(c *protocol.Conn, now time.Time, key string) (compat.State, error) {
	return compat.State{Key: key, Status: compat.StatusFree}, nil
}

// Each check finds the fault that it is there for.
func TestBrokenLocks(t *testing.T) {
	for _, b := range broken() {
		t.Run(b.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said := run(t, on(t, "7.0", Algorithm{Name: b.name, New: func(bool) protocol.Algorithm { return b.lock }, TTL: b.ttl}), b.check)
				if !strings.Contains(said, b.says) {
					t.Errorf("a lock that %s: the suite says %q, want %q", b.name, said, b.says)
				}
			})
		})
	}
}

// A lock that is not what it is said to be is found out too.
func TestFalseClaims(t *testing.T) {
	lua := func(bool) protocol.Algorithm { return setlock.Lua{} }
	l := on(t, "7.0", Algorithm{Name: "set:lua", New: func(bool) protocol.Algorithm { return refusesAll{} }})
	if said := run(t, l, "refuses"); !strings.Contains(said, "can do all that locks need") {
		t.Errorf("a lock that refuses where it works: %q", said)
	}
	l = on(t, "noscript", Algorithm{Name: "set:lua", New: func(bool) protocol.Algorithm { return writesFirst{} }})
	if said := run(t, l, "refuses"); !strings.Contains(said, "EXISTS") {
		t.Errorf("a lock that writes before it refuses: %q", said)
	}
	l = on(t, "7.0", Algorithm{Name: "set:lua", New: lua})
	l.New = func(_ func(compat.Source) compat.Source, o compat.Options) *compat.Locker {
		return compat.NewOn(l.Sources[0], setlock.Lua{}, o)
	}
	if said := run(t, l, "unknown"); !strings.Contains(said, "through wrap") {
		t.Errorf("a lock whose messages can't be lost: %q", said)
	}
	if _, err := newSuite(Lock{Name: "readers", Shared: true}); err == nil {
		t.Error("readers without a writer to keep out")
	}
}

// refusesAll refuses every server.
type refusesAll struct{ setlock.Lua }

func (a refusesAll) Traits() protocol.Traits {
	traits := a.Lua.Traits()
	traits.Check = func(c *protocol.Conn, _ string) error { return c.Unsafe("it is one", "none") }
	return traits
}

// writesFirst refuses, but has written by then.
type writesFirst struct{ setlock.Lua }

func (w writesFirst) Traits() protocol.Traits {
	traits := w.Lua.Traits()
	check := traits.Check
	traits.Check = func(c *protocol.Conn, key string) error {
		c.Do("SET", key, "x") //nolint:errcheck
		return check(c, key)
	}
	return traits
}

func on(t *testing.T, version string, a Algorithm) Lock {
	t.Helper()
	s := must.Get(oldredis.New(version, oldredis.Options{Clock: clock.New()}))(t)
	t.Cleanup(func() { s.Close() })
	return a.On(Server{Name: version, Source: s.Pool(), Version: version, Transactions: true})
}

// run runs one check of the suite and returns what it complains of.
func run(t *testing.T, l Lock, name string) string {
	t.Helper()
	c := must.Get(newSuite(l))(t)
	check := func(c *suite, t testing.TB) { c.refuses(t) } //nolint:errcheck
	for _, known := range checks {
		if known.name == name {
			check = known.run
		}
	}
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		check(c, r)
	}()
	<-done
	return r.said.String()
}

// recorder is a test that notes what fails, and does not fail.
type recorder struct {
	testing.TB
	mu   sync.Mutex
	said strings.Builder
}

func (r *recorder) Error(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(&r.said, args...)
}

func (r *recorder) Errorf(format string, args ...any) { r.Error(fmt.Sprintf(format, args...)) }

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }
