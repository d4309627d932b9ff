package rwlock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/oldredis/realredis"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// Many readers and writers on a real server, some of whom die with the lock:
// what a writer writes in two halves no reader ever sees in halves, and no two
// that exclude each other are in together.
func TestStress(t *testing.T) {
	addr := realredis.Start(t)
	for _, c := range []struct {
		name string
		o    rwlock.Options
	}{
		{"fair", rwlock.Options{Millis: true}},
		{"writers first", rwlock.Options{Millis: true, Prefer: rwlock.WritersFirst}},
		{"readers first, server's clock", rwlock.Options{Millis: true, Prefer: rwlock.ReadersFirst, ServerClock: true}},
		{"over an inner lock", rwlock.Options{Millis: true, Inner: txlock.Guarded{}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			stress(t, addr, c.o)
		})
	}
}

func stress(t *testing.T, addr string, o rwlock.Options) {
	const readers, writers, rounds = 12, 4, 8
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	pool := conformance.Dial(t, addr)
	lo := compat.Options{Prefix: compat.NewToken() + ":", MinPoll: time.Millisecond, MaxPoll: 20 * time.Millisecond, Timeout: time.Minute}
	var left, right, alone, together, overlaps, halves, reads, writes atomic.Int64

	// client takes the lock again and again, and once more before it dies, if it
	// does. A writer goes on as a reader every other time.
	client := func(a compat.Algorithm, dies bool, in func() (out func()), reads func() (out func())) {
		k := compat.New(pool, a, lo)
		readers := compat.New(pool, rwlock.Read{Options: o}, lo)
		for n := range rounds {
			lock, err := k.Lock(ctx, "k", time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			out := in()
			if _, err := k.Inspect(ctx, "k"); err != nil { // some time passes inside
				t.Error(err)
			}
			out()
			if reads != nil && n%2 == 0 {
				if lock, err = rwlock.Downgrade(ctx, lock, readers, time.Minute); err != nil {
					t.Errorf("Downgrade: %v", err)
					return
				}
				out := reads()
				if _, err := k.Inspect(ctx, "k"); err != nil {
					t.Error(err)
				}
				out()
			}
			if err := lock.Release(ctx); err != nil {
				t.Errorf("%T: Release: %v", a, err)
			}
		}
		if dies {
			if _, err := k.Lock(ctx, "k", 300*time.Millisecond); err != nil {
				t.Error(err)
			}
		}
	}
	reading := func() func() {
		together.Add(1)
		l := left.Load()
		return func() {
			if alone.Load() != 0 {
				overlaps.Add(1)
			}
			if l != right.Load() {
				halves.Add(1)
			}
			together.Add(-1)
			reads.Add(1)
		}
	}
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() { client(rwlock.Read{Options: o}, i%3 == 0, reading, nil) })
	}
	for i := range writers {
		wg.Go(func() {
			client(rwlock.Write{Options: o}, i == 0, func() func() {
				if alone.Add(1) != 1 || together.Load() != 0 {
					overlaps.Add(1)
				}
				n := left.Add(1)
				return func() {
					right.Store(n)
					if together.Load() != 0 {
						overlaps.Add(1)
					}
					alone.Add(-1)
					writes.Add(1)
				}
			}, reading)
		})
	}
	wg.Wait()
	if overlaps.Load() != 0 || halves.Load() != 0 || left.Load() != right.Load() {
		t.Errorf("%d overlaps, %d reads of halves, %d and %d at the end", overlaps.Load(), halves.Load(), left.Load(), right.Load())
	}
	if all := int64(readers*rounds + writers*rounds/2); reads.Load() != all || writes.Load() != writers*rounds {
		t.Errorf("%d reads and %d writes, want %d and %d", reads.Load(), writes.Load(), all, writers*rounds)
	}
}
