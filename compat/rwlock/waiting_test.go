package rwlock_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// inBubble runs f on each version, in a bubble of its own time.
func inBubble(t *testing.T, f func(t *testing.T, s *oldredis.Server)) {
	onEach(t, func(t *testing.T, version string) {
		synctest.Test(t, func(t *testing.T) {
			s := must.Get(oldredis.New(version, oldredis.Options{Clock: clock.New()}))(t)
			defer s.Close()
			f(t, s)
		})
	})
}

// client is a Locker of a process of its own. Its network can be taken away.
func client(s *oldredis.Server, a protocol.Algorithm) (k *compat.Locker, gone *atomic.Bool) {
	gone = new(atomic.Bool)
	source := compat.Source{Bounded: true, Get: func(context.Context, string) (redis.Conn, error) {
		if gone.Load() {
			return nil, io.EOF
		}
		return s.Dial(), nil
	}}
	return compat.NewOn(source, a, compat.Options{NoRenew: true, Rand: func() float64 { return 0 }}), gone
}

func mustTry(t *testing.T, k *compat.Locker, ttl time.Duration) *compat.Lock {
	t.Helper()
	l, err := k.TryLock(t.Context(), "k", ttl)
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	return l
}

// inBackground waits for the lock and says what came of it.
func inBackground(ctx context.Context, k *compat.Locker, ttl time.Duration) <-chan error {
	done := make(chan error, 1)
	go func() {
		l, err := k.Lock(ctx, "k", ttl)
		if err == nil {
			err = l.Release(context.WithoutCancel(ctx))
		}
		done <- err
	}()
	synctest.Wait()
	return done
}

// A writer that asks once, and is refused, was never there: neither while the reader that was in
// its way lives, nor after.
func TestTryLockAnnouncesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *oldredis.Server) {
		read, _ := client(s, rwlock.Read{})
		write, _ := client(s, rwlock.Write{})
		mustTry(t, read, time.Second) // and dies
		if _, err := write.TryLock(t.Context(), "k", time.Hour); !errors.Is(err, compat.ErrHeld) {
			t.Fatalf("a writer beside a reader: %v, want ErrHeld", err)
		}
		mustTry(t, read, time.Second)
		time.Sleep(time.Second)
		mustTry(t, read, time.Second)
	})
}

// A writer that gave up has removed its ticket by the time that Lock returns.
func TestWriterThatGivesUpWithdraws(t *testing.T) {
	inBubble(t, func(t *testing.T, s *oldredis.Server) {
		read, _ := client(s, rwlock.Read{})
		for name, giveUp := range map[string]func(k *compat.Locker, cancel func()){
			"cancelled": func(_ *compat.Locker, cancel func()) { cancel() },
			"closed":    func(k *compat.Locker, _ func()) { k.Close(t.Context()) },
		} {
			l := mustTry(t, read, time.Minute)
			write, _ := client(s, rwlock.Write{})
			ctx, cancel := context.WithCancel(t.Context())
			done := inBackground(ctx, write, time.Hour)
			time.Sleep(10 * time.Second)
			if _, err := read.TryLock(t.Context(), "k", time.Second); !errors.Is(err, compat.ErrHeld) {
				t.Errorf("%s: a reader behind a writer that has waited for 10 s: %v, want ErrHeld", name, err)
			}
			giveUp(write, cancel)
			if err := <-done; err == nil {
				t.Fatalf("%s: it has the lock", name)
			}
			mustTry(t, read, time.Second).Release(t.Context())
			l.Release(t.Context())
			cancel()
		}
	})
}

// A writer that died while it waited shuts nobody out for longer than a second, whatever its ttl
// was; nor does a reader whose turn it was.
func TestWaiterThatDied(t *testing.T) {
	inBubble(t, func(t *testing.T, s *oldredis.Server) {
		read, _ := client(s, rwlock.Read{})
		write, gone := client(s, rwlock.Write{})
		mustTry(t, read, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		dead := inBackground(ctx, write, time.Hour)
		time.Sleep(20 * time.Second)
		gone.Store(true)
		time.Sleep(time.Second)
		l := mustTry(t, read, time.Second)
		time.Sleep(time.Minute)
		cancel()
		<-dead
		if err := l.Release(t.Context()); !errors.Is(err, compat.ErrLost) {
			t.Fatal(err)
		}

		another, _ := client(s, rwlock.Write{})
		w := mustTry(t, another, time.Minute)
		late, gone := client(s, rwlock.Read{})
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		dead = inBackground(ctx, late, time.Hour)
		time.Sleep(20 * time.Second)
		gone.Store(true)
		must.Do(t, w.Release(t.Context()))
		time.Sleep(time.Second)
		mustTry(t, another, time.Minute).Release(t.Context())
		cancel()
		<-dead
	})
}

// Under a load of two readers and a writer that are inside for 2 ms and outside for up to 100 ms,
// fairness costs neither side half of what it gets where it is preferred.
func TestLongFairnessCostsNobodyHalf(t *testing.T) {
	realredis.Long(t)
	for _, v := range []string{"2.2", "7.0"} {
		reads, writes := map[rwlock.Preference]int{}, map[rwlock.Preference]int{}
		for _, p := range []rwlock.Preference{rwlock.Fair, rwlock.WritersFirst, rwlock.ReadersFirst} {
			synctest.Test(t, func(t *testing.T) {
				s := must.Get(oldredis.New(v, oldredis.Options{Clock: clock.New()}))(t)
				defer s.Close()
				reads[p], writes[p] = load(t, compat.Pooled(s), rwlock.Options{Prefer: p}, time.Minute)
			})
		}
		t.Logf("figure: %s: reads %v, writes %v in a minute; fair, half of each side's most at least", v, reads, writes)
		if 2*writes[rwlock.Fair] < writes[rwlock.WritersFirst] {
			t.Errorf("%s: %d writes, and %d where writers go first", v, writes[rwlock.Fair], writes[rwlock.WritersFirst])
		}
		if 2*reads[rwlock.Fair] < reads[rwlock.ReadersFirst] {
			t.Errorf("%s: %d reads, and %d where readers go first", v, reads[rwlock.Fair], reads[rwlock.ReadersFirst])
		}
	}
}

// load has two readers and a writer take the lock again and again for a while, each in a process
// of its own, and counts how often they had it.
func load(t *testing.T, source compat.Source, o rwlock.Options, d time.Duration) (reads, writes int) {
	source.Bounded = true
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	prefix := protocol.NewToken() + ":"
	var n [3]int
	var done [3]chan struct{}
	for i, a := range []protocol.Algorithm{rwlock.Write{Options: o}, rwlock.Read{Options: o}, rwlock.Read{Options: o}} {
		done[i] = make(chan struct{})
		go func() {
			defer close(done[i])
			random := rand.New(rand.NewPCG(1, uint64(i)))
			k := compat.NewOn(source, a, compat.Options{NoRenew: true, Rand: random.Float64, Prefix: prefix})
			for ctx.Err() == nil {
				time.Sleep(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
				l, err := k.Lock(ctx, "load", 10*time.Second)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				time.Sleep(2 * time.Millisecond)
				n[i]++
				if err := l.Release(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	for _, c := range done {
		<-c
	}
	return n[1] + n[2], n[0]
}
