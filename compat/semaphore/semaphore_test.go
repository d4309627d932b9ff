package semaphore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/steps"
	"github.com/setnxlock/setnxlock/txlock"
)

const ttl = 10 * time.Second

// everywhere runs f on each version that the semaphore is safe on.
func everywhere(t *testing.T, f func(t *testing.T, s *oldredis.Server)) {
	for _, v := range append(oldredis.Versions(), oldredis.Today()...) {
		if v == "1.2" || v == "2.0" {
			continue
		}
		t.Run(v, func(t *testing.T) { f(t, oldredis.Run(t, v)) })
	}
}

// of is a semaphore of n whose acquisitions have that token.
func of(n int, token string) semaphore.Lock {
	return semaphore.Lock{Options: semaphore.Options{N: n, Token: func() string { return token }}}
}

func acquireAt(c redis.Conn, s *oldredis.Server, k semaphore.Lock) (compat.Lease, error) {
	return k.Acquire(protocol.NewConn(c), s.Now(), "k", ttl)
}

func acquire(t *testing.T, s *oldredis.Server, k semaphore.Lock) compat.Lease {
	t.Helper()
	return must.Get(acquireAt(s.Dial(), s, k))(t)
}

// extendAt is what the engine makes of an extension.
func extendAt(c redis.Conn, s *oldredis.Server, k semaphore.Lock, l compat.Lease, rotate bool) (compat.Lease, error) {
	next, ch, err := k.Extend(s.Now(), l, 2*ttl, rotate)
	if err == nil {
		_, err = protocol.NewConn(c).Run(ch)
	}
	return next, err
}

func release(s *oldredis.Server, k semaphore.Lock, l compat.Lease) error {
	_, err := protocol.NewConn(s.Dial()).Run(k.Release(l))
	return err
}

func do(t *testing.T, s *oldredis.Server, name string, args ...any) any {
	t.Helper()
	return must.Get(s.Dial().Do(name, args...))(t)
}

// at has others act just before the first command of that name whose first argument is key ("": whose is not looked at).
func at(c redis.Conn, name, key string, act func()) redis.Conn {
	act = sync.OnceFunc(act)
	return faulty.Over(c, func(m faulty.Message) faulty.Fate {
		if m.Name == name && (key == "" || len(m.Args) > 0 && fmt.Sprint(m.Args[0]) == key) {
			return faulty.First(act)
		}
		return faulty.Fate{}
	})
}

// Each step, as it goes over the wire.
func TestWire(t *testing.T) {
	me := of(1, "me")
	fenced, renamed, lua := me, me, me
	fenced.Fence = true
	renamed.Options.Slot, lua.Options.Slot = slots["tx:renamed"], slots["set:lua"]
	lua.Millis = true
	for _, c := range []struct {
		name   string
		k      semaphore.Lock
		step   func(t *testing.T, s *oldredis.Server, k semaphore.Lock)
		before func(t *testing.T, s *oldredis.Server)
		want   string
	}{
		{"taken", fenced, nil, nil, `
GET k → nil
GET k:limit:{k} → nil
MGET k:1:{k} → [nil]
WATCH k:1:{k} → OK
GET k:1:{k} → nil
MULTI → OK
SETEX k:1:{k} 10 1:me → QUEUED
SETNX k:limit:{k} 1 → QUEUED
EXPIRE k:limit:{k} 86400 → QUEUED
GET k:limit:{k} → QUEUED
INCR k:1:{k}:fence → QUEUED
EXEC → [OK 1 1 1 1]
`}, {"taken as tx:renamed does", renamed, nil, nil, `
GET k → nil
GET k:limit:{k} → nil
MGET k:1:{k} → [nil]
SETEX k:1:{k}:1:me 10 1:me → OK
MULTI → OK
RENAMENX k:1:{k}:1:me k:1:{k} → QUEUED
SETNX k:limit:{k} 1 → QUEUED
EXPIRE k:limit:{k} 86400 → QUEUED
GET k:limit:{k} → QUEUED
EXEC → [1 1 1 1]
DEL k:1:{k}:1:me → 0
GET k:1:{k} → 1:me
`}, {"taken as set:lua does", lua, nil, nil, `
GET k → nil
GET k:limit:{k} → nil
MGET k:1:{k} → [nil]
MULTI → OK
SET k:1:{k} 1:me NX PX 10000 → QUEUED
SETNX k:limit:{k} 1 → QUEUED
EXPIRE k:limit:{k} 86400 → QUEUED
GET k:limit:{k} → QUEUED
EXEC → [OK 1 1 1]
`}, {"refused", me, func(t *testing.T, s *oldredis.Server, k semaphore.Lock) {
			_, err := acquireAt(s.Dial(), s, k)
			held := (*compat.HeldError)(nil)
			if !errors.As(err, &held) || held.Value != "1:other" || !held.Until.Equal(s.Now().Add(7*time.Second)) {
				t.Errorf("refused: %v", err)
			}
		}, func(t *testing.T, s *oldredis.Server) {
			acquire(t, s, of(1, "other"))
			s.Advance(3 * time.Second)
		}, `
GET k → nil
GET k:limit:{k} → 1
MGET k:1:{k} → [1:other]
GET k → nil
TTL k → -2
GET k:limit:{k} → 1
GET k:1:{k} → 1:other
TTL k:1:{k} → 7
`}, {"in place of another limit", me, nil, func(t *testing.T, s *oldredis.Server) {
			l := acquire(t, s, of(2, "other"))
			must.Do(t, release(s, of(2, "other"), l))
		}, `
GET k → nil
GET k:limit:{k} → 2
MGET k:1:{k} → [nil]
WATCH k:limit:{k} k:1:{k} k:2:{k} → OK
GET k:limit:{k} → 2
MGET k:1:{k} k:2:{k} → [nil nil]
MULTI → OK
SETEX k:limit:{k} 86400 1 → QUEUED
EXEC → [OK]
GET k → nil
GET k:limit:{k} → 1
MGET k:1:{k} → [nil]
WATCH k:1:{k} → OK
GET k:1:{k} → nil
MULTI → OK
SETEX k:1:{k} 10 1:me → QUEUED
SETNX k:limit:{k} 1 → QUEUED
EXPIRE k:limit:{k} 86400 → QUEUED
GET k:limit:{k} → QUEUED
EXEC → [OK 0 1 1]
`}, {"extended and released", me, func(t *testing.T, s *oldredis.Server, k semaphore.Lock) {
			l := compat.Lease{Key: "k", Value: "1:me", How: protocol.Free}
			l = must.Get(extendAt(s.Dial(), s, k, l, false))(t)
			l = must.Get(extendAt(s.Dial(), s, of(1, "new"), l, true))(t)
			if err := release(s, k, l); err != nil {
				t.Error(err)
			}
		}, func(t *testing.T, s *oldredis.Server) { acquire(t, s, me) }, `
WATCH k:1:{k} → OK
GET k:1:{k} → 1:me
MULTI → OK
EXPIRE k:1:{k} 20 → QUEUED
EXPIRE k:limit:{k} 86400 → QUEUED
EXEC → [1 1]
WATCH k:1:{k} → OK
GET k:1:{k} → 1:me
MULTI → OK
SETEX k:1:{k} 20 1:new → QUEUED
EXPIRE k:limit:{k} 86400 → QUEUED
EXEC → [OK 1]
WATCH k:1:{k} → OK
GET k:1:{k} → 1:new
MULTI → OK
DEL k:1:{k} → QUEUED
EXEC → [1]
`}, {"proven, with a fence", fenced, func(t *testing.T, s *oldredis.Server, k semaphore.Lock) {
			must.Get(extendAt(s.Dial(), s, k, compat.Lease{Key: "k", Value: "1:me"}, false))(t)
		}, func(t *testing.T, s *oldredis.Server) { acquire(t, s, me) }, `
WATCH k:1:{k} k:limit:{k} → OK
GET k:1:{k} → 1:me
GET k:limit:{k} → 1
MULTI → OK
EXPIRE k:1:{k} 20 → QUEUED
EXPIRE k:limit:{k} 86400 → QUEUED
INCR k:1:{k}:fence → QUEUED
EXEC → [1 1 1]
`}} {
		s := oldredis.Run(t, "7.0")
		if c.before != nil {
			c.before(t, s)
		}
		got := s.Record()
		if c.step == nil {
			acquire(t, s, c.k)
		} else {
			c.step(t, s, c.k)
		}
		if got.String() != c.want[1:] {
			t.Errorf("%s went over the wire as\n%swant\n%s", c.name, got, c.want[1:])
		}
	}
}

// As many hold it as may, each in a slot of its own that its value names; whoever comes then is refused until the first of
// them ends, and a slot is free when its holder releases it or has died.
func TestAtMostN(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		var leases []compat.Lease
		var taken []int
		for _, token := range []string{"a", "b", "c"} {
			l := acquire(t, s, of(3, token))
			leases, taken = append(leases, l), append(taken, semaphore.Slot(l.Value))
			s.Advance(time.Second)
		}
		if slices.Sort(taken); !slices.Equal(taken, []int{1, 2, 3}) {
			t.Errorf("they have the slots %v", taken)
		}
		_, err := acquireAt(s.Dial(), s, of(3, "d"))
		held := (*compat.HeldError)(nil)
		if !errors.As(err, &held) || held.Value != leases[0].Value {
			t.Fatalf("a fourth: %v, want refused by %q", err, leases[0].Value)
		}
		if left := held.Until.Sub(s.Now()); left < 6*time.Second || left > 7*time.Second {
			t.Errorf("a fourth is refused for %v, want 7 s", left)
		}
		must.Do(t, release(s, of(3, "b"), leases[1]))
		if d := acquire(t, s, of(3, "d")); semaphore.Slot(d.Value) != semaphore.Slot(leases[1].Value) {
			t.Errorf("the fourth has %q, and %q was released", d.Value, leases[1].Value)
		}
		if err := release(s, of(3, "b"), leases[1]); !errors.Is(err, protocol.ErrLost) {
			t.Errorf("released again: %v, want ErrLost", err)
		}
		s.AdvanceLazy(9 * time.Second)
		if e := acquire(t, s, of(3, "e")); semaphore.Slot(e.Value) == semaphore.Slot(leases[1].Value) {
			t.Errorf("the fifth has %q, whose holder lives", e.Value)
		}
	})
}

// limit outlives every lease, even one of a day that is extended to a day, and none lasts longer.
func TestLimitOutlivesLeases(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		const day = 24 * time.Hour
		k, c := of(2, "a"), protocol.NewConn(s.Dial())
		l := must.Get(k.Acquire(c, s.Now(), "k", day))(t)
		outlives := func() {
			t.Helper()
			slot := must.Get(redis.Int(do(t, s, "TTL", "k:"+l.Value[:1]+":{k}"), nil))(t)
			limit := must.Get(redis.Int(do(t, s, "TTL", "k:limit:{k}"), nil))(t)
			if limit < slot || slot < 86399 {
				t.Errorf("the slot lasts %d s, and the limit %d", slot, limit)
			}
		}
		outlives()
		s.Advance(23 * time.Hour)
		next, ch, err := k.Extend(s.Now(), l, day, false)
		if err == nil {
			_, err = c.Run(ch)
		}
		if err != nil || next.Value != l.Value {
			t.Fatalf("extended: %q, %v", next.Value, err)
		}
		outlives()
		if _, err := k.Acquire(c, s.Now(), "k", day+1); !errors.Is(err, protocol.ErrInvalid) {
			t.Errorf("a lease of more than a day: %v, want ErrInvalid", err)
		}
		if _, _, err := k.Extend(s.Now(), l, day+1, false); !errors.Is(err, protocol.ErrInvalid) {
			t.Errorf("an extension to more than a day: %v, want ErrInvalid", err)
		}
	})
}

func TestInvalidLimits(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	for _, n := range []int{-1, 0, 1001} {
		if _, err := acquireAt(s.Dial(), s, of(n, "a")); !errors.Is(err, protocol.ErrInvalid) {
			t.Errorf("%d: %v, want ErrInvalid", n, err)
		}
	}
	acquire(t, s, of(1000, "a"))
}

// Another limit is refused with both numbers as long as a slot is held, whichever slot and whichever limit is the larger, and
// takes effect when none is.
func TestAnotherLimit(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		for _, to := range []struct{ from, to int }{{2, 3}, {3, 2}, {3, 1}, {1, 3}} {
			old := of(to.from, "old")
			old.Pick = func(free int) int { return free - 1 } // also one that the new limit has not
			l := acquire(t, s, old)
			_, err := acquireAt(s.Dial(), s, of(to.to, "new"))
			limit := (*semaphore.LimitError)(nil)
			if !errors.As(err, &limit) || limit.Limit != to.from || limit.Asked != to.to || !errors.Is(err, compat.ErrHeld) {
				t.Fatalf("%v: %v, want a LimitError", to, err)
			}
			if left := limit.Held.Until.Sub(s.Now()); left < 9*time.Second || left > ttl {
				t.Errorf("%v: refused for %v, want 10 s", to, left)
			}
			must.Do(t, release(s, old, l))
			l = acquire(t, s, of(to.to, "new"))
			must.Do(t, release(s, of(to.to, "new"), l))
		}
	})
}

// A slot is taken between the look at the old limit's slots and its change: it is not changed.
func TestSlotTakenWhileLimitChanges(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		old := acquire(t, s, of(2, "old"))
		must.Do(t, release(s, of(2, "old"), old))
		c := at(s.Dial(), "SETEX", "k:limit:{k}", func() { old = acquire(t, s, of(2, "old")) })
		_, err := acquireAt(c, s, of(1, "new"))
		limit := (*semaphore.LimitError)(nil)
		if !errors.As(err, &limit) || limit.Limit != 2 {
			t.Fatalf("%v, want a LimitError", err)
		}
		if _, err := extendAt(s.Dial(), s, of(2, "old"), old, false); err != nil {
			t.Errorf("who was faster: %v", err)
		}
	})
}

// The limit is changed between a look and the transaction that takes a slot: the attempt does not count, and leaves no slot
// held.
func TestLimitChangedWhileASlotIsTaken(t *testing.T) {
	for name, slot := range slots {
		t.Run(name, func(t *testing.T) {
			ran := 0
			everywhere(t, func(t *testing.T, s *oldredis.Server) {
				k := of(2, "late")
				k.Options.Slot, k.Millis = slot, strings.HasPrefix(name, "set")
				if err := k.Traits().Check(protocol.NewConn(s.Dial()), "k"); errors.Is(err, protocol.ErrUnsafeServer) {
					return
				} else if err != nil {
					t.Fatal(err)
				}
				ran++
				k.Pick = func(free int) int { return free - 1 } // the second slot
				must.Do(t, release(s, k, acquire(t, s, k)))
				var one compat.Lease
				c := at(s.Dial(), "MULTI", "", func() { one = acquire(t, s, of(1, "one")) })
				l, err := acquireAt(c, s, k)
				limit := (*semaphore.LimitError)(nil)
				if !errors.As(err, &limit) || limit.Limit != 1 || limit.Asked != 2 {
					t.Fatalf("%q, %v, want a LimitError", l.Value, err)
				}
				st := must.Get(of(1, "").Inspect(protocol.NewConn(s.Dial()), s.Now(), "k"))(t)
				if len(st.Holders) != 1 || st.Holders[0].Value != one.Value {
					t.Errorf("held by %v, want by %q alone", st.Holders, one.Value)
				}
			})
			if ran == 0 {
				t.Error("every server refuses it")
			}
		})
	}
}

// Before 2.2.10 SETNX does not notice that a key has expired: an attempt whose limit went so, between its look and its
// transaction, is made again, and no slot is lost.
func TestLimitExpiresUnnoticed(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		l := acquire(t, s, of(2, "first"))
		must.Do(t, release(s, of(2, "first"), l))
		c := at(s.Dial(), "MULTI", "", func() { s.AdvanceLazy(24*time.Hour + time.Second) })
		l = must.Get(acquireAt(c, s, of(2, "second")))(t)
		if got, err := redis.String(do(t, s, "GET", "k:limit:{k}"), nil); err != nil || got != "2" {
			t.Errorf("limit: %q, %v", got, err)
		}
		st := must.Get(of(2, "").Inspect(protocol.NewConn(s.Dial()), s.Now(), "k"))(t)
		if len(st.Holders) != 1 || st.Holders[0].Value != l.Value {
			t.Errorf("held by %v, want by %q alone", st.Holders, l.Value)
		}
	})
}

// Others are faster at the slots that were free: each is tried once, and then the attempt is refused.
func TestOthersTakeTheFreeSlots(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		taken := 0
		c := faulty.Over(s.Dial(), func(m faulty.Message) faulty.Fate {
			if m.Name != "WATCH" {
				return faulty.Fate{}
			}
			return faulty.First(func() {
				taken++
				do(t, s, "SETEX", m.Args[0], 10, "other")
			})
		})
		if _, err := acquireAt(c, s, of(3, "late")); !errors.Is(err, compat.ErrHeld) || taken != 3 {
			t.Errorf("%v after %d slots, want ErrHeld after 3", err, taken)
		}
		do(t, s, "DEL", "k:2:{k}")
		once := sync.OnceFunc(func() { do(t, s, "SETEX", "k:2:{k}", 10, "other") })
		do(t, s, "DEL", "k:3:{k}")
		c = faulty.Over(s.Dial(), func(m faulty.Message) faulty.Fate { // whichever it takes first is taken by somebody
			if m.Name == "EXEC" {
				return faulty.First(once)
			}
			return faulty.Fate{}
		})
		if l, err := acquireAt(c, s, of(3, "late")); err != nil || semaphore.Slot(l.Value) != 3 {
			t.Errorf("%q, %v, want the slot that is left", l.Value, err)
		}
	})
}

// What is no semaphore's is left as it is.
func TestForeign(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		for _, c := range []struct {
			key  string
			args []any
			want error
		}{
			{"k", []any{"SETEX", "k", 60, "plain"}, compat.ErrHeld},
			{"k", []any{"LPUSH", "k", "x"}, compat.ErrForeign},
			{"k:limit:{k}", []any{"SET", "k:limit:{k}", "many"}, compat.ErrForeign},
			{"k:limit:{k}", []any{"SET", "k:limit:{k}", "01"}, compat.ErrForeign},
			{"k:limit:{k}", []any{"LPUSH", "k:limit:{k}", "x"}, compat.ErrForeign},
			{"k:1:{k}", []any{"LPUSH", "k:1:{k}", "x"}, compat.ErrHeld},
		} {
			do(t, s, c.args[0].(string), c.args[1:]...)
			_, err := acquireAt(s.Dial(), s, of(1, "me"))
			if !errors.Is(err, c.want) || !errors.Is(err, compat.ErrForeign) && c.key != "k:1:{k}" {
				t.Errorf("%v: %v, want %v", c.args, err, c.want)
			}
			if n := do(t, s, "EXISTS", c.key); n != int64(1) {
				t.Errorf("%v: it is gone", c.args)
			}
			s.FlushAll()
		}
		do(t, s, "LPUSH", "k:2:{k}", "x")
		if l, err := acquireAt(s.Dial(), s, of(2, "me")); err != nil || l.Value != "1:me" {
			t.Errorf("beside a slot that is a list: %q, %v", l.Value, err)
		}
	})
}

// All holders are seen, by whichever limit one looks, with the slots in their values.
func TestInspect(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		look := func(n int) compat.State {
			t.Helper()
			return must.Get(of(n, "").Inspect(protocol.NewConn(s.Dial()), s.Now(), "k"))(t)
		}
		if st := look(3); st.Status != compat.StatusFree || len(st.Holders) > 0 {
			t.Errorf("free: %+v", st)
		}
		a := acquire(t, s, of(2, "a"))
		for n, open := range map[int]bool{0: true, 1: false, 2: true, 3: false} {
			st := look(n)
			if st.Status != compat.StatusHeld || st.Open != open || !st.Holds(a.Value) || st.Format != "1 of 2 slots" {
				t.Errorf("one holds it, seen by %d: %+v", n, st)
			}
		}
		s.Advance(3 * time.Second)
		b := acquire(t, s, of(2, "b"))
		for n, first := range map[int]string{0: a.Value, 1: b.Value, 2: a.Value, 3: b.Value} {
			st := look(n)
			if st.Status != compat.StatusHeld || st.Open || st.Value != first || !st.Holds(a.Value) || !st.Holds(b.Value) || len(st.Holders) != 2 {
				t.Errorf("two hold it, seen by %d: %+v, want %q first", n, st, first)
			}
		}
		do(t, s, "PERSIST", "k:"+a.Value[:1]+":{k}")
		if st := look(2); st.Value != b.Value || st.Status != compat.StatusHeld {
			t.Errorf("with one that has no end: %+v, want until %q ends", st, b.Value)
		}
		do(t, s, "PERSIST", "k:"+b.Value[:1]+":{k}")
		if st := look(2); st.Status != compat.StatusPersistent {
			t.Errorf("with two that have no end: %+v", st)
		}
		s.FlushAll()
		do(t, s, "SETEX", "k", 60, "plain")
		if st := look(2); st.Status != compat.StatusForeign || st.Value != "plain" {
			t.Errorf("with a plain lock: %+v", st)
		}
	})
}

// A token that names no slot is nobody's.
func TestSlot(t *testing.T) {
	for value, want := range map[string]int{"1:x": 1, "1000:x": 1000, "": 0, "x": 0, "0:x": 0, "1001:x": 0, "01:x": 0, "+1:x": 0, "1": 0, "-1:x": 0} {
		if got := semaphore.Slot(value); got != want {
			t.Errorf("%q: %d, want %d", value, got, want)
		}
	}
	s := oldredis.Run(t, "2.4")
	do(t, s, "SETEX", "k:1:{k}", 10, "x")
	l := compat.Lease{Key: "k", Value: "x"}
	if err := release(s, of(2, "a"), l); !errors.Is(err, protocol.ErrLost) {
		t.Errorf("Release: %v, want ErrLost", err)
	}
	if _, err := extendAt(s.Dial(), s, of(2, "a"), l, false); !errors.Is(err, protocol.ErrLost) {
		t.Errorf("Extend: %v, want ErrLost", err)
	}
}

// Slots are chosen at random.
func TestFirstSlot(t *testing.T) {
	s := oldredis.Run(t, "7.0")
	var seen [4]int
	for range 400 {
		k := semaphore.Lock{Options: semaphore.Options{N: 4}}
		l := acquire(t, s, k)
		seen[semaphore.Slot(l.Value)-1]++
		must.Do(t, release(s, k, l))
	}
	for i, n := range seen {
		if n < 25 { // a fair one has fewer than that once in 10^20
			t.Errorf("slot %d was taken first %d times in 400", i+1, n)
		}
	}
}

// A lock that writes other values than it is told can't be that of a slot.
func TestCheck(t *testing.T) {
	s := oldredis.Run(t, "7.0")
	c := protocol.NewConn(s.Dial())
	odd := of(1, "a")
	odd.Options.Slot = func(func() string) protocol.Algorithm { return txlock.Guarded{} }
	if err := odd.Traits().Check(c, "k"); !errors.Is(err, protocol.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}

// A key that expires between the GET and the TTL of one look is free; since Redis 2.8 the server says so. It is not a key
// without an end.
func TestExpiredWhileLookedAt(t *testing.T) {
	for ttl, millis := range map[string]bool{"TTL": false, "PTTL": true} {
		for asked, key := range []string{"k", "k:1:{k}"} { // the key's own TTL is asked for first, the slot's next
			s := oldredis.Run(t, "2.8")
			s.Dial().Do("SETEX", key, 1, "1:me") //nolint:errcheck
			n := 0
			c := steps.Instead(s.Dial(), ttl, func(run func(...any) any) any {
				if n++; n == asked+1 {
					s.Dial().Do("DEL", key) //nolint:errcheck
				}
				return run()
			})
			k := semaphore.Lock{Options: semaphore.Options{N: 1, Millis: millis}}
			if st, err := k.Inspect(c, s.Now(), "k"); err != nil || st.Status != protocol.StatusFree || st.Value != "" || st.Holders != nil {
				t.Errorf("%s, %s: %+v, %v; want it free", ttl, key, st, err)
			}
		}
	}
}

// The limit is gone, evicted or deleted, and slots are held: who looks without an N of its own sees the holders, and no
// limit.
func TestHoldersWithoutLimit(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		for _, n := range []int{1, 2, 17, 40} { // in three rows of 16
			s.Dial().Do("SETEX", fmt.Sprintf("k:%d:{k}", n), 10, fmt.Sprintf("%d:me", n)) //nolint:errcheck
		}
		look := func() protocol.State {
			return must.Get(semaphore.Lock{}.Inspect(protocol.NewConn(s.Dial()), s.Now(), "k"))(t)
		}
		st := look()
		if st.Status != protocol.StatusHeld || st.Format != "4 held, no limit" || !st.Open {
			t.Errorf("%+v, want it held by all", st)
		}
		var seen []string
		for _, h := range st.Holders {
			seen = append(seen, h.Value)
		}
		if want := "1:me 2:me 17:me 40:me"; strings.Join(seen, " ") != want {
			t.Errorf("holders %v, want %s", seen, want)
		}
		s.Dial().Do("DEL", "k:1:{k}", "k:2:{k}", "k:17:{k}", "k:40:{k}") //nolint:errcheck
		if st := look(); st.Status != protocol.StatusFree || st.Holders != nil || st.Format != "" {
			t.Errorf("%+v, want it free", st)
		}
	})
}

// The first holder comes between the look at the limit and that at the slots: there is a limit.
func TestHolderComesWhileLookedAt(t *testing.T) {
	s := oldredis.Run(t, "2.8")
	n := 0
	c := steps.Instead(s.Dial(), "TTL", func(run func(...any) any) any {
		if n++; n == 2 { // the first slot's: KEY's own was first
			acquire(t, s, semaphore.Lock{Options: semaphore.Options{N: 3, Pick: func(int) int { return 2 }}})
		}
		return run()
	})
	if st, err := (semaphore.Lock{}).Inspect(c, s.Now(), "k"); err != nil || st.Format != "1 of 3 slots" || len(st.Holders) != 1 {
		t.Errorf("%+v, %v; want 1 of 3 slots", st, err)
	}
}
