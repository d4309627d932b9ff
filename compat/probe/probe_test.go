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
	ability.ExpireAgain: "again", ability.Setex: "setex", ability.Renamenx: "renamenx", ability.Multi: "multi", ability.Lists: "lists",
	ability.SetIfEq: "ifeq", ability.DelIfEq: "delifeq", ability.DelEx: "delex",
	ability.Watch: "watch", ability.Milliseconds: "millis", ability.SetNXPX: "nxpx", ability.Scripts: "eval", ability.Time: "time",
}

// facts is what facts/servers.md has of each version.
var facts = map[string]string{
	"1.2": "setnx getset clears multi ping info",
	"2.0": "setnx getset clears multi setex lists ping info config",
	"2.2": "setnx getset clears multi setex lists respects again watch ping info config",
	"2.4": "setnx getset clears multi setex lists respects again watch renamenx ping info config",
	"2.6": "setnx getset clears multi setex lists respects again watch renamenx millis time eval ping info config",
	"7.0": "setnx getset clears multi setex lists respects again watch renamenx millis time eval nxpx ping info config",

	"valkey-8.1": "setnx getset clears multi setex lists respects again watch renamenx millis time eval nxpx ifeq ping info config",
	"valkey-9.1": "setnx getset clears multi setex lists respects again watch renamenx millis time eval nxpx ifeq delifeq ping info config",
	"8.6":        "setnx getset clears multi setex lists respects again watch renamenx millis time eval nxpx ifeq delex ping info config",

	"noscript":  "setnx getset clears multi setex lists respects again watch renamenx millis time nxpx ping info config",
	"twemproxy": "setnx getset clears setex respects again millis eval closes",
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
				s.SetFault(nil)
				empty(t, s)
			})
		}
	}
}

// Wherever the connection breaks once, the answers are the same.
func TestProbeBrokenOnce(t *testing.T) {
	for _, fault := range []oldredis.Fault{oldredis.LoseRequest, oldredis.LoseReply} {
		for nth := 0; ; nth++ {
			s := oldredis.MustNew("2.4", oldredis.Options{})
			n := 0
			s.SetFault(func(int, int, []string) oldredis.Fault {
				if n++; n == nth+1 {
					return fault
				}
				return oldredis.None
			})
			r, err := probe.Ask(t.Context(), compat.Pooled(s), probe.Options{})
			if err != nil || abilities(r) != facts["2.4"] {
				t.Errorf("broken at command %d: %v, found %s", nth, err, abilities(r))
			}
			over := n < nth+1
			empty(t, s)
			s.Close()
			if over {
				break
			}
		}
	}
}

// Wherever ctx ends, nothing stays behind.
func TestProbeCancelled(t *testing.T) {
	for nth := 0; ; nth++ {
		s := oldredis.MustNew("2.4", oldredis.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		s.SetTrace(func(int, []string, any) {
			if n++; n == nth {
				cancel()
			}
		})
		_, err := probe.Ask(ctx, compat.Pooled(s), probe.Options{})
		over := n < nth
		if !over && nth > 0 && err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled at command %d: %v", nth, err)
		}
		s.SetTrace(nil)
		empty(t, s)
		s.Close()
		cancel()
		if over {
			break
		}
	}
}

// Wherever the connection is cut for good, no key is left that nothing ends.
func TestProbeCutForGood(t *testing.T) {
	quirks := map[string]oldredis.Options{"": {}, "without MULTI": {Refuse: []string{"MULTI"}}, "without MULTI and EVAL": {Refuse: []string{"MULTI", "EVAL", "EVALSHA"}}, "without SETEX": {Forbid: []string{"SETEX"}}}
	for _, version := range []string{"1.2", "2.0", "2.4", "7.0"} {
		for quirk, o := range quirks {
			for name, ask := range map[string]func(s *oldredis.Server) error{
				"Probe": func(s *oldredis.Server) error {
					_, err := probe.Ask(t.Context(), compat.Pooled(s), probe.Options{})
					return err
				},
				"Offset": func(s *oldredis.Server) error {
					if quirk == "" && version != "2.0" {
						return nil // TIME, or one way for all
					}
					_, _, err := probe.Offset(t.Context(), compat.Pooled(s), at(time.Unix(1000000000, 0)), probe.Options{})
					return err
				},
			} {
				for nth := 1; ; nth++ {
					s := oldredis.MustNew(version, o)
					n := 0
					s.SetFault(func(int, int, []string) oldredis.Fault {
						if n++; n > nth {
							return oldredis.LoseRequest
						} else if n == nth {
							return oldredis.LoseReply
						}
						return oldredis.None
					})
					err := ask(s)
					s.SetFault(nil)
					endless(t, s, fmt.Sprintf("%s %s, %s cut after command %d", version, quirk, name, nth))
					s.Close()
					if err == nil || n < nth {
						break
					}
				}
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

// passworded starts a server and then has it ask for a password.
func passworded(t *testing.T) string {
	addr := realredis.Start(t)
	c := must.Get(redis.Dial("tcp", addr))(t)
	defer c.Close()
	must.Get(c.Do("CONFIG", "SET", "requirepass", "secret"))(t)
	return addr
}

func poolOf(t *testing.T, addr string) *redis.Pool {
	pool := &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", addr)
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
