package probe_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// A server is asked once, by whatever process; and anew when it is another one, when another user asks,
// and when it has contradicted.
func TestMemory(t *testing.T) {
	s := realredis.Run(t)
	source := compat.Pooled(poolOf(t, s.Addr))
	var m probe.Memory
	ask := func(m *probe.Memory, source compat.Source, o probe.Options, want bool, when string) probe.Report {
		t.Helper()
		r, known, err := m.Ask(t.Context(), source, o)
		if err != nil || known != want || abilities(r) != facts["7.0"] {
			t.Errorf("%s: remembered %v, want %v: %v, found %s", when, known, want, err, abilities(r))
		}
		return r
	}
	ask(&m, source, probe.Options{}, false, "at first")
	r := ask(&m, source, probe.Options{}, true, "again")
	m.Trust(r, probe.Options{}, "set:lua")
	ask(&m, source, probe.Options{Prefix: "app:"}, true, "for another prefix")
	ask(&m, source, probe.Options{Where: "by another way"}, false, "by another way")

	b, err := json.Marshal(&m)
	if err != nil || m.Changed() {
		t.Fatal(err, m.Changed())
	}
	var next probe.Memory
	must.Do(t, json.Unmarshal(b, &next))
	r = ask(&next, source, probe.Options{}, true, "in the next process")
	if !next.Trusts(r, probe.Options{}, "set:lua") || next.Trusts(r, probe.Options{}, "tx:renamed") || next.Changed() {
		t.Error("which locks are safe did not come along, or something was changed")
	}
	var other probe.Memory
	must.Do(t, json.Unmarshal([]byte(strings.ReplaceAll(string(b), `"format":2`, `"format":0`)), &other))
	ask(&other, source, probe.Options{}, false, "from another format")
	if err := json.Unmarshal([]byte("{"), &other); err == nil {
		t.Error("what is no JSON was read")
	}

	ask(&m, compat.Pooled(userPool(t, s.Addr, "other", "~*", "+@all")), probe.Options{}, false, "for another user")
	ask(&m, source, probe.Options{}, true, "for the first user")
	m.Forget(r)
	ask(&m, source, probe.Options{}, false, "after Forget")
	s.Restart()
	ask(&m, source, probe.Options{}, false, "after a restart")
}

// Who can't be recognised is asked each time.
func TestMemoryOfTheUnnamed(t *testing.T) {
	for _, s := range []*oldredis.Server{oldredis.Run(t, "2.4"), oldredis.Run(t, "twemproxy")} {
		var m probe.Memory
		for range 2 {
			if _, known, err := m.Ask(t.Context(), compat.Pooled(s), probe.Options{}); known || err != nil {
				t.Error(known, err)
			}
		}
	}
	full := realredis.Start(t, "--maxmemory", "100kb", "--maxmemory-policy", "noeviction")
	var m probe.Memory
	for range 2 {
		if r, known, err := m.Ask(t.Context(), compat.Pooled(poolOf(t, full)), probe.Options{}); known || err != nil || r.Writable {
			t.Error(known, r.Writable, err)
		}
	}
}
