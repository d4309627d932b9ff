package getsetlock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/steps"
)

// half is half a second past noon, so that clients of whole seconds cut it.
var half = noon.Add(500 * time.Millisecond) // 1330862400.5

func named(t *testing.T, name string) getsetlock.Dialect {
	t.Helper()
	return must.Get(getsetlock.Named(name))(t)
}

// timed are the formats whose value is a time.
func timed() []dialect.Format {
	var list []dialect.Format
	for _, f := range dialect.All() {
		if f.Kind.Timed() {
			list = append(list, f)
		}
	}
	return list
}

// Each client's dialect on the wire: ten seconds asked for at half past noon
// becomes this value, and the key is the client's. At the second named a value
// of its own is still held, and a grain later it is taken over.
func TestNamedOnTheWire(t *testing.T) {
	for _, c := range []struct{ name, key, value string }{
		{"redis-docs", "lock.k", "1330862412"},
		{"redis-py-2.2.3", "k", "1330862411"},
		{"resque-lock", "resque:lock:k", "1330862412"},
		{"resque-lock-timeout", "resque:lock:k", "1330862411"},
		{"lonely-job", "resque:lonely_job:k", "1330862412"},
		{"mini-scheduler", "k", "1330862411"},
		{"Guanima", "k", "1330862411"},
		{"node-resque", "resque:lock:k", "1330862412"},
		{"celery-once-1", "qo_k", "1330862411"},
		{"ohm-0273623", "k:_lock", "1330862411"},
		{"redis-mutex-0.9", "Redis::Mutex:k", "1330862411"},
		{"redis-py-2.9", "k", "1330862410.5"},
		{"redis-mutex", "RedisMutex:k", "1330862410.5"},
		{"redis-mutex-3", "Redis::Mutex:k", "1330862410.5"},
		{"redis-objects-1.3", "k", "1330862411.5"},
		{"retools-0.3", "k", "1330862411.5"},
		{"redset", "k", "1330862410.5"},
		{"chris-lamb", "k", "1330862411.5"},
		{"ohm-0.1", "k:_lock", "1330862410.5"},
		{"redis-semaphore", "SEMAPHORE:k:release_locks", "1330862410.5"},
		{"YiiRedis", "k", "1330862410.5"},
		{"setnx-locking", "k", "1330862410.5"},
		{"jedis-lock", "k", "1330862410501"},
		{"npm-redis-lock-0.0", "lock.k", "1330862410501"},
		{"ServiceStack", "k", "1330862410501"},
		{"redigolock", "L:{k}", "1330862410500"},
		{"machinery", "machinery_lock_k", "1330862410500000000"},
		{"machinery-1.10", "machinery_lock_k", "1330862410500000000"},
		{"bsm-redis-lock-2014", "k", "1330862410500000000"},
		{"PT-redis-lock-0.1", "lock:k", "1330862412-1000000000042"},
		{"PT-redis-lock", "lock:k", "1330862412-10000-100000042"},
		{"PredisLock", "lock:k", "1330862411:1000000000042"},
		{"jedis-lock-1.0.1", "k", "00000000-0042-4000-8000-004200000000:1330862410501"},
		{"ServiceStack-DistributedLock", "k", "KYSO\x00\x00\x00\x00"},
	} {
		f := must.Get(dialect.Lookup(c.name))(t)
		o := options(false)
		o.Dialect = named(t, c.name)
		for _, a := range []protocol.Algorithm{getsetlock.Classic{Options: o}, getsetlock.Guarded{Options: o}} {
			s := oldredis.Run(t, "2.2")
			conn := steps.Dial(s)
			got := s.Record()
			key := f.Key("k")
			l, err := a.Acquire(conn, half, key, ttl)
			want := "SETNX " + c.key + " " + c.value + " → 1\n"
			if err != nil || got.String() != want {
				t.Errorf("%s, %T: %q, %v; want %q", c.name, a, got, err, want)
			}
			if _, owner, ok := f.Stamp.Parse(l.Value); !ok || (owner != "") == l.Ambiguous {
				t.Errorf("%s, %T: wrote %q, which its grammar reads %v, of %q, ambiguous %v", c.name, a, l.Value, ok, owner, l.Ambiguous)
			}
			end := firstDead(f, l.Value)
			if _, err := a.Acquire(conn, end.Add(-1), key, ttl); !errors.Is(err, protocol.ErrHeld) || errors.Is(err, protocol.ErrForeign) {
				t.Errorf("%s, %T: asked for just before %v: %v, want ErrHeld", c.name, a, end, err)
			}
			if l, err := a.Acquire(conn, end, key, ttl); err != nil || l.How != protocol.TakenOver {
				t.Errorf("%s, %T: asked for at %v: %s, %v; want it taken over", c.name, a, end, l.How, err)
			}
		}
	}
	if n := len(timed()); n != 34 {
		t.Errorf("there are %d dialects of times, and 34 stand here", n)
	}
}

// firstDead is the first nanosecond at which f's client takes value for expired.
func firstDead(f dialect.Format, value string) time.Time {
	end, _, _ := f.Stamp.Parse(value)
	end = end.Add(f.Grace)
	switch {
	case f.Inclusive:
		return end
	case f.Stamp.Float:
		return end.Add(1)
	}
	return end.Add(f.Stamp.Unit) // its own now is a whole number too
}

// The two tests of a GETSET that won: by the time it replaced, or by the very
// value that was read. Whoever needs the second lets alone what another has put
// there meanwhile, dead or alive.
func TestWins(t *testing.T) {
	for name, won := range map[string]bool{"redis-py-2.9": true, "redis-objects-1.3": true, "retools-0.3": false, "YiiRedis": false} {
		s := oldredis.Run(t, "2.0")
		other := s.Dial()
		other.Do("SET", "k", "1330862300.5") //nolint:errcheck
		c := before(s, "GETSET", func() { other.Do("SET", "k", "1330862301.5") })
		_, err := getsetlock.Classic{Options: getsetlock.Options{Dialect: named(t, name)}}.Acquire(c, noon, "k", ttl)
		if (err == nil) != won || err != nil && !errors.Is(err, protocol.ErrHeld) {
			t.Errorf("%s: %v, want it won: %v", name, err, won)
		}
	}
}

// A name that is nobody's, or whose lock is of another kind: the error says
// where to go.
func TestNamedErrors(t *testing.T) {
	for name, want := range map[string]string{
		"redis-pie": "redis-py-2.9", "redis-py-2.10": "txlock.Named", "laravel-5.5": "txlock.Named", "mlanett-redis-lock": "getsetlock.TwoKeys",
	} {
		if d, err := getsetlock.Named(name); !errors.Is(err, protocol.ErrInvalid) || !strings.Contains(err.Error(), want) || d != (getsetlock.Dialect{}) {
			t.Errorf("%s: %+v, %v; want ErrInvalid with %q", name, d, err, want)
		}
	}
}

// A fleet of floats reads ours with any number of digits: with Nonce each value
// is our own, and both read each other.
func TestNamedWithNonce(t *testing.T) {
	d := named(t, "redis-objects-1.3")
	d.Nonce = true
	o := options(false)
	o.Dialect = d
	s := oldredis.Run(t, "2.2")
	l, err := getsetlock.Guarded{Options: o}.Acquire(steps.Dial(s), half, "k", ttl)
	if err != nil || l.Ambiguous || l.Value != "1330862411.500000000000042" {
		t.Errorf("wrote %q, ambiguous %v, %v", l.Value, l.Ambiguous, err)
	}
	if until, ok := named(t, "redis-py-2.9").Parse(l.Value); !ok || !until.Equal(noon.Add(11500*time.Millisecond)) {
		t.Errorf("redis-py reads it as %v, %v", until, ok)
	}
}
