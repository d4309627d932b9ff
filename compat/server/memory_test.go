package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/oldredis/realredis"
	"github.com/setnxlock/setnxlock/compat/server"
)

// A server is asked once, by whatever process; and anew when it is another one, when another user asks,
// and when it has contradicted.
func TestMemory(t *testing.T) {
	s := realredis.Run(t)
	source := compat.Pooled(poolOf(t, s.Addr))
	var m server.Memory
	ask := func(m *server.Memory, source compat.Source, o server.Options, want bool, when string) server.Report {
		t.Helper()
		r, known, err := m.Probe(t.Context(), source, o)
		if err != nil || known != want || abilities(r) != facts["7.0"] {
			t.Errorf("%s: remembered %v, want %v: %v, found %s", when, known, want, err, abilities(r))
		}
		return r
	}
	ask(&m, source, server.Options{}, false, "at first")
	r := ask(&m, source, server.Options{}, true, "again")
	m.Trust(r, server.Options{}, "set:lua")
	ask(&m, source, server.Options{Prefix: "app:"}, true, "for another prefix")
	ask(&m, source, server.Options{Where: "by another way"}, false, "by another way")

	b, err := json.Marshal(&m)
	if err != nil || m.Changed() {
		t.Fatal(err, m.Changed())
	}
	var next server.Memory
	if err := json.Unmarshal(b, &next); err != nil {
		t.Fatal(err)
	}
	r = ask(&next, source, server.Options{}, true, "in the next process")
	if !next.Trusts(r, server.Options{}, "set:lua") || next.Trusts(r, server.Options{}, "tx:renamed") || next.Changed() {
		t.Error("which locks are safe did not come along, or something was changed")
	}
	var other server.Memory
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(b), `"format":1`, `"format":0`)), &other); err != nil {
		t.Fatal(err)
	}
	ask(&other, source, server.Options{}, false, "from another format")
	if err := json.Unmarshal([]byte("{"), &other); err == nil {
		t.Error("what is no JSON was read")
	}

	c, err := redis.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do("ACL", "SETUSER", "other", "on", ">secret", "~*", "+@all"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	user := &redis.Pool{Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", s.Addr, redis.DialUsername("other"), redis.DialPassword("secret"))
	}}
	defer user.Close()
	ask(&m, compat.Pooled(user), server.Options{}, false, "for another user")
	ask(&m, source, server.Options{}, true, "for the first user")
	m.Forget(r)
	ask(&m, source, server.Options{}, false, "after Forget")
	s.Restart()
	ask(&m, source, server.Options{}, false, "after a restart")
}

// Who can't be recognised is asked each time.
func TestMemoryOfTheUnnamed(t *testing.T) {
	for _, s := range []*oldredis.Server{oldredis.Run(t, "2.4"), oldredis.Run(t, "twemproxy")} {
		var m server.Memory
		for range 2 {
			if _, known, err := m.Probe(t.Context(), compat.Pooled(s), server.Options{}); known || err != nil {
				t.Error(known, err)
			}
		}
	}
	full := realredis.Start(t, "--maxmemory", "100kb", "--maxmemory-policy", "noeviction")
	var m server.Memory
	for range 2 {
		if r, known, err := m.Probe(t.Context(), compat.Pooled(poolOf(t, full)), server.Options{}); known || err != nil || r.Writable {
			t.Error(known, r.Writable, err)
		}
	}
}
