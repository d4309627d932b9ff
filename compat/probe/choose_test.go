package probe_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// choices are the names of what is chosen on each server: by itself, and for
// a fleet of timestamp locks.
func choices(version string) (alone, joining string) {
	switch {
	case version == "1.2":
		return "getset:classic", "getset:classic"
	case version == "2.0":
		return "getset:listed", "getset:listed"
	case version == "twemproxy":
		return "set:script", "getset:classic"
	case strings.HasPrefix(version, "2.2"):
		return "tx:guarded", "getset:guarded"
	case version == "2.4", version == "2.6":
		return "tx:renamed", "getset:guarded"
	case version == "8.6", version == "valkey-9.1":
		return "set:ifeq", "getset:guarded"
	case version == "noscript":
		return "set:watch", "getset:guarded"
	}
	return "set:lua", "getset:guarded"
}

// On every server, with and without fence, what is chosen passes its own check
// and works.
func TestChoose(t *testing.T) {
	for _, v := range slices.Concat(oldredis.Versions(), oldredis.Profiles(), oldredis.Today()) {
		s := oldredis.Run(t, v)
		r := must.Get(probe.Ask(t.Context(), compat.Pooled(s), probe.Options{}))(t)
		alone, joining := choices(v)
		for _, o := range []probe.Options{{}, {Fence: true}, {Dialect: getsetlock.Seconds}, {Dialect: getsetlock.Millis, Fence: true}} {
			want := alone
			if o.Dialect != (getsetlock.Dialect{}) {
				want = joining
			}
			c, err := probe.Choose(t.Context(), compat.Pooled(s), r, o)
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
			if c.Safe != (c.Name != "getset:classic" && !r.Has(probe.WarnEvictionVolatile)) {
				t.Errorf("%s %+v: safe %v", v, o, c.Safe)
			}
			sentences(t, c)
			works(t, s, c.Algorithm, o.Fence)
		}
	}
}

// works takes, extends and releases a lock, the algorithm's check included.
func works(t *testing.T, source compat.Pool, a protocol.Algorithm, fence bool) {
	t.Helper()
	locks := compat.New(source, a, compat.Options{Prefix: "auto-test:" + protocol.NewToken() + ":"})
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

func sentences(t *testing.T, c probe.Choice) {
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

// Where scripts are refused, the server's own compare-and-set is taken all the same; a server that takes IFEQ for a word without a meaning, or has renamed what deletes, gets another lock.
func TestChooseToday(t *testing.T) {
	for _, version := range []string{"8.6", "valkey-9.1"} {
		for name, test := range map[string]struct {
			refuse, forbid []string
			ignores        bool
			want           string
		}{
			"no scripts":           {refuse: []string{"eval", "evalsha"}, want: "set:ifeq"},
			"scripts forbidden":    {forbid: []string{"eval", "evalsha"}, want: "set:ifeq"},
			"neither, nor WATCH":   {forbid: []string{"eval", "evalsha", "watch"}, want: "set:ifeq"},
			"deletions renamed":    {refuse: []string{"delifeq", "delex"}, want: "set:lua"},
			"the word is ignored":  {ignores: true, want: "set:lua"},
			"all that and scripts": {refuse: []string{"delifeq", "delex", "eval", "evalsha"}, want: "set:watch"},
		} {
			s := must.Get(oldredis.New(version, oldredis.Options{Refuse: test.refuse, Forbid: test.forbid}))(t)
			net := new(faulty.Network)
			if test.ignores {
				net.Expect(func(m faulty.Message) faulty.Fate {
					if m.Name != "SET" || len(m.Args) < 4 || m.Args[2] != "IFEQ" {
						return faulty.Fate{}
					}
					return faulty.Fate{Serve: func(run func(...any) any) any {
						return run(slices.Concat([]any{"SET"}, m.Args[:2], m.Args[4:])...)
					}}
				})
			}
			_, c, err := probe.Find(t.Context(), compat.Pooled(net.Pool(s)), probe.Options{Memory: new(probe.Memory)})
			if err != nil || c.Name != test.want {
				t.Errorf("%s, %s: %s, %v; want %s", version, name, c.Name, err, test.want)
			}
		}
	}
}

func TestMillis(t *testing.T) {
	for v, want := range map[string]bool{"2.4": false, "2.6": true} {
		_, c, err := probe.New(t.Context(), compat.Pooled(oldredis.Run(t, v)), compat.Options{})
		if err != nil {
			t.Fatal(v, err)
		}
		if got := c.Algorithm.(txlock.Renamed).Millis; got != want {
			t.Errorf("%s: milliseconds %v", v, got)
		}
	}
}

// The options of NewWith reach the lock.
func TestNewWith(t *testing.T) {
	for _, v := range append(oldredis.Versions(), "noscript") {
		locks, c, err := probe.NewWith(t.Context(), compat.Pooled(oldredis.Run(t, v)), probe.Options{Fence: true}, compat.Options{})
		if err != nil {
			t.Fatal(v, err)
		}
		lock, err := locks.TryLock(t.Context(), "k", 10*time.Second)
		if err != nil || lock.Fence() == 0 {
			t.Errorf("%s: %s: %v without a fence", v, c.Name, err)
		}
	}
}

// Every choice of tokens excludes every other: clients of one server may have
// been told different things about it, by a proxy or by an older version of auto.
func TestTokensMix(t *testing.T) {
	s := oldredis.Run(t, "7.0")
	all := []protocol.Algorithm{setlock.Lua{}, setlock.Watched{}, setlock.Script{}, txlock.Renamed{}, txlock.Guarded{Options: txlock.Options{Millis: true}}}
	for _, holder := range all {
		lock := must.Get(compat.New(s, holder, compat.Options{}).TryLock(t.Context(), "k", 10*time.Second))(t)
		for _, other := range all {
			locks := compat.New(s, other, compat.Options{})
			if _, err := locks.TryLock(t.Context(), "k", 10*time.Second); !errors.Is(err, compat.ErrHeld) {
				t.Errorf("%T beside %T: %v", other, holder, err)
			}
			lock = must.Get(locks.Adopt(t.Context(), "k", lock.Token(), 10*time.Second))(t)
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("%T: %v", holder, err)
		}
	}
}

// Commands that are refused lead to a lock that does without them.
func TestRefusedCommands(t *testing.T) {
	for _, test := range []struct {
		version string
		refused []string
		want    string
	}{
		{"7.0", []string{"EVAL"}, "set:watch"},
		{"7.0", []string{"EVALSHA"}, "set:watch"},
		{"7.0", []string{"RENAMENX"}, "set:lua"},
		{"7.0", []string{"INCR"}, "set:lua"},
		{"2.4", []string{"INCR"}, "tx:renamed"},
		{"7.0", []string{"WATCH"}, "set:lua"},
		{"7.0", []string{"MULTI"}, "set:lua"},
		{"7.0", []string{"EVAL", "WATCH"}, "getset:listed"},
		{"7.0", []string{"EVAL", "WATCH", "SORT"}, "getset:classic"},
		{"7.0", []string{"EVAL", "PTTL"}, "tx:renamed"},
		{"2.6", []string{"EVAL"}, "tx:renamed"},
		{"2.6", []string{"RENAMENX"}, "tx:guarded"},
		{"2.6", []string{"PTTL"}, "tx:renamed"},
		{"2.6", []string{"WATCH"}, "set:script"},
		{"2.6", []string{"SETEX"}, "tx:renamed"},
		{"2.6", []string{"GETSET"}, "tx:renamed"},
		{"2.4", []string{"WATCH"}, "getset:listed"},
		{"2.4", []string{"WATCH", "RPOPLPUSH"}, "getset:classic"},
		{"2.0", []string{"LREM"}, "getset:classic"},
		{"2.4", []string{"MULTI"}, "getset:classic"},
		{"2.4", []string{"SETEX"}, "getset:guarded"},
	} {
		for _, forbid := range []bool{false, true} {
			o := oldredis.Options{Refuse: test.refused}
			if forbid {
				o = oldredis.Options{Forbid: test.refused}
			}
			s := oldredis.MustNew(test.version, o)
			_, c, err := probe.New(t.Context(), compat.Pooled(s), compat.Options{})
			if err != nil || c.Name != test.want {
				t.Errorf("%s without %s (forbidden: %v): %s, %v; wanted %s", test.version, test.refused, forbid, c.Name, err, test.want)
			} else {
				sentences(t, c)
				works(t, s, c.Algorithm, false)
			}
			if alone, _ := choices(test.version); strings.Contains(c.Why, "NOPERM") != (forbid && test.want != alone) {
				t.Errorf("%s without %s (forbidden: %v): %s", test.version, test.refused, forbid, c.Why)
			}
			s.Close()
		}
	}
}

func TestUnsafe(t *testing.T) {
	for _, test := range []struct {
		refused []string
		change  func(*probe.Report)
		use     string
	}{
		{nil, func(r *probe.Report) { r.Role, r.Master = "replica", "10.0.0.1:6379" }, "its master, 10.0.0.1:6379"},
		{nil, func(r *probe.Report) { r.Role = "replica" }, "its master"},
		{nil, func(r *probe.Report) { r.Writable = false }, "it again when it accepts them"},
		{[]string{"EVAL", "WATCH", "GETSET", "SORT"}, func(*probe.Report) {}, "another server"},
		{[]string{"EVAL", "WATCH", "SETNX"}, func(*probe.Report) {}, "another server"},
	} {
		s := oldredis.MustNew("7.0", oldredis.Options{Refuse: test.refused})
		defer s.Close()
		r := must.Get(probe.Ask(t.Context(), compat.Pooled(s), probe.Options{}))(t)
		test.change(&r)
		_, err := probe.Choose(t.Context(), compat.Pooled(s), r, probe.Options{})
		var unsafe *compat.UnsafeServerError
		if !errors.As(err, &unsafe) || unsafe.Use != test.use {
			t.Errorf("%v; wanted %q", err, test.use)
		}
	}
}

// Eviction takes the promise back from those locks whose keys may go.
func TestEviction(t *testing.T) {
	source := poolOf(t, realredis.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"))
	r := must.Get(probe.Ask(t.Context(), compat.Pooled(source), probe.Options{}))(t)
	if c, err := probe.Choose(t.Context(), compat.Pooled(source), r, probe.Options{}); err != nil || c.Safe || c.Name != "set:lua" {
		t.Errorf("%s safe %v, %v", c.Name, c.Safe, err)
	}
	if c, err := probe.Choose(t.Context(), compat.Pooled(source), r, probe.Options{Dialect: getsetlock.Float}); err != nil || !c.Safe || c.Name != "getset:guarded" {
		t.Errorf("%s safe %v, %v", c.Name, c.Safe, err)
	}
}

// An ACL that forbids some of a lock's keys never leads to a weaker lock than the
// rest of the fleet has; one that forbids a command leads to a lock without it, and that is
// told.
func TestACL(t *testing.T) {
	addr := realredis.Start(t)
	for name, test := range map[string]struct {
		rules  []any
		choice string
		err    error
		why    string
	}{
		"fenced":     {[]any{"~lock:*", "+@all"}, "set:lua", nil, ""},
		"scriptless": {[]any{"~lock:*", "+@all", "-eval", "-evalsha"}, "set:watch", nil, "it is not set:lua"},
		"keyless":    {[]any{"~lock:{setnxlock-probe-*", "+@all"}, "", compat.ErrDenied, ""},
		"outside":    {[]any{"~other:*", "+@all"}, "", compat.ErrDenied, ""},
	} {
		t.Run(name, func(t *testing.T) {
			source := userPool(t, addr, name, test.rules...)
			_, choice, err := probe.New(t.Context(), compat.Pooled(source), compat.Options{Prefix: "lock:"})
			if !errors.Is(err, test.err) || choice.Name != test.choice || !strings.Contains(choice.Why, test.why) {
				t.Errorf("%s, %v: %s", choice.Name, err, choice.Why)
			}
			if errors.Is(err, compat.ErrUnsafeServer) || test.why == "" && strings.Contains(choice.Why, "it is not") {
				t.Errorf("%v: %s", err, choice.Why)
			}
		})
	}
}

// A user who may not draw fences is told the forbidden command, and not that the server lacks MULTI. As soon as it is
// granted there is a fence, although the server was remembered.
func TestFenceForbidden(t *testing.T) {
	addr, m := realredis.Start(t), &probe.Memory{}
	rules := func(lacks string) (all []any) {
		for _, word := range strings.Fields("-" + lacks) {
			all = append(all, word)
		}
		return all
	}
	find := func(fence bool, rules ...any) error {
		source := compat.Pooled(userPool(t, addr, "locker", append([]any{"resetkeys", "~lock:*", "+@all"}, rules...)...))
		_, _, err := probe.Find(t.Context(), source, probe.Options{Prefix: "lock:", Fence: fence, Memory: m})
		return err
	}
	must.Do(t, find(true, "-multi")) // a script draws it
	for _, command := range []string{"incr", "multi -eval -evalsha"} {
		m = &probe.Memory{}
		must.Do(t, find(false, rules(command)...))
		err := find(true, rules(command)...)
		if !errors.Is(err, compat.ErrDenied) || errors.Is(err, compat.ErrUnsafeServer) || !strings.Contains(err.Error(), "'"+strings.Fields(command)[0]+"'") {
			t.Errorf("without %s: %v", command, err)
		}
		must.Do(t, find(false, rules(command)...))
		if err := find(true); err != nil {
			t.Errorf("with %s: %v", command, err)
		}
	}
}

// The servers in SETNXLOCK_TEST_REDIS get a lock that works.
func TestNamedServersGetALock(t *testing.T) {
	for _, addr := range strings.FieldsFunc(os.Getenv("SETNXLOCK_TEST_REDIS"), func(r rune) bool { return r == ',' }) {
		source := poolOf(t, addr)
		_, c, err := probe.New(t.Context(), compat.Pooled(source), compat.Options{})
		if err != nil {
			t.Fatal(addr, err)
		}
		t.Logf("%s: %s: %s (safe: %v)", addr, c.Name, c.Why, c.Safe)
		works(t, source, c.Algorithm, false)
	}
}
