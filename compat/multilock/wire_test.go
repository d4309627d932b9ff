package multilock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

const ttl = 10 * time.Second

var (
	background = context.Background()
	noon       = time.Date(2012, 3, 4, 12, 0, 0, 0, time.UTC) // 1330862400
)

func named(fence bool) txlock.Options {
	return txlock.Options{Fence: fence, Token: func() string { return "me" }}
}

// open is a connection that is not closed behind a step.
type open struct{ redis.Conn }

func (open) Close() error { return nil }

// over is the engine's view of a over c.
func over(c redis.Conn, a protocol.Algorithm) compat.Backend {
	return compat.NewBackend(compat.Source{Bounded: true, Get: func(context.Context, string) (redis.Conn, error) { return open{c}, nil }}, a)
}

func extend(c redis.Conn, a protocol.Algorithm, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	return extendAs(c, a, compat.Grant{Lease: l}, ttl)
}

func extendAs(c redis.Conn, a protocol.Algorithm, g compat.Grant, ttl time.Duration) (compat.Lease, error) {
	g, err := over(c, a).Extend(background, func() time.Time { return noon }, g, ttl)
	return g.Lease, err
}

func release(c redis.Conn, a protocol.Algorithm, l compat.Lease) error {
	return over(c, a).Release(background, func() time.Time { return noon }, compat.Grant{Lease: l})
}

func stamped(fence bool) getsetlock.Options {
	return getsetlock.Options{Fence: fence, Nonce: func() string { return "000000000042" }}
}

// Each protocol, as it goes over the wire: an acquisition, an extension, a release.
func TestProtocols(t *testing.T) {
	for _, c := range []struct {
		name string
		a    protocol.Algorithm
		want string
	}{
		{"tx", multilock.Tx{Options: named(false)}, `
WATCH a b → OK
GET a → nil
GET b → nil
MULTI → OK
SETEX a 10 me → QUEUED
SETEX b 10 me → QUEUED
EXEC → [OK OK]
WATCH a b → OK
GET a → me
GET b → me
MULTI → OK
EXPIRE a 20 → QUEUED
EXPIRE b 20 → QUEUED
EXEC → [1 1]
WATCH a b → OK
GET a → me
GET b → me
MULTI → OK
DEL a b → QUEUED
EXEC → [2]
`}, {"tx with a fence", multilock.Tx{Options: named(true)}, `
WATCH a b → OK
GET a → nil
GET b → nil
MULTI → OK
SETEX a 10 me → QUEUED
SETEX b 10 me → QUEUED
INCR a:fence:{a} → QUEUED
INCR b:fence:{b} → QUEUED
EXEC → [OK OK 8 1]
MULTI → OK
INCRBY b:fence:{b} 7 → QUEUED
EXEC → [8]
WATCH a b → OK
GET a → me
GET b → me
MULTI → OK
EXPIRE a 20 → QUEUED
EXPIRE b 20 → QUEUED
EXEC → [1 1]
WATCH a b → OK
GET a → me
GET b → me
MULTI → OK
DEL a b → QUEUED
EXEC → [2]
`}, {"getset", multilock.GetSet{Options: stamped(false)}, `
MSETNX a 1330862410.000000000000042 b 1330862410.000000000000042 → 1
WATCH a b → OK
GET a → 1330862410.000000000000042
GET b → 1330862410.000000000000042
MULTI → OK
MSET a 1330862420.000000000000042 b 1330862420.000000000000042 → QUEUED
EXEC → [OK]
WATCH a b → OK
GET a → 1330862420.000000000000042
GET b → 1330862420.000000000000042
MULTI → OK
DEL a b → QUEUED
EXEC → [2]
`}, {"getset classic with a fence", multilock.GetSetClassic{Options: stamped(true)}, `
MULTI → OK
MSETNX a 1330862410.000000000000042 b 1330862410.000000000000042 → QUEUED
INCR a:fence:{a} → QUEUED
INCR b:fence:{b} → QUEUED
EXEC → [1 8 1]
MULTI → OK
INCRBY b:fence:{b} 7 → QUEUED
EXEC → [8]
GET a → 1330862410.000000000000042
GET b → 1330862410.000000000000042
MULTI → OK
GETSET a 1330862420.000000000000042 → QUEUED
GETSET b 1330862420.000000000000042 → QUEUED
EXEC → [1330862410.000000000000042 1330862410.000000000000042]
GET a → 1330862420.000000000000042
GET b → 1330862420.000000000000042
DEL a b → 2
`}} {
		s := oldredis.Run(t, "2.2")
		conn := s.Dial()
		conn.Do("SET", protocol.Aux("a", "fence"), 7) //nolint:errcheck
		b := s.Record()
		l, err := c.a.Acquire(protocol.NewConn(conn), noon, multilock.Join("b", "a"), ttl)
		if err != nil || l.How != protocol.Free {
			t.Fatalf("%s: %s, %v", c.name, l.How, err)
		}
		if l, err = extend(conn, c.a, l, 2*ttl); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := release(conn, c.a, l); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		compare(t, c.name, b.String(), c.want)
	}
}

// A refusal names the key that is in the way and its end; a takeover of what a
// crash has left is one transaction.
func TestRefusalAndTakeover(t *testing.T) {
	for _, c := range []struct {
		name  string
		a     protocol.Algorithm
		b     string // what stands on b
		want  string
		taken bool
	}{
		{"tx refused", multilock.Tx{Options: named(false)}, "other", `
WATCH a b → OK
GET a → nil
GET b → other
UNWATCH → OK
TTL b → 60
`, false}, {"getset refused", multilock.GetSet{Options: stamped(false)}, "1330862460.0", `
MSETNX a 1330862410.000000000000042 b 1330862410.000000000000042 → 0
WATCH a b → OK
GET a → nil
GET b → 1330862460.0
UNWATCH → OK
`, false}, {"getset takes over", multilock.GetSet{Options: stamped(false)}, "1330862399.0", `
MSETNX a 1330862410.000000000000042 b 1330862410.000000000000042 → 0
WATCH a b → OK
GET a → nil
GET b → 1330862399.0
MULTI → OK
MSET a 1330862410.000000000000042 b 1330862410.000000000000042 → QUEUED
EXEC → [OK]
`, true}, {"getset classic refused", multilock.GetSetClassic{Options: stamped(false)}, "1330862460.0", `
MSETNX a 1330862410.000000000000042 b 1330862410.000000000000042 → 0
GET a → nil
GET b → 1330862460.0
`, false}, {"getset classic takes over", multilock.GetSetClassic{Options: stamped(false)}, "1330862399.0", `
MSETNX a 1330862410.000000000000042 b 1330862410.000000000000042 → 0
GET a → nil
GET b → 1330862399.0
MULTI → OK
GETSET a 1330862410.000000000000042 → QUEUED
GETSET b 1330862410.000000000000042 → QUEUED
EXEC → [nil 1330862399.0]
`, true}} {
		s := oldredis.Run(t, "2.2")
		conn := s.Dial()
		conn.Do("SET", "b", c.b) //nolint:errcheck
		if strings.HasPrefix(c.name, "tx") {
			conn.Do("EXPIRE", "b", 60) //nolint:errcheck
		}
		b := s.Record()
		l, err := c.a.Acquire(protocol.NewConn(conn), noon, multilock.Join("a", "b"), ttl)
		compare(t, c.name, b.String(), c.want)
		if c.taken {
			if err != nil || l.How != protocol.TakenOver {
				t.Errorf("%s: %s, %v", c.name, l.How, err)
			}
			continue
		}
		var held *compat.HeldError
		if !errors.As(err, &held) || held.Key != "b" || !held.Until.Equal(noon.Add(time.Minute)) {
			t.Errorf("%s: %v, want that b is held for a minute", c.name, err)
		}
	}
}

func compare(t *testing.T, name, got, want string) {
	t.Helper()
	if got != want[1:] {
		t.Errorf("%s went over the wire as\n%swant\n%s", name, got, want[1:])
	}
}

// The table of costs in the package's comment.
func TestRoundTrips(t *testing.T) {
	for _, c := range []struct {
		name                              string
		a                                 protocol.Algorithm
		acquire, refused, extend, release int
	}{
		{"Tx", multilock.Tx{}, 2, 2, 2, 2},
		{"GetSet", multilock.GetSet{}, 1, 3, 2, 2},
		{"GetSetClassic", multilock.GetSetClassic{}, 1, 2, 2, 2},
	} {
		net := new(faulty.Network)
		conn := net.Conn(oldredis.Run(t, "2.2").Dial())
		took := func() int { defer net.Expect(nil); return net.Writes() }
		set := multilock.Join("a", "b", "c", "d", "e")
		l, err := c.a.Acquire(protocol.NewConn(conn), noon, set, ttl)
		if n := took(); err != nil || n != c.acquire {
			t.Errorf("%s: acquired in %d round trips, want %d; %v", c.name, n, c.acquire, err)
		}
		_, err = c.a.Acquire(protocol.NewConn(conn), noon, multilock.Join("0", "e"), ttl)
		if n := took(); !errors.Is(err, compat.ErrHeld) || n != c.refused {
			t.Errorf("%s: refused in %d round trips, want %d; %v", c.name, n, c.refused, err)
		}
		l, err = extend(conn, c.a, l, ttl)
		if n := took(); err != nil || n != c.extend {
			t.Errorf("%s: extended in %d round trips, want %d; %v", c.name, n, c.extend, err)
		}
		err = release(conn, c.a, l)
		if n := took(); err != nil || n != c.release {
			t.Errorf("%s: released in %d round trips, want %d; %v", c.name, n, c.release, err)
		}
	}
}

// Where there is no WATCH, one that another came before has nothing, keeps nothing, and knows nothing by its own
// time on the keys.
func TestClassicOvertaken(t *testing.T) {
	const past, future = "1330862300.5", "1330862460.5"
	a, key := multilock.GetSetClassic{}, multilock.Join("a", "b")
	run := func(s *oldredis.Server, h faulty.Hook) *protocol.Conn {
		return protocol.NewConn(faulty.Over(s.Dial(), h))
	}
	faster := func(s *oldredis.Server) faulty.Hook {
		return faulty.First(func() { s.Dial().Do("SET", "b", future) }).Of("MULTI") //nolint:errcheck
	}
	value := func(s *oldredis.Server, key string) string {
		v, _ := redis.String(s.Dial().Do("GET", key))
		return v
	}
	dead := func() *oldredis.Server {
		s := oldredis.Run(t, "2.0")
		s.Dial().Do("MSET", "a", past, "b", past) //nolint:errcheck
		return s
	}
	s := dead()
	_, err := a.Acquire(run(s, faster(s)), noon, key, ttl)
	if !errors.Is(err, compat.ErrHeld) || value(s, "a") != "" {
		t.Errorf("a takeover that came second: %v, and the first key holds %q", err, value(s, "a"))
	}
	s = dead()
	unanswered := run(s, faulty.Fate{Loss: faulty.LostReply}.Of("EXEC"))
	if l, err := a.Acquire(unanswered, noon, key, ttl); err == nil || !l.Ambiguous {
		t.Errorf("a takeover whose reply was lost: ambiguous %v, %v", l.Ambiguous, err)
	}
	s = dead()
	l := must.Get(a.Acquire(protocol.NewConn(s.Dial()), noon, key, ttl))(t)
	_, ch, err := a.Extend(noon, l, 2*ttl, false)
	if err == nil {
		_, err = run(s, faster(s)).Run(ch)
	}
	if !errors.Is(err, compat.ErrLost) || value(s, "a") != "" && value(s, "a") != l.Value {
		t.Errorf("an extension that came second: %v, and the first key holds %q", err, value(s, "a"))
	}
}

// Of a set only the key is given an end that was watched, and one that is found ends with its first key.
func TestKeysOfASetApart(t *testing.T) {
	s := oldredis.Run(t, "2.6")
	c := s.Dial()
	b := multilock.New(compat.Pooled(s), txlock.Classic{})
	key := multilock.Join("a", "b")
	c.Do("MSET", "a", "one", "b", "other") //nolint:errcheck
	err := b.Repair(t.Context(), s.Now, compat.State{Key: key, Value: "other", Status: compat.StatusPersistent, TTL: compat.NoTTL}, ttl)
	first, _ := redis.Int(c.Do("TTL", "a"))
	second, _ := redis.Int(c.Do("TTL", "b"))
	if err != nil || first != -1 || second <= 0 {
		t.Errorf("repaired: %v, with TTLs of %d and %d", err, first, second)
	}
	c.Do("DEL", "a", "b") //nolint:errcheck
	l := must.Get(b.Acquire(t.Context(), s.Now, key, ttl))(t)
	c.Do("EXPIRE", "b", 100) //nolint:errcheck
	c.Do("EXPIRE", "a", 5)   //nolint:errcheck
	// At the latest: a TTL is cut to seconds.
	if found, err := b.Find(t.Context(), s.Now, key, l.Value); err != nil || found.Until.Sub(s.Now()).Round(time.Second) != 6*time.Second {
		t.Errorf("found: %v, for %v", err, found.Until.Sub(s.Now()))
	}
}

// A set is taken over if all its keys are dead, whichever stands first.
func TestOneOfTwoLives(t *testing.T) {
	const past, future = "1330862300.5", "1330862460.5"
	for _, a := range []protocol.Algorithm{multilock.GetSet{}, multilock.GetSetClassic{}} {
		for _, on := range [][2]string{{past, future}, {future, past}} {
			s := oldredis.Run(t, "2.4")
			c := s.Dial()
			c.Do("MSET", "a", on[0], "b", on[1]) //nolint:errcheck
			if _, err := a.Acquire(protocol.NewConn(s.Dial()), noon, multilock.Join("a", "b"), ttl); !errors.Is(err, compat.ErrHeld) {
				t.Errorf("%T: %v, want ErrHeld", a, err)
			}
			if left, err := redis.Strings(c.Do("MGET", "a", "b")); err != nil || [2]string(left) != on {
				t.Errorf("%T: the keys hold %v, %v; want %v", a, left, err, on)
			}
		}
	}
}

// An old server runs an EXEC although a watched key has expired: the set is lost then, and the rest released.
func TestOneExpiresUnderItsWatch(t *testing.T) {
	a := multilock.Tx{}
	for name, change := range map[string]func(s *oldredis.Server, l compat.Lease) (protocol.Change, error){
		"Extend": func(s *oldredis.Server, l compat.Lease) (protocol.Change, error) {
			_, ch, err := a.Extend(s.Now(), l, ttl, false)
			return ch, err
		},
		"Release": func(_ *oldredis.Server, l compat.Lease) (protocol.Change, error) { return a.Release(l), nil },
	} {
		s := oldredis.Run(t, "2.4")
		l := must.Get(a.Acquire(protocol.NewConn(s.Dial()), s.Now(), multilock.Join("a", "b"), 10*ttl))(t)
		s.Dial().Do("EXPIRE", "b", 5) //nolint:errcheck
		once := sync.OnceFunc(func() { s.Advance(6 * time.Second) })
		ch, err := change(s, l)
		if err == nil {
			_, err = protocol.NewConn(faulty.Over(s.Dial(), faulty.First(once).Of("MULTI"))).Run(ch)
		}
		if left, _ := redis.Strings(s.Dial().Do("KEYS", "*")); !errors.Is(err, compat.ErrLost) || len(left) > 0 {
			t.Errorf("%s: %v, and %v are left; want ErrLost, and none", name, err, left)
		}
	}
}

// An extension changes the token if it is to, and draws a fence where there is none.
func TestTxRotatesAndDraws(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	a := multilock.Tx{Options: txlock.Options{Fence: true}}
	l := must.Get(a.Acquire(protocol.NewConn(s.Dial()), noon, multilock.Join("a", "b"), ttl))(t)
	was := l
	l.Fence = 0
	next, err := extendAs(s.Dial(), a, compat.Grant{Lease: l, Rotate: true}, ttl)
	held, _ := redis.Strings(s.Dial().Do("MGET", "a", "b"))
	if err != nil || next.Value == was.Value || next.Fence <= was.Fence || held[0] != next.Value || held[1] != next.Value {
		t.Errorf("%+v, %v, and the keys hold %v; before it was %+v", next, err, held, was)
	}
}
