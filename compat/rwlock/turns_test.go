package rwlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/internal/must"
)

// A player wants the lock from some moment on, holds it for a while and goes. It
// waits as the Locker does: after a refusal it looks, twice a second, and asks
// again when what it sees is free, dead or open to it.
type player struct {
	name    string
	c       redis.Conn
	a       protocol.Algorithm
	from    time.Time
	work    time.Duration
	extends bool
	looking bool
	next    time.Time
	lease   compat.Lease
	got     time.Time
	gone    bool
}

// step has the player do what is due at now.
func (p *player) step(t *testing.T, s *oldredis.Server) {
	now := s.Now()
	if p.c == nil {
		p.c, p.name = s.Dial(), protocol.NewToken()
	}
	clock, ctx := func() time.Time { return now }, waiting(p.name)
	switch {
	case p.gone || now.Before(p.from):
		return
	case !p.got.IsZero():
		if p.extends {
			var err error
			if p.lease, err = extendAt(p.c, p.a, now, p.lease, ttl); err != nil {
				t.Fatal(err)
			}
		}
		if !now.Before(p.got.Add(p.work)) {
			release(t, s, p.a, p.lease, nil)
			p.gone = true
		}
		return
	case now.Before(p.next):
		return
	}
	if p.next = now.Add(500 * time.Millisecond); p.looking {
		st := must.Get(over(p.c, p.a).Inspect(ctx, clock, "k"))(t)
		if st.Status == compat.StatusHeld && !st.Open {
			return
		}
	}
	l, err := over(p.c, p.a).Acquire(ctx, clock, "k", ttl)
	switch {
	case err == nil:
		p.lease, p.got = l.Lease, now
	case errors.Is(err, compat.ErrHeld):
		p.looking = true
	default:
		t.Fatal(err)
	}
}

// play lets d pass.
func play(t *testing.T, s *oldredis.Server, d time.Duration, players []*player) {
	for end := s.Now().Add(d); s.Now().Before(end); s.Advance(100 * time.Millisecond) {
		for _, p := range players {
			p.step(t, s)
		}
		alone, together := 0, 0
		for _, p := range players {
			if _, writes := p.a.(rwlock.Write); !p.got.IsZero() && !p.gone && writes {
				alone++
			} else if !p.got.IsZero() && !p.gone {
				together++
			}
		}
		if alone > 1 || alone == 1 && together > 0 {
			t.Fatalf("at %v %d writers and %d readers are in", s.Now(), alone, together)
		}
	}
}

// Beside a stream of readers, each of whom stays for 3 s and one of whom comes
// every second, a writer gets in; only with ReadersFirst it starves. Beside a
// stream of writers a reader does; only with WritersFirst it starves.
func TestNobodyStarves(t *testing.T) {
	for _, c := range []struct {
		prefer         rwlock.Preference
		writer, reader bool // gets in
	}{
		{rwlock.Fair, true, true}, {rwlock.WritersFirst, true, false}, {rwlock.ReadersFirst, false, true},
	} {
		t.Run(string(c.prefer), func(t *testing.T) {
			o := rwlock.Options{Prefer: c.prefer}
			read, write := rwlock.Read{Options: o}, rwlock.Write{Options: o}
			// How long one waits: until all who are in have gone, a second's turn of
			// the others and their stay, and a look more.
			const longest = 3*time.Second + 2*time.Second + 3*time.Second + time.Second
			everywhere(t, func(t *testing.T, s *oldredis.Server) {
				t.Parallel()
				start := s.Now()
				one := &player{a: write, from: start.Add(5 * time.Second), work: time.Second}
				players := []*player{one}
				for i := range 30 {
					players = append(players, &player{a: read, from: start.Add(time.Duration(i) * time.Second), work: 3 * time.Second})
				}
				play(t, s, 30*time.Second, players)
				served(t, "the writer", one, c.writer, longest)
			})
			everywhere(t, func(t *testing.T, s *oldredis.Server) {
				t.Parallel()
				start := s.Now()
				one := &player{a: read, from: start.Add(5 * time.Second), work: time.Second}
				players := []*player{one}
				for range 10 { // all at once: whenever one goes others wait
					players = append(players, &player{a: write, from: start, work: 3 * time.Second})
				}
				play(t, s, 30*time.Second, players)
				served(t, "the reader", one, c.reader, longest)
			})
		})
	}
}

func served(t *testing.T, who string, p *player, want bool, longest time.Duration) {
	t.Helper()
	switch {
	case want && p.got.IsZero():
		t.Errorf("%s starved", who)
	case want && p.got.Sub(p.from) > longest:
		t.Errorf("%s waited for %v, want %v at most", who, p.got.Sub(p.from), longest)
	case !want && !p.got.IsZero():
		t.Errorf("%s got in after %v, although the others go first", who, p.got.Sub(p.from))
	}
}

// Waiters that only look would starve: a reader that was refused joins readers
// that came after it, and a writer whose ticket has run out, because a reader
// extends its lease again and again, gives it anew before many others come in.
func TestWaitersAskAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		t.Parallel()
		start, o := s.Now(), rwlock.Options{Prefer: rwlock.ReadersFirst}
		one := &player{a: rwlock.Read{Options: o}, from: start.Add(time.Second), work: time.Second}
		players := []*player{{a: rwlock.Write{Options: o}, from: start, work: 3 * time.Second}}
		for i := range 30 { // before one looks: there is always a reader in
			players = append(players, &player{a: rwlock.Read{Options: o}, from: start.Add(time.Duration(i+3) * time.Second), work: 3 * time.Second})
		}
		play(t, s, 30*time.Second, append(players, one))
		served(t, "the reader", one, true, 5*time.Second)

		s.FlushAll()
		start = s.Now()
		one = &player{a: rwlock.Write{}, from: start.Add(time.Second), work: time.Second}
		players = []*player{one, {a: rwlock.Read{}, from: start, work: 30 * time.Second, extends: true}}
		for i := range 60 {
			players = append(players, &player{a: rwlock.Read{}, from: start.Add(time.Duration(i) * time.Second), work: 3 * time.Second})
		}
		play(t, s, time.Minute, players)
		served(t, "the writer", one, true, 30*time.Second+3*time.Second+time.Second)
	})
}

// Of two writers that wait one takes its own ticket with it, and leaves the
// other's: new readers go on waiting.
func TestTwoWritersWait(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		o := rwlock.Options{Prefer: rwlock.WritersFirst}
		read, write := rwlock.Read{Options: o}, rwlock.Write{Options: o}
		l := acquire(t, s, read, ttl)
		refusedWaiter(t, s, write, "first")
		refusedWaiter(t, s, write, "second")
		release(t, s, read, l, nil)
		w := mustAcquire(t, s, write, "first")
		release(t, s, write, w, nil)
		refused(t, s, read, compat.ErrHeld)
		w = mustAcquire(t, s, write, "second")
		release(t, s, write, w, nil)
		acquire(t, s, read, ttl)
	})
}

// When a writer goes, those readers have a turn that waited until then, before the next writer;
// one that asked once, that came later or has had its turn has none.
func TestTurn(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		read, write := rwlock.Read{}, rwlock.Write{}
		l := acquire(t, s, write, ttl)
		refused(t, s, read, compat.ErrHeld)
		release(t, s, write, l, nil)
		l = acquire(t, s, write, ttl)

		refusedWaiter(t, s, read, "a")
		refusedWaiter(t, s, read, "b")
		refusedWaiter(t, s, write, "writer")
		release(t, s, write, l, nil)
		refusedWaiter(t, s, write, "writer")
		refused(t, s, read, compat.ErrHeld)
		refusedWaiter(t, s, read, "late")
		a := mustAcquire(t, s, read, "a")
		refusedWaiter(t, s, write, "writer")
		release(t, s, read, a, nil)
		refusedWaiter(t, s, read, "a") // once
		b := mustAcquire(t, s, read, "b")
		release(t, s, read, b, nil)
		l = mustAcquire(t, s, write, "writer")
		release(t, s, write, l, nil)
		refused(t, s, write, compat.ErrHeld) // before "a" and "late"
		mustAcquire(t, s, read, "late")
	})
}

// One that another comes in before, between its look and its EXEC, waits as one that was refused at once.
func TestTooLateWaits(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		for set, a := range map[string]protocol.Algorithm{"k:waiting:{k}": rwlock.Write{}, "k:queue:{k}": rwlock.Read{}} {
			var l compat.Lease
			c := between(s.Dial(), func() { l = acquire(t, s, rwlock.Write{}, ttl) })
			if _, err := over(c, a).Acquire(waiting("late"), s.Now, "k", ttl); !errors.Is(err, compat.ErrHeld) {
				t.Errorf("%T: %v, want ErrHeld", a, err)
			}
			if n := do(t, s, "ZCARD", set); n != int64(1) {
				t.Errorf("%T: %v wait", a, n)
			}
			release(t, s, rwlock.Write{}, l, nil)
			s.FlushAll()
		}
	})
}

// A reader that has to give way sees the key as held, and not as open to it.
func TestShutOutIsNotOpen(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		acquire(t, s, rwlock.Read{}, ttl)
		for _, shut := range []bool{false, true} {
			if shut {
				refusedWaiter(t, s, rwlock.Write{}, "writer")
			}
			st, err := rwlock.Read{}.Inspect(protocol.NewConn(s.Dial()), s.Now(), "k")
			if err != nil || st.Status != compat.StatusHeld || st.Open == shut {
				t.Errorf("shut out %v: %+v, %v", shut, st, err)
			}
		}
	})
}

// A ticket is valid for a second. One from further ahead, of a dead client or of a waiter, counts for nobody and
// hides no other: waiters are served as if it were not there.
func TestTicketsFromAWrongClock(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		read, write := rwlock.Read{Options: rwlock.Options{Margin: time.Minute}}, rwlock.Write{}
		acquire(t, s, read, 10*ttl)
		refusedWaiter(t, s, write, "writer")
		s.Advance(999 * time.Millisecond)
		refused(t, s, read, compat.ErrHeld)
		s.Advance(time.Millisecond)
		acquire(t, s, read, ttl)

		fast := func() time.Time { return s.Now().Add(2 * time.Second) }
		if _, err := over(s.Dial(), write).Acquire(waiting("fast"), fast, "k", ttl); !errors.Is(err, compat.ErrHeld) {
			t.Fatal(err)
		}
		acquire(t, s, read, ttl)

		for _, ahead := range []time.Duration{3 * time.Second, time.Hour, 48 * time.Hour} {
			s.FlushAll()
			gives := func(set string) { do(t, s, "ZADD", "k:"+set+":{k}", s.Now().Add(ahead).UnixMilli(), "dead") }
			gives("waiting")
			gives("queue")
			gives("next")
			for _, a := range []protocol.Algorithm{read, write} {
				if st, err := a.Inspect(protocol.NewConn(s.Dial()), s.Now(), "k"); err != nil || st.Status != compat.StatusFree {
					t.Errorf("%T: %+v, %v, want free", a, st, err)
				}
			}
			l := acquire(t, s, read, 10*ttl)
			refusedWaiter(t, s, write, "one")
			refused(t, s, read, compat.ErrHeld)
			release(t, s, read, l, nil)
			l = mustAcquire(t, s, write, "one")
			gives("queue")
			refusedWaiter(t, s, read, "reader")
			release(t, s, write, l, nil)
			refused(t, s, write, compat.ErrHeld) // it is the reader's turn
			mustAcquire(t, s, read, "reader")
		}
	})
}

// A reader's lease ends within a day: an end from further ahead is of a clock that is wrong, if the server's says so
// too, and keeps no writer out.
func TestEndThatNoLeaseHas(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		for _, o := range []rwlock.Options{{}, {Margin: time.Hour}, {Client: "me"}} {
			read, write := rwlock.Read{Options: rwlock.Options{Margin: o.Margin}}, rwlock.Write{Options: o}
			s.FlushAll()
			live := acquire(t, s, read, ttl)
			for name, ahead := range map[string]time.Duration{"an hour": time.Hour, "a week": 7 * 24 * time.Hour, "a lifetime": 1 << 61} {
				do(t, s, "ZADD", "k:readers:{k}", s.Now().Add(ahead).UnixMilli(), name)
			}
			refused(t, s, write, compat.ErrHeld)
			do(t, s, "ZREM", "k:readers:{k}", "an hour")
			refused(t, s, write, compat.ErrHeld) // the live one
			if n := do(t, s, "ZCARD", "k:readers:{k}"); n != int64(1) {
				t.Errorf("%+v: %v readers are left, want the live one", o, n)
			}
			release(t, s, read, live, nil)
			release(t, s, write, acquire(t, s, write, ttl), nil)

			// One whose own clock is slow takes nobody out: the server knows the time.
			live = acquire(t, s, read, ttl)
			slow := func() time.Time { return s.Now().Add(-72 * time.Hour) }
			if _, err := over(s.Dial(), write).Acquire(context.Background(), slow, "k", ttl); !errors.Is(err, compat.ErrHeld) {
				t.Errorf("%+v: a writer whose clock is slow: %v, want ErrHeld", o, err)
			}
			release(t, s, read, live, nil)
		}
	})
}

// waiting is the context of one that waits under that name.
func waiting(name string) context.Context {
	return (*compat.Locker)(nil).WaitingAs(context.Background(), name)
}

// refusedWaiter makes an attempt of a waiter, which is refused.
func refusedWaiter(t *testing.T, s *oldredis.Server, a protocol.Algorithm, name string) {
	t.Helper()
	if _, err := over(s.Dial(), a).Acquire(waiting(name), s.Now, "k", ttl); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("%T, %q: %v, want ErrHeld", a, name, err)
	}
}

// mustAcquire makes an attempt that succeeds.
func mustAcquire(t *testing.T, s *oldredis.Server, a protocol.Algorithm, name string) compat.Lease {
	t.Helper()
	l, err := over(s.Dial(), a).Acquire(waiting(name), s.Now, "k", ttl)
	if err != nil {
		t.Fatalf("%T, %q: %v", a, name, err)
	}
	return l.Lease
}
