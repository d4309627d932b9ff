package rwlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/internal/history"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/internal/realredis"
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
	lo := compat.Options{NoRenew: true, Prefix: protocol.NewToken() + ":", Poll: 20 * time.Millisecond, Timeout: time.Minute}
	o.Fence = true
	var left, right, halves, reads, writes atomic.Int64
	var mu sync.Mutex
	var events []history.Event
	tell := func(op history.Op, l *compat.Lock, shared bool, was *compat.Lock) {
		e := history.Event{Op: op, ID: fmt.Sprint(l.Fence()), Key: "k", Fence: l.Fence(), Shared: shared}
		e.Until = l.Until().UnixNano()
		if was != nil {
			e.From = fmt.Sprint(was.Fence())
		}
		mu.Lock()
		defer mu.Unlock()
		e.At = time.Now().UnixNano()
		events = append(events, e)
	}
	// A section is entered with a lock, and the one that it was until then, and left.
	type section func(l, was *compat.Lock) (out func())
	reading := func(l, was *compat.Lock) func() {
		tell(history.Got, l, true, was)
		n := left.Load()
		return func() {
			if n != right.Load() {
				halves.Add(1)
			}
			tell(history.Ends, l, true, nil)
			reads.Add(1)
		}
	}
	writing := func(l, _ *compat.Lock) func() {
		tell(history.Got, l, false, nil)
		n := left.Add(1)
		return func() {
			right.Store(n)
			tell(history.Ends, l, false, nil)
			writes.Add(1)
		}
	}

	// client takes the lock again and again, and once more before it dies, if it
	// does. A writer goes on as a reader every other time.
	client := func(a protocol.Algorithm, dies bool, in section, writer bool) {
		k := compat.New(pool, a, lo)
		readers := compat.New(pool, rwlock.Read{Options: o}, lo)
		inside := func(out func()) {
			if _, err := k.Inspect(ctx, "k"); err != nil { // some time passes inside
				t.Error(err)
			}
			out()
		}
		for n := range rounds {
			lock, err := k.Lock(ctx, "k", time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			inside(in(lock, nil))
			if writer && n%2 == 0 {
				was := lock
				if lock, err = rwlock.Downgrade(ctx, was, readers, 20*time.Second); err != nil {
					t.Errorf("Downgrade: %v", err)
					return
				}
				inside(reading(lock, was))
			}
			if err := lock.Release(ctx); err != nil {
				t.Errorf("%T: Release: %v", a, err)
			}
		}
		if dies {
			lock, err := k.Lock(ctx, "k", 300*time.Millisecond)
			if err != nil {
				t.Error(err)
				return
			}
			tell(history.Got, lock, !writer, nil)
		}
	}
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() { client(rwlock.Read{Options: o}, i%3 == 0, reading, false) })
	}
	for i := range writers {
		wg.Go(func() { client(rwlock.Write{Options: o}, i == 0, writing, true) })
	}
	wg.Wait()
	for _, v := range (&history.Judge{Fenced: true}).Judged(events) {
		t.Error(v)
	}
	if halves.Load() != 0 || left.Load() != right.Load() {
		t.Errorf("%d reads of halves, %d and %d at the end", halves.Load(), left.Load(), right.Load())
	}
	if all := int64(readers*rounds + writers*rounds/2); reads.Load() != all || writes.Load() != writers*rounds {
		t.Errorf("%d reads and %d writes, want %d and %d", reads.Load(), writes.Load(), all, writers*rounds)
	}
}
