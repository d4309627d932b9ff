package dialect_test

import (
	"errors"
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
		{"report", "1795238718", time.Minute, []string{"K-owner alive 1795238718", "T-s alive | although the TTL runs"}},
		{"resque:lock:report", "1795238718", 7 * time.Second, []string{"T-s alive"}}, // node-resque's own
		{"lock.report", "1795238718", 7 * time.Second, []string{"K-owner alive 1795238718", "T-s alive | remove it again"}},
		{"report", "1795238718.94", 7*time.Second + 900*time.Millisecond, []string{"T-f alive"}}, // retools' own
		{"report", "1795238718.94", 6 * time.Second, []string{"T-f alive | ends the lock before"}},
		{"report", "2147483649", none, []string{"T-s alive | in 2038"}},
		{"report", "1310551200.0", none, []string{"T-f dead | was in 2011"}},
		{"report", "1795238718.94", none, []string{"T-f alive"}},
		{"RedisMutex:report", "1795238718.94", none, []string{"T-f alive"}},
		{"RedisMutex:report", "1795238718058", none, []string{"T-ms alive | integer milliseconds is not what keys of this name hold: redis-mutex (T-f)"}},
		{"lock.report", "1795238718058", none, []string{"T-ms alive"}},
		{"report", "1795238718058", none, []string{"T-ms alive"}},
		{"report", "1795238718058", 8 * time.Second, []string{"K-owner alive 1795238718058", "T-ms alive | remove it again"}},
		{"lock.report", "1795238718058", 8 * time.Second, []string{"K-lua alive", "T-ms alive | remove it again"}}, // npm-redis-lock-0.1's own
		{"report", "1795238718058123456", none, []string{"T-ns alive"}},
		{"lock:report", "1795238718-4711-70123", none, []string{"T-s-sfx alive 4711-70123"}},
		{"lock:report", "1795238709:4711", none, []string{"T-s-sfx dead 4711", "K-owner persistent 1795238709:4711 | without a TTL"}},
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
		// A time that has passed, and a TTL that runs: held (rq-scheduler writes when it took the lock).
		{"rq:scheduler_lock", "1795238650.94", 10 * time.Second, []string{"K-lua alive"}},
		{"report", "1795238650.94", 10 * time.Second, []string{"K-owner alive 1795238650.94"}},
		{"report", "1795238650", 10 * time.Second, []string{"K-owner alive 1795238650"}},
		{"report", "1795238650058", 10 * time.Second, []string{"K-owner alive 1795238650058"}},
		{"qo_report", "1795238709", 500 * time.Millisecond, []string{"T-s alive"}}, // celery-once-1, about to end
		{"lock.report", "1795238650058", 10 * time.Second, []string{"K-lua alive"}},
		// No false alarm: a TTL that the client sets, and the names of keys that say little.
		{"qo_report", "1795238720", 11 * time.Second, []string{"T-s alive"}},
		{"machinery_lock_x", "1795238718058123456", 8 * time.Second, []string{"T-ns alive"}},
		{"bull:mail:17:lock", "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab", time.Minute, []string{"K-lua alive fb2d0a1e-3f44-4e2e-8f0a-0123456789ab"}},
		{"bull:mail:17:lock", "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab:3", time.Minute, []string{"K-lua alive fb2d0a1e-3f44-4e2e-8f0a-0123456789ab:3"}},
		{"redbeat::lock", "94213c24e0f911f0a9d30242ac120002", time.Minute, []string{"K-py alive 94213c24e0f911f0a9d30242ac120002"}},
		{"lock:report", "0Vb9nDEyTnSlqYwC8vEL2QpZ", time.Minute, []string{"K-lua alive 0Vb9nDEyTnSlqYwC8vEL2QpZ"}},
		{"beaker_lock:report", "94213c24e0f911f0a9d30242ac120002", time.Minute, []string{"K-py alive 94213c24e0f911f0a9d30242ac120002 | not what keys of this name hold: Beaker"}},
		// Really ambiguous: this can be the name of a host.
		{"report", "1795238718:4711", time.Minute, []string{"K-owner alive 1795238718:4711", "T-s-sfx alive 4711 | remove it again"}},
		{"report", "1795238718:4711", none, []string{"T-s-sfx alive 4711", "K-owner persistent 1795238718:4711 | without a TTL"}},
	} {
		var got []string
		findings := dialect.Recognise(c.key, c.value, c.ttl, now)
		for _, f := range findings {
			if len(f.Candidates) == 0 || f.What == "" {
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
	const uuid, hex = "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab", "94213c24e0f911f0a9d30242ac120002"
	const floats = "redis-py-2.9 redis-objects-1.3 retools-0.3 redset chris-lamb YiiRedis setnx-locking"
	const uuids = "sherlock retools-0.4 spring-5 spring-6 node-redis-lock"
	for _, c := range []struct {
		key, value string
		ttl        time.Duration
		confidence dialect.Confidence
		want       string
	}{
		{"report", "1795238718.94", -1, dialect.Possible, floats},
		{"RedisMutex:report", "1795238718.94", -1, dialect.Likely, "redis-mutex"},
		{"Redis::Mutex:report", "1795238718.94", -1, dialect.Likely, "redis-mutex-3"},
		{"lock.report", "1795238718058", -1, dialect.Possible, "npm-redis-lock-0.0 jedis-lock ServiceStack"},
		{"lock:report", "1795238718:4711", -1, dialect.Likely, "PredisLock"},
		{"lock:report", "1795238718-4711", -1, dialect.Possible, "PT-redis-lock-0.1 PT-redis-lock"},
		{"L:{report}", "1795238718058", -1, dialect.Likely, "redigolock"},
		{"report", hex, -1, dialect.Possible, "redis-py-2.10 redis-py-3"},
		{"report", hex, 1, dialect.Possible, "redis-py-2.10 redis-py-3 npm-redlock"},
		{"lock:resource:report", "john", -1, dialect.Likely, "locky"},
		{"report", uuid, 1, dialect.Possible, uuids},
		{"lock:report", uuid, 1, dialect.Possible, "redis-in-action " + uuids},
		{"mutex:report", uuid, 1, dialect.Possible, "npm-redis-semaphore " + uuids},
		{"redlock:report", uuid, 1, dialect.Likely, "pottery"},
		{"bull:mail:17:lock", uuid, 1, dialect.Likely, "Bull"},
		{"bull:mail:17:lock", uuid + ":0", 1, dialect.Likely, "BullMQ"},
		{"laravel_database_laravel_cache:report", "HmpdKQoUZFiaqzPJ", 1, dialect.Possible, "laravel-5.8"}, // of Laravel 8.83
		{"laravel_database_laravel_cache:endless", "zIwVVpjjBT6qbwiE", -1, dialect.Possible, "laravel-5.8"},
		{"uniquejobs:9e9b5ce5d423d3ea470977004b50ff84", "94213c24e0f911f0a9d30242", -1, dialect.Likely, "sidekiq-unique-jobs"},
		{"resque:loners:queue:cache_sweeps:job:5ac5a005253450606aa9bc3b3d52ea5b", "1", -1, dialect.Likely, "resque-loner"},
		{"report", uuid, -1, dialect.Possible, "sherlock"},
		{"lock:report", "0Vb9nDEyTnSlqYwC8vEL2QpZ", 1, dialect.Likely, "python-redis-lock"},
		{"report", "0Vb9nDEyTnSlqYwC8vEL2Q==", 1, dialect.Possible, "redsync"},
		{"report:lock", "0Vb9nDEyTnSlqYwC8vEL2Q==", 1, dialect.Possible, "warlock redsync"},
		{"report", "0Vb9nDEyTnSlqYwC8vEL2Q", 1, dialect.Possible, "bsm-redislock"},
		{"report", "0Vb9nDEyTnSlqYwC8vEL2-", 1, dialect.Possible, "npm-redis-exp-lock BookSleeve"}, // no sixteen bytes end so
		{"rq:scheduler_lock", "1795238718.94", 1, dialect.Likely, "rq-scheduler"},
		{"rq:scheduler-lock:mail", hex, 1, dialect.Likely, "rq"},
		{"rq:scheduler-lock:mail", "4711", 1, dialect.Likely, "rq-1"},
		{"rueidislock:0:report", "\x01\xfe\x02\xfd\x03\xfc\x04\xfb\x05\xfa\x06\xf9\x07\xf8\x08\xf7\x09\xf6\x0a\xf5\x0b\xf4\x0c\xf3", 1, dialect.Likely, "rueidislock"},
		{"report", "ADDED:2017-03-04T05:06:07.123Z@web1", 1, dialect.Unlikely, "ShedLock"},
		{"job-lock:prod:report", "ADDED:2017-03-04T05:06:07.123Z@web1", 1, dialect.Likely, "ShedLock"},
	} {
		ttl := c.ttl
		if ttl > 0 {
			ttl = time.Minute
		}
		f := dialect.Recognise(c.key, c.value, ttl, moment)
		if len(f) == 0 || strings.Join(f[0].Formats(), " ") != c.want || f[0].Confidence() != c.confidence {
			t.Errorf("%s = %q is %+v's, want %q, %s", c.key, c.value, f, c.want, c.confidence)
		}
		for _, finding := range f {
			for _, candidate := range finding.Candidates {
				if _, err := dialect.Lookup(candidate.Format); err != nil || candidate.Confidence == "" || len(candidate.Reasons) == 0 {
					t.Errorf("%s = %q: %+v is not told in full: %v", c.key, c.value, candidate, err)
				}
			}
		}
	}
}

// A dialect that is named for a key whose TTL runs never enters it, however late it is by the time
// that stands there: its clients go by the TTL, or the time ends with it.
func TestNoNamedDialectEntersAHeldLock(t *testing.T) {
	for _, key := range []string{"report", "lock:report", "lock.report", "rq:scheduler_lock", "qo_report", "machinery_lock_x", "resque:lock:report"} {
		for _, value := range []string{"1795238718", "1795238718.94", "1795238718058", "1795238718058123456", "1795238718-4711", "1795238718:4711", "\x3e\x2b\x01\x6b\x00\x00\x00\x00"} {
			for at := -20 * time.Second; at <= 20*time.Second; at += time.Second {
				for _, ttl := range []time.Duration{0, time.Second, 5 * time.Second, time.Minute} {
					found := dialect.Recognise(key, value, ttl, moment.Add(at))
					if len(found) == 0 || found[0].Status != dialect.Alive {
						t.Fatalf("%s = %q, TTL %v, %v after its time: %+v, want it alive", key, value, ttl, at, found)
					}
					f := found[0]
					if ends := f.Until.Sub(moment.Add(at)); f.Kind.Timed() && ttl-ends > 2*time.Second {
						t.Errorf("%s = %q, TTL %v, %v after its time: %v is named, which enters in %v", key, value, ttl, at, f.Formats(), ends)
					}
				}
			}
		}
	}
}

// Redisson's locks are hashes: they are recognised, and refused by name.
func TestRedisson(t *testing.T) {
	const id = "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab"
	for _, c := range []struct {
		fields map[string]string
		owner  string
	}{
		{map[string]string{id + ":1": "1"}, id + ":1"},
		{map[string]string{id + ":47": "3"}, id + ":47"},
		{map[string]string{"mode": "read", id + ":1": "1", id + ":2": "1"}, id + ":1 " + id + ":2"},
		{map[string]string{"mode": "write", id + ":1:write": "1"}, id + ":1:write"},
		{map[string]string{"mode": "read"}, ""},
		{map[string]string{"name": "report"}, ""},
		{map[string]string{id + ":1": "1", "name": "report"}, ""},
		{map[string]string{id + ":1": "held"}, ""},
		{nil, ""},
	} {
		found := dialect.RecogniseHash("report", c.fields, time.Minute, moment)
		if c.owner == "" {
			if found != nil {
				t.Errorf("%v is %+v, want no lock", c.fields, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Owner != c.owner || found[0].Formats()[0] != dialect.Redisson || found[0].Status != dialect.Alive || !found[0].Until.Equal(moment.Add(time.Minute)) {
			t.Errorf("%v is %+v, want Redisson's, held by %s", c.fields, found, c.owner)
		}
	}
	if _, err := dialect.Lookup("redisson"); !errors.Is(err, dialect.ErrUnsupported) || errors.Is(err, dialect.ErrUnknown) || !strings.Contains(err.Error(), "hashes") {
		t.Errorf("Lookup: %v, want ErrUnsupported", err)
	}
}
