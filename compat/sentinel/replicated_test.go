package sentinel_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/sentinel"
	"github.com/setnxlock/setnxlock/txlock"
)

// A lock that too few replicas have is released; one that they have is
// extended as long as they have that too.
func TestReplicated(t *testing.T) {
	n, servers := newNetwork(t, "5.0")
	_, addrs := sentinels(t, addr(0))
	k := compat.New(source(t, addrs, n, sentinel.Options{}), sentinel.Replicated{Algorithm: txlock.Renamed{}, Replicas: 2}, compat.Options{})

	servers[0].answer("WAIT", int64(1))
	if _, err := k.TryLock(t.Context(), "k", time.Minute); err == nil || errors.Is(err, compat.ErrUnknown) || !strings.Contains(err.Error(), "1 of 2") {
		t.Errorf("TryLock with one replica of two: %v, want a refusal that says so", err)
	}
	if v, err := servers[0].Dial().Do("GET", "k"); v != nil || err != nil {
		t.Errorf("the key holds %s, %v after that", v, err)
	}

	servers[0].answer("WAIT", int64(2))
	lock, err := k.TryLock(t.Context(), "k", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	servers[0].answer("WAIT", int64(1))
	until := lock.Until()
	if err := lock.Extend(t.Context(), time.Hour); err == nil || errors.Is(err, compat.ErrLost) || !lock.Until().Equal(until) {
		t.Errorf("Extend with one replica of two: %v, until %v; want an error, and the old end, %v", err, lock.Until(), until)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A Timeout of no whole millisecond would be WAIT's for ever: nothing is
// written.
func TestReplicatedTimeout(t *testing.T) {
	n, servers := newNetwork(t, "5.0")
	c, _ := n.dial(t.Context(), addr(0))
	for _, d := range []time.Duration{time.Nanosecond, -time.Second} {
		if _, err := (sentinel.Replicated{Algorithm: txlock.Renamed{}, Timeout: d}).Acquire(c, time.Now(), "k", time.Minute); !errors.Is(err, compat.ErrInvalid) {
			t.Errorf("a timeout of %v: %v, want ErrInvalid", d, err)
		}
	}
	if n, err := redis.Int(servers[0].Dial().Do("DBSIZE")); n != 0 || err != nil {
		t.Errorf("%d keys, %v", n, err)
	}
}

// WAIT, on its own connection, after the writes it is about.
func TestReplicatedWire(t *testing.T) {
	n, servers := newNetwork(t, "5.0")
	c, _ := n.dial(t.Context(), addr(0))
	servers[0].answer("WAIT", int64(1))
	var ran []string
	servers[0].ran = func(name string) { ran = append(ran, name) }
	a := sentinel.Replicated{Algorithm: txlock.Renamed{}}
	l, err := a.Acquire(c, time.Now(), "k", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Extend(c, time.Now(), l, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(ran, " "), "SETEX RENAMENX DEL GET WAIT WATCH GET MULTI EXPIRE EXEC WAIT"; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
}

// Before 3.0 there is no WAIT; and what its Algorithm asks for is asked too.
func TestReplicatedCheck(t *testing.T) {
	for _, c := range []struct {
		version string
		wait    any
		why     string
	}{
		{"2.6", nil, "WAIT"},
		{"2.2", int64(0), "drops the TTL"},
		{"5.0", int64(0), ""},
	} {
		n, servers := newNetwork(t, c.version)
		servers[0].answer("WAIT", c.wait)
		conn, _ := n.dial(t.Context(), addr(0))
		err := sentinel.Replicated{Algorithm: txlock.Renamed{}}.Check(conn, "k")
		if c.why == "" && err != nil || c.why != "" && (!errors.Is(err, compat.ErrUnsafeServer) || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("on %s: %v, want %q", c.version, err, c.why)
		}
		if n, err := redis.Int(servers[0].Dial().Do("DBSIZE")); n != 0 || err != nil {
			t.Errorf("on %s: %d keys left, %v", c.version, n, err)
		}
	}
}
