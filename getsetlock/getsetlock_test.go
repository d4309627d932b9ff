package getsetlock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/steps"
	"github.com/setnxlock/setnxlock/txlock"
)

const ttl = 10 * time.Second

var noon = time.Date(2012, 3, 4, 12, 0, 0, 0, time.UTC) // 1330862400

func options(fence bool) getsetlock.Options {
	return getsetlock.Options{Fence: fence, Nonce: func() string { return "000000000042" }}
}

// Each protocol, as it goes over the wire: a takeover of a lease that ended a
// minute ago, an extension, a release.
func TestProtocols(t *testing.T) {
	for _, c := range []struct {
		name string
		a    protocol.Algorithm
		want string
	}{
		{"classic", getsetlock.Classic{Options: options(false)}, `
SETNX k 1330862410.000000000000042 → 0
GET k → 1330862340.5
GETSET k 1330862410.000000000000042 → 1330862340.5
GET k → 1330862410.000000000000042
GETSET k 1330862420.000000000000042 → 1330862410.000000000000042
GET k → 1330862420.000000000000042
DEL k → 1
`}, {"classic with a fence", getsetlock.Classic{Options: options(true)}, `
MULTI → OK
SETNX k 1330862410.000000000000042 → QUEUED
INCR k:fence:{k} → QUEUED
EXEC → [0 1]
GET k → 1330862340.5
MULTI → OK
GETSET k 1330862410.000000000000042 → QUEUED
INCR k:fence:{k} → QUEUED
EXEC → [1330862340.5 2]
GET k → 1330862410.000000000000042
GETSET k 1330862420.000000000000042 → 1330862410.000000000000042
GET k → 1330862420.000000000000042
DEL k → 1
`}, {"guarded", getsetlock.Guarded{Options: options(false)}, `
SETNX k 1330862410.000000000000042 → 0
WATCH k → OK
GET k → 1330862340.5
MULTI → OK
GETSET k 1330862410.000000000000042 → QUEUED
EXEC → [1330862340.5]
WATCH k → OK
GET k → 1330862410.000000000000042
MULTI → OK
GETSET k 1330862420.000000000000042 → QUEUED
EXEC → [1330862410.000000000000042]
WATCH k → OK
GET k → 1330862420.000000000000042
MULTI → OK
DEL k → QUEUED
EXEC → [1]
`}} {
		s := oldredis.Run(t, "2.2")
		conn := steps.Dial(s)
		conn.Do("SET", "k", "1330862340.5") //nolint:errcheck
		b := s.Record()
		l, err := c.a.Acquire(conn, noon, "k", ttl)
		if err != nil || l.How != protocol.TakenOver {
			t.Fatalf("%s: %s, %v", c.name, l.How, err)
		}
		if l, err = steps.Extend(c.a, conn, noon, l, 2*ttl); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := steps.Release(c.a, conn, l); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if b.String() != c.want[1:] {
			t.Errorf("%s went over the wire as\n%swant\n%s", c.name, b.String(), c.want[1:])
		}
	}
}

// A key that vanishes between SETNX and GET is asked for again, once
// (getset/vanished-key).
func TestVanishedKey(t *testing.T) {
	for _, a := range []protocol.Algorithm{getsetlock.Classic{Options: options(false)}, getsetlock.Guarded{Options: options(false)}} {
		s := oldredis.Run(t, "2.2")
		other := s.Dial()
		other.Do("SET", "k", "1330862499.0") //nolint:errcheck
		c := steps.Instead(s.Dial(), "SETNX", func(run func(...any) any) any { defer other.Do("DEL", "k"); return run() })
		l, err := a.Acquire(c, noon, "k", ttl)
		if err != nil || l.How != protocol.Free {
			t.Errorf("%T: %s, %v; want it free", a, l.How, err)
		}
	}
}

// before is a connection on which another acts before each command of a name.
func before(s *oldredis.Server, name string, act func()) *protocol.Conn {
	return steps.Instead(s.Dial(), name, func(run func(...any) any) any { act(); return run() })
}

// What each dialect writes and reads. Rounding is up, never down: the key must
// not end before the lease does.
func TestDialects(t *testing.T) {
	at := noon.Add(123456789 * time.Nanosecond)
	inclusive, late := getsetlock.Seconds, getsetlock.Millis
	inclusive.Inclusive = true
	late.Plus = time.Millisecond
	for _, c := range []struct {
		name  string
		d     getsetlock.Dialect
		value string
		until time.Time
	}{
		{"seconds +1", getsetlock.Seconds, "1330862402", noon.Add(2 * time.Second)},
		{"float", getsetlock.Float, "1330862400.124999999999999", noon.Add(124999999 * time.Nanosecond)},
		{"millis", getsetlock.Millis, "1330862400124", noon.Add(124 * time.Millisecond)},
		{"millis +1", late, "1330862400125", noon.Add(125 * time.Millisecond)},
		{"nanos", getsetlock.Nanos, "1330862400123456789", at},
	} {
		v := c.d.Format(at, func() string { return "999999999999" })
		if v != c.value {
			t.Errorf("%s writes %s, want %s", c.name, v, c.value)
		}
		if until, ok := c.d.Parse(v); !ok || !until.Equal(c.until) || until.Before(at) {
			t.Errorf("%s reads %s as %v, %v; want %v, not before %v", c.name, v, until, ok, c.until, at)
		}
	}
}

// A zero Dialect is Float, and keeps what it asks for of the comparison.
func TestMarginOfTheZeroDialect(t *testing.T) {
	d := getsetlock.Dialect{Margin: time.Minute}
	for late, dead := range map[time.Duration]bool{59 * time.Second: false, 61 * time.Second: true} {
		if got := d.Dead("1330862400.5", half.Add(late)); got != dead {
			t.Errorf("%v after the end, with a minute's margin: dead %v, want %v", late, got, dead)
		}
	}
}

// Two leases of one instant differ in their nonce; where a dialect has none,
// the lease says that reading it proves nothing (getset/same-stamp).
func TestSameStamp(t *testing.T) {
	s := oldredis.Run(t, "2.2")
	seen := map[string]bool{}
	for i := range 100 {
		l, err := getsetlock.Classic{}.Acquire(steps.Dial(s), noon, fmt.Sprint(i), ttl)
		if err != nil || l.Ambiguous || seen[l.Value] {
			t.Fatalf("%q seen %v, ambiguous %v, %v", l.Value, seen[l.Value], l.Ambiguous, err)
		}
		seen[l.Value] = true
	}
	for name, d := range getsetlock.Dialects() {
		l, err := getsetlock.Classic{Options: getsetlock.Options{Dialect: d}}.Acquire(steps.Dial(s), noon, name, ttl)
		if err != nil || l.Ambiguous == d.Nonce {
			t.Errorf("%s: ambiguous %v, %v", name, l.Ambiguous, err)
		}
	}
}

// A fence needs MULTI, and the lock says so where there is none.
func TestFenceNeedsMulti(t *testing.T) {
	s, err := oldredis.New("2.0", oldredis.Options{Refuse: []string{"MULTI"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = getsetlock.Classic{Options: options(true)}.Traits().Check(steps.Dial(s), "k")
	if !errors.Is(err, protocol.ErrUnsafeServer) || !strings.Contains(err.Error(), "MULTI") {
		t.Errorf("a fence without MULTI: %v", err)
	}
	if err := (getsetlock.Classic{}).Traits().Check(steps.Dial(s), "k"); err != nil {
		t.Errorf("no fence: %v", err)
	}
	if err := (getsetlock.Guarded{}).Traits().Check(steps.Dial(oldredis.Run(t, "2.0")), "k"); !errors.Is(err, protocol.ErrUnsafeServer) {
		t.Errorf("guarded on 2.0: %v", err)
	}
}

// A SETNX whose EXEC ran nothing, since something was watched before, takes nothing.
func TestAbortedAttempt(t *testing.T) {
	for name, lock := range map[string]protocol.Algorithm{
		"classic": getsetlock.Classic{Options: options(true)}, "guarded": getsetlock.Guarded{Options: options(true)},
		"listed": getsetlock.ListCAS{Options: options(true)}, "patient": getsetlock.Patient{Options: options(true), Lease: time.Hour},
		"two keys": getsetlock.TwoKeys{Fence: true}, "txlock": txlock.Classic{Options: txlock.Options{Fence: true}},
	} {
		s := oldredis.Run(t, "2.4")
		c := steps.Dial(s)
		if _, _, err := c.Watch("other"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Dial().Do("SET", "other", "x"); err != nil {
			t.Fatal(err)
		}
		_, err := lock.Acquire(c, time.Now(), "k", time.Minute)
		if !errors.Is(err, protocol.ErrAborted) {
			t.Errorf("%s: %v, want %v", name, err, protocol.ErrAborted)
		}
	}
}

// FuzzParse: whatever a foreign client has written, what is read as a time is
// written in full, and reading what we write gives a time not before the one we meant.
func FuzzParse(f *testing.F) {
	for _, v := range []string{
		"1795238718", "1795238718.94", "1795238718058", "1795238718058123456", "1310551200.0", "2147483649.0",
		"1795238718-4711-70123", "1795238718:4711", "fb2d0a1e-3f44-4e2e-8f0a-000000000000:1795238718058",
		"\x00\x00\x00\x00\x6b\x01\x02\x03", "94213c24deadbeef94213c24deadbeef", "9e99c1", "1", "true", "", "locked",
		"host.example:4711", "ADDED:2017-03-04T05:06:07@host", "NaN", "inf", "0x1p4", "１７９５２３８７１８",
	} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		for _, d := range getsetlock.Dialects() {
			until, ok := d.Parse(v)
			if !ok {
				continue
			}
			if strings.Trim(v, "0123456789.") != "" || len(v) < 10 {
				t.Errorf("%s read %q as a time", d.Name, v)
			}
			d.Plus = 0
			if until.Year() > 2261 { // beyond what Unix nanoseconds hold, and beyond any lease
				continue
			}
			again, ok := d.Parse(d.Format(until, func() string { return "000000000000" }))
			if !ok || again.Before(until) || again.Sub(until) > time.Second {
				t.Errorf("%s: %q is %v, written and read again %v, %v", d.Name, v, until, again, ok)
			}
		}
	})
}
