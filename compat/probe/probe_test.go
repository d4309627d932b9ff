package probe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// abilities spells what a report found.
func abilities(r probe.Report) string {
	var have []string
	for _, a := range ability.All() {
		if r.Can(a) {
			have = append(have, spelled[a])
		}
	}
	for _, q := range r.Questions {
		if q.OK && (q.Name == "PING" || q.Name == "INFO" || q.Name == "CONFIG") {
			have = append(have, strings.ToLower(q.Name))
		}
	}
	if r.Has(probe.WarnClosesConnection) {
		have = append(have, "closes")
	}
	return strings.Join(have, " ")
}

// spelled are the abilities', in facts.
var spelled = map[ability.Ability]string{
	ability.Setnx: "setnx", ability.Getset: "getset", ability.GetsetAndTTL: "clears", ability.SetnxOnTTL: "respects",
	ability.ExpireAgain: "again", ability.Setex: "setex", ability.Renamenx: "renamenx", ability.Incr: "incr", ability.Multi: "multi", ability.Lists: "lists",
	ability.SetIfEq: "ifeq", ability.DelIfEq: "delifeq", ability.DelEx: "delex",
	ability.Watch: "watch", ability.Milliseconds: "millis", ability.SetNXPX: "nxpx", ability.Scripts: "eval", ability.Time: "time",
}

// facts is what facts/servers.md has of each version.
var facts = map[string]string{
	"1.2": "setnx getset clears incr multi ping info",
	"2.0": "setnx getset clears incr multi setex lists ping info config",
	"2.2": "setnx getset clears incr multi setex lists respects again watch ping info config",
	"2.4": "setnx getset clears incr multi setex lists respects again watch renamenx ping info config",
	"2.6": "setnx getset clears incr multi setex lists respects again watch renamenx millis time eval ping info config",
	"7.0": "setnx getset clears incr multi setex lists respects again watch renamenx millis time eval nxpx ping info config",

	"valkey-8.1": "setnx getset clears incr multi setex lists respects again watch renamenx millis time eval nxpx ifeq ping info config",
	"valkey-9.1": "setnx getset clears incr multi setex lists respects again watch renamenx millis time eval nxpx ifeq delifeq ping info config",
	"8.6":        "setnx getset clears incr multi setex lists respects again watch renamenx millis time eval nxpx ifeq delex ping info config",

	"noscript":  "setnx getset clears incr multi setex lists respects again watch renamenx millis time nxpx ping info config",
	"twemproxy": "setnx getset clears incr setex respects again millis eval closes",
}

func factsOf(version string) string {
	if f, ok := facts[version]; ok {
		return f
	}
	if strings.HasPrefix(version, "2.2") {
		return facts["2.2"]
	}
	return facts["7.0"]
}

func kindOf(version string) string {
	if strings.HasPrefix(version, "valkey") {
		return "valkey"
	}
	return "redis"
}

func TestProbeVersions(t *testing.T) {
	for _, v := range slices.Concat(oldredis.Versions(), oldredis.Profiles(), oldredis.Today()) {
		t.Run(v, func(t *testing.T) {
			s := oldredis.Run(t, v)
			net := new(faulty.Network)
			r := must.Get(probe.Ask(t.Context(), compat.Pooled(net.Pool(s)), probe.Options{}))(t)
			if got, want := abilities(r), factsOf(v); got != want {
				t.Errorf("found  %s\nwanted %s", got, want)
				for _, c := range r.Questions {
					t.Logf("%-16s %-60s %s", c.Name, c.Asked, c.Answer)
				}
			}
			if !r.Writable {
				t.Error("Writable is false")
			}
			if v != "twemproxy" && (r.Role != "master" || r.Version == "" || r.Kind != kindOf(v)) {
				t.Errorf("role %q, version %q, kind %q", r.Role, r.Version, r.Kind)
			}
			if v == "twemproxy" && r.Kind != "proxy" {
				t.Errorf("kind %q", r.Kind)
			}
			empty(t, s)
			t.Logf("%d writes", net.Writes())
		})
	}
}

// Whatever is refused, by whatever manner, the rest is found.
func TestProbeRefused(t *testing.T) {
	hints := []string{"INFO", "PING", "CONFIG", "EVAL", "TIME", "ROLE"}
	sets := [][]string{hints}
	for _, h := range hints {
		sets = append(sets, []string{h})
	}
	quirks := map[string]func(*testing.T, []string) *oldredis.Server{
		"unknown": func(t *testing.T, names []string) *oldredis.Server {
			return oldredis.MustNew("7.0", oldredis.Options{Refuse: names})
		},
		"forbidden": func(t *testing.T, names []string) *oldredis.Server {
			return oldredis.MustNew("7.0", oldredis.Options{Forbid: names})
		},
		"closing": func(t *testing.T, names []string) *oldredis.Server {
			s := oldredis.MustNew("7.0", oldredis.Options{})
			s.SetFault(closeOn(names))
			return s
		},
	}
	for name, start := range quirks {
		for _, names := range sets {
			t.Run(name+" "+strings.Join(names, "+"), func(t *testing.T) {
				s := start(t, names)
				defer s.Close()
				r := must.Get(probe.Ask(t.Context(), compat.Pooled(s), probe.Options{}))(t)
				var want []string
				for _, w := range strings.Fields(facts["7.0"]) {
					if !slices.Contains(names, strings.ToUpper(w)) {
						want = append(want, w)
					}
				}
				if name == "closing" && (len(names) > 1 || names[0] != "ROLE") {
					want = append(want, "closes") // ROLE is not asked if INFO told
				}
				if got := abilities(r); got != strings.Join(want, " ") {
					t.Errorf("found  %s\nwanted %s", got, strings.Join(want, " "))
				}
				if r.Has(probe.WarnNoInfo) != slices.Contains(names, "INFO") {
					t.Errorf("warnings %v", r.Warnings)
				}
				if r.Has(probe.WarnNoRole) != slices.Contains(names, "INFO") { // these servers have no ROLE
					t.Errorf("role %q, warnings %v", r.Role, r.Warnings)
				}
				s.SetFault(nil)
				empty(t, s)
			})
		}
	}
}

// A question asks a server of its own.
type question struct {
	server func() *oldredis.Server
	ask    func(context.Context, *oldredis.Server) error
}

// questions returns a probe and measurements of the clock. Each returns an error for a wrong answer.
func questions() map[string]question {
	const ahead = 3300 * time.Millisecond
	all := map[string]question{"Ask": {
		func() *oldredis.Server { return oldredis.MustNew("2.4", oldredis.Options{}) },
		func(ctx context.Context, s *oldredis.Server) error {
			r, err := probe.Ask(ctx, compat.Pooled(s), probe.Options{})
			if found := abilities(r); err == nil && found != facts["2.4"] {
				err = errors.New("found " + found)
			}
			return err
		},
	}}
	for _, version := range []string{"1.2", "2.4"} {
		var clk *sleeper
		all["Offset on "+version] = question{
			func() *oldredis.Server {
				clk = at(time.Unix(1577934245, 0))
				s := oldredis.MustNew(version, oldredis.Options{Clock: clk})
				s.Advance(ahead)
				return s
			},
			func(ctx context.Context, s *oldredis.Server) error {
				got, off, err := probe.Offset(ctx, compat.Pooled(s), clk, probe.Options{})
				if err == nil && ((got-ahead).Abs() > off || off > 50*time.Millisecond) {
					err = fmt.Errorf("measured %v ± %v", got, off)
				}
				return err
			},
		}
	}
	return all
}

// atEach asks once for each of the commands that an answer takes. act returns the fault of the n-th command in the
// run for the nth, and then looks at what is left.
func (q question) atEach(ctx context.Context, act func(n, nth int) oldredis.Fault, then func(s *oldredis.Server, nth int, err error)) {
	for nth := 1; ; nth++ {
		s, n := q.server(), 0
		s.SetFault(func(int, int, []string) oldredis.Fault {
			n++
			return act(n, nth)
		})
		err := q.ask(ctx, s)
		s.SetFault(nil)
		then(s, nth, err)
		s.Close()
		if n < nth {
			return
		}
	}
}

// A connection that breaks once, at any command, changes no answer.
func TestBrokenOnce(t *testing.T) {
	for _, fault := range []oldredis.Fault{oldredis.LoseRequest, oldredis.LoseReply} {
		once := func(n, nth int) oldredis.Fault {
			if n == nth {
				return fault
			}
			return oldredis.None
		}
		for name, q := range questions() {
			q.atEach(t.Context(), once, func(s *oldredis.Server, nth int, err error) {
				if err != nil {
					t.Errorf("%s, broken at command %d: %v", name, nth, err)
				}
				empty(t, s)
			})
		}
	}
}

// A context that ends at any command leaves no key behind.
func TestCancelled(t *testing.T) {
	for name, q := range questions() {
		ask := q.ask
		var cancel context.CancelFunc
		q.ask = func(ctx context.Context, s *oldredis.Server) error {
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			return ask(ctx, s)
		}
		end := func(n, nth int) oldredis.Fault {
			if n == nth {
				cancel()
			}
			return oldredis.None
		}
		q.atEach(t.Context(), end, func(s *oldredis.Server, nth int, err error) {
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s, cancelled at command %d: %v", name, nth, err)
			}
			empty(t, s)
		})
	}
}

// A connection that is cut for good, at any command, leaves no key without a TTL.
func TestCutForGood(t *testing.T) {
	quirks := map[string]oldredis.Options{"": {}, "without MULTI": {Refuse: []string{"MULTI"}}, "without MULTI and EVAL": {Refuse: []string{"MULTI", "EVAL", "EVALSHA"}}, "without SETEX": {Forbid: []string{"SETEX"}}}
	cut := func(n, nth int) oldredis.Fault {
		switch {
		case n > nth:
			return oldredis.LoseRequest
		case n == nth:
			return oldredis.LoseReply
		}
		return oldredis.None
	}
	for _, version := range []string{"1.2", "2.0", "2.4", "7.0"} {
		for quirk, o := range quirks {
			for name, ask := range map[string]func(context.Context, *oldredis.Server) error{
				"Ask": func(ctx context.Context, s *oldredis.Server) error {
					_, err := probe.Ask(ctx, compat.Pooled(s), probe.Options{})
					return err
				},
				"Offset": func(ctx context.Context, s *oldredis.Server) error {
					if quirk == "" && version != "2.0" {
						return nil // TIME, or one way for all
					}
					_, _, err := probe.Offset(ctx, compat.Pooled(s), at(time.Unix(1000000000, 0)), probe.Options{})
					return err
				},
			} {
				q := question{func() *oldredis.Server { return oldredis.MustNew(version, o) }, ask}
				q.atEach(t.Context(), cut, func(s *oldredis.Server, nth int, _ error) {
					endless(t, s, fmt.Sprintf("%s %s, %s cut after command %d", version, quirk, name, nth))
				})
			}
		}
	}
}

// endless fails the test if a key has no TTL.
func endless(t *testing.T, s *oldredis.Server, when string) {
	t.Helper()
	c := s.Dial()
	defer c.Close()
	keys := must.Get(redis.Strings(c.Do("KEYS", "*")))(t)
	for _, key := range keys {
		if ttl, err := redis.Int(c.Do("TTL", key)); err != nil || ttl < 0 {
			t.Errorf("%s: %q has no end: TTL %d, %v", when, key, ttl, err)
		}
	}
}

// SSDB has no transactions, and its GETSET keeps the TTL.
func TestProbeSSDB(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := oldredis.MustNew("2.4", oldredis.Options{Refuse: []string{"MULTI", "WATCH", "UNWATCH", "RENAMENX", "CONFIG"}})
		defer s.Close()
		net := new(faulty.Network)
		net.Expect(func(m faulty.Message) faulty.Fate {
			return faulty.Fate{Serve: func(run func(...any) any) any {
				reply := run()
				if reply == int64(-1) && slices.Contains(m.Write, "GETSET") {
					return int64(60)
				}
				return reply
			}}
		})
		r, err := probe.Ask(t.Context(), compat.Pooled(net.Pool(s)), probe.Options{})
		if err != nil || abilities(r) != "setnx getset setex again ping info" {
			t.Errorf("%v: found %s", err, abilities(r))
		}
		if r.Kind != "proxy" || !r.Has(probe.WarnGetsetKeepsTTL) || !r.Has(probe.WarnConfigUnknown) {
			t.Errorf("kind %q, warnings %v", r.Kind, r.Warnings)
		}
	})
}

// A server that does not answer EVAL at all has refused it, and nothing else.
func TestProbeSilent(t *testing.T) {
	s := oldredis.Run(t, "7.0")
	net := new(faulty.Network)
	net.Expect(faulty.Fate{Before: faulty.Forever}.Of("EVAL"))
	r, err := probe.Ask(t.Context(), compat.Pooled(net.Pool(s)), probe.Options{Timeout: 20 * time.Millisecond})
	if want := facts["noscript"]; err != nil || abilities(r) != want {
		t.Errorf("%v: found %s", err, abilities(r))
	}
	if r.Kind != "redis" {
		t.Errorf("kind %q", r.Kind)
	}
	empty(t, s)
}

func TestProbeDeadServer(t *testing.T) {
	s := oldredis.MustNew("2.4", oldredis.Options{})
	s.Close()
	if _, err := probe.Ask(t.Context(), compat.Pooled(s), probe.Options{}); err == nil {
		t.Error("no error")
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	live := oldredis.Run(t, "2.4")
	if _, err := probe.Ask(done, compat.Pooled(live), probe.Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestProbeFullServer(t *testing.T) {
	for _, v := range oldredis.Versions() {
		s := oldredis.Run(t, v)
		s.SetMaxMemoryReached(true)
		r, err := probe.Ask(t.Context(), compat.Pooled(s), probe.Options{})
		if err != nil || r.Writable || !r.Has(probe.WarnMemoryFull) {
			t.Errorf("%s: %v, writable %v, warnings %v", v, err, r.Writable, r.Warnings)
		}
		unknown(t, r)
	}
}

// unknown holds that of a server which refuses writes nothing is claimed but what it showed.
func unknown(t *testing.T, r probe.Report) {
	t.Helper()
	for _, a := range ability.All() {
		if asked := r.Answers[a].Verdict != ability.NotAsked; asked != (a == ability.Time) || r.Can(a) && !asked {
			t.Errorf("%s: can %v, asked %v", a, r.Can(a), asked)
		}
	}
}

func TestProbePrefix(t *testing.T) {
	s := oldredis.Run(t, "7.0")
	s.SetTrace(func(_ int, cmd []string, _ any) {
		for _, w := range cmd {
			if strings.Contains(w, "setnxlock-probe") && !strings.HasPrefix(w, "app:") {
				t.Errorf("%q", cmd)
			}
		}
	})
	must.Get(probe.Ask(t.Context(), compat.Pooled(s), probe.Options{Prefix: "app:"}))(t)
}

// A pool of a single connection is enough, and it gets it back clean.
func TestProbePool(t *testing.T) {
	for _, v := range oldredis.Versions() {
		s := oldredis.Run(t, v)
		pool := s.Pool()
		pool.MaxActive = 1
		if _, err := probe.Ask(t.Context(), compat.Pooled(pool), probe.Options{}); err != nil {
			t.Fatal(v, err)
		}
		c := pool.Get()
		if _, err := c.Do("SET", "k", "v"); err != nil {
			t.Error(v, err)
		}
		if got, err := redis.String(c.Do("GET", "k")); got != "v" {
			t.Errorf("%s: GET answers %q, %v", v, got, err)
		}
		c.Close()
		pool.Close()
	}
}

func TestRealServer(t *testing.T) {
	source := poolOf(t, realredis.Start(t))
	r, err := probe.Ask(t.Context(), compat.Pooled(source), probe.Options{})
	kind := "redis"
	if r.Own != "" { // where redis-server is Valkey's
		kind = "valkey"
	}
	if err != nil || abilities(r) != facts["7.0"] || r.Kind != kind || r.Role != "master" {
		t.Errorf("%v: kind %q, role %q, found %s", err, r.Kind, r.Role, abilities(r))
	}
	if !r.Has(probe.WarnNoPersistence) || len(r.Warnings) != 1 {
		t.Errorf("warnings %v", r.Warnings)
	}
}

func TestRealSettings(t *testing.T) {
	addr := realredis.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--timeout", "300", "--appendonly", "yes")
	r, err := probe.Ask(t.Context(), compat.Pooled(poolOf(t, addr)), probe.Options{})
	if err != nil || !r.Has(probe.WarnEvictionAll) || !r.Has(probe.WarnIdleTimeout) || len(r.Warnings) != 2 {
		t.Errorf("%v: warnings %v", err, r.Warnings)
	}
}

func TestRealReplica(t *testing.T) {
	addr := realredis.Start(t, "--replicaof", "127.0.0.1 1")
	r, err := probe.Ask(t.Context(), compat.Pooled(poolOf(t, addr)), probe.Options{})
	if err != nil || r.Role != "replica" || r.Master != "127.0.0.1:1" || r.Writable || !r.Has(probe.WarnReplica) {
		t.Errorf("%v: role %q, master %q, warnings %v", err, r.Role, r.Master, r.Warnings)
	}
	if !r.Can(ability.Time) || r.Can(ability.Setnx) {
		t.Errorf("found %s", abilities(r))
	}
	unknown(t, r)
}

func TestRealUnknownReplica(t *testing.T) {
	addr := realredis.Start(t, "--replicaof", "127.0.0.1 1", "--rename-command", "INFO", "", "--rename-command", "ROLE", "")
	r, err := probe.Ask(t.Context(), compat.Pooled(poolOf(t, addr)), probe.Options{})
	if err != nil || r.Role != "replica" || !r.Has(probe.WarnReplica) {
		t.Errorf("%v: role %q, warnings %v", err, r.Role, r.Warnings)
	}
}

func TestRealPassword(t *testing.T) {
	l := poolOf(t, passworded(t))
	if _, err := probe.Ask(t.Context(), compat.Pooled(l), probe.Options{}); !errors.Is(err, probe.ErrAuth) {
		t.Error(err)
	}
	if _, _, err := probe.Offset(t.Context(), compat.Pooled(l), nil, probe.Options{}); !errors.Is(err, probe.ErrAuth) {
		t.Error(err)
	}
}

// userPool makes a user with these rules of an ACL, and returns the user's pool. A server before 6.0 has no ACLs.
func userPool(t *testing.T, addr, name string, rules ...any) *redis.Pool {
	c := must.Get(redis.Dial("tcp", addr))(t)
	defer c.Close()
	must.Get(c.Do("ACL", append([]any{"SETUSER", name, "on", ">secret"}, rules...)...))(t)
	return poolOf(t, addr, redis.DialUsername(name), redis.DialPassword("secret"))
}

// passworded starts a server and then has it ask for a password.
func passworded(t *testing.T) string {
	addr := realredis.Start(t)
	c := must.Get(redis.Dial("tcp", addr))(t)
	defer c.Close()
	must.Get(c.Do("CONFIG", "SET", "requirepass", "secret"))(t)
	return addr
}

func poolOf(t *testing.T, addr string, o ...redis.DialOption) *redis.Pool {
	pool := &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", addr, o...)
	}, MaxIdle: 1}
	t.Cleanup(func() { pool.Close() })
	return pool
}

// closeOn ends the connection at these commands, before they run.
func closeOn(names []string) func(int, int, []string) oldredis.Fault {
	return func(_, _ int, cmd []string) oldredis.Fault {
		if slices.Contains(names, strings.ToUpper(cmd[0])) {
			return oldredis.LoseRequest
		}
		return oldredis.None
	}
}

// empty fails the test if the server holds a key.
func empty(t *testing.T, s *oldredis.Server) {
	t.Helper()
	info, ok := keyspace(s)
	if !ok {
		t.Errorf("left behind: %s", info)
	}
}

// keyspace asks for a random key, which every server and profile but twemproxy has.
func keyspace(s *oldredis.Server) (string, bool) {
	c := s.Dial()
	defer c.Close()
	key, err := redis.String(c.Do("RANDOMKEY"))
	if err != nil && err != redis.ErrNil {
		return "", true // not told
	}
	return key, key == ""
}
