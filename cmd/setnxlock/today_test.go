//go:build unix

package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// todays are the servers and proxies of `make today`, as docs/servers.md calls them.
var todays = map[string]string{
	"valkey-9.1": "Valkey 9.1", "valkey-8.1": "Valkey 8.1", "redis-8.6": "Redis 8.6", "redis-8.2": "Redis 8.2", "redis-6.2": "Redis 6.2",
	"twemproxy": "twemproxy 0.5, `auto_eject_hosts: false`", "twemproxy-ejecting": "twemproxy 0.5, `auto_eject_hosts: true`",
	"haproxy-one": "HAProxy before one master", "haproxy-two": "HAProxy before two masters", "envoy": "Envoy 1.40, two servers behind it",
}

// docs/servers.md says of each server that was tried what doctor makes of it. SETNXLOCK_TODAY names those that are there:
// NAME=HOST:PORT, separated by spaces.
func TestToday(t *testing.T) {
	if os.Getenv("SETNXLOCK_TODAY") == "" {
		realredis.Nightly(t, "make today")
	}
	page := must.Get(os.ReadFile("../../docs/servers.md"))(t)
	for _, one := range strings.Fields(os.Getenv("SETNXLOCK_TODAY")) {
		name, address, _ := strings.Cut(one, "=")
		t.Run(name, func(t *testing.T) {
			title := todays[name]
			if title == "" {
				t.Fatalf("docs/servers.md has no name for it")
			}
			out, status := command(t, address, "doctor", "--json")
			var d diagnosis
			if err := json.Unmarshal([]byte(out), &d); err != nil {
				t.Fatalf("%d: %v: %s", status, err, out)
			}
			verdict, lock := "safe", "`"+d.Algorithm+"`"
			switch {
			case !d.Safe:
				verdict, lock = "**unsafe**", "none"
			case len(d.Warnings) > 0:
				verdict = "safe, with a warning"
			}
			t.Logf("%s: %s %s: %q, %v", title, verdict, lock, d.Unsafe, d.Warnings)
			if row := "\n| " + title + " | " + verdict + " | " + lock + " | "; !strings.Contains(string(page), row) {
				t.Errorf("docs/servers.md lacks the row%s", row)
			}
		})
	}
}
