package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/steps"
	"github.com/setnxlock/setnxlock/txlock"
)

const ttl = 10 * time.Second

// onEach calls f for each version on which the lock is safe.
func onEach(t *testing.T, f func(t *testing.T, version string)) {
	for _, v := range oldredis.Versions() {
		if v != "1.2" && v != "2.0" {
			t.Run(v, func(t *testing.T) { f(t, v) })
		}
	}
}

// everywhere runs f on each version.
func everywhere(t *testing.T, f func(t *testing.T, s *oldredis.Server)) {
	onEach(t, func(t *testing.T, version string) { f(t, oldredis.Run(t, version)) })
}

func named(token string) rwlock.Options {
	return rwlock.Options{Token: func() string { return token }}
}

func acquire(t *testing.T, s *oldredis.Server, a protocol.Algorithm, ttl time.Duration) compat.Lease {
	t.Helper()
	l, err := a.Acquire(protocol.NewConn(s.Dial()), s.Now(), "k", ttl)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return l
}

func refused(t *testing.T, s *oldredis.Server, a protocol.Algorithm, want error) error {
	t.Helper()
	_, err := a.Acquire(protocol.NewConn(s.Dial()), s.Now(), "k", ttl)
	if !errors.Is(err, want) {
		t.Errorf("%T: %v, want %v", a, err, want)
	}
	return err
}

func release(t *testing.T, s *oldredis.Server, a protocol.Algorithm, l compat.Lease, want error) {
	t.Helper()
	if err := releaseAt(s.Dial(), a, s.Now(), l); !errors.Is(err, want) {
		t.Errorf("Release: %v, want %v", err, want)
	}
}

// open is a connection that is not closed behind a step.
type open struct{ redis.Conn }

func (open) Close() error { return nil }

// over is the engine's view of a over c, without a's look at the server.
func over(c redis.Conn, a protocol.Algorithm) compat.Backend {
	return compat.NewBackend(compat.Source{Bounded: true, Get: func(context.Context, string) (redis.Conn, error) { return open{c}, nil }}, unchecked{a})
}

type unchecked struct{ protocol.Algorithm }

func (u unchecked) Traits() protocol.Traits {
	t := u.Algorithm.Traits()
	t.Check = nil
	return t
}

// at has others act just before the next command of that name.
func at(c redis.Conn, name string, act func()) redis.Conn {
	return faulty.Over(c, faulty.First(sync.OnceFunc(act)).Of(name))
}

func extendAt(c redis.Conn, a protocol.Algorithm, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	g, err := over(c, a).Extend(context.Background(), func() time.Time { return now }, compat.Grant{Lease: l}, ttl)
	return g.Lease, err
}

// rotateAt is extendAt with a new value.
func rotateAt(c redis.Conn, a protocol.Algorithm, now time.Time, l compat.Lease, ttl time.Duration) (compat.Grant, error) {
	return over(c, a).Extend(context.Background(), func() time.Time { return now }, compat.Grant{Lease: l, Rotate: true}, ttl)
}

func releaseAt(c redis.Conn, a protocol.Algorithm, now time.Time, l compat.Lease) error {
	return over(c, a).Release(context.Background(), func() time.Time { return now }, compat.Grant{Lease: l})
}

func do(t *testing.T, s *oldredis.Server, name string, args ...any) any {
	t.Helper()
	reply, err := s.Dial().Do(name, args...)
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return reply
}

// Each step, as it goes over the wire.
func TestWire(t *testing.T) {
	plain, other := named("me"), named("other")
	first, wfirst := plain, plain
	first.Prefer, wfirst.Prefer = rwlock.ReadersFirst, rwlock.WritersFirst
	full := rwlock.Options{Token: plain.Token, Fence: true, Millis: true, ServerClock: true}
	mutex := plain
	mutex.Inner = txlock.Guarded{Options: txlock.Options{Token: func() string { return "in" }}}
	read := func(o rwlock.Options) protocol.Algorithm { return rwlock.Read{Options: o} }
	write := func(o rwlock.Options) protocol.Algorithm { return rwlock.Write{Options: o} }
	for _, c := range []struct {
		name   string
		before protocol.Algorithm // holds it
		a      protocol.Algorithm
		step   string
		want   string
	}{
		{"a reader comes in", nil, read(plain), "acquire", `
WATCH k → OK
GET k → nil
TTL k → -1
ZREVRANGE k:readers:{k} 0 0 WITHSCORES → []
ZREVRANGE k:waiting:{k} 0 0 WITHSCORES → []
ZREVRANGE k:next:{k} 0 0 WITHSCORES → []
MULTI → OK
ZREMRANGEBYSCORE k:readers:{k} -inf 1330837507000 → QUEUED
ZADD k:readers:{k} 1330837577000 r:me → QUEUED
EXPIRE k:readers:{k} 86400 → QUEUED
EXEC → [0 1 1]
`}, {"by the server's clock, with a number", nil, read(full), "acquire", `
WATCH k → OK
GET k → nil
PTTL k → -1
ZREVRANGE k:readers:{k} 0 0 WITHSCORES → []
ZREVRANGE k:waiting:{k} 0 0 WITHSCORES → []
ZREVRANGE k:next:{k} 0 0 WITHSCORES → []
TIME → [1330837567 0]
MULTI → OK
ZREMRANGEBYSCORE k:readers:{k} -inf 1330837507000 → QUEUED
ZADD k:readers:{k} 1330837577000 r:me → QUEUED
EXPIRE k:readers:{k} 86400 → QUEUED
INCR k:fence:{k} → QUEUED
EXEC → [0 1 1 1]
`}, {"a reader is extended", nil, read(plain), "extend", `
WATCH k → OK
GET k → nil
ZSCORE k:readers:{k} r:me → 1330837577000
MULTI → OK
ZADD k:readers:{k} 1330837587000 r:me → QUEUED
EXPIRE k:readers:{k} 86400 → QUEUED
EXEC → [0 1]
`}, {"a reader goes", nil, read(plain), "release", `
ZREM k:readers:{k} r:me → 1
`}, {"a reader is refused", write(other), read(plain), "refused", `
WATCH k → OK
GET k → w:other
TTL k → 10
ZREVRANGE k:readers:{k} 0 0 WITHSCORES → []
ZREVRANGE k:waiting:{k} 0 0 WITHSCORES → []
ZREVRANGE k:next:{k} 0 0 WITHSCORES → []
UNWATCH → OK
`}, {"and waits", write(other), read(plain), "waits", `
WATCH k → OK
GET k → w:other
TTL k → 10
ZREVRANGE k:readers:{k} 0 0 WITHSCORES → []
ZREVRANGE k:waiting:{k} 0 0 WITHSCORES → []
ZREVRANGE k:next:{k} 0 0 WITHSCORES → []
ZSCORE k:queue:{k} one → nil
ZSCORE k:next:{k} one → nil
UNWATCH → OK
MULTI → OK
ZREMRANGEBYSCORE k:queue:{k} -inf 1330837567000 → QUEUED
ZADD k:queue:{k} 1330837568000 one → QUEUED
EXPIRE k:queue:{k} 2 → QUEUED
EXEC → [0 1 1]
`}, {"it has its turn", write(other), read(plain), "its turn", `
WATCH k → OK
GET k → nil
TTL k → -1
ZREVRANGE k:readers:{k} 0 0 WITHSCORES → []
ZREVRANGE k:waiting:{k} 0 0 WITHSCORES → []
ZREVRANGE k:next:{k} 0 0 WITHSCORES → [one 1330837568000]
ZSCORE k:queue:{k} one → nil
ZSCORE k:next:{k} one → 1330837568000
MULTI → OK
ZREMRANGEBYSCORE k:readers:{k} -inf 1330837507000 → QUEUED
ZADD k:readers:{k} 1330837577000 r:me → QUEUED
EXPIRE k:readers:{k} 86400 → QUEUED
ZREM k:queue:{k} one → QUEUED
ZREM k:next:{k} one → QUEUED
EXEC → [0 1 1 0 1]
`}, {"a writer becomes a reader", nil, write(plain), "downgrade", `
WATCH k → OK
GET k → w:me
MULTI → OK
ZADD k:readers:{k} 1330837587000 r:me → QUEUED
EXPIRE k:readers:{k} 86400 → QUEUED
DEL k → QUEUED
ZUNIONSTORE k:next:{k} 1 k:queue:{k} → QUEUED
EXPIRE k:next:{k} 2 → QUEUED
DEL k:queue:{k} → QUEUED
EXEC → [1 1 1 0 0 0]
`}, {"a writer comes in", nil, write(plain), "acquire", `
WATCH k k:readers:{k} → OK
GET k → nil
TTL k → -1
ZREVRANGE k:readers:{k} 0 0 WITHSCORES → []
ZREVRANGE k:waiting:{k} 0 0 WITHSCORES → []
ZREVRANGE k:next:{k} 0 0 WITHSCORES → []
MULTI → OK
SETEX k 10 w:me → QUEUED
DEL k:readers:{k} → QUEUED
EXEC → [OK 0]
`}, {"with a number", nil, write(full), "acquire", `
WATCH k k:readers:{k} → OK
GET k → nil
PTTL k → -1
ZREVRANGE k:readers:{k} 0 0 WITHSCORES → []
ZREVRANGE k:waiting:{k} 0 0 WITHSCORES → []
ZREVRANGE k:next:{k} 0 0 WITHSCORES → []
TIME → [1330837567 0]
MULTI → OK
PSETEX k 10000 w:me → QUEUED
DEL k:readers:{k} → QUEUED
INCR k:fence:{k} → QUEUED
EXEC → [OK 0 1]
`}, {"a writer is extended", nil, write(plain), "extend", `
WATCH k → OK
GET k → w:me
MULTI → OK
EXPIRE k 20 → QUEUED
EXEC → [1]
`}, {"a writer goes", nil, write(plain), "release", `
WATCH k → OK
GET k → w:me
MULTI → OK
DEL k → QUEUED
ZUNIONSTORE k:next:{k} 1 k:queue:{k} → QUEUED
EXPIRE k:next:{k} 2 → QUEUED
DEL k:queue:{k} → QUEUED
EXEC → [1 0 0 0]
`}, {"a writer goes, writers first", nil, write(wfirst), "release", `
WATCH k → OK
GET k → w:me
MULTI → OK
DEL k → QUEUED
EXEC → [1]
`}, {"a writer is refused", read(other), write(plain), "refused", `
WATCH k k:readers:{k} → OK
GET k → nil
TTL k → -1
ZREVRANGE k:readers:{k} 0 0 WITHSCORES → [r:other 1330837577000]
ZREVRANGE k:waiting:{k} 0 0 WITHSCORES → []
ZREVRANGE k:next:{k} 0 0 WITHSCORES → []
UNWATCH → OK
`}, {"and waits", read(other), write(plain), "waits", `
WATCH k k:readers:{k} → OK
GET k → nil
TTL k → -1
ZREVRANGE k:readers:{k} 0 0 WITHSCORES → [r:other 1330837577000]
ZREVRANGE k:waiting:{k} 0 0 WITHSCORES → []
ZREVRANGE k:next:{k} 0 0 WITHSCORES → []
ZSCORE k:waiting:{k} one → nil
ZSCORE k:next:{k} one → nil
UNWATCH → OK
MULTI → OK
ZREMRANGEBYSCORE k:waiting:{k} -inf 1330837567000 → QUEUED
ZADD k:waiting:{k} 1330837568000 one → QUEUED
EXPIRE k:waiting:{k} 2 → QUEUED
EXEC → [0 1 1]
`}, {"and waits, readers first", read(other), write(first), "waits", `
WATCH k k:readers:{k} → OK
GET k → nil
TTL k → -1
ZREVRANGE k:readers:{k} 0 0 WITHSCORES → [r:other 1330837577000]
ZREVRANGE k:waiting:{k} 0 0 WITHSCORES → []
ZREVRANGE k:next:{k} 0 0 WITHSCORES → []
ZSCORE k:waiting:{k} one → nil
ZSCORE k:next:{k} one → nil
UNWATCH → OK
`}, {"under an inner lock", nil, read(mutex), "acquire", `
WATCH k:mutex:{k} → OK
GET k:mutex:{k} → nil
MULTI → OK
SETEX k:mutex:{k} 5 in → QUEUED
EXEC → [OK]
WATCH k → OK
GET k → nil
TTL k → -1
ZREVRANGE k:readers:{k} 0 0 WITHSCORES → []
ZREVRANGE k:waiting:{k} 0 0 WITHSCORES → []
ZREVRANGE k:next:{k} 0 0 WITHSCORES → []
MULTI → OK
ZREMRANGEBYSCORE k:readers:{k} -inf 1330837507000 → QUEUED
ZADD k:readers:{k} 1330837577000 r:me → QUEUED
EXPIRE k:readers:{k} 86400 → QUEUED
EXEC → [0 1 1]
WATCH k:mutex:{k} → OK
GET k:mutex:{k} → in
MULTI → OK
DEL k:mutex:{k} → QUEUED
EXEC → [1]
`}} {
		s := oldredis.Run(t, "2.6")
		s.Advance(time.Date(2012, 3, 4, 5, 6, 7, 0, time.UTC).Sub(s.Now()))
		if c.before != nil {
			acquire(t, s, c.before, ttl)
		}
		var l compat.Lease
		switch c.step {
		case "extend", "release", "downgrade":
			l = acquire(t, s, c.a, ttl)
		case "its turn":
			s.FlushAll()
			l = acquire(t, s, c.before, ttl)
			refusedWaiter(t, s, c.a, "one")
			release(t, s, c.before, l, nil)
		}
		conn, got := s.Dial(), s.Record()
		var err, want error
		switch c.step {
		case "acquire":
			_, err = c.a.Acquire(protocol.NewConn(conn), s.Now(), "k", ttl)
		case "refused":
			_, err = c.a.Acquire(protocol.NewConn(conn), s.Now(), "k", ttl)
			want = compat.ErrHeld
		case "waits":
			_, err = over(conn, c.a).Acquire(waiting("one"), s.Now, "k", ttl)
			want = compat.ErrHeld
		case "its turn":
			_, err = over(conn, c.a).Acquire(waiting("one"), s.Now, "k", ttl)
		case "extend":
			_, err = extendAt(conn, c.a, s.Now(), l, 2*ttl)
		case "downgrade":
			_, err = extendAt(conn, read(plain), s.Now(), l, 2*ttl)
		case "release":
			err = releaseAt(conn, c.a, s.Now(), l)
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", c.name, err, want)
		}
		if got.String() != c.want[1:] {
			t.Errorf("%s: went over the wire as\n%swant\n%s", c.name, got, c.want[1:])
		}
	}
}

// Readers hold together; a writer keeps everybody out, and is kept out by each.
func TestWhoExcludesWhom(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		read, write := rwlock.Read{Options: rwlock.Options{Prefer: rwlock.ReadersFirst}}, rwlock.Write{Options: rwlock.Options{Prefer: rwlock.ReadersFirst}}
		a, b := acquire(t, s, read, ttl), acquire(t, s, read, 2*ttl)
		var held *compat.HeldError
		if err := refused(t, s, write, compat.ErrHeld); !errors.As(err, &held) || held.Value != b.Value || !held.Until.Equal(s.Now().Add(2*ttl)) {
			t.Errorf("refused with %+v, want the reader that stays longest, %q, and its end", held, b.Value)
		}
		release(t, s, read, a, nil)
		refused(t, s, write, compat.ErrHeld)
		release(t, s, read, b, nil)
		w := acquire(t, s, write, ttl)
		if err := refused(t, s, write, compat.ErrHeld); !errors.As(err, &held) || held.Value != w.Value || held.Until.Before(s.Now()) {
			t.Errorf("refused with %+v, want the writer %q and its end", held, w.Value)
		}
		refused(t, s, read, compat.ErrHeld)
		release(t, s, read, a, compat.ErrLost)
		release(t, s, write, compat.Lease{Key: "k", Value: a.Value}, compat.ErrLost)
		refused(t, s, read, compat.ErrHeld)
		release(t, s, write, w, nil)
		release(t, s, write, w, compat.ErrLost)
		acquire(t, s, read, ttl)
	})
}

// A reader that dies is in the way until its lease has ended, and no longer;
// one that lives beside it is not disturbed.
func TestReaderThatDied(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		read, write := rwlock.Read{}, rwlock.Write{}
		acquire(t, s, read, ttl) // and dies
		lives := acquire(t, s, read, 3*ttl)
		s.Advance(ttl + time.Second)
		refused(t, s, write, compat.ErrHeld)
		lives, err := extendAt(s.Dial(), read, s.Now(), lives, ttl)
		if err != nil {
			t.Fatalf("the living reader beside the dead one: %v", err)
		}
		s.Advance(ttl - time.Millisecond)
		refused(t, s, write, compat.ErrHeld)
		s.Advance(time.Millisecond)
		l := acquire(t, s, write, ttl)
		if l.How != protocol.TakenOver {
			t.Errorf("a writer after readers that died: %q, want taken over", l.How)
		}
		if n := do(t, s, "EXISTS", "k:readers:{k}"); n != int64(0) {
			t.Errorf("the writer left the dead readers in the set")
		}
		// Its lease ran out: it learns that, and disturbs nobody.
		release(t, s, read, lives, compat.ErrLost)
		lives.Until = s.Now().Add(time.Minute) // by a clock that has stopped
		if _, err := extendAt(s.Dial(), read, s.Now(), lives, ttl); !errors.Is(err, compat.ErrLost) {
			t.Errorf("an extension beside a writer: %v, want ErrLost", err)
		}
		release(t, s, write, l, nil)
		if _, err := extendAt(s.Dial(), read, s.Now(), lives, ttl); !errors.Is(err, compat.ErrLost) {
			t.Errorf("an extension after a writer has been: %v, want ErrLost", err)
		}
	})
}

// A writer that dies is in the way until its key expires.
func TestWriterThatDied(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		read, write := rwlock.Read{}, rwlock.Write{}
		l := acquire(t, s, write, ttl)
		s.Advance(ttl - time.Millisecond)
		refused(t, s, read, compat.ErrHeld)
		refused(t, s, rwlock.Write{Options: rwlock.Options{Prefer: rwlock.ReadersFirst}}, compat.ErrHeld)
		s.Advance(1001 * time.Millisecond) // whole seconds are ended up to one later
		acquire(t, s, read, ttl)
		release(t, s, write, l, compat.ErrLost)
		l.Until = s.Now().Add(time.Minute)
		if _, err := extendAt(s.Dial(), write, s.Now(), l, ttl); !errors.Is(err, compat.ErrLost) {
			t.Errorf("an extension of an expired writer: %v, want ErrLost", err)
		}
	})
}

// An extension sets the end, it does not add to it; and the loss of the lease
// by one's own clock needs no server.
func TestExtend(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		for _, a := range []protocol.Algorithm{rwlock.Read{}, rwlock.Write{}} {
			l := acquire(t, s, a, 3*ttl)
			next, err := extendAt(s.Dial(), a, s.Now(), l, ttl)
			if err != nil {
				t.Fatalf("%T: %v", a, err)
			}
			st, err := a.Inspect(protocol.NewConn(s.Dial()), s.Now(), "k")
			if err != nil || st.Until.After(s.Now().Add(ttl+time.Second)) || st.Value != l.Value {
				t.Errorf("%T: %+v, %v, after an extension to %v", a, st, err, ttl)
			}
			if want := protocol.Until(s.Now(), ttl); !next.Until.Equal(want) {
				t.Errorf("%T: Until %v, want %v", a, next.Until, want)
			}
			got := s.Record()
			if _, err := extendAt(s.Dial(), a, next.Until, next, ttl); !errors.Is(err, compat.ErrLost) || got.String() != "" {
				t.Errorf("%T: an extension at its end: %v and %q, want ErrLost and nothing sent", a, err, got)
			}
			release(t, s, a, next, nil)
		}
	})
}

// An extension that is to rotate puts a new value in the place of the old one, which proves
// nothing any more; and one whose reader was released since its look leaves nothing behind.
func TestRotate(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		for _, a := range []protocol.Algorithm{rwlock.Read{}} { // a writer keeps its token: see Write.Extend
			old := acquire(t, s, a, ttl)
			next, err := rotateAt(s.Dial(), a, s.Now(), old, ttl)
			if err != nil || next.Value == old.Value || next.Value[:2] != old.Value[:2] || next.Rotate {
				t.Fatalf("%T: %+v, %v, want a new value in the place of %q", a, next, err, old.Value)
			}
			release(t, s, a, old, compat.ErrLost)
			if st, err := a.Inspect(protocol.NewConn(s.Dial()), s.Now(), "k"); err != nil || len(st.Holders) != 1 || !st.Holds(next.Value) {
				t.Errorf("%T: %+v, %v, want %q alone", a, st, err, next.Value)
			}
			release(t, s, a, next.Lease, nil)
		}
		read := rwlock.Read{}
		l := acquire(t, s, read, ttl)
		c := between(s.Dial(), func() { release(t, s, read, l, nil) })
		if _, err := rotateAt(c, read, s.Now(), l, ttl); !errors.Is(err, compat.ErrLost) {
			t.Errorf("an extension that the release was faster than: %v, want ErrLost", err)
		}
		if n := do(t, s, "EXISTS", "k:readers:{k}"); n != int64(0) {
			t.Error("the released reader is back under another name")
		}
	})
}

// A writer whose key expires between its look and its EXEC has not come back when readers are in,
// also where WATCH does not notice, before Redis 6.0.9.
func TestExtendBringsNoWriterBack(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		write, read := rwlock.Write{}, rwlock.Read{}
		l := acquire(t, s, write, ttl)
		var reader compat.Lease
		c := at(s.Dial(), "MULTI", func() {
			s.Advance(ttl + time.Second)
			reader = acquire(t, s, read, ttl)
		})
		if _, err := rotateAt(c, write, s.Now(), l, ttl); !errors.Is(err, compat.ErrLost) {
			t.Errorf("the writer's extension: %v, want ErrLost", err)
		}
		if n := do(t, s, "EXISTS", "k"); n != int64(0) {
			t.Errorf("the writer is back beside the reader %q", reader.Value)
		}
	})
}

// between has others act once, before the transaction that follows the look at the sets, or at one member.
func between(c redis.Conn, act func()) redis.Conn {
	looked, once := false, sync.OnceFunc(act)
	return faulty.Over(c, func(m faulty.Message) faulty.Fate {
		looked = looked || m.Name == "ZREVRANGE" || m.Name == "ZSCORE"
		if m.Name == "MULTI" && looked {
			return faulty.First(once)
		}
		return faulty.Fate{}
	})
}

// The transaction notices a client that comes in between it and the look.
func TestBetweenLookAndExec(t *testing.T) {
	first := rwlock.Options{Prefer: rwlock.ReadersFirst}
	read, write := rwlock.Read{Options: first}, rwlock.Write{Options: first}
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		var l compat.Lease
		for _, of := range []struct{ late, first protocol.Algorithm }{{read, write}, {write, read}, {write, write}} {
			c := between(s.Dial(), func() { l = acquire(t, s, of.first, ttl) })
			if _, err := of.late.Acquire(protocol.NewConn(c), s.Now(), "k", ttl); !errors.Is(err, compat.ErrHeld) {
				t.Errorf("a %T that a %T was faster than: %v, want ErrHeld", of.late, of.first, err)
			}
			release(t, s, of.first, l, nil)
		}

		// A dead reader that is extended by a slow clock of its own, while a
		// writer is about to sweep it: one of the two, not both.
		slow := acquire(t, s, read, ttl)
		told := s.Now()
		s.Advance(ttl)
		c := between(s.Dial(), func() {
			if _, err := extendAt(s.Dial(), read, told, slow, ttl); err != nil {
				t.Errorf("the extension that was first: %v", err)
			}
		})
		if _, err := write.Acquire(protocol.NewConn(c), s.Now(), "k", ttl); !errors.Is(err, compat.ErrHeld) {
			t.Errorf("a writer whose reader came back: %v, want ErrHeld", err)
		}
		slow.Until = s.Now().Add(time.Minute)
		s.Advance(2 * ttl)
		c = between(s.Dial(), func() { l = acquire(t, s, write, ttl) })
		if _, err := extendAt(c, read, told, slow, ttl); !errors.Is(err, compat.ErrLost) {
			t.Errorf("an extension that the writer was faster than: %v, want ErrLost", err)
		}
		if n := do(t, s, "EXISTS", "k:readers:{k}"); n != int64(0) {
			t.Error("the swept reader is back beside the writer (rw/extend-resurrects)")
		}
	})
}

// Readers don't abort each other, come they or go, however many they are.
func TestReadersDontAbortReaders(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		read := rwlock.Read{}
		other := acquire(t, s, read, ttl)
		churn := func() {
			release(t, s, read, other, nil)
			other = acquire(t, s, read, ttl)
		}
		l, err := read.Acquire(protocol.NewConn(between(s.Dial(), churn)), s.Now(), "k", ttl)
		if err != nil {
			t.Fatalf("acquire beside a reader that comes and goes: %v", err)
		}
		got := s.Record()
		if _, err := extendAt(between(s.Dial(), churn), read, s.Now(), l, ttl); err != nil {
			t.Errorf("extend beside a reader that comes and goes: %v", err)
		}
		if n := strings.Count(got.String(), "ZSCORE"); n != 1 {
			t.Errorf("the extension looked %d times, want once", n)
		}
	})
}

// A writer whose clock is fast takes a living reader for dead; a margin covers
// what the clocks differ by, and the server's clock does without theirs.
func TestSkewedSweep(t *testing.T) {
	const fast = 5 * time.Second
	for _, c := range []struct {
		name   string
		o      rwlock.Options
		sweeps bool
	}{
		{"clients' clocks", rwlock.Options{}, true},
		{"a margin", rwlock.Options{Margin: fast}, false},
		{"the server's clock", rwlock.Options{ServerClock: true}, false},
	} {
		s := oldredis.Run(t, "2.6")
		l := acquire(t, s, rwlock.Read{Options: c.o}, ttl)
		s.Advance(ttl - fast)
		if !s.Now().Before(l.Until) {
			t.Fatal("the lease is over, nothing is shown")
		}
		_, err := rwlock.Write{Options: c.o}.Acquire(protocol.NewConn(s.Dial()), s.Now().Add(fast), "k", ttl)
		if swept := err == nil; swept != c.sweeps {
			t.Errorf("by %s: a writer that is fast by %v: %v", c.name, fast, err)
		}
		s.Advance(fast)
		if _, err := (rwlock.Write{Options: c.o}).Acquire(protocol.NewConn(s.Dial()), s.Now().Add(c.o.Margin), "k", ttl); !c.sweeps && err != nil {
			t.Errorf("by %s: a writer after the lease: %v", c.name, err)
		}
	}
}

// A reader does not sweep what may be alive by another's clock, and does sweep
// what has long been dead: the set does not grow where nobody writes.
func TestReadersSweep(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		for range 5 {
			acquire(t, s, rwlock.Read{}, ttl) // and dies
		}
		s.Advance(ttl + 59*time.Second)
		acquire(t, s, rwlock.Read{}, ttl)
		if n := do(t, s, "ZCARD", "k:readers:{k}"); n != int64(6) {
			t.Errorf("%v members, want 6: five that have been dead for less than a minute", n)
		}
		s.Advance(time.Second)
		acquire(t, s, rwlock.Read{}, ttl)
		if n := do(t, s, "ZCARD", "k:readers:{k}"); n != int64(2) {
			t.Errorf("%v members, want the 2 living", n)
		}
	})
}

// Nothing stays: neither of a lock that was released, nor, after a day, of a fleet that crashed at
// the worst moment.
func TestNothingStays(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		read, write := rwlock.Read{}, rwlock.Write{}
		release(t, s, read, acquire(t, s, read, ttl), nil)
		release(t, s, write, acquire(t, s, write, ttl), nil)
		if n := do(t, s, "DBSIZE"); n != int64(0) {
			t.Errorf("%v keys after both were released: %v", n, do(t, s, "KEYS", "*"))
		}
		acquire(t, s, read, ttl)
		refusedWaiter(t, s, write, "a")
		refusedWaiter(t, s, read, "b")
		s.Advance(2 * ttl)
		l := acquire(t, s, write, ttl)
		refusedWaiter(t, s, read, "b")
		refusedWaiter(t, s, write, "a")
		release(t, s, write, l, nil)
		refusedWaiter(t, s, write, "a")
		s.Advance(4 * time.Second)
		if n := do(t, s, "DBSIZE"); n != int64(0) {
			t.Errorf("%v keys after all waiters have died: %v", n, do(t, s, "KEYS", "*"))
		}
		acquire(t, s, read, ttl)
		s.Advance(24*time.Hour + time.Second)
		if n := do(t, s, "DBSIZE"); n != int64(0) {
			t.Errorf("%v keys a day after a crash: %v", n, do(t, s, "KEYS", "*"))
		}
	})
}

// A client that would wait for itself is told so, at once and by the Locker too.
func TestUpgrade(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		as := func(name string) rwlock.Options { return rwlock.Options{Client: name, Prefer: rwlock.ReadersFirst} }
		acquire(t, s, rwlock.Read{Options: as("a:b")}, 2*ttl)
		l := acquire(t, s, rwlock.Read{Options: as("a")}, ttl)
		before := do(t, s, "KEYS", "*")
		err := refused(t, s, rwlock.Write{Options: as("a")}, rwlock.ErrUpgrade)
		if errors.Is(err, compat.ErrHeld) || !errors.Is(err, compat.ErrInvalid) {
			t.Errorf("%v, want an error that nobody waits for", err)
		}
		if after := do(t, s, "KEYS", "*"); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("a refused upgrade left %s, before %s", after, before)
		}
		m := clock.NewMock()
		m.Set(s.Now())
		if _, err := compat.New(s, rwlock.Write{Options: as("a")}, compat.Options{NoRenew: true, Clock: m}).Lock(t.Context(), "k", ttl); !errors.Is(err, rwlock.ErrUpgrade) {
			t.Errorf("Lock: %v, want ErrUpgrade", err)
		}
		for _, another := range []string{"", "b", "a:"} {
			if err := refused(t, s, rwlock.Write{Options: as(another)}, compat.ErrHeld); errors.Is(err, rwlock.ErrUpgrade) {
				t.Errorf("%q is taken for a: %v", another, err)
			}
		}
		release(t, s, rwlock.Read{Options: as("a")}, l, nil)
		refused(t, s, rwlock.Write{Options: as("a")}, compat.ErrHeld) // by a:b

		acquire(t, s, rwlock.Read{Options: as("a")}, ttl) // and its client dies
		s.Advance(2 * ttl)
		acquire(t, s, rwlock.Write{Options: as("a")}, ttl)
		refused(t, s, rwlock.Read{Options: as("a")}, rwlock.ErrDowngrade)
		refused(t, s, rwlock.Read{Options: as("b")}, compat.ErrHeld)
	})
}

// What the arguments can't make is refused before anything is sent.
func TestInvalid(t *testing.T) {
	for _, c := range []struct {
		a   protocol.Algorithm
		ttl time.Duration
	}{
		{rwlock.Read{}, 500 * time.Microsecond}, {rwlock.Read{}, 24*time.Hour + 1}, {rwlock.Write{}, 999 * time.Millisecond},
		{rwlock.Write{Options: rwlock.Options{Millis: true}}, 500 * time.Microsecond},
	} {
		s := oldredis.Run(t, "2.6")
		got := s.Record()
		_, err := c.a.Acquire(protocol.NewConn(s.Dial()), s.Now(), "k", c.ttl)
		_, extending := extendAt(s.Dial(), c.a, s.Now(), compat.Lease{Key: "k", Value: "v", Until: s.Now().Add(ttl)}, c.ttl)
		if !errors.Is(err, compat.ErrInvalid) || !errors.Is(extending, compat.ErrInvalid) || got.String() != "" {
			t.Errorf("%T for %v: %v, %v; sent %q", c.a, c.ttl, err, extending, got)
		}
	}
}

// Keys of another kind are left as they are, and named.
func TestForeign(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		read, write := rwlock.Read{}, rwlock.Write{}
		for _, key := range []string{"k", "k:readers:{k}"} {
			do(t, s, "RPUSH", key, "x")
			c := s.Dial()
			for _, a := range []protocol.Algorithm{read, write} {
				refused(t, s, a, compat.ErrForeign)
				if _, err := a.Inspect(protocol.NewConn(c), s.Now(), "k"); !errors.Is(err, compat.ErrForeign) {
					t.Errorf("%T: Inspect: %v, want ErrForeign", a, err)
				}
			}
			l := compat.Lease{Key: "k", Value: "r:x", Until: s.Now().Add(ttl)}
			if _, err := extendAt(c, read, s.Now(), l, ttl); !errors.Is(err, compat.ErrForeign) {
				t.Errorf("Extend with a list at %s: %v, want ErrForeign", key, err)
			}
			if n := do(t, s, "LLEN", key); n != int64(1) {
				t.Errorf("the list at %s has changed", key)
			}
			do(t, s, "DEL", key)
		}
	})
}

// A score that is no time is nothing of ours: it is refused with the name of its key, and stays.
func TestForeignScores(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		for _, key := range []string{"k:readers:{k}", "k:waiting:{k}", "k:next:{k}"} {
			for _, score := range []string{"inf", "1e300", "1764078272000.5", "9007199254740994"} {
				do(t, s, "ZADD", key, score, "x")
				for _, a := range []protocol.Algorithm{rwlock.Read{}, rwlock.Write{}} {
					if err := refused(t, s, a, compat.ErrForeign); err != nil && !strings.Contains(err.Error(), key) {
						t.Errorf("%T: %q does not name %s", a, err, key)
					}
					if _, err := a.Inspect(protocol.NewConn(s.Dial()), s.Now(), "k"); !errors.Is(err, compat.ErrForeign) {
						t.Errorf("%T: Inspect of %s at %s: %v, want ErrForeign", a, score, key, err)
					}
				}
				if n := do(t, s, "ZCARD", key); n != int64(1) {
					t.Errorf("%s at %s has gone", score, key)
				}
				do(t, s, "DEL", key)
			}
		}
	})
}

// Over RESP3 scores are doubles, and come in pairs.
func TestRESP3(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		read, write := rwlock.Read{}, rwlock.Write{}
		l := acquire(t, s, read, ttl)
		refusedWaiter(t, s, write, "writer")
		newer := resp3{s.Dial()}
		if _, err := over(newer, write).Acquire(waiting("second"), s.Now, "k", ttl); !errors.Is(err, compat.ErrHeld) {
			t.Errorf("a writer beside a reader: %v, want ErrHeld", err)
		}
		if _, err := over(newer, read).Acquire(context.Background(), s.Now, "k", ttl); !errors.Is(err, compat.ErrHeld) {
			t.Errorf("a reader beside a writer that waits: %v, want ErrHeld", err)
		}
		st, err := write.Inspect(protocol.NewConn(newer), s.Now(), "k")
		if err != nil || st.Value != l.Value || !strings.Contains(st.Format, "2 writers waiting") {
			t.Errorf("%+v, %v", st, err)
		}
		if l, err = extendAt(newer, read, s.Now(), l, ttl); err != nil {
			t.Errorf("an extension: %v", err)
		}
		release(t, s, read, l, nil)
	})
}

// resp3 answers as a connection of clients that speak it.
type resp3 struct{ redis.Conn }

func (c resp3) Receive() (any, error) { reply, err := c.Conn.Receive(); return newer(reply), err }

func (c resp3) Do(name string, args ...any) (any, error) {
	reply, err := c.Conn.Do(name, args...)
	return newer(reply), err
}

// newer has the scores of a reply in doubles and, behind their members, in pairs.
func newer(reply any) any {
	all, ok := reply.([]any)
	double := func(reply any) any {
		text, _ := redis.String(reply, nil)
		if ms, err := strconv.ParseFloat(text, 64); err == nil && ms > 1e6 {
			return ms
		}
		return reply
	}
	if !ok {
		return double(reply)
	}
	var pairs []any
	for i := 0; i+1 < len(all); i += 2 {
		if ms, scored := double(all[i+1]).(float64); scored {
			pairs = append(pairs, []any{all[i], ms})
		}
	}
	if len(pairs) > 0 && 2*len(pairs) == len(all) {
		return pairs
	}
	for i := range all {
		all[i] = newer(all[i])
	}
	return all
}

// A plain lock on the key is a writer to readers and writers, and to a reader
// that was there before it, which it did not see.
func TestPlainLockOnTheKey(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		l := acquire(t, s, rwlock.Read{}, ttl)
		plain := acquire(t, s, txlock.Guarded{}, ttl)
		refused(t, s, rwlock.Read{}, compat.ErrHeld)
		refused(t, s, rwlock.Write{}, compat.ErrHeld)
		if _, err := extendAt(s.Dial(), (rwlock.Read{}), s.Now(), l, ttl); !errors.Is(err, compat.ErrLost) {
			t.Errorf("an extension beside a plain lock: %v, want ErrLost", err)
		}
		release(t, s, txlock.Guarded{}, plain, nil)
	})
}

// Inspect shows who holds the key and who waits, each in its own way.
func TestInspect(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		read, write := rwlock.Read{}, rwlock.Write{}
		see := func(a protocol.Algorithm, status compat.Status, format string, holders ...string) compat.State {
			t.Helper()
			st, err := a.Inspect(protocol.NewConn(s.Dial()), s.Now(), "k")
			var got []string
			for _, h := range st.Holders {
				got = append(got, h.Value)
			}
			if err != nil || st.Status != status || st.Format != format || fmt.Sprint(got) != fmt.Sprint(holders) {
				t.Errorf("%T sees %s, %q, %v, %v; want %s, %q, %v", a, st.Status, st.Format, got, err, status, format, holders)
			}
			return st
		}
		see(read, compat.StatusFree, "")
		see(write, compat.StatusFree, "")
		a, b := acquire(t, s, read, 2*ttl), acquire(t, s, read, ttl)
		st := see(read, compat.StatusHeld, "2 readers", a.Value, b.Value)
		if st.Value != a.Value || !st.Until.Equal(s.Now().Add(2*ttl)) || st.Clock != "clients" || !st.Holds(b.Value) {
			t.Errorf("%+v, want %q until its end", st, a.Value)
		}
		refusedWaiter(t, s, write, "one")
		see(write, compat.StatusHeld, "2 readers, 1 writer waiting", a.Value, b.Value)
		release(t, s, read, a, nil)
		release(t, s, read, b, nil)
		see(write, compat.StatusFree, "1 writer waiting")
		see(read, compat.StatusHeld, "1 writer waiting")
		l := mustAcquire(t, s, write, "one")
		st = see(read, compat.StatusHeld, "writer", l.Value)
		if st.Clock != "server" || st.TTL <= 0 {
			t.Errorf("%+v, want a TTL of the server's", st)
		}
		refusedWaiter(t, s, read, "two")
		release(t, s, write, l, nil)
		see(write, compat.StatusHeld, "the readers' turn")
		see(read, compat.StatusFree, "")
		b = mustAcquire(t, s, read, "two")
		s.Advance(ttl)
		see(write, compat.StatusDead, "0 readers", b.Value)
		do(t, s, "SET", "k", "by hand")
		see(write, compat.StatusPersistent, "writer", "by hand", b.Value)
	})
}

// The inner lock is held around an acquisition and not after it, whatever
// becomes of that; nothing rests on it.
func TestInner(t *testing.T) {
	for _, inner := range []protocol.Algorithm{getsetlock.Classic{}, getsetlock.Guarded{}, txlock.Classic{}, txlock.Guarded{}} {
		everywhere(t, func(t *testing.T, s *oldredis.Server) {
			o := rwlock.Options{Inner: inner, Prefer: rwlock.ReadersFirst}
			read, write := rwlock.Read{Options: o}, rwlock.Write{Options: o}
			free := func() {
				t.Helper()
				if n := do(t, s, "EXISTS", "k:mutex:{k}"); n != int64(0) {
					t.Errorf("%T is still held", inner)
				}
			}
			l := acquire(t, s, read, ttl)
			free()
			refused(t, s, write, compat.ErrHeld)
			free()
			release(t, s, read, l, nil)

			// Its lease runs out in the middle, and another comes in.
			c := between(s.Dial(), func() {
				s.Advance(7 * time.Second)
				l = acquire(t, s, write, 2*ttl)
			})
			if _, err := read.Acquire(protocol.NewConn(c), s.Now(), "k", ttl); !errors.Is(err, compat.ErrHeld) {
				t.Errorf("%T: a reader that slept through its inner lock: %v, want ErrHeld", inner, err)
			}
			release(t, s, write, l, nil)

			must.Get(inner.Acquire(protocol.NewConn(s.Dial()), s.Now(), "k:mutex:{k}", ttl))(t)
			refused(t, s, read, compat.ErrHeld)
			refused(t, s, write, compat.ErrHeld)
		})
	}
}

// An inner lock of which it is not known whether it was had is given back.
func TestInnerUnanswered(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		o := rwlock.Options{Inner: unanswered{}}
		for _, a := range []protocol.Algorithm{rwlock.Read{Options: o}, rwlock.Write{Options: o}} {
			refused(t, s, a, io.ErrUnexpectedEOF)
			if n := do(t, s, "EXISTS", "k:mutex:{k}"); n != int64(0) {
				t.Errorf("%T: it is still held", a)
			}
		}
	})
}

// unanswered is a lock that is had, and whose reply is lost.
type unanswered struct{ txlock.Guarded }

func (u unanswered) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := u.Guarded.Acquire(c, now, key, ttl)
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return l, err
}

// By the server's clock: until when the key is held is told by that of the client, which may show another time.
func TestHeldUntilByOurClock(t *testing.T) {
	o := rwlock.Options{ServerClock: true}
	read, write := rwlock.Read{Options: o}, rwlock.Write{Options: o}
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		s := oldredis.Run(t, "2.6")
		now := s.Now().Add(-ahead)
		until := func(a protocol.Algorithm) time.Duration {
			_, err := a.Acquire(protocol.NewConn(s.Dial()), now, "k", ttl)
			var held *compat.HeldError
			if !errors.As(err, &held) {
				t.Fatalf("%v, want a HeldError", err)
			}
			return held.Until.Sub(now).Round(time.Second)
		}
		l := acquire(t, s, read, ttl)
		if left := until(write); left != ttl {
			t.Errorf("by a reader, the server %v ahead: for %v, want %v", ahead, left, ttl)
		}
		release(t, s, read, l, nil)
		acquire(t, s, write, ttl)
		if left := until(read); left != ttl {
			t.Errorf("by a writer, the server %v ahead: for %v, want %v", ahead, left, ttl)
		}
	}
}

// A reader whose key was touched, and whose lease no writer has ended, looks again.
func TestExtensionLooksAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		l := acquire(t, s, rwlock.Read{}, ttl)
		touched := false
		c := at(s.Dial(), "MULTI", func() {
			do(t, s, "SET", "k", "for a moment")
			do(t, s, "DEL", "k")
			touched = true
		})
		if _, err := extendAt(c, rwlock.Read{}, s.Now(), l, ttl); err != nil || !touched {
			t.Errorf("%v, touched %v", err, touched)
		}
	})
}

// A reader's Locker that has taken a writer up to downgrade it can let it go, too.
func TestReadReleasesWriter(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		l := acquire(t, s, rwlock.Write{}, ttl)
		release(t, s, rwlock.Read{}, l, nil)
		release(t, s, rwlock.Read{}, l, compat.ErrLost)
		acquire(t, s, rwlock.Write{}, ttl)
	})
}

// A writer's key that expires between the GET and the TTL of one look is free; since Redis 2.8 the server says so. It is
// not a key without an end.
func TestExpiredWhileLookedAt(t *testing.T) {
	for ttl, o := range map[string]rwlock.Options{"TTL": {}, "PTTL": {Millis: true}} {
		s := oldredis.Run(t, "2.8")
		s.Dial().Do("SETEX", "k", 1, "w:me")                                                                        //nolint:errcheck
		c := steps.Instead(s.Dial(), ttl, func(run func(...any) any) any { s.Dial().Do("DEL", "k"); return run() }) //nolint:errcheck
		if st, err := (rwlock.Write{Options: o}).Inspect(c, s.Now(), "k"); err != nil || st.Status != protocol.StatusFree || st.Value != "" {
			t.Errorf("%s: %+v, %v; want it free", ttl, st, err)
		}
	}
}
