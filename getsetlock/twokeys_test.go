package getsetlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/steps"
)

func twoKeys(fence bool) getsetlock.TwoKeys {
	return getsetlock.TwoKeys{Fence: fence, Owner: func() string { return "me:1" }}
}

// The protocol on the wire: a refusal, a takeover of a lease that ended a minute
// ago, an extension, a release, and a key that is free.
func TestTwoKeysOnTheWire(t *testing.T) {
	for _, c := range []struct {
		fence bool
		want  string
	}{
		{false, `
MSETNX lock:owner:k me:1 lock:expire:k 1330862411 → 0
WATCH lock:owner:k lock:expire:k → OK
GET lock:owner:k → other:2
GET lock:expire:k → 1330862460
UNWATCH → OK
MSETNX lock:owner:k me:1 lock:expire:k 1330862531 → 0
WATCH lock:owner:k lock:expire:k → OK
GET lock:owner:k → other:2
GET lock:expire:k → 1330862460
MULTI → OK
MSET lock:owner:k me:1 lock:expire:k 1330862531 → QUEUED
EXEC → [OK]
WATCH lock:owner:k lock:expire:k → OK
GET lock:owner:k → me:1
GET lock:expire:k → 1330862531
MULTI → OK
SET lock:expire:k 1330862541 → QUEUED
EXEC → [OK]
WATCH lock:owner:k lock:expire:k → OK
GET lock:owner:k → me:1
GET lock:expire:k → 1330862541
MULTI → OK
DEL lock:owner:k lock:expire:k → QUEUED
EXEC → [2]
MSETNX lock:owner:k me:1 lock:expire:k 1330862411 → 1
`}, {true, `
MULTI → OK
MSETNX lock:owner:k me:1 lock:expire:k 1330862411 → QUEUED
INCR k:fence:{k} → QUEUED
EXEC → [0 1]
WATCH lock:owner:k lock:expire:k → OK
GET lock:owner:k → other:2
GET lock:expire:k → 1330862460
UNWATCH → OK
MULTI → OK
MSETNX lock:owner:k me:1 lock:expire:k 1330862531 → QUEUED
INCR k:fence:{k} → QUEUED
EXEC → [0 2]
WATCH lock:owner:k lock:expire:k → OK
GET lock:owner:k → other:2
GET lock:expire:k → 1330862460
MULTI → OK
MSET lock:owner:k me:1 lock:expire:k 1330862531 → QUEUED
INCR k:fence:{k} → QUEUED
EXEC → [OK 3]
WATCH lock:owner:k lock:expire:k → OK
GET lock:owner:k → me:1
GET lock:expire:k → 1330862531
MULTI → OK
SET lock:expire:k 1330862541 → QUEUED
EXEC → [OK]
WATCH lock:owner:k lock:expire:k → OK
GET lock:owner:k → me:1
GET lock:expire:k → 1330862541
MULTI → OK
DEL lock:owner:k lock:expire:k → QUEUED
EXEC → [2]
MULTI → OK
MSETNX lock:owner:k me:1 lock:expire:k 1330862411 → QUEUED
INCR k:fence:{k} → QUEUED
EXEC → [1 4]
`}} {
		s := oldredis.Run(t, "2.2")
		conn := steps.Dial(s)
		conn.Do("MSET", "lock:owner:k", "other:2", "lock:expire:k", "1330862460") //nolint:errcheck
		got, a := s.Record(), twoKeys(c.fence)

		_, err := a.Acquire(conn, half, "k", ttl)
		var held *compat.HeldError
		if !errors.As(err, &held) || held.Value != "other:2" || !held.Until.Equal(noon.Add(time.Minute)) || held.Foreign {
			t.Errorf("refused with %#v", err)
		}
		later := half.Add(2 * time.Minute)
		l, err := a.Acquire(conn, later, "k", ttl)
		if err != nil || l.How != protocol.TakenOver || l.Value != "me:1" || l.Ambiguous {
			t.Fatalf("%+v, %v", l, err)
		}
		if l, err = steps.Extend(a, conn, later, l, 2*ttl); err != nil || !l.Until.Equal(protocol.Until(later, 2*ttl)) {
			t.Fatalf("Extend: %+v, %v", l, err)
		}
		must.Do(t, steps.Release(a, conn, l))
		if l, err = a.Acquire(conn, half, "k", ttl); err != nil || l.How != protocol.Free || (l.Fence != 0) != c.fence {
			t.Fatalf("%+v, %v", l, err)
		}
		if got.String() != c.want[1:] {
			t.Errorf("with a fence %v, over the wire went\n%swant\n%s", c.fence, got, c.want[1:])
		}
	}
}

// What stands on the pair, and what an attempt makes of it. Half a pair is
// somebody's: this protocol never leaves one, so we can't tell what it is.
func TestTwoKeysStates(t *testing.T) {
	for _, c := range []struct {
		what, owner, deadline string
		status                compat.Status
		taken, foreign        bool
	}{
		{"nothing", "", "", compat.StatusFree, true, false},
		{"live", "other:2", "1330862460", compat.StatusHeld, false, false},
		{"in its last second", "other:2", "1330862400", compat.StatusHeld, false, false},
		{"dead", "other:2", "1330862399", compat.StatusDead, true, false},
		{"no deadline", "other:2", "", compat.StatusForeign, false, true},
		{"no owner", "", "1330862399", compat.StatusForeign, false, true},
		{"milliseconds", "other:2", "1330862399000", compat.StatusForeign, false, true},
		{"a fraction", "other:2", "1330862399.5", compat.StatusForeign, false, true},
		{"a token for a deadline", "other:2", "me", compat.StatusForeign, false, true},
	} {
		s := oldredis.Run(t, "2.4")
		conn := steps.Dial(s)
		if c.owner != "" {
			conn.Do("SET", "lock:owner:k", c.owner) //nolint:errcheck
		}
		if c.deadline != "" {
			conn.Do("SET", "lock:expire:k", c.deadline) //nolint:errcheck
		}
		st, err := twoKeys(false).Inspect(conn, half, "k")
		if err != nil || st.Status != c.status || st.Value != c.owner {
			t.Errorf("%s: Inspect: %+v, %v; want %s", c.what, st, err, c.status)
		}
		_, err = twoKeys(false).Acquire(conn, half, "k", ttl)
		if (err == nil) != c.taken || !c.taken && !errors.Is(err, compat.ErrHeld) || errors.Is(err, compat.ErrForeign) != c.foreign {
			t.Errorf("%s: %v; want it taken %v, foreign %v", c.what, err, c.taken, c.foreign)
		}
		owner, _ := redis.String(conn.Do("GET", "lock:owner:k"))
		deadline, _ := redis.String(conn.Do("GET", "lock:expire:k"))
		if !c.taken && (owner != c.owner || deadline != c.deadline) {
			t.Errorf("%s: refused, and yet it left %q, %q", c.what, owner, deadline)
		}
	}
}

// A key that is not a string is refused, by name, and left as it is.
func TestTwoKeysForeignType(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	conn := steps.Dial(s)
	conn.Do("RPUSH", "lock:expire:k", "x") //nolint:errcheck
	if _, err := twoKeys(false).Acquire(conn, half, "k", ttl); !errors.Is(err, compat.ErrForeign) {
		t.Errorf("Acquire: %v, want ErrForeign", err)
	}
	if _, err := twoKeys(false).Inspect(conn, half, "k"); !errors.Is(err, compat.ErrForeign) {
		t.Errorf("Inspect: %v, want ErrForeign", err)
	}
}

// Whoever takes over between our look and our EXEC has it, and we have changed
// nothing; our own extension in between is no reason to give up.
func TestTwoKeysOvertaken(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	conn, other := steps.Dial(s), s.Dial()
	conn.Do("MSET", "lock:owner:k", "dead:2", "lock:expire:k", "1330862300") //nolint:errcheck
	slow := before(s, "MULTI", func() {
		other.Do("MSET", "lock:owner:k", "other:2", "lock:expire:k", "1330862460") //nolint:errcheck
	})
	if _, err := twoKeys(false).Acquire(slow, half, "k", ttl); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("Acquire: %v, want ErrHeld", err)
	}
	if owner, _ := redis.String(other.Do("GET", "lock:owner:k")); owner != "other:2" {
		t.Errorf("held by %q, want the one who was faster", owner)
	}
	other.Do("MSET", "lock:owner:k", "me:1", "lock:expire:k", "1330862411") //nolint:errcheck
	l := compat.Lease{Key: "k", Value: "me:1", Until: half.Add(ttl)}
	n := 0
	slow = before(s, "MULTI", func() {
		if n++; n == 1 {
			other.Do("SET", "lock:expire:k", "1330862412") //nolint:errcheck
		}
	})
	if err := steps.Release(twoKeys(false), slow, l); err != nil || n != 2 {
		t.Errorf("Release beside an extension: %v after %d transactions, want success at the second", err, n)
	}
	if err := steps.Release(twoKeys(false), conn, l); !errors.Is(err, compat.ErrLost) {
		t.Errorf("second Release: %v, want ErrLost", err)
	}
	other.Do("MSET", "lock:owner:k", "other:2", "lock:expire:k", "1330862460") //nolint:errcheck
	if _, err := steps.Extend(twoKeys(false), conn, half, l, ttl); !errors.Is(err, compat.ErrLost) {
		t.Errorf("Extend of another's: %v, want ErrLost", err)
	}
	if held, _ := redis.Strings(other.Do("MGET", "lock:owner:k", "lock:expire:k")); held[0] != "other:2" || held[1] != "1330862460" {
		t.Errorf("another's pair is %q now", held)
	}
	if _, err := twoKeys(false).Acquire(conn, half, "k", time.Second-1); !errors.Is(err, compat.ErrInvalid) {
		t.Errorf("a ttl below a second: %v, want ErrInvalid", err)
	}
}

// A takeover that comes too late is a refusal, whatever keeps the condition.
func TestOvertakenTakeover(t *testing.T) {
	for name, a := range map[string]protocol.Algorithm{"guarded": getsetlock.Guarded{}, "by lists": getsetlock.ListCAS{}} {
		s := oldredis.Run(t, "2.4")
		conn, other := steps.Dial(s), s.Dial()
		conn.Do("SET", "k", "1330862300.5")                                         //nolint:errcheck
		slow := before(s, "MULTI", func() { other.Do("SET", "k", "1330862460.5") }) //nolint:errcheck
		if _, err := a.Acquire(slow, half, "k", ttl); !errors.Is(err, compat.ErrHeld) {
			t.Errorf("%s: %v, want ErrHeld", name, err)
		}
	}
}

// A pair is taken over when its margin is over too, and one that was adopted draws a fence.
func TestTwoKeysMarginAndFence(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	conn := steps.Dial(s)
	conn.Do("MSET", "lock:owner:k", "other:2", "lock:expire:k", "1330862400") //nolint:errcheck
	a := getsetlock.TwoKeys{Fence: true, Margin: time.Minute}
	if _, err := a.Acquire(conn, noon.Add(59*time.Second), "k", ttl); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("within the margin: %v, want ErrHeld", err)
	}
	l := must.Get(a.Acquire(conn, noon.Add(61*time.Second), "k", ttl))(t)
	l.Fence = 0
	if _, ch, err := a.Extend(noon, l, ttl, false); err != nil || !ch.TakeFence {
		t.Errorf("an extension of what has no fence draws one: %v, %v", ch.TakeFence, err)
	} else if replies, err := conn.Run(ch); err != nil || replies[len(replies)-1].(int64) <= 1 {
		t.Errorf("it drew %v, %v", replies, err)
	}
}

// An extension changes the value, whenever it comes and however often the value was changed before: to the waiters of a
// Patient lock one that does not is none, and they remove the key.
func TestPatientExtensionsShow(t *testing.T) {
	for name, d := range getsetlock.Dialects() {
		p := getsetlock.Patient{Options: getsetlock.Options{Dialect: d}, Lease: time.Minute}
		l := must.Get(p.Options.Lease("k", noon, time.Minute))(t)
		at := noon
		for n := range 40 {
			if n >= 20 {
				at = at.Add(time.Duration(n) * 100 * time.Millisecond)
			}
			next, _, err := p.Extend(at, l, time.Minute, n < 20)
			if err != nil || next.Value == l.Value {
				t.Fatalf("%s: extension %d, %v later, leaves %q, %v", name, n, at.Sub(noon), next.Value, err)
			}
			l = next
		}
	}
}

// No lease of Patient's is longer than others wait for.
func TestPatientExtendsNoLonger(t *testing.T) {
	l := compat.Lease{Key: "k", Value: "1330862410.5"}
	if _, _, err := (getsetlock.Patient{Lease: ttl}).Extend(noon, l, ttl, false); err != nil {
		t.Error(err)
	}
	if _, _, err := (getsetlock.Patient{Lease: ttl}).Extend(noon, l, ttl+time.Second, false); !errors.Is(err, compat.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}

// Our owner reads as the gem's: a host and a process; and no two are alike.
func TestTwoKeysOwner(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	seen := map[string]bool{}
	for _, key := range []string{"a", "b", "c"} {
		l, err := getsetlock.TwoKeys{}.Acquire(steps.Dial(s), half, key, ttl)
		if err != nil || seen[l.Value] {
			t.Fatalf("%q, %v", l.Value, err)
		}
		seen[l.Value] = true
		if _, ok := dialect.TokenHostPID.Read(l.Value); !ok {
			t.Errorf("%q is no host:pid", l.Value)
		}
	}
}
