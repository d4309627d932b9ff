package dialect_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
)

// A key's value, how it is read, and what is reported as wrong with it.
func TestRecognise(t *testing.T) {
	now := moment.Add(-8 * time.Second) // 1795238710
	const none = time.Duration(-1)
	for _, c := range []struct {
		key, value string
		ttl        time.Duration
		want       []string // kind, status, owner; then a part of each complaint
	}{
		{"report", "1795238718", none, []string{"T-s alive"}},
		{"report", "1795238709", none, []string{"T-s dead"}},
		{"report", "1795238718", 5 * time.Second, []string{"T-s alive | ends the lock before"}},
		{"report", "1795238718", time.Minute, []string{"T-s alive | remove again"}},
		{"resque:lock:report", "1795238718", 7 * time.Second, []string{"T-s alive"}}, // node-resque's own
		{"lock.report", "1795238718", 7 * time.Second, []string{"T-s alive | remove again"}},
		{"report", "1795238718.94", 7*time.Second + 900*time.Millisecond, []string{"T-f alive"}}, // retools' own
		{"report", "1795238718.94", 6 * time.Second, []string{"T-f alive | ends the lock before"}},
		{"report", "2147483649", none, []string{"T-s alive | in 2038"}},
		{"report", "1310551200.0", none, []string{"T-f dead | was in 2011"}},
		{"report", "1795238718.94", none, []string{"T-f alive"}},
		{"RedisMutex:report", "1795238718.94", none, []string{"T-f alive"}},
		{"RedisMutex:report", "1795238718058", none, []string{"T-ms alive | integer milliseconds is not what keys of this name hold: redis-mutex (T-f)"}},
		{"lock.report", "1795238718058", none, []string{"T-ms alive"}},
		{"report", "1795238718058", none, []string{"T-ms alive"}},
		{"report", "1795238718058", 8 * time.Second, []string{"K-lua alive", "T-ms alive | remove again"}},
		{"report", "1795238718058123456", none, []string{"T-ns alive"}},
		{"lock:report", "1795238718-4711-70123", none, []string{"T-s-sfx alive 4711-70123"}},
		{"lock:report", "1795238709:4711", none, []string{"T-s-sfx dead 4711", "K-owner persistent 1795238709:4711 | without a TTL | not what keys of this name hold"}},
		{"report", "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab:1795238718058", none, []string{"T-uuid-ms alive fb2d0a1e-3f44-4e2e-8f0a-0123456789ab"}},
		{"report", "\x3e\x2b\x01\x6b\x00\x00\x00\x00", none, []string{"T-bin alive"}},
		{"lock:report", "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab", time.Minute, []string{"K-ria alive fb2d0a1e-3f44-4e2e-8f0a-0123456789ab"}},
		{"lock:report", "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab", none, []string{"K-ria persistent fb2d0a1e-3f44-4e2e-8f0a-0123456789ab | without a TTL"}},
		{"report", "94213c24e0f911f0a9d30242ac120002", time.Minute, []string{"K-py alive 94213c24e0f911f0a9d30242ac120002"}},
		{"report", "94213c24e0f911f0a9d30242ac120002", 500 * 24 * time.Hour, []string{"K-py alive 94213c24e0f911f0a9d30242ac120002 | as if it were a duration"}},
		{"report", "web1:4711", time.Minute, []string{"K-owner alive web1:4711"}},
		{"lock:owner:report", "web1:4711", none, []string{"K-owner two-key web1:4711"}},
		{"lock:expire:report", "1795238718", none, []string{"T-s alive"}},
		{"beaker_lock:report", "3fa9c1-4711-140235673298944", time.Minute, []string{"K-owner alive 3fa9c1-4711-140235673298944"}},
		{"job-lock:prod:report", "ADDED:2017-03-04T05:06:07.123Z@web1", time.Minute, []string{"K-owner alive web1"}},
		{"report", "\x04web1\x06report\x04main\x00\x00\x01\xa1\xfc\x90\xea\x6a", time.Minute, []string{"K-owner alive web1 main"}},
		{"report", "1", time.Minute, []string{"K-flag alive | the same for every holder"}},
		{"report", "1", none, []string{"K-flag persistent | without a TTL | the same for every holder"}},
		{"report", "", time.Minute, []string{"K-flag alive | the same for every holder"}},
		{"report", "john", time.Minute, []string{"K-owner alive john"}},
		{"report", "1795238718", 0, []string{"T-s alive | ends the lock before"}},
		// Really ambiguous: this can be the name of a host.
		{"report", "1795238718:4711", time.Minute, []string{"K-owner alive 1795238718:4711", "T-s-sfx alive 4711 | remove again"}},
		{"report", "1795238718:4711", none, []string{"T-s-sfx alive 4711", "K-owner persistent 1795238718:4711 | without a TTL"}},
	} {
		var got []string
		findings := dialect.Recognise(c.key, c.value, c.ttl, now)
		for _, f := range findings {
			if len(f.Formats) == 0 || f.What == "" {
				t.Errorf("%q: %+v names no client", c.value, f)
			}
			if f.Clock == "server" && !f.Until.IsZero() && !f.Until.Equal(now.Add(c.ttl)) {
				t.Errorf("%q with a TTL of %v ends at %v", c.value, c.ttl, f.Until)
			}
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s", f.Kind, f.Status, f.Owner))+wrongs(f))
		}
		ok := len(got) == len(c.want)
		for i := range c.want {
			if !ok || !matches(got[i], c.want[i]) {
				t.Errorf("%s = %q, TTL %v: %q, want %q", c.key, c.value, c.ttl, got, c.want)
				break
			}
		}
	}
}

func wrongs(f dialect.Finding) (s string) {
	for _, w := range f.Wrong {
		s += " | " + w
	}
	return s
}

// matches compares the words before the first bar; each later part must occur in the corresponding
// complaint.
func matches(got, want string) bool {
	g, w := strings.Split(got, " | "), strings.Split(want, " | ")
	if len(g) != len(w) || g[0] != w[0] {
		return false
	}
	for i := range w {
		if !strings.Contains(g[i], w[i]) {
			return false
		}
	}
	return true
}

// The key's name narrows down which clients can have written a value.
func TestRecogniseWhose(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"report", "1795238718.94", "redis-py-2.9 redis-mutex redis-mutex-3 redis-objects-1.3 retools-0.3 redset chris-lamb ohm-0.1 redis-semaphore YiiRedis setnx-locking"},
		{"RedisMutex:report", "1795238718.94", "redis-mutex"},
		{"Redis::Mutex:report", "1795238718.94", "redis-mutex-3"},
		{"lock.report", "1795238718058", "npm-redis-lock-0.0"},
		{"lock:report", "1795238718:4711", "PredisLock"},
		{"lock:report", "1795238718-4711", "PT-redis-lock-0.1 PT-redis-lock"},
		{"L:{report}", "1795238718058", "redigolock"},
		{"report", "94213c24e0f911f0a9d30242ac120002", "redis-py-2.10 redis-py-3"},
		{"lock:resource:report", "john", "locky"},
	} {
		f := dialect.Recognise(c.key, c.value, -1, moment)
		if len(f) == 0 || strings.Join(f[0].Formats, " ") != c.want {
			t.Errorf("%s = %q is %+v's, want %q", c.key, c.value, f, c.want)
		}
	}
}
