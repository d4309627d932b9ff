package txlock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/txlock"
)

const ttl = 10 * time.Second

func options(token string) txlock.Options {
	return txlock.Options{Token: func() string { return token }}
}

// dial returns a connection for algorithms that are run without a Locker.
func dial(s *oldredis.Server) *protocol.Conn { return protocol.NewConn(s.Dial()) }

// extend carries out an extension of l over c.
func extend(a protocol.Algorithm, c *protocol.Conn, now time.Time, l protocol.Lease, ttl time.Duration) (protocol.Lease, error) {
	next, ch, err := a.Extend(now, l, ttl, false)
	if err == nil {
		_, err = c.Run(ch)
	}
	return next, err
}

// release carries out a release of l over c.
func release(a protocol.Algorithm, c *protocol.Conn, l protocol.Lease) error {
	_, err := c.Run(a.Release(l))
	return err
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
	for _, a := range []protocol.Algorithm{
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
		a    protocol.Algorithm
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
	slow := meddled(s.Dial(), "SETNX", func(run func(...any) any) any {
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
	slow := meddled(s.Dial(), "MULTI", func(run func(...any) any) any {
		s.Dial().Do("SETEX", "k", 60, "other") //nolint:errcheck
		return run()
	})
	a := txlock.Guarded{Options: options("me")}
	if _, err := a.Acquire(slow, s.Now(), "k", ttl); !errors.Is(err, protocol.ErrHeld) {
		t.Errorf("%v, want ErrHeld", err)
	}
}

// meddled is c, on which serve answers in place of the server, or beside it, each command of a name.
func meddled(c redis.Conn, name string, serve func(run func(...any) any) any) *protocol.Conn {
	net := new(conformance.Network)
	net.Expect(conformance.Fate{Serve: serve}.Of(name))
	return protocol.NewConn(net.Conn(c))
}

// A renewal of our own between a release's GET and its EXEC aborts it; one more
// look tells that the lock is still ours (tx/renewal-aborts-release).
func TestRenewalAbortsRelease(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	a := txlock.Renamed{Options: options("me")}
	c, renewer := s.Dial(), s.Dial()
	l, err := a.Acquire(protocol.NewConn(c), s.Now(), "k", ttl)
	if err != nil {
		t.Fatal(err)
	}
	aborts := 0
	interfering := meddled(c, "MULTI", func(run func(...any) any) any {
		if aborts++; aborts == 1 {
			renewer.Do("EXPIRE", "k", 10) //nolint:errcheck
		}
		return run()
	})
	if err := release(a, interfering, l); err != nil || aborts != 2 {
		t.Errorf("Release: %v after %d transactions, want success at the second", err, aborts)
	}
}

// The check asks for every command that counts in milliseconds.
func TestCheckMillis(t *testing.T) {
	for _, name := range []string{"PSETEX", "PEXPIRE", "PTTL"} {
		c := meddled(oldredis.Run(t, "7.0").Dial(), name, func(run func(...any) any) any { return run("NOSUCH") })
		if err := (txlock.Guarded{Options: txlock.Options{Millis: true}}).Traits().Check(c, "k"); !errors.Is(err, protocol.ErrUnsafeServer) {
			t.Errorf("without %s: %v, want ErrUnsafeServer", name, err)
		}
	}
}

// Every variant refuses a server on which it excludes nobody, and each says why.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		a       protocol.Algorithm
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
