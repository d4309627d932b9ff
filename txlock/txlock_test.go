package txlock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/steps"
	"github.com/setnxlock/setnxlock/txlock"
)

const ttl = 10 * time.Second

func options(token string) txlock.Options {
	return txlock.Options{Token: func() string { return token }}
}

// Each way to acquire, as it goes over the wire.
func TestAcquire(t *testing.T) {
	fenced, millis := options("me"), options("me")
	fenced.Fence, millis.Millis = true, true
	for _, c := range []struct {
		name string
		a    protocol.Algorithm
		want string
	}{
		{"classic", txlock.Classic{Options: options("me")}, `
SETNX k me → 1
EXPIRE k 10 → 1
GET k → me
`}, {"classic with a fence", txlock.Classic{Options: fenced}, `
MULTI → OK
SETNX k me → QUEUED
INCR k:fence:{k} → QUEUED
EXEC → [1 1]
EXPIRE k 10 → 1
GET k → me
`}, {"guarded", txlock.Guarded{Options: options("me")}, `
WATCH k → OK
GET k → nil
MULTI → OK
SETEX k 10 me → QUEUED
EXEC → [OK]
`}, {"guarded in milliseconds", txlock.Guarded{Options: millis}, `
WATCH k → OK
GET k → nil
MULTI → OK
PSETEX k 10000 me → QUEUED
EXEC → [OK]
`}, {"renamed", txlock.Renamed{Options: options("me")}, `
SETEX k:me:{k} 10 me → OK
RENAMENX k:me:{k} k → 1
DEL k:me:{k} → 0
GET k → me
`}, {"renamed with a fence", txlock.Renamed{Options: fenced}, `
SETEX k:me:{k} 10 me → OK
MULTI → OK
RENAMENX k:me:{k} k → QUEUED
INCR k:fence:{k} → QUEUED
EXEC → [1 1]
DEL k:me:{k} → 0
GET k → me
`}} {
		s := oldredis.Run(t, "2.6")
		got := s.Record()
		if _, err := c.a.Acquire(steps.Dial(s), s.Now(), "k", ttl); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got.String() != c.want[1:] {
			t.Errorf("%s went over the wire as\n%swant\n%s", c.name, got, c.want[1:])
		}
	}
}

// Extension and release are the same for all.
func TestExtendAndRelease(t *testing.T) {
	millis := options("me")
	millis.Millis = true
	for _, a := range []protocol.Algorithm{
		txlock.Classic{Options: options("me")}, txlock.Guarded{Options: options("me")}, txlock.Renamed{Options: options("me")}, txlock.Renamed{Options: millis},
	} {
		s := oldredis.Run(t, "2.6")
		c := steps.Dial(s)
		l, err := a.Acquire(c, s.Now(), "k", ttl)
		if err != nil {
			t.Fatalf("%T: %v", a, err)
		}
		got := s.Record()
		if l, err = steps.Extend(a, c, s.Now(), l, 2*ttl); err != nil {
			t.Fatalf("%T: %v", a, err)
		}
		if err := steps.Release(a, c, l); err != nil {
			t.Fatalf("%T: %v", a, err)
		}
		want := `WATCH k → OK
GET k → me
MULTI → OK
EXPIRE k 20 → QUEUED
EXEC → [1]
WATCH k → OK
GET k → me
MULTI → OK
DEL k → QUEUED
EXEC → [1]
`
		if strings.ReplaceAll(got.String(), "PEXPIRE k 20000", "EXPIRE k 20") != want {
			t.Errorf("%T went over the wire as\n%swant\n%s", a, got, want)
		}
	}
}

// A refusal writes nothing to the key, and each says who has it as far as it
// knows.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		a    protocol.Algorithm
		want string
	}{
		{"classic", txlock.Classic{Options: options("me")}, "SETNX k me → 0\n"},
		{"guarded", txlock.Guarded{Options: options("me")}, "WATCH k → OK\nGET k → other\nUNWATCH → OK\n"},
		{"renamed", txlock.Renamed{Options: options("me")}, "SETEX k:me:{k} 10 me → OK\nRENAMENX k:me:{k} k → 0\nDEL k:me:{k} → 1\nGET k → other\n"},
	} {
		s := oldredis.Run(t, "2.4")
		conn := steps.Dial(s)
		conn.Do("SET", "k", "other") //nolint:errcheck
		b := s.Record()
		if _, err := c.a.Acquire(conn, s.Now(), "k", ttl); !errors.Is(err, protocol.ErrHeld) {
			t.Errorf("%s: %v, want ErrHeld", c.name, err)
		}
		if b.String() != c.want {
			t.Errorf("%s went over the wire as\n%swant\n%s", c.name, b.String(), c.want)
		}
	}
}

// The EXPIRE that arrives when the key was repaired, ran out and was taken by
// another: the first learns that it lost.
func TestClassicThatWasOvertaken(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	other := s.Dial()
	a := txlock.Classic{Options: options("me")}
	slow := steps.Instead(s.Dial(), "SETNX", func(run func(...any) any) any {
		defer other.Do("SETNX", "k", "other") //nolint:errcheck
		defer other.Do("DEL", "k")            //nolint:errcheck
		return run()
	})
	if _, err := a.Acquire(slow, s.Now(), "k", ttl); !errors.Is(err, protocol.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
}

// One that was overtaken between its look and its EXEC is refused.
func TestGuardedThatWasOvertaken(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	slow := steps.Instead(s.Dial(), "MULTI", func(run func(...any) any) any {
		s.Dial().Do("SETEX", "k", 60, "other") //nolint:errcheck
		return run()
	})
	a := txlock.Guarded{Options: options("me")}
	if _, err := a.Acquire(slow, s.Now(), "k", ttl); !errors.Is(err, protocol.ErrHeld) {
		t.Errorf("%v, want ErrHeld", err)
	}
}
