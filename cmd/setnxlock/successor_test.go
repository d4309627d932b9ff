//go:build unix

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/internal/must"
)

// Extensions put new values on keys, whatever the lock. The token and the handle from before are still good to release
// the lock, and to go on with it; those of another process, or of a lock that is gone, are not.
func TestTokensFromBeforeAnExtension(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		servers string
		flags   []string
		keys    []string
		beside  bool // another holder
	}{
		"tokens":            {servers: "7.0"},
		"a transaction":     {servers: "2.4"},
		"times":             {servers: "1.2"},
		"several keys":      {servers: "2.4", keys: []string{"a", "b"}},
		"several times":     {servers: "1.2", keys: []string{"a", "b"}},
		"keys in turn":      {servers: "2.0", flags: []string{"--algorithm", "getset:listed"}, keys: []string{"a", "b"}},
		"tokens in turn":    {servers: "2.6.12", flags: []string{"--algorithm", "set:script"}, keys: []string{"a", "b"}},
		"readers":           {servers: "7.0", flags: []string{"--algorithm", "rw:read"}, beside: true},
		"slots":             {servers: "7.0", flags: []string{"--limit", "3"}, beside: true},
		"a quorum":          {servers: "2.4,7.0,2.6.12", flags: []string{"--algorithm", "redlock"}},
		"a quorum's times":  {servers: "1.2,1.2,1.2", flags: []string{"--algorithm", "redlock"}},
		"a quorum, several": {servers: "2.4,7.0,2.6.12", flags: []string{"--algorithm", "redlock"}, keys: []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := startAll(t, test.servers)
			keys, how := test.keys, test.flags
			if keys == nil {
				keys = []string{"job"}
			}
			if len(how) > 0 && how[0] != "--algorithm" { // release asks the key
				how = nil
			}
			run := func(words ...[]string) (out string, status int) {
				return command(t, servers, append([]string{"run", "--unsafe", "--try", "--ttl", "10m", "--timeout", "1m"}, slices.Concat(words...)...)...)
			}
			detach := func() (token, handle string) {
				out, status := run([]string{"--detach"}, test.flags, keys, []string{"--", "sh", "-c", `echo "$SETNXLOCK_TOKEN $SETNXLOCK_HANDLE"`})
				if token, handle, _ = strings.Cut(strings.TrimSpace(out), " "); status != 0 {
					t.Fatalf("status %d, %s", status, out)
				}
				return token, handle
			}
			release := func(token string, keys ...string) (out string, status int) {
				return command(t, servers, slices.Concat([]string{"release", "--timeout", "1m", "--token", token}, how, keys)...)
			}
			if test.beside {
				detach()
			}
			for name, do := range map[string]func(token, handle string) (out string, status int){
				"token":  func(token, _ string) (string, int) { return release(token, keys...) },
				"handle": func(_, handle string) (string, int) { return release(handle) },
				"adopt": func(_, handle string) (string, int) {
					return run(test.flags, []string{"--adopt", handle, "--", "true"})
				},
			} {
				token, handle := detach()
				strange := extended(t, servers, token)
				if out, status := release(strange, keys...); status != statusLost {
					t.Errorf("%s of another: status %d, %s", name, status, out)
				}
				for _, want := range []int{0, statusLost} {
					if out, status := do(token, handle); status != want {
						t.Errorf("%s: status %d, want %d: %s", name, status, want, out)
					}
				}
			}
		})
	}
}

// extended puts a new value in the place of a token on each key of the servers, as an extension does. It returns a
// token of another process.
func extended(t *testing.T, servers, token string) (strange string) {
	t.Helper()
	for _, address := range strings.Split(servers, ",") {
		c := dial(t, address)
		for _, key := range must.Get(redis.Strings(c.Do("KEYS", "*")))(t) {
			switch must.Get(redis.String(c.Do("TYPE", key)))(t) {
			case "string":
				value := must.Get(redis.String(c.Do("GET", key)))(t)
				if !strings.Contains(token, strings.ReplaceAll(value, "%", "%25")) || len(value) < 16 {
					continue
				}
				if ttl := must.Get(redis.Int(c.Do("TTL", key)))(t); ttl > 0 {
					must.Get(c.Do("SETEX", key, ttl, next(value)))(t)
				} else {
					must.Get(c.Do("SET", key, next(value)))(t)
				}
			case "zset":
				if until, err := redis.String(c.Do("ZSCORE", key, token)); err == nil {
					must.Get(c.Do("ZADD", key, until, next(token)))(t)
					must.Get(c.Do("ZREM", key, token))(t)
				}
			}
		}
	}
	var all []string
	for _, part := range strings.Split(token, ",") {
		if part == "" { // a server that gave its vote too late
			all = append(all, part)
			continue
		}
		unlike := len(part) - 8 // that tells processes, in a time and in a token
		if len(part) > 32 {
			unlike = len(part) - 25
		}
		all = append(all, part[:unlike]+flip(part[unlike])+part[unlike+1:])
	}
	return strings.Join(all, ",")
}

// next returns what an extension may put in the place of value.
func next(value string) string {
	last := len(value) - 1
	return value[:last] + flip(value[last])
}

// flip returns another digit.
func flip(digit byte) string {
	if digit == '1' {
		return "2"
	}
	return "1"
}

// A Go program that names itself in its tokens takes the same lock again: the token and the handle from the time before
// are not good for the new one.
func TestTokensOfAProgramsEarlierLock(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"set:lua", "tx:guarded", "getset:guarded"} {
		address := startServer(t, "7.0")
		row, _ := locks.Get(name)
		program := compat.New(&redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", address) }},
			row.New(locks.Options{Owner: "web1:7/worker", Millis: true}), compat.Options{})
		t.Cleanup(func() { program.Close(t.Context()) })
		h := must.Get(must.Get(program.TryLock(t.Context(), "job", time.Hour))(t).Detach(t.Context()))(t)
		must.Do(t, program.ReleaseHandle(t.Context(), h))
		now := must.Get(program.TryLock(t.Context(), "job", time.Hour))(t)
		for _, args := range [][]string{{"release", "job", "--token", h.Token}, {"release", "--token", h.String()}, {"run", "--algorithm", name, "--adopt", h.String(), "--", "true"}} {
			if out, status := command(t, address, args...); status != statusLost {
				t.Errorf("%s: %q: status %d, want %d: %s", name, args, status, statusLost, out)
			}
		}
		must.Do(t, now.Release(t.Context()))
	}
}
