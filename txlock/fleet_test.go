package txlock_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/steps"
	"github.com/setnxlock/setnxlock/txlock"
)

// tokens are the formats whose value is an owner.
func tokens() []dialect.Format {
	var list []dialect.Format
	for _, f := range dialect.All() {
		if !f.Kind.Timed() && f.Kind != dialect.TwoKeys {
			list = append(list, f)
		}
	}
	return list
}

// Each client's dialect: the value that it reads, its unit, and a key that is
// never without an end. As Classic it sends what the client does.
func TestNamed(t *testing.T) {
	for _, f := range tokens() {
		fleet := must.Get(txlock.Named(f.Name))(t)
		setex, expire := "SETEX k 10 ", "EXPIRE k 10 → 1\n"
		if f.TTL == dialect.TTLMillis {
			setex, expire = "PSETEX k 10000 ", "PEXPIRE k 10000 → 1\n"
		}
		for _, a := range []protocol.Algorithm{fleet, txlock.Classic{Options: fleet.Options, NoRepair: fleet.NoRepair}} {
			s := oldredis.Run(t, "2.6")
			c := steps.Dial(s)
			got := s.Record()
			l, err := a.Acquire(c, s.Now(), "k", ttl)
			want := "WATCH k → OK\nGET k → nil\nMULTI → OK\n" + setex + l.Value + " → QUEUED\nEXEC → [OK]\n"
			if _, ok := a.(txlock.Classic); ok {
				want = "SETNX k " + l.Value + " → 1\n" + expire + "GET k → " + l.Value + "\n"
			}
			unquoted := strings.NewReplacer(`"`, "") // a token of random bytes may hold one
			if err != nil || unquoted.Replace(got.String()) != unquoted.Replace(want) {
				t.Errorf("%s as %T: %v, over the wire went\n%swant\n%s", f.Name, a, err, got, want)
			}
			if _, ok := f.Token.Read(l.Value); !ok && f.Token.Proves() || l.Ambiguous {
				t.Errorf("%s: wrote %q, which is not %s; ambiguous %v", f.Name, l.Value, f.Token, l.Ambiguous)
			}
			if second, err := a.Acquire(steps.Dial(s), s.Now(), "k", ttl); !errors.Is(err, protocol.ErrHeld) || second.Value == l.Value {
				t.Errorf("%s: a second client: %q, %v; want ErrHeld and its own value", f.Name, second.Value, err)
			}
			if err := steps.Release(a, c, l); err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
		}
	}
}

// An endless key is repaired in fleets that do so, and left alone in others,
// whose clients may mean it: redis-py with timeout=None never ends. A timestamp
// lock has no end either, and is nobody's to repair.
func TestFleetRepair(t *testing.T) {
	for name, repairs := range map[string]bool{"redis-in-action": true, "redis-py-2.10": false, "Beaker": false, "laravel-5.5": false} {
		for _, value := range []string{"fb2d0a1e-3f44-4e2e-8f0a-0123456789ab", "1795238718", "\x3e\x2b\x01\x6b\x00\x00\x00\x00"} {
			fleet := must.Get(txlock.Named(name))(t)
			fleet.Millis = false
			s := oldredis.Run(t, "2.4")
			c := steps.Dial(s)
			c.Do("SET", "k", value) //nolint:errcheck
			st, err := fleet.Inspect(c, s.Now(), "k")
			if err != nil || st.Status != protocol.StatusPersistent {
				t.Fatalf("%s: %+v, %v", name, st, err)
			}
			err = repair(fleet, c, s.Now(), st, ttl)
			left, _ := redis.Int(c.Do("TTL", "k"))
			if want := repairs && len(value) == 36; (err == nil) != want || (left == 10) != want {
				t.Errorf("%s, %q: %v, TTL %d; want it repaired: %v", name, value, err, left, want)
			}
		}
	}
}

// repair carries out a repair of what st shows over c.
func repair(a protocol.Algorithm, c *protocol.Conn, now time.Time, st protocol.State, ttl time.Duration) error {
	ch, err := a.Traits().Repair(now, st, ttl)
	if err == nil {
		_, err = c.Run(ch)
	}
	return err
}

func TestNamedErrors(t *testing.T) {
	for name, want := range map[string]string{
		"redis-py-2.11": "redis-py-2.10", "redis-py-2.9": "getsetlock.Named", "mlanett-redis-lock": "getsetlock.TwoKeys",
	} {
		if _, err := txlock.Named(name); !errors.Is(err, protocol.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want ErrInvalid with %q", name, err, want)
		}
	}
}

// python-redis-lock's waiters wait on a list, without an end if their locks have none: our release
// pushes to it what theirs does, and only if it removed the lock.
func TestFleetWakesWaiters(t *testing.T) {
	f := must.Get(dialect.Lookup("python-redis-lock"))(t)
	fleet := must.Get(txlock.Named(f.Name))(t)
	key := f.Key("report")
	for _, listCAS := range []bool{false, true} {
		fleet.ListCAS = listCAS
		s := oldredis.Run(t, "7.0")
		c := steps.Dial(s)
		l, err := fleet.Acquire(c, s.Now(), key, ttl)
		if err != nil {
			t.Fatal(err)
		}
		must.Do(t, steps.Release(fleet, c, l))
		if l, err = fleet.Acquire(c, s.Now(), key, ttl); err == nil { // nobody has used the first
			err = steps.Release(fleet, c, l)
		}
		if err != nil {
			t.Fatal(err)
		}
		list, _ := redis.Strings(c.Do("LRANGE", "lock-signal:report", 0, -1))
		left, _ := redis.Int(c.Do("TTL", "lock-signal:report"))
		if held, _ := redis.Bool(c.Do("EXISTS", key)); held || !slices.Equal(list, []string{"1"}) || left != 1 {
			t.Errorf("ListCAS %v: held %v, lock-signal:report holds %q for %d s; want one wake-up for a second", listCAS, held, list, left)
		}
		c.Do("DEL", "lock-signal:report") //nolint:errcheck
		if l, err = fleet.Acquire(c, s.Now(), key, ttl); err != nil {
			t.Fatal(err)
		}
		c.Do("SET", key, "another's") //nolint:errcheck
		if err := steps.Release(fleet, c, l); !errors.Is(err, protocol.ErrLost) {
			t.Errorf("a release of another's lock: %v, want ErrLost", err)
		}
		if n, _ := redis.Int(c.Do("EXISTS", "lock-signal:report")); n != 0 {
			t.Error("a release that removed nothing woke a waiter")
		}
	}
	if other, _ := txlock.Named("redis-py-3"); other.Wake != nil {
		t.Error("redis-py's waiters have no list")
	}
	if _, err := txlock.Named("Redisson"); !errors.Is(err, protocol.ErrInvalid) || !errors.Is(err, dialect.ErrUnsupported) {
		t.Errorf("Redisson: %v, want ErrInvalid and ErrUnsupported", err)
	}
}
