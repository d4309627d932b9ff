package bridge_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/bridge"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
)

var noon = time.Date(2012, 3, 4, 12, 0, 0, 0, time.UTC) // 1330862400

// Each bridge, as it goes over the wire: an acquisition, a refusal, an
// extension, a release; and a takeover of what a crash has left.
func TestProtocols(t *testing.T) {
	token := func() string { return "000000000042" }
	for _, c := range []struct {
		name string
		a    protocol.Algorithm
		want string
	}{
		{"one key", bridge.OneKey{Options: getsetlock.Options{Nonce: token}}, `
WATCH a → OK
GET a → nil
MULTI → OK
SETEX a 10 1330862410.000000000000042 → QUEUED
EXEC → [OK]
WATCH a → OK
GET a → 1330862410.000000000000042
UNWATCH → OK
WATCH a → OK
GET a → 1330862410.000000000000042
MULTI → OK
SETEX a 20 1330862420.000000000000042 → QUEUED
EXEC → [OK]
WATCH a → OK
GET a → 1330862420.000000000000042
MULTI → OK
DEL a → QUEUED
EXEC → [1]
`},
		{"one key, jedis-lock, with a fence", func() protocol.Algorithm {
			b := must.Get(bridge.Named("jedis-lock"))(t)
			b.Millis, b.Fence = true, true
			return b
		}(), `
WATCH a → OK
GET a → nil
MULTI → OK
PSETEX a 10001 1330862410001 → QUEUED
INCR a:fence:{a} → QUEUED
EXEC → [OK 1]
WATCH a → OK
GET a → 1330862410001
UNWATCH → OK
WATCH a → OK
GET a → 1330862410001
MULTI → OK
PSETEX a 20001 1330862420001 → QUEUED
EXEC → [OK]
WATCH a → OK
GET a → 1330862420001
MULTI → OK
DEL a → QUEUED
EXEC → [1]
`},
		{"two names", twoNames("redis-py-2.10", "redis-py-3", token), `
WATCH old:a a → OK
GET old:a → nil
GET a → nil
MULTI → OK
SETEX old:a 10 000000000042 → QUEUED
SETEX a 10 000000000042 → QUEUED
EXEC → [OK OK]
WATCH old:a a → OK
GET old:a → 000000000042
GET a → 000000000042
UNWATCH → OK
WATCH old:a a → OK
GET old:a → 000000000042
GET a → 000000000042
MULTI → OK
EXPIRE old:a 20 → QUEUED
EXPIRE a 20 → QUEUED
EXEC → [1 1]
WATCH old:a a → OK
GET old:a → 000000000042
GET a → 000000000042
MULTI → OK
DEL old:a → QUEUED
DEL a → QUEUED
EXEC → [1 1]
`},
	} {
		s := oldredis.Run(t, "2.6")
		conn := protocol.NewConn(s.Dial())
		sent := s.Record()
		l, err := c.a.Acquire(conn, noon, "a", ttl)
		if err != nil || l.How != protocol.Free {
			t.Fatalf("%s: %s, %v", c.name, l.How, err)
		}
		if _, err := c.a.Acquire(conn, noon, "a", ttl); !errors.Is(err, compat.ErrHeld) || errors.Is(err, compat.ErrForeign) {
			t.Errorf("%s: a second one: %v, want ErrHeld", c.name, err)
		}
		l, ch, err := c.a.Extend(noon, l, 2*ttl, false)
		if err == nil {
			_, err = conn.Run(ch)
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if _, err := conn.Run(c.a.Release(l)); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := sent.String(); got != c.want[1:] {
			t.Errorf("%s went over the wire as\n%swant\n%s", c.name, got, c.want[1:])
		}
	}
}

// What stands on the key: a holder, by a time, a token or anything else, keeps the
// bridge out and is left as it is; an expired time is taken over, and
// then has a TTL.
func TestOneKeyMeets(t *testing.T) {
	b := must.Get(bridge.Named("redis-py-2.9"))(t)
	for _, c := range []struct {
		value  string
		ttl    int // 0: none
		status compat.Status
	}{
		{"1330862460.5", 0, compat.StatusHeld},
		{"1330862460.5", 70, compat.StatusHeld},
		{"2147483649.0", 0, compat.StatusHeld},
		{"94213c24e0f911f0a9d30242ac120002", 60, compat.StatusHeld},
		{"94213c24e0f911f0a9d30242ac120002", 0, compat.StatusPersistent},
		{"1330862340058", 0, compat.StatusPersistent}, // milliseconds: somebody else's time
		{"", 60, compat.StatusHeld},
		{"1330862399.5", 0, compat.StatusDead},
		{"1330862399.5", 5, compat.StatusDead},
	} {
		s := oldredis.Run(t, "2.4")
		conn := protocol.NewConn(s.Dial())
		conn.Do("SET", "k", c.value) //nolint:errcheck
		if c.ttl > 0 {
			conn.Do("EXPIRE", "k", c.ttl) //nolint:errcheck
		}
		st, err := b.Inspect(conn, noon, "k")
		if err != nil || st.Status != c.status {
			t.Errorf("Inspect of %q: %+v, %v; want %s", c.value, st, err, c.status)
		}
		l, err := b.Acquire(conn, noon, "k", ttl)
		value, _ := redis.String(conn.Do("GET", "k"))
		left, _ := redis.Int(conn.Do("TTL", "k"))
		if c.status == compat.StatusDead {
			if err != nil || l.How != protocol.TakenOver || value != l.Value || left < 10 {
				t.Errorf("%q: %+v, %v, and the key holds %q with a TTL of %d; want it taken over, with one", c.value, l, err, value, left)
			}
			continue
		}
		if !errors.Is(err, compat.ErrHeld) || value != c.value || (left > 0) != (c.ttl > 0) {
			t.Errorf("%q: %v, and the key holds %q with a TTL of %d; want it left alone", c.value, err, value, left)
		}
		ch, err := b.Traits().Repair(noon, st, ttl)
		if err == nil {
			_, err = conn.Run(ch)
		}
		repaired := err == nil
		left, _ = redis.Int(conn.Do("TTL", "k"))
		if token := len(c.value) == 32 && c.ttl == 0; repaired != token || (left > 0) != (token || c.ttl > 0) {
			t.Errorf("%q repaired: %t, TTL %d", c.value, repaired, left)
		}
	}
}

// Two clients with different clocks can write the same time in a dialect without an owner. When
// the lease of one has run out, what stands there may be the other's, made anew: a
// late release leaves it alone. Before its end it removes it (getset/same-stamp).
func TestOneKeyLateRelease(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		left  bool
	}{{ttl / 2, false}, {ttl, true}} {
		m := clock.NewMock()
		m.Set(noon)
		s := oldredis.Run(t, "2.6")
		lock, err := compat.New(s, bridge.OneKey{Options: getsetlock.Options{Dialect: getsetlock.Seconds}}, compat.Options{NoRenew: true, Clock: m}).TryLock(t.Context(), "k", ttl)
		if err != nil || !lock.Lease().Ambiguous {
			t.Fatalf("%v; want an ambiguous lease", err)
		}
		m.Add(c.after)
		err = lock.Release(t.Context())
		if n, _ := s.Dial().Do("EXISTS", "k"); (n == int64(1)) != c.left || errors.Is(err, compat.ErrLost) != c.left {
			t.Errorf("released %v after it was taken for %v: %v, and the key is there: %v; want it left: %v", c.after, ttl, err, n, c.left)
		}
	}
}

// A time that two clients can write proves nothing: a change is tried once, and no WATCH on it is kept.
func TestOneKeyAmbiguous(t *testing.T) {
	for _, d := range []getsetlock.Dialect{getsetlock.Seconds, getsetlock.Float} {
		b := bridge.OneKey{Options: getsetlock.Options{Dialect: d}}
		s := oldredis.Run(t, "2.6")
		sent := s.Record()
		k := compat.NewOn(compat.Source{Get: compat.Pooled(s).Get, Keep: 2, Bounded: true}, b, compat.Options{NoRenew: true})
		lock := must.Get(k.TryLock(t.Context(), "k", ttl))(t)
		l := lock.Lease()
		_, ch, err := b.Extend(noon, l, ttl, false)
		if vague := !d.Nonce; err != nil || l.Ambiguous != vague || ch.Once != vague || b.Release(l).Once != vague {
			t.Errorf("%s: ambiguous %v, extended once %v, released once %v; %v", d.Name, l.Ambiguous, ch.Once, b.Release(l).Once, err)
		}
		if kept := strings.Contains(sent.String(), "]\nWATCH k → OK\n"); kept != d.Nonce {
			t.Errorf("%s: watched after it was taken: %v\n%s", d.Name, kept, sent)
		}
	}
}

// A key has an end however short the lease is, and one that has no fence draws it.
func TestOneKeyShortOrAdopted(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	conn := protocol.NewConn(s.Dial())
	b := bridge.OneKey{Options: getsetlock.Options{Fence: true}}
	l, err := b.Acquire(conn, noon, "k", 300*time.Millisecond)
	if left, _ := redis.Int(conn.Do("TTL", "k")); err != nil || l.Fence != 1 || left != 1 {
		t.Errorf("for 300 ms: %v, fence %d, %d s are left, want one", err, l.Fence, left)
	}
	l.Fence = 0 // as of one that was adopted
	if _, ch, err := b.Extend(noon, l, ttl, false); err != nil || !ch.TakeFence {
		t.Errorf("an extension of what has no fence draws one: %v, %v", ch.TakeFence, err)
	}
}

// What two clients of both fleets can write is as ambiguous as a time of one.
func TestTwoNamesOfTimes(t *testing.T) {
	for _, c := range []struct {
		old, new string
		vague    bool
	}{{"redis-docs", "jedis-lock", true}, {"redis-docs", "redis-py-2.9", false}, {"redis-docs", "redis-py-3", false}} {
		s := oldredis.Run(t, "2.4")
		l, err := twoNames(c.old, c.new, nil).Acquire(protocol.NewConn(s.Dial()), noon, "k", ttl)
		if err != nil || l.Ambiguous != c.vague {
			t.Errorf("%s and %s: %v, ambiguous %v, want %v", c.old, c.new, err, l.Ambiguous, c.vague)
		}
	}
}

// Every ttl from a second on is one of both names, whole seconds or not.
func TestTwoNamesForAnyTTL(t *testing.T) {
	for _, old := range []string{"redis-py-2.9", "redis-py-2.10", "mlanett-redis-lock"} {
		locks := compat.New(oldredis.Run(t, "7.0"), twoNames(old, "redis-py-3", nil), compat.Options{NoRenew: true})
		l, err := locks.TryLock(t.Context(), "k", 1500*time.Millisecond)
		if err != nil {
			t.Fatalf("%s: %v", old, err)
		}
		if err := l.Extend(t.Context(), 2500*time.Millisecond); err != nil {
			t.Errorf("%s: extended: %v", old, err)
		}
	}
}

// Half of an old pair is somebody's, and a deadline in whole seconds counts until the next second.
func TestTwoNamesMeetAPair(t *testing.T) {
	for _, c := range []struct {
		what     string
		keys     []any
		now      time.Time
		obtained bool
	}{
		{"half a pair, dead", []any{"lock:expire:k", "1330862340"}, noon, false},
		{"an owner alone", []any{"lock:owner:k", "other:2"}, noon, false},
		{"a pair in its last second", []any{"lock:owner:k", "other:2", "lock:expire:k", "1330862400"}, noon.Add(900 * time.Millisecond), false},
		{"a dead pair", []any{"lock:owner:k", "other:2", "lock:expire:k", "1330862400"}, noon.Add(time.Second), true},
	} {
		s := oldredis.Run(t, "2.4")
		conn := protocol.NewConn(s.Dial())
		must.Get(conn.Do("MSET", c.keys...))(t)
		l, err := twoNames("mlanett-redis-lock", "redis-py-3", nil).Acquire(conn, c.now, "k", ttl)
		if (err == nil) != c.obtained || err != nil && !errors.Is(err, compat.ErrHeld) || err == nil && l.How != protocol.TakenOver {
			t.Errorf("%s: %+v, %v; want it obtained: %v", c.what, l, err, c.obtained)
		}
	}
}

// changes returns the two ways to change a lease.
func changes(b bridge.TwoNames) map[string]func(compat.Lease) (protocol.Change, error) {
	return map[string]func(compat.Lease) (protocol.Change, error){
		"Extend": func(l compat.Lease) (protocol.Change, error) {
			_, ch, err := b.Extend(noon, l, ttl, false)
			return ch, err
		},
		"Release": func(l compat.Lease) (protocol.Change, error) { return b.Release(l), nil },
	}
}

// An old server runs an EXEC although a watched key has expired: the lock is lost then, and nothing of it
// is left. Nor is it had if another was faster.
func TestTwoNamesOvertaken(t *testing.T) {
	for _, old := range []string{"redis-py-2.10", "redis-py-2.9", "mlanett-redis-lock"} {
		b := twoNames(old, "redis-py-3", nil)
		for step, change := range changes(b) {
			s := oldredis.Run(t, "2.4")
			l := must.Get(b.Acquire(protocol.NewConn(s.Dial()), noon, "k", ttl))(t)
			expire := faulty.First(func() { s.Advance(ttl + time.Second) })
			ch, err := change(l)
			if err == nil {
				_, err = protocol.NewConn(faulty.Over(s.Dial(), expire.Of("MULTI"))).Run(ch)
			}
			if !errors.Is(err, compat.ErrLost) {
				t.Errorf("%s of %s, which expired under its WATCH: %v, want ErrLost", step, old, err)
			}
			if left, err := redis.Strings(s.Dial().Do("KEYS", "*")); err != nil || len(left) > 0 {
				t.Errorf("after %s of %s %v are left, %v", step, old, left, err)
			}
		}
		s := oldredis.Run(t, "2.4")
		faster := faulty.First(func() { s.Dial().Do("SETEX", "k", 60, "another's") }).Of("MULTI") //nolint:errcheck
		slow := protocol.NewConn(faulty.Over(s.Dial(), faster))
		if _, err := b.Acquire(slow, noon, "k", ttl); !errors.Is(err, compat.ErrHeld) {
			t.Errorf("%s and redis-py-3, of which another took the second: %v, want ErrHeld", old, err)
		}
	}
}

// A lock of two names of which one is lost is lost, and the other is released:
// when it is extended, and when it is released.
func TestTwoNamesLoseOne(t *testing.T) {
	for _, old := range []string{"redis-py-2.10", "redis-py-2.9", "mlanett-redis-lock"} {
		b := twoNames(old, "redis-py-3", nil)
		oldKey := b.Old.Key("k")
		for _, gone := range []string{oldKey, "k"} {
			for step, change := range changes(b) {
				s := oldredis.Run(t, "2.4")
				conn := protocol.NewConn(s.Dial())
				l := must.Get(b.Acquire(conn, noon, "k", ttl))(t)
				conn.Do("SET", gone, "another's") //nolint:errcheck
				ch, err := change(l)
				if err == nil {
					_, err = conn.Run(ch)
				}
				if !errors.Is(err, compat.ErrLost) {
					t.Errorf("%s of %s and %s, of which %s is another's: %v, want ErrLost", step, oldKey, "k", gone, err)
				}
				for _, k := range []string{oldKey, "k"} {
					value, _ := redis.String(conn.Do("GET", k))
					if want := map[bool]string{true: "another's"}[k == gone]; value != want {
						t.Errorf("after %s %s holds %q, want %q", step, k, value, want)
					}
				}
			}
		}
	}
}

// The answer to an extension is lost, which has changed the time under one name and left the token under the other. A
// release finds both, also with a context that has ended.
func TestTwoNamesReleasedAfterLostReply(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for name, ctx := range map[string]context.Context{"a context": t.Context(), "an ended context": ended} {
		s, net, lost := oldredis.Run(t, "2.6"), new(faulty.Network), false
		l := must.Get(compat.New(net.Pool(s), twoNames("redis-py-2.9", "redis-py-3", nil), compat.Options{NoRenew: true}).TryLock(t.Context(), "k", ttl))(t)
		net.Expect(func(m faulty.Message) faulty.Fate {
			f := faulty.Fate{Loss: faulty.LostRequest, Err: io.EOF}
			switch {
			case m.Name == "EXEC" && !lost:
				f.Loss, lost = faulty.LostReply, true
			case !lost:
				return faulty.Fate{}
			}
			return f
		})
		if err := l.Extend(t.Context(), 2*ttl); err == nil || !lost {
			t.Fatalf("Extend: %v, its reply lost: %v", err, lost)
		}
		net.Expect(nil)
		if err := l.Release(ctx); err != nil {
			t.Errorf("Release with %s: %v", name, err)
		}
		if left, err := redis.Strings(s.Dial().Do("KEYS", "*")); err != nil || len(left) > 0 {
			t.Errorf("after a Release with %s %v are left, %v", name, left, err)
		}
	}
}

// A release wakes one of those who wait for a message, whichever of the names is theirs.
func TestTwoNamesWake(t *testing.T) {
	waits := 0
	for _, f := range dialect.All() {
		if f.Signal == "" {
			continue
		}
		waits++
		other := format("redis-py-3")
		other.KeyName = "other:NAME"
		for name, b := range map[string]bridge.TwoNames{"old": {Old: f, New: other}, "new": {Old: other, New: f}} {
			for _, gone := range []string{"", "other:job"} { // nothing, or the other name
				s := oldredis.Run(t, "7.0")
				k := compat.New(s, b, compat.Options{NoRenew: true})
				l := must.Get(k.TryLock(t.Context(), "job", time.Minute))(t)
				c := s.Dial()
				c.Do("DEL", gone) //nolint:errcheck // of an embedded server
				if err := l.Release(t.Context()); (gone == "") != (err == nil) {
					t.Errorf("%s is the %s, %q is gone: Release: %v", f.Name, name, gone, err)
				}
				list := f.Beside(f.Key("job"))
				if n, err := redis.Int(c.Do("LLEN", list)); n != 1 || err != nil {
					t.Errorf("%s is the %s, %q is gone: %d wake-ups on %s, %v", f.Name, name, gone, n, list, err)
				}
				if n, err := redis.Int(c.Do("TTL", list)); n < 0 || err != nil {
					t.Errorf("%s is the %s: the wake-up has a TTL of %d, %v", f.Name, name, n, err)
				}
			}
		}
	}
	if waits == 0 {
		t.Error("no client waits")
	}
}

// Two names that are one are no two names.
func TestTwoNamesAreTwo(t *testing.T) {
	b := bridge.TwoNames{Old: format("redis-py-2.9"), New: format("redis-py-3")}
	s := oldredis.Run(t, "2.4")
	if _, err := compat.New(s, b, compat.Options{NoRenew: true}).TryLock(t.Context(), "k", ttl); !errors.Is(err, compat.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}
