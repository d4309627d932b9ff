package broken_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/catalogue/broken"
	"github.com/setnxlock/setnxlock/compat/setlock"
)

const ttl = 10 * time.Second

// published is the lock of a name.
func published(t *testing.T, name string, token func() string, fence bool) compat.Algorithm {
	t.Helper()
	list := broken.Published()
	i := slices.IndexFunc(list, func(l broken.Lock) bool { return l.Name == name })
	if i < 0 {
		t.Fatalf("no %s", name)
	}
	return list[i].New(token, fence)
}

// since runs f on each embedded version from the given one on.
func since(t *testing.T, first string, f func(t *testing.T, s *oldredis.Server)) {
	for _, v := range oldredis.Versions() {
		if !ability.Older(v, first) {
			t.Run(v, func(t *testing.T) { f(t, oldredis.Run(t, v)) })
		}
	}
}

func acquire(t *testing.T, s *oldredis.Server, a compat.Algorithm, ttl time.Duration) compat.Lease {
	t.Helper()
	l, err := a.Acquire(compat.NewConn(s.Dial()), s.Now(), "k", ttl)
	if err != nil {
		t.Fatalf("%T: Acquire: %v", a, err)
	}
	return l
}

func refused(t *testing.T, s *oldredis.Server, a compat.Algorithm) {
	t.Helper()
	if _, err := a.Acquire(compat.NewConn(s.Dial()), s.Now(), "k", ttl); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("%T: %v, want ErrHeld", a, err)
	}
}

func extend(c redis.Conn, s *oldredis.Server, a compat.Algorithm, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	next, ch, err := a.Extend(s.Now(), l, ttl)
	if err == nil {
		var replies []any
		if replies, err = compat.NewConn(c).Run(ch); err == nil && ch.Draw {
			next.Fence, err = redis.Int64(replies[len(replies)-1], nil)
		}
	}
	return next, err
}

func release(c redis.Conn, a compat.Algorithm, l compat.Lease) error {
	_, err := compat.NewConn(c).Run(a.Release(l))
	return err
}

func do(t *testing.T, s *oldredis.Server, name string, args ...any) any {
	t.Helper()
	reply, err := s.Dial().Do(name, args...)
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return reply
}

// hooked is a connection on which others act just before its next command of that name, or, if
// after is true, just after it.
type hooked struct {
	redis.Conn
	name  string
	after bool
	act   func()
}

func (c *hooked) Do(name string, args ...any) (any, error) {
	act := c.act
	if name == c.name {
		c.act = nil
	} else {
		act = nil
	}
	if act != nil && !c.after {
		act()
	}
	reply, err := c.Conn.Do(name, args...)
	if act != nil && c.after {
		act()
	}
	return reply, err
}

// Undisturbed, each does what it says, with and without a fence: it excludes its own kind, is
// extended, and is lost once it was released. What it lacks on a server, its check finds.
func TestPublished(t *testing.T) {
	for _, c := range []struct {
		name, since string
		fence       bool
	}{
		{name: "set:published", since: "2.6.12"}, {name: "set:published", since: "2.6.12", fence: true},
		{name: "set:redis-py", since: "2.6.12"}, {name: "set:redis-py", since: "2.6.12", fence: true},
		{name: "tx:classic/published", since: "2.2"}, {name: "tx:classic/published", since: "2.2", fence: true},
		{name: "rw:write/published", since: "2.2"},
	} {
		a := published(t, c.name, compat.NewToken, c.fence)
		for _, v := range oldredis.Versions() {
			s := oldredis.Run(t, v)
			err := a.Traits().Check(compat.NewConn(s.Dial()), "k")
			if ability.Older(v, c.since) {
				if !errors.Is(err, compat.ErrUnsafeServer) {
					t.Errorf("%s on %s: its check: %v", c.name, v, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s on %s: its check: %v", c.name, v, err)
			}
			l := acquire(t, s, a, ttl)
			if (l.Fence > 0) != c.fence {
				t.Errorf("%s on %s: fence %d", c.name, v, l.Fence)
			}
			refused(t, s, a)
			l.Fence, l.Rotate = 0, !a.Traits().Rotates // a lock that can't change its token keeps it
			next, err := extend(s.Dial(), s, a, l, 2*ttl)
			if err != nil || next.Value != l.Value || (next.Fence > 0) != c.fence {
				t.Errorf("%s on %s: extended to %+v, %v", c.name, v, next, err)
			}
			s.Advance(ttl + time.Second)
			st, err := a.Inspect(compat.NewConn(s.Dial()), s.Now(), "k")
			if err != nil || st.Value != l.Value || st.Status != compat.StatusHeld {
				t.Errorf("%s on %s: %+v, %v; want held by %q", c.name, v, st, err, l.Value)
			}
			if err := release(s.Dial(), a, next); err != nil {
				t.Errorf("%s on %s: Release: %v", c.name, v, err)
			}
			if _, err := extend(s.Dial(), s, a, next, ttl); !errors.Is(err, compat.ErrLost) {
				t.Errorf("%s on %s: extended after its release: %v", c.name, v, err)
			}
			if err := release(s.Dial(), a, next); !errors.Is(err, compat.ErrLost) {
				t.Errorf("%s on %s: a second Release: %v", c.name, v, err)
			}
		}
	}
}

// What each sends to acquire, when it is refused, to extend and to release.
func TestWire(t *testing.T) {
	me := func() string { return "me" }
	for _, c := range []struct {
		a    compat.Algorithm
		want string
	}{
		{published(t, "set:published", me, false), `SET k me NX PX 10000 → OK
SET k me NX PX 10000 → nil
GET k → me
PEXPIRE k 20000 → 1
GET k → me
DEL k → 1
`},
		{published(t, "set:published", me, true), `MULTI → OK
SET k me NX PX 10000 → QUEUED
INCR k:fence:{k} → QUEUED
EXEC → [OK 1]
MULTI → OK
SET k me NX PX 10000 → QUEUED
INCR k:fence:{k} → QUEUED
EXEC → [nil 2]
GET k → me
PEXPIRE k 20000 → 1
GET k → me
DEL k → 1
`},
		{published(t, "tx:classic/published", me, false), `SETNX k me → 1
EXPIRE k 10 → 1
GET k → me
SETNX k me → 0
TTL k → 10
WATCH k → OK
GET k → me
MULTI → OK
EXPIRE k 20 → QUEUED
EXEC → [1]
WATCH k → OK
GET k → me
MULTI → OK
DEL k → QUEUED
EXEC → [1]
`},
	} {
		s := oldredis.Run(t, "2.6.12")
		conn := s.Dial()
		got := s.Record()
		l, err := c.a.Acquire(compat.NewConn(conn), s.Now(), "k", ttl)
		if err != nil {
			t.Fatalf("%T: %v", c.a, err)
		}
		if _, err := c.a.Acquire(compat.NewConn(conn), s.Now(), "k", ttl); !errors.Is(err, compat.ErrHeld) {
			t.Errorf("%T: %v, want ErrHeld", c.a, err)
		}
		if l, err = extend(conn, s, c.a, l, 2*ttl); err == nil {
			err = release(conn, c.a, l)
		}
		if err != nil || got.String() != c.want {
			t.Errorf("%T went over the wire, %v, as\n%swant\n%s", c.a, err, got, c.want)
		}
	}
}

// set/compare-then-del: between the GET and the DEL the lease ends, another takes the key, and
// loses it.
func TestCompareThenDel(t *testing.T) {
	for _, name := range []string{"set:published", "rw:write/published"} {
		since(t, "2.6.12", func(t *testing.T, s *oldredis.Server) {
			a := published(t, name, compat.NewToken, false)
			l := acquire(t, s, a, ttl)
			c := &hooked{Conn: s.Dial(), name: "DEL", act: func() {
				s.Advance(ttl + time.Second)
				acquire(t, s, a, ttl)
			}}
			if err := release(c, a, l); err != nil {
				t.Errorf("%s noticed: %v", name, err)
			}
			acquire(t, s, a, ttl)
		})
	}
}

// set/extend-adds: three renewals, each after a third of the lease, and the key of a dead holder
// stands for three leases instead of one.
func TestExtendAdds(t *testing.T) {
	for _, c := range []struct {
		a    compat.Algorithm
		want time.Duration
	}{{setlock.Lua{}, 9 * time.Second}, {published(t, "set:redis-py", compat.NewToken, false), 9*time.Second + 3*6*time.Second}} {
		s := oldredis.Run(t, "7.0")
		l := acquire(t, s, c.a, 9*time.Second)
		for range 3 {
			s.Advance(3 * time.Second)
			var err error
			if l, err = extend(s.Dial(), s, c.a, l, 9*time.Second); err != nil {
				t.Fatalf("%T: %v", c.a, err)
			}
		}
		if !l.Until.Equal(compat.Until(s.Now(), 9*time.Second)) {
			t.Errorf("%T: until %v", c.a, l.Until)
		}
		st, err := c.a.Inspect(compat.NewConn(s.Dial()), s.Now(), "k")
		if err != nil || st.TTL != c.want {
			t.Errorf("%T: a TTL of %v, %v; want %v", c.a, st.TTL, err, c.want)
		}
	}
}

// tx/ttl-repair: a holder between its SETNX and its EXPIRE gets another's TTL, and so does a
// timestamp, whose lock has none.
func TestRepairOfALiveHolder(t *testing.T) {
	a := published(t, "tx:classic/published", compat.NewToken, false)
	for _, value := range []string{"token", "1330837567.000"} {
		s := oldredis.Run(t, "2.4")
		do(t, s, "SETNX", "k", value)
		refused(t, s, a)
		if left := do(t, s, "TTL", "k"); left != int64(10) {
			t.Errorf("%s: TTL %d", value, left)
		}
	}
}

// tx/ttl-repair-revives: on 2.2 to 2.6 a lock that has just expired comes back to life.
func TestRepairRevives(t *testing.T) {
	a := published(t, "tx:classic/published", compat.NewToken, false)
	for _, v := range []string{"2.2", "2.4"} {
		s := oldredis.Run(t, v)
		acquire(t, s, a, ttl)
		s.Advance(ttl + 990*time.Millisecond)
		c := &hooked{Conn: s.Dial(), name: "SETNX", after: true, act: func() {
			s.AdvanceLazy(20 * time.Millisecond) // it expires, and is not reaped yet
		}}
		if _, err := a.Acquire(compat.NewConn(c), s.Now(), "k", ttl); !errors.Is(err, compat.ErrHeld) {
			t.Errorf("%s: %v, want ErrHeld", v, err)
		}
		if left := do(t, s, "TTL", "k"); left != int64(10) {
			t.Errorf("%s: TTL %d, want the dead lock revived for 10 s", v, left)
		}
	}
}
