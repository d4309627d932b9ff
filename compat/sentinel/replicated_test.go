package sentinel_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/sentinel"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// A Timeout of no whole millisecond would be WAIT's for ever: nothing is
// written.
func TestReplicatedTimeout(t *testing.T) {
	n, servers := newNetwork(t, "5.0")
	dialled, _ := n.dial(t.Context(), addr(0))
	c := protocol.NewConn(dialled)
	for _, d := range []time.Duration{time.Nanosecond, -time.Second} {
		a := sentinel.Replicated{Algorithm: txlock.Renamed{}, Timeout: d}
		if _, err := a.Acquire(c, time.Now(), "k", time.Minute); !errors.Is(err, compat.ErrInvalid) {
			t.Errorf("a timeout of %v: %v, want ErrInvalid", d, err)
		}
		if _, _, err := a.Extend(time.Now(), compat.Lease{Key: "k", Value: "v"}, time.Minute, false); !errors.Is(err, compat.ErrInvalid) {
			t.Errorf("an extension with a timeout of %v: %v, want ErrInvalid", d, err)
		}
	}
	if n, err := redis.Int(servers[0].Dial().Do("DBSIZE")); n != 0 || err != nil {
		t.Errorf("%d keys, %v", n, err)
	}
}

// WAIT, on its own connection, after the writes it is about: an extension by
// itself, over a pinned connection, and in a batch.
func TestReplicatedWire(t *testing.T) {
	n, servers := newNetwork(t, "5.0")
	_, addrs := sentinels(t, addr(0))
	servers[0].answer("WAIT", int64(1))
	var ran []string
	servers[0].ran = func(name string) { ran = append(ran, name) }
	wire := func() string {
		all := strings.Join(ran, " ")
		ran = nil
		return all
	}
	a := sentinel.Replicated{Algorithm: txlock.Renamed{}}
	for _, c := range []struct {
		pinned           int
		acquired, extend string
	}{
		{0, "SETEX RENAMENX DEL GET WAIT", "WATCH GET MULTI EXPIRE EXEC WAIT"},
		{2, "SETEX RENAMENX DEL WATCH GET WAIT", "ROLE EXISTS WATCH GET MULTI EXPIRE EXEC WAIT"}, // over another connection
	} {
		from := source(t, addrs, n, sentinel.Options{Recheck: aLongTime}).Source()
		from.Keep, from.Listen = c.pinned, -1
		k := compat.NewOn(from, a, compat.Options{NoRenew: true})
		if first, err := k.TryLock(t.Context(), "checked", time.Minute); err != nil || first.Release(t.Context()) != nil {
			t.Fatal(err)
		}
		wire()
		lock := must.Get(k.TryLock(t.Context(), "k", time.Minute))(t)
		if got := wire(); got != c.acquired {
			t.Errorf("pinned %d: acquired by %s, want %s", c.pinned, got, c.acquired)
		}
		must.Do(t, lock.Extend(t.Context(), time.Minute))
		if got := wire(); got != c.extend {
			t.Errorf("pinned %d: extended by %s, want %s", c.pinned, got, c.extend)
		}
		must.Do(t, lock.Release(t.Context()))
	}

	m, renewed, failed := clock.NewMock(), make(chan bool, 2), make(chan string, 100)
	k := compat.NewOn(source(t, addrs, n, sentinel.Options{Recheck: aLongTime}).Source(), a, compat.Options{Clock: m, Observer: func(e compat.Event) {
		switch e.Kind {
		case compat.EventExtended:
			renewed <- true
		case compat.EventFailed:
			failed <- e.Key
		}
	}})
	for _, key := range []string{"a", "b"} {
		must.Get(k.TryLock(t.Context(), key, time.Minute))(t)
	}
	wire()
	m.Add(20 * time.Second) // the mock does not wait for what it wakes
	for range 2 {
		select {
		case <-renewed:
		case <-time.After(time.Minute):
			t.Fatal("they were not renewed")
		}
	}
	if got, want := wire(), "WATCH GET GET MULTI EXPIRE EXPIRE EXEC WAIT"; got != want {
		t.Errorf("renewed by %s, want %s", got, want)
	}
	servers[0].answer("WAIT", int64(0))
	m.Add(20 * time.Second)
	for missing := map[string]bool{"a": true, "b": true}; len(missing) > 0; {
		select {
		case key := <-failed:
			delete(missing, key)
		case <-renewed:
			t.Fatal("one was renewed, and no replica has it")
		case <-time.After(time.Minute):
			t.Fatal("nothing happened")
		}
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
		err := sentinel.Replicated{Algorithm: txlock.Renamed{}}.Traits().Check(protocol.NewConn(conn), "k")
		if c.why == "" && err != nil || c.why != "" && (!errors.Is(err, compat.ErrUnsafeServer) || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("on %s: %v, want %q", c.version, err, c.why)
		}
		if n, err := redis.Int(servers[0].Dial().Do("DBSIZE")); n != 0 || err != nil {
			t.Errorf("on %s: %d keys left, %v", c.version, n, err)
		}
	}
}

// One replica for 100 ms, unless more is asked for; and what an Algorithm does behind its change, it does first.
func TestReplicatedAsks(t *testing.T) {
	plain := sentinel.Replicated{Algorithm: txlock.Guarded{}}
	for _, c := range []struct {
		a    protocol.Algorithm
		have int64
		want string
		done bool
	}{
		{plain, 0, "1 100", false},
		{plain, 1, "1 100", true},
		{sentinel.Replicated{Algorithm: txlock.Guarded{}, Replicas: 2, Timeout: 1500 * time.Microsecond}, 1, "2 2", false},
		{sentinel.Replicated{Algorithm: plain, Replicas: 2}, 2, "1 100 2 100", true},
		{sentinel.Replicated{Algorithm: plain, Replicas: 2}, 0, "1 100", false},
	} {
		n, _ := newNetwork(t, "5.0")
		dialled, _ := n.dial(t.Context(), addr(0))
		var asked []string
		conn := protocol.NewConn(faulty.Over(dialled, func(m faulty.Message) faulty.Fate {
			if m.Name != "WAIT" {
				return faulty.Fate{}
			}
			asked = append(asked, fmt.Sprint(m.Args...))
			return faulty.Answer(c.have)
		}))
		l, err := c.a.Acquire(conn, time.Now(), "k", time.Minute)
		if got := strings.Join(asked, " "); got != c.want || (err == nil) != c.done {
			t.Errorf("Acquire, %d have it: asked for %s, want %s; %v", c.have, got, c.want, err)
		}
		asked = nil
		_, ch, err := c.a.Extend(time.Now(), l, time.Minute, false)
		if err == nil {
			_, err = conn.Run(ch)
		}
		if got := strings.Join(asked, " "); got != c.want || (err == nil) != c.done {
			t.Errorf("Extend, %d have it: asked for %s, want %s; %v", c.have, got, c.want, err)
		}
	}
}
