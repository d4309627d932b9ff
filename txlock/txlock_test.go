package txlock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/txlock"
)

const ttl = 10 * time.Second

func options(token string) txlock.Options {
	return txlock.Options{Token: func() string { return token }}
}

// dial returns a connection for algorithms that are run without a Locker.
func dial(s *oldredis.Server) *compat.Conn { return compat.NewConn(s.Dial()) }

// extend carries out an extension of l over c.
func extend(a compat.Algorithm, c *compat.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	next, ch, err := a.Extend(now, l, ttl)
	if err == nil {
		_, err = c.Run(ch)
	}
	return next, err
}

// release carries out a release of l over c.
func release(a compat.Algorithm, c *compat.Conn, l compat.Lease) error {
	_, err := c.Run(a.Release(l))
	return err
}

// Each way to acquire, as it goes over the wire.
func TestAcquire(t *testing.T) {
	fenced, millis := options("me"), options("me")
	fenced.Fence, millis.Millis = true, true
	for _, c := range []struct {
		name string
		a    compat.Algorithm
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
		if _, err := c.a.Acquire(dial(s), s.Now(), "k", ttl); err != nil {
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
	for _, a := range []compat.Algorithm{
		txlock.Classic{Options: options("me")}, txlock.Guarded{Options: options("me")}, txlock.Renamed{Options: options("me")}, txlock.Renamed{Options: millis},
	} {
		s := oldredis.Run(t, "2.6")
		c := dial(s)
		l, err := a.Acquire(c, s.Now(), "k", ttl)
		if err != nil {
			t.Fatalf("%T: %v", a, err)
		}
		got := s.Record()
		if l, err = extend(a, c, s.Now(), l, 2*ttl); err != nil {
			t.Fatalf("%T: %v", a, err)
		}
		if err := release(a, c, l); err != nil {
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
		a    compat.Algorithm
		want string
	}{
		{"classic", txlock.Classic{Options: options("me")}, "SETNX k me → 0\n"},
		{"guarded", txlock.Guarded{Options: options("me")}, "WATCH k → OK\nGET k → other\nUNWATCH → OK\n"},
		{"renamed", txlock.Renamed{Options: options("me")}, "SETEX k:me:{k} 10 me → OK\nRENAMENX k:me:{k} k → 0\nDEL k:me:{k} → 1\nGET k → other\n"},
	} {
		s := oldredis.Run(t, "2.4")
		conn := dial(s)
		conn.Do("SET", "k", "other") //nolint:errcheck
		b := s.Record()
		if _, err := c.a.Acquire(conn, s.Now(), "k", ttl); !errors.Is(err, compat.ErrHeld) {
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
	slow := compat.NewConn(&overtaken{Conn: s.Dial(), other: func() {
		other.Do("DEL", "k")            //nolint:errcheck
		other.Do("SETNX", "k", "other") //nolint:errcheck
	}})
	if _, err := a.Acquire(slow, s.Now(), "k", ttl); !errors.Is(err, compat.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
}

// One that was overtaken between its look and its EXEC is refused.
func TestGuardedThatWasOvertaken(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	slow := touching{s.Dial(), func() { s.Dial().Do("SETEX", "k", 60, "other") }} //nolint:errcheck
	if _, err := (txlock.Guarded{Options: options("me")}).Acquire(compat.NewConn(slow), s.Now(), "k", ttl); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("%v, want ErrHeld", err)
	}
}

// overtaken lets another act after the first command.
type overtaken struct {
	redis.Conn
	other func()
	sent  bool
}

func (o *overtaken) Send(name string, args ...any) error {
	o.sent = o.sent || name == "SETNX"
	return o.Conn.Send(name, args...)
}

func (o *overtaken) Do(name string, args ...any) (any, error) {
	reply, err := o.Conn.Do(name, args...)
	if name == "SETNX" || o.sent {
		o.sent = false
		o.other()
	}
	return reply, err
}

// A renewal of our own between a release's GET and its EXEC aborts it; one more
// look tells that the lock is still ours (tx/renewal-aborts-release).
func TestRenewalAbortsRelease(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	a := txlock.Renamed{Options: options("me")}
	c, renewer := s.Dial(), s.Dial()
	l, err := a.Acquire(compat.NewConn(c), s.Now(), "k", ttl)
	if err != nil {
		t.Fatal(err)
	}
	aborts := 0
	interfering := touching{c, func() {
		if aborts++; aborts == 1 {
			renewer.Do("EXPIRE", "k", 10) //nolint:errcheck
		}
	}}
	if err := release(a, compat.NewConn(interfering), l); err != nil || aborts != 2 {
		t.Errorf("Release: %v after %d transactions, want success at the second", err, aborts)
	}
}

// touching lets another act before each MULTI.
type touching struct {
	redis.Conn
	other func()
}

func (o touching) Send(name string, args ...any) error {
	if name == "MULTI" {
		o.other()
	}
	return o.Conn.Send(name, args...)
}

// A lacking is a server that does not have a command.
type lacking struct {
	redis.Conn
	name string
}

func (c lacking) Send(name string, args ...any) error {
	if name == c.name {
		name = "NOSUCH"
	}
	return c.Conn.Send(name, args...)
}

// The check asks for every command that counts in milliseconds.
func TestCheckMillis(t *testing.T) {
	for _, name := range []string{"PSETEX", "PEXPIRE", "PTTL"} {
		c := compat.NewConn(lacking{oldredis.Run(t, "7.0").Dial(), name})
		if err := (txlock.Guarded{Options: txlock.Options{Millis: true}}).Traits().Check(c, "k"); !errors.Is(err, compat.ErrUnsafeServer) {
			t.Errorf("without %s: %v, want ErrUnsafeServer", name, err)
		}
	}
}

// Every variant refuses a server on which it excludes nobody, and each says why.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		a       compat.Algorithm
		version string
		why     string // "" : safe
	}{
		{txlock.Classic{}, "2.0", "WATCH"}, {txlock.Guarded{}, "1.2", "WATCH"}, {txlock.Renamed{}, "2.0", "WATCH"},
		{txlock.Classic{}, "2.2", ""}, {txlock.Guarded{}, "2.2", ""}, {txlock.Renamed{}, "2.2", "drops the TTL"}, {txlock.Renamed{}, "2.4", ""},
		{txlock.Renamed{Options: txlock.Options{Millis: true}}, "2.4", "whole seconds"},
		{txlock.Renamed{Options: txlock.Options{Millis: true}}, "2.6", ""},
		{txlock.Classic{}, "7.0", ""}, {txlock.Renamed{}, "noscript", ""},
	} {
		s := oldredis.Run(t, c.version)
		err := c.a.Traits().Check(dial(s), "k")
		if c.why == "" && err != nil || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%T on %s: %v, want %q", c.a, c.version, err, c.why)
		}
		if keys, _ := redis.Strings(s.Dial().Do("KEYS", "*")); len(keys) != 0 {
			t.Errorf("%T on %s left %q behind", c.a, c.version, keys)
		}
	}
}
