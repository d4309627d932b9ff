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
