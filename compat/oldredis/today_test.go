package oldredis

import (
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/internal/must"
)

// Valkey says in INFO which Redis it is like, and what it is; Redis says its version alone.
func TestTodayInfo(t *testing.T) {
	for v, want := range map[string]string{
		"8.6":        "redis_version:8.6.2\r\narch",
		"valkey-8.1": "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.8\r\narch",
		"valkey-9.1": "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\narch",
	} {
		if info := must.Get(redis.String(Run(t, v).Dial().Do("INFO", "server")))(t); !strings.Contains(info, want) {
			t.Errorf("%s: %q, want %q in it", v, info, want)
		}
	}
}

// Active expiry of Redis 8 reaps a key at its deadline, Valkey after it.
func TestTodayDeadline(t *testing.T) {
	for v, left := range map[string]int64{"8.2": 0, "8.6": 0, "valkey-8.1": 1, "valkey-9.1": 1} {
		s := Run(t, v)
		c := s.Dial()
		must.Get(c.Do("SET", "k", "A", "PX", 1000))(t)
		s.AdvanceLazy(time.Second)
		if n := must.Get(redis.Int64(c.Do("EXISTS", "k")))(t); n != 1 {
			t.Errorf("%s: a command does not find the key at its deadline", v)
		}
		s.Reap()
		if n := must.Get(redis.Int64(c.Do("EXISTS", "k")))(t); n != left {
			t.Errorf("%s: %d keys after active expiry at the deadline, want %d", v, n, left)
		}
	}
}

// A server that becomes another version has that one's commands and its data, and a snapshot knows which it was.
func TestBecome(t *testing.T) {
	s := Run(t, "8.6")
	c := s.Dial()
	must.Get(c.Do("SET", "k", "A"))(t)
	before := s.Snapshot()
	must.Do(t, s.Become("valkey-8.1"))
	after := s.Snapshot()
	for _, test := range []struct {
		snap    Snapshot
		version string
		lacks   bool
	}{{after, "valkey-8.1", true}, {before, "8.6", false}, {after, "valkey-8.1", true}} {
		s.Restore(test.snap)
		_, err := c.Do("DELEX", "k", "IFEQ", "B")
		if held, _ := redis.String(c.Do("GET", "k")); s.Version() != test.version || (err != nil) != test.lacks || held != "A" {
			t.Errorf("%s: DELEX: %v; it holds %q, and is %s", test.version, err, held, s.Version())
		}
	}
	if before.ContentKey() == after.ContentKey() {
		t.Error("two versions' snapshots are the same")
	}
	if err := s.Become("9.9"); err == nil || s.Version() != "valkey-8.1" {
		t.Errorf("a version that there is not: %v, %s", err, s.Version())
	}
}
