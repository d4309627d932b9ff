package auto_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/auto"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/oldredis/realredis"
	"github.com/setnxlock/setnxlock/compat/server"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// choices are the names of what is chosen on each server: by itself, and for
// a fleet of timestamp locks.
func choices(version string) (alone, joining string) {
	switch {
	case version == "1.2", version == "2.0", version == "twemproxy":
		return "getset:classic", "getset:classic"
	case strings.HasPrefix(version, "2.2"):
		return "tx:guarded", "getset:guarded"
	}
	return "tx:renamed", "getset:guarded"
}

// On every server, with and without fence, what is chosen passes its own check
// and works.
func TestChoose(t *testing.T) {
	for _, v := range append(oldredis.Versions(), oldredis.Profiles()...) {
		s := oldredis.Run(t, v)
		r, err := server.Probe(t.Context(), s, server.Options{})
		if err != nil {
			t.Fatal(err)
		}
		alone, joining := choices(v)
		for _, o := range []auto.Options{{}, {Fence: true}, {Dialect: getsetlock.Seconds}, {Dialect: getsetlock.Millis, Fence: true}} {
			want := alone
			if o.Dialect != (getsetlock.Dialect{}) {
				want = joining
			}
			c, err := auto.Choose(r, o)
			if o.Fence && v == "twemproxy" {
				if !errors.Is(err, compat.ErrUnsafeServer) {
					t.Errorf("%s %+v: %v", v, o, err)
				}
				continue
			}
			if err != nil || c.Name != want {
				t.Errorf("%s %+v: %s, %v; wanted %s", v, o, c.Name, err, want)
				continue
			}
			if c.Safe != (c.Name != "getset:classic" && !r.Has(server.WarnEvictionVolatile)) {
				t.Errorf("%s %+v: safe %v", v, o, c.Safe)
			}
			sentences(t, c)
			works(t, s, c.Algorithm, o.Fence)
		}
	}
}

// works takes, extends and releases a lock, the algorithm's check included.
func works(t *testing.T, source compat.Source, a compat.Algorithm, fence bool) {
	t.Helper()
	locks := compat.New(source, a, compat.Options{Prefix: "auto-test:" + compat.NewToken() + ":"})
	lock, err := locks.TryLock(t.Context(), "k", 10*time.Second)
	if err != nil {
		t.Errorf("%T: %v", a, err)
		return
	}
	if (lock.Fence() > 0) != fence {
		t.Errorf("%T: fence %d", a, lock.Fence())
	}
	if _, err := locks.TryLock(t.Context(), "k", 10*time.Second); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("%T: a second client: %v", a, err)
	}
	if err := lock.Extend(t.Context(), 20*time.Second); err != nil {
		t.Errorf("%T: %v", a, err)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Errorf("%T: %v", a, err)
	}
}

func sentences(t *testing.T, c auto.Choice) {
	t.Helper()
	for _, s := range append([]string{c.Why}, c.Risks...) {
		if s == "" || strings.HasSuffix(s, ".") || strings.Contains(s, ". ") {
			t.Errorf("%s: not a sentence without a full stop: %q", c.Name, s)
		}
	}
	if len(c.Risks) == 0 {
		t.Errorf("%s: no risks", c.Name)
	}
}

func TestMillis(t *testing.T) {
	for v, want := range map[string]bool{"2.4": false, "2.6": true, "7.0": true} {
		_, c, err := auto.New(t.Context(), oldredis.Run(t, v), compat.Options{})
		if err != nil {
			t.Fatal(v, err)
		}
		if got := c.Algorithm.(txlock.Renamed).Millis; got != want {
			t.Errorf("%s: milliseconds %v", v, got)
		}
	}
}

// Commands that are refused lead to a lock that does without them.
func TestRefusedCommands(t *testing.T) {
	for refused, want := range map[string]string{
		"RENAMENX": "tx:guarded",
		"PTTL":     "tx:renamed",
		"EVAL":     "tx:renamed",
		"WATCH":    "getset:classic",
		"MULTI":    "getset:classic",
		"SETEX":    "getset:guarded",
		"GETSET":   "tx:renamed",
	} {
		for _, forbid := range []bool{false, true} {
			o := oldredis.Options{Refuse: []string{refused}}
			if forbid {
				o = oldredis.Options{Forbid: []string{refused}}
			}
			s := oldredis.MustNew("7.0", o)
			_, c, err := auto.New(t.Context(), s, compat.Options{})
			if err != nil || c.Name != want {
				t.Errorf("without %s (forbidden: %v): %s, %v; wanted %s", refused, forbid, c.Name, err, want)
			} else {
				sentences(t, c)
				works(t, s, c.Algorithm, false)
			}
			s.Close()
		}
	}
}

func TestUnsafe(t *testing.T) {
	good, err := server.Probe(t.Context(), oldredis.Run(t, "7.0"), server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		change func(*server.Report)
		use    string
	}{
		{func(r *server.Report) { r.Role, r.Master = "replica", "10.0.0.1:6379" }, "its master, 10.0.0.1:6379"},
		{func(r *server.Report) { r.Role = "replica" }, "its master"},
		{func(r *server.Report) { r.Writable = false }, "it again when it accepts them"},
		{func(r *server.Report) { r.Watch, r.Getset = false, false }, "another server"},
		{func(r *server.Report) { r.SetnxRespectsTTL, r.Setnx = false, false }, "another server"},
	} {
		r := good
		test.change(&r)
		_, err := auto.Choose(r, auto.Options{})
		var unsafe *compat.UnsafeServerError
		if !errors.As(err, &unsafe) || unsafe.Use != test.use {
			t.Errorf("%v; wanted %q", err, test.use)
		}
	}
}

// Eviction takes the promise back from those locks whose keys may go.
func TestEviction(t *testing.T) {
	source := pool(t, realredis.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"))
	r, err := server.Probe(t.Context(), source, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := auto.Choose(r, auto.Options{}); err != nil || c.Safe || c.Name != "tx:renamed" {
		t.Errorf("%s safe %v, %v", c.Name, c.Safe, err)
	}
	if c, err := auto.Choose(r, auto.Options{Dialect: getsetlock.Float}); err != nil || !c.Safe || c.Name != "getset:guarded" {
		t.Errorf("%s safe %v, %v", c.Name, c.Safe, err)
	}
}

func TestRealReplica(t *testing.T) {
	source := pool(t, realredis.Start(t, "--replicaof", "127.0.0.1 1"))
	if _, _, err := auto.New(t.Context(), source, compat.Options{}); !errors.Is(err, compat.ErrUnsafeServer) {
		t.Error(err)
	}
}

// The servers in SETNXLOCK_TEST_REDIS get a lock that works.
func TestNamedServers(t *testing.T) {
	for _, addr := range strings.FieldsFunc(os.Getenv("SETNXLOCK_TEST_REDIS"), func(r rune) bool { return r == ',' }) {
		source := pool(t, addr)
		_, c, err := auto.New(t.Context(), source, compat.Options{})
		if err != nil {
			t.Fatal(addr, err)
		}
		t.Logf("%s: %s: %s (safe: %v)", addr, c.Name, c.Why, c.Safe)
		works(t, source, c.Algorithm, false)
	}
}

func pool(t *testing.T, addr string) *redis.Pool {
	p := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }, MaxIdle: 2}
	t.Cleanup(func() { p.Close() })
	return p
}
