package getsetlock_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/steps"
)

// What stands on a key when each real client was let loose on it once, and which
// of them took it: over live holders, too. The row's live values are 60 s from
// noon, its dead ones 60 s before.
var mixtures = []struct {
	what, value string
	ttl         bool   // the key has a TTL
	dead        string // kinds in which it is an expired timestamp: they take it, and nobody else
	took        string // real clients that did
}{
	{"T-s live", "1330862460", false, "", "jedis-lock jedis-lock-1.0.1 npm-redis-lock-0.0"},
	{"T-s dead", "1330862340", false, "T-s T-f", "redis-py-2.9 retools-0.3 redset jedis-lock jedis-lock-1.0.1 npm-redis-lock-0.0 node-resque redis-mutex redis-objects-1.3 resque-lock-timeout resque-lock PT-redis-lock"},
	{"T-f live", "1330862460.94", false, "", "jedis-lock-1.0.1 npm-redis-lock-0.0"},
	{"T-f dead", "1330862340.94", false, "T-f", ""},
	{"T-ms live", "1330862460058", false, "", "jedis-lock-1.0.1"},
	{"T-ms dead", "1330862340058", false, "T-ms", "jedis-lock jedis-lock-1.0.1 npm-redis-lock-0.0"},
	{"T-ns live", "1330862460058123456", false, "", "jedis-lock-1.0.1"},
	{"T-ns dead", "1330862340058123456", false, "T-ns", ""},
	{"SEC-PID-TID live", "1330862460-4711-70123456", false, "", "jedis-lock-1.0.1"},
	{"SEC-PID-TID dead", "1330862340-4711-70123456", false, "PT-redis-lock PT-redis-lock-0.1", ""},
	{"SEC:PID live", "1330862460:4711", false, "", "jedis-lock-1.0.1"},
	{"SEC:PID dead", "1330862340:4711", false, "PredisLock", ""},
	{"UUID:MS live", "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab:1330862460058", false, "", "node-resque redis-mutex redis-objects-1.3 resque-lock-timeout resque-lock PT-redis-lock"},
	{"UUID:MS dead", "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab:1330862340058", false, "T-uuid-ms", ""},
	{"T-bin live", "\x7c\x59\x53\x4f\x00\x00\x00\x00", false, "", "jedis-lock-1.0.1 node-resque redis-mutex redis-objects-1.3 resque-lock-timeout resque-lock"},
	{"T-bin dead", "\x04\x59\x53\x4f\x00\x00\x00\x00", false, "T-bin", ""},
	{"uuid4, TTL 60", "0b2d0a1e-3f44-4e2e-8f0a-0123456789ab", true, "", "jedis-lock-1.0.1 node-resque redis-mutex redis-objects-1.3 resque-lock-timeout resque-lock PT-redis-lock"},
	{"uuid4, no TTL", "0b2d0a1e-3f44-4e2e-8f0a-0123456789ab", false, "", "jedis-lock-1.0.1 node-resque redis-mutex redis-objects-1.3 resque-lock-timeout resque-lock PT-redis-lock"},
	{"hex 9421, TTL 60", "94213c24e0f911f0a9d30242ac120002", true, "", "jedis-lock-1.0.1 node-resque redis-mutex redis-objects-1.3 resque-lock-timeout resque-lock PT-redis-lock"},
	{"hex 9e99, TTL 60", "9e99c124e0f911f0a9d30242ac120002", true, "", "jedis-lock-1.0.1 node-resque resque-lock-timeout resque-lock PT-redis-lock"},
	{"host:pid, TTL 60", "web1.example:4711", true, "", "jedis-lock-1.0.1 node-resque redis-mutex redis-objects-1.3 resque-lock-timeout resque-lock PT-redis-lock"},
	{"1", "1", false, "", "redis-py-2.9 retools-0.3 redset jedis-lock jedis-lock-1.0.1 npm-redis-lock-0.0 node-resque redis-mutex redis-objects-1.3 resque-lock-timeout resque-lock PT-redis-lock"},
	{"true", "true", false, "", "jedis-lock-1.0.1 node-resque redis-mutex redis-objects-1.3 resque-lock-timeout resque-lock PT-redis-lock"},
	{"empty, TTL 60", "", true, "", "redis-py-2.9 jedis-lock-1.0.1 node-resque redis-mutex redis-objects-1.3 resque-lock-timeout resque-lock PT-redis-lock"},
	{"2147483649.0", "2147483649.0", false, "", "jedis-lock-1.0.1 npm-redis-lock-0.0"},
}

// TestMixing: whatever stands on the key, each of our dialects leaves it and its
// TTL alone unless it is its own time that has expired: it never takes what is
// held, as the real clients do. Where one of them took something that was
// dead in its own grammar, so does our dialect of it.
func TestMixing(t *testing.T) {
	for _, m := range mixtures {
		for _, f := range timed() {
			o := getsetlock.Options{Dialect: named(t, f.Name)}
			for _, a := range []protocol.Algorithm{getsetlock.Classic{Options: o}, getsetlock.Guarded{Options: o}, getsetlock.Patient{Options: o, Lease: ttl}} {
				_, reads := o.Dialect.Parse(m.value)
				_, patient := a.(getsetlock.Patient)
				s := oldredis.Run(t, "7.0")
				conn := steps.Dial(s)
				conn.Do("SET", "k", m.value) //nolint:errcheck
				if m.ttl {
					conn.Do("EXPIRE", "k", 60) //nolint:errcheck
				}
				_, err := a.Acquire(conn, noon, "k", ttl)
				dies := strings.Fields(m.dead)
				if takes := !patient && (slices.Contains(dies, string(f.Kind)) || slices.Contains(dies, f.Name)); takes {
					if err != nil {
						t.Errorf("%s on the key, %T of %s: %v; want it taken over", m.what, a, f.Name, err)
					}
					continue
				}
				if !errors.Is(err, protocol.ErrHeld) {
					t.Errorf("%s on the key, %T of %s: %v, want ErrHeld", m.what, a, f.Name, err)
				}
				value, _ := redis.String(conn.Do("GET", "k"))
				left, _ := redis.Int(conn.Do("TTL", "k"))
				if value != m.value || (left > 0) != m.ttl {
					t.Errorf("%s on the key, %T of %s left %q with TTL %d", m.what, a, f.Name, value, left)
				}
				if slices.Contains(strings.Fields(m.took), f.Name) && m.dead != "" && reads && !patient {
					t.Errorf("%s on the key: the real %s recovers it, and we never do", m.what, f.Name)
				}
			}
		}
	}
}

// A value of another dialect counts as held, by somebody we can't read: the error
// says so, and Inspect too.
func TestForeignDialects(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	conn := steps.Dial(s)
	conn.Do("SET", "k", "1330862340058") //nolint:errcheck // milliseconds, dead
	a := getsetlock.Guarded{Options: getsetlock.Options{Dialect: named(t, "redis-py-2.9")}}
	_, err := a.Acquire(conn, noon, "k", ttl)
	if !errors.Is(err, protocol.ErrForeign) || !errors.Is(err, protocol.ErrHeld) {
		t.Errorf("%v, want ErrHeld and ErrForeign", err)
	}
	st, err := a.Inspect(conn, noon, "k")
	if err != nil || st.Status != protocol.StatusForeign || st.Format != "not redis-py-2.9" {
		t.Errorf("Inspect: %+v, %v", st, err)
	}
	if st, err = (getsetlock.Patient{Options: a.Options, Lease: ttl}).Inspect(conn, noon, "k"); err != nil || st.Watch != 0 {
		t.Errorf("Patient would remove it: %+v, %v", st, err)
	}
}
