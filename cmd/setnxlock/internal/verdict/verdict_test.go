package verdict_test

import (
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/steps"
)

const hexToken, uuid = "94213c24e0f911f0a9d30242ac120002", "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab"

// What stands on a key, whose it looks like, and how sure that is.
func TestKeysAreJudged(t *testing.T) {
	now := time.Unix(1795238718, 0).UTC()
	const past, ahead, none = "1795238700", "1795238760", protocol.NoTTL
	seconds := verdict.Lens{Time: &getsetlock.Seconds}
	for _, c := range []struct {
		key, value string
		ttl        time.Duration
		lens       verdict.Lens
		says, like string // status and whether it can be had; confidence and the first client
	}{
		{"last_login", past, none, verdict.Lens{}, "dead", "possible redis-py-2.2.3"},
		{"resque:lock:a", past, none, verdict.Lens{}, "dead", "likely resque-lock"},
		{"build.lock", past, none, verdict.Lens{}, "dead", "likely redis-py-2.2.3"},
		{"lock.job", past, none, verdict.Lens{}, "dead", "likely redis-docs"},
		{"unblocked", past, none, verdict.Lens{}, "dead", "possible redis-py-2.2.3"},
		{"rq:scheduler", past + ".25", time.Minute, verdict.Lens{}, "held", "likely rq-scheduler"}, // while a TTL runs it is held
		{"lock.job", past + "000", time.Minute, verdict.Lens{}, "held", "likely npm-redis-lock-0.1"},
		{"job", past + "000", time.Minute, verdict.Lens{}, "held", "possible npm-redis-exp-lock"},
		{"job", ahead, none, verdict.Lens{}, "held", "possible redis-py-2.2.3"},
		{"job", past, none, seconds, "dead obtainable", "possible redis-py-2.2.3"},
		{"job", past, none, verdict.Lens{Tokens: true}, "persistent", "possible redis-py-2.2.3"},
		{"job", hexToken, time.Minute, seconds, "foreign", "possible redis-py-2.10"},
		{"job", hexToken, time.Minute, verdict.Lens{}, "held", "possible redis-py-2.10"},
		{"job", hexToken, none, verdict.Lens{}, "persistent", "possible redis-py-2.10"},
		{"visits", "4711", none, verdict.Lens{}, "persistent", "possible rq-1"},
		{"lock:job", uuid, time.Minute, verdict.Lens{}, "held", "likely redis-in-action"},
		{"job", "setnxlock:web1:47/x:" + hexToken, time.Minute, verdict.Lens{}, "held", "certain setnxlock"},
		{"job", "setnxlock:web1:47/x:" + hexToken, none, verdict.Lens{}, "persistent", "certain setnxlock"},
		{"job", ahead + ".123456789012345", none, verdict.Lens{}, "held", "likely setnxlock getset"},
		{"job", ahead + ".123456789012345", time.Minute, verdict.Lens{}, "held", "likely setnxlock bridge"},
		{"job", "hello", none, verdict.Lens{}, "persistent", "possible locky"},
		{"job", "1", time.Minute, verdict.Lens{}, "held", "possible laravel-5.5"},
	} {
		v := c.lens.Judge(verdict.Content{Key: c.key, Type: "string", Value: c.value, TTL: c.ttl}, now)
		says, like := string(v.Status), string(v.Sure)
		if v.Obtainable {
			says += " obtainable"
		}
		if len(v.Clients) > 0 {
			like += " " + v.Clients[0]
		}
		if says != c.says || like != c.like {
			t.Errorf("%s = %q, TTL %v: %s, %s; want %s, %s", c.key, c.value, c.ttl, says, like, c.says, c.like)
		}
		if len(v.Why) == 0 {
			t.Errorf("%s = %q: no reason", c.key, c.value)
		}
		if text := strings.Join(append(v.Wrong, v.Why...), " ") + v.Refusal(); strings.Contains(text, "died") {
			t.Errorf("%s = %q says who died: %s", c.key, c.value, text)
		}
		if v.TTL != none && v.Status == protocol.StatusDead {
			t.Errorf("%s = %q is dead, and its TTL runs", c.key, c.value)
		}
	}
	if v := (verdict.Lens{}).Judge(verdict.Content{Key: "k", Type: "none", TTL: none}, now); v.Status != protocol.StatusFree || !v.Obtainable {
		t.Errorf("no key: %+v", v)
	}
}

// A survey lists what can be a client's lock, not each number and text.
func TestIsLock(t *testing.T) {
	now := time.Unix(1795238718, 0).UTC()
	for _, c := range []struct {
		key, value string
		ttl        time.Duration
		want       bool
	}{
		{"visits", "4711", protocol.NoTTL, false}, // rq-1 writes such numbers, on keys of its own, with a TTL
		{"rq:scheduler-lock:mail", "4711", time.Minute, true},
		{"coupon", "aZ3fQ9xY0bC7dE1gH5iJ2k", protocol.NoTTL, false}, // redlock-py's have a TTL
		{"coupon", "aZ3fQ9xY0bC7dE1gH5iJ2k", time.Minute, true},
		{"lock:coupon", "aZ3fQ9xY0bC7dE1gH5iJ2k", protocol.NoTTL, true},
		{"greeting", "hello", time.Minute, false},
		{"lock:greeting", "hello", time.Minute, true},
		{"enabled", "1", protocol.NoTTL, false},
		{"last_login", "1795238700", protocol.NoTTL, true},
		{"repaired", "1795238760", 5 * time.Second, true}, // no client writes both so: one repaired another's
	} {
		v := verdict.Lens{}.Judge(verdict.Content{Key: c.key, Type: "string", Value: c.value, TTL: c.ttl}, now)
		if got := v.IsLock(false); got != c.want {
			t.Errorf("%s = %q, TTL %v: %v, want %v: %+v", c.key, c.value, c.ttl, got, c.want, v)
		}
		if !v.IsLock(true) {
			t.Errorf("%s = %q, TTL %v is not even a text", c.key, c.value, c.ttl)
		}
	}
}

// The keys that locks keep beside a key are known by their names, and no others.
func TestKeysBesideAKey(t *testing.T) {
	for _, key := range []string{"job", "a:b", "{app}:job", "a}b", "a{b"} {
		for _, name := range []string{"fence", "readers", "waiting", "queue", "next", "mutex", "waiters", "wake"} {
			if base, got := verdict.Beside(protocol.Aux(key, name)); base != key || got != name {
				t.Errorf("%s of %s: %q, %q", name, key, base, got)
			}
		}
		if base, _ := verdict.Beside(key); base != "" {
			t.Errorf("%q is beside %q", key, base)
		}
	}
	for _, key := range []string{"job:fence", ":fence", "a:fence:{b}"} {
		if base, _ := verdict.Beside(key); base != "" {
			t.Errorf("%q is beside %q", key, base)
		}
	}
}

// A quorum's value has a part for each server. Its owner is whoever has all votes; a split vote has none.
func TestQuorumsAreJudged(t *testing.T) {
	token := func(owner string) string { return "setnxlock:" + owner + ":" + hexToken }
	long := strings.Repeat("x", 500)
	for _, test := range []struct {
		owners []string
		owner  string
	}{
		{[]string{"web1:47/a", "web1:47/a", "web1:47/a"}, "web1:47/a"}, {[]string{"web1:47/a", "web1:47/a", "web2:1/a"}, ""}, {[]string{long, long, long}, long},
		{[]string{"a"}, "a"},
	} {
		var s protocol.State
		var parts []string
		for _, owner := range test.owners {
			parts = append(parts, token(owner))
			s.Holders = append(s.Holders, protocol.Holder{Value: token(owner)})
		}
		s.Value = strings.Join(parts, ",")
		if v := verdict.FromState(s); v.Owner != test.owner || v.Value != s.Value || v.Cut {
			t.Errorf("%.20q: owner %.20q, value %.20q, cut %v", test.owners, v.Owner, v.Value, v.Cut)
		}
	}
	s := protocol.State{Value: strings.Repeat("x", 5000), Holders: []protocol.Holder{{Value: "x"}, {Value: strings.Repeat("x", 4998)}}}
	if v := verdict.FromState(s); !v.Cut || len(v.Value) > 100 || len(v.Holders[1].Value) > 100 {
		t.Errorf("a long value is shown as %d bytes", len(v.Value))
	}
}

// A key that expires between the GET and the TTL of one look is free, however it is read: a survey would show it as
// persistent, and a time as dead.
func TestExpiredWhileLookedAt(t *testing.T) {
	for _, server := range []verdict.Server{{}, {Millis: true}, {Part: true}, {Millis: true, Part: true, Beside: true}} {
		ttl := map[bool]string{false: "TTL", true: "PTTL"}[server.Millis]
		for _, value := range []string{hexToken, "1795238700", "w:" + hexToken} {
			s := oldredis.Run(t, "2.8")
			s.Dial().Do("SETEX", "k", 1, value)                                                                         //nolint:errcheck
			c := steps.Instead(s.Dial(), ttl, func(run func(...any) any) any { s.Dial().Do("DEL", "k"); return run() }) //nolint:errcheck
			all, err := server.Read(c, s.Now(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if v := (verdict.Lens{}).Judge(all[0], s.Now()); v.Status != protocol.StatusFree || v.Value != "" {
				t.Errorf("%+v: %q is %s", server, value, v.Status)
			}
		}
	}
}

// Whatever type a key beside another has, it keeps nobody from looking at the others: a survey reads them all.
func TestAnyTypeBeside(t *testing.T) {
	owner, deadline := dialect.Pair("k")
	keys := []string{"k", owner, deadline, protocol.Aux("k", "1")}
	for _, name := range []string{"fence", "readers", "waiting", "queue", "next", "mutex", "limit"} {
		keys = append(keys, protocol.Aux("k", name))
	}
	for _, version := range []string{"2.0", "2.4", "7.0"} {
		for _, odd := range keys {
			for _, make := range [][]any{{"SET", odd, "x"}, {"LPUSH", odd, "x"}, {"SADD", odd, "x"}, {"ZADD", odd, 1, "x"}, {"HSET", odd, "x", "y"}} {
				s := oldredis.Run(t, version)
				c := s.Dial()
				for _, m := range [][]any{{"SET", "k", "w:x"}, {"SET", owner, "web1:1"}, {"SET", deadline, "1795238700"},
					{"SET", protocol.Aux("k", "1"), "1:x"}, {"ZADD", protocol.Aux("k", "readers"), int64(1795238700000), "r:x"}, {"DEL", odd}, make} {
					c.Do(m[0].(string), m[1:]...) //nolint:errcheck // it is read below
				}
				for _, server := range []verdict.Server{{}, {Beside: true}} {
					if _, err := server.Read(steps.Dial(s), s.Now(), keys...); err != nil {
						t.Errorf("%s, after %v: %v", version, make, err)
					}
				}
			}
		}
	}
}
