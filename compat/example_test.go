package compat_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// Do is the way to use a lock: it waits, renews, and releases, and its context
// ends before the lease does.
func ExampleLocker_Do() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	locks := compat.New(pool, txlock.Renamed{}, compat.Options{NoRenew: true})

	err := locks.Do(context.Background(), "report", 30*time.Second, func(ctx context.Context) error {
		fmt.Println("alone:", ctx.Err() == nil)
		return nil
	})
	fmt.Println(err)
	// Output:
	// alone: true
	// <nil>
}

// Lock waits for as long as its context lives. A wait that was given up is
// the context's error, never ErrHeld.
func ExampleLocker_Lock() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	locks := compat.New(pool, txlock.Guarded{}, compat.Options{NoRenew: true})
	first, _ := locks.Lock(context.Background(), "report", 30*time.Second)

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := locks.Lock(ctx, "report", 30*time.Second)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), errors.Is(err, compat.ErrHeld))
	fmt.Println(first.Release(ctx)) // works although ctx has ended
	// Output:
	// true false
	// <nil>
}

// TryLock asks once. The error says who has the lock, as far as it was seen.
func ExampleLocker_TryLock() {
	mock := clock.NewMock()
	pool := oldredis.MustNew("1.2", oldredis.Options{Clock: mock}).Pool()
	locks := compat.New(pool, getsetlock.Classic{}, compat.Options{NoRenew: true, Clock: mock})
	locks.TryLock(context.Background(), "report", 30*time.Second)

	_, err := locks.TryLock(context.Background(), "report", 30*time.Second)
	var held *compat.HeldError
	fmt.Println(errors.As(err, &held), held.Until.UTC().Truncate(time.Second).Format(time.TimeOnly))
	// Output:
	// true 00:00:30
}

// Extend sets the end of the lease, counted from now; a lease that has ended
// can't be extended.
func ExampleLock_Extend() {
	mock := clock.NewMock()
	pool := oldredis.MustNew("2.4", oldredis.Options{Clock: mock}).Pool()
	locks := compat.New(pool, txlock.Renamed{}, compat.Options{NoRenew: true, Clock: mock})
	lock, _ := locks.TryLock(context.Background(), "report", 10*time.Second)

	fmt.Println(lock.Extend(context.Background(), 20*time.Second))
	fmt.Println(lock.Until().Sub(mock.Now())) // less a margin for drift
	mock.Add(20 * time.Second)
	fmt.Println(lock.Extend(context.Background(), 20*time.Second))
	fmt.Println(context.Cause(lock.Context()))
	// Output:
	// <nil>
	// 19.798s
	// setnxlock: lease lost: "report" has run out, last confirmed at 1970-01-01T00:00:00.000Z, and nothing was to renew it
	// setnxlock: lease lost: "report" has run out, last confirmed at 1970-01-01T00:00:00.000Z, and nothing was to renew it
}

// A leader leads until its lock is lost or its program is to end, whichever comes first.
func ExampleLock_With() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	locks := compat.New(pool, txlock.Renamed{}, compat.Options{})
	ctx, sigterm := context.WithCancel(context.Background()) // signal.NotifyContext(…, syscall.SIGTERM) in a server
	lead := func(ctx context.Context) {
		sigterm() // from outside, in real life
		<-ctx.Done()
		fmt.Println("resigns:", context.Cause(ctx))
	}

	for ctx.Err() == nil {
		lock, err := locks.Lock(ctx, "leader", 15*time.Second)
		if err != nil {
			break
		}
		term, end := lock.With(ctx)
		lead(term)
		end()
		fmt.Println(lock.Release(ctx)) // works although ctx has ended
	}
	// Output:
	// resigns: context canceled
	// <nil>
}

// The fence grows with every acquisition. What the lock protects can refuse a
// write that comes with an older number than the last it has seen.
func ExampleLock_Fence() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	locks := compat.New(pool, txlock.Renamed{Options: txlock.Options{Fence: true}}, compat.Options{NoRenew: true})
	for range 3 {
		lock, _ := locks.TryLock(context.Background(), "report", 30*time.Second)
		fmt.Println(lock.Fence())
		lock.Release(context.Background())
	}
	// Output:
	// 1
	// 2
	// 3
}

// A lock can be handed to another process: its key and token are enough.
func ExampleLocker_Adopt() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	parent := compat.New(pool, txlock.Renamed{}, compat.Options{NoRenew: true})
	child := compat.New(pool, txlock.Renamed{}, compat.Options{NoRenew: true})

	lock, _ := parent.TryLock(context.Background(), "report", 30*time.Second)
	handed, err := child.Adopt(context.Background(), lock.Key(), lock.Token(), time.Minute)
	fmt.Println(handed.Lease().How, err)
	fmt.Println(handed.Release(context.Background()))
	_, err = child.Adopt(context.Background(), lock.Key(), lock.Token(), time.Minute)
	fmt.Println(errors.Is(err, compat.ErrLost))
	// Output:
	// adopted <nil>
	// <nil>
	// true
}

// ReleaseToken releases without a handle: the key goes if it holds the token.
func ExampleLocker_ReleaseToken() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	locks := compat.New(pool, txlock.Renamed{}, compat.Options{NoRenew: true})
	lock, _ := locks.TryLock(context.Background(), "report", 30*time.Second)

	err := locks.ReleaseToken(context.Background(), "report", "somebody else's")
	fmt.Println(errors.Is(err, compat.ErrLost))
	fmt.Println(locks.ReleaseToken(context.Background(), "report", lock.Token()))
	// Output:
	// true
	// <nil>
}

// Inspect tells what is on a key, and changes nothing.
func ExampleLocker_Inspect() {
	mock := clock.NewMock()
	pool := oldredis.MustNew("2.4", oldredis.Options{Clock: mock}).Pool()
	locks := compat.New(pool, txlock.Renamed{}, compat.Options{NoRenew: true, Clock: mock})
	locks.TryLock(context.Background(), "report", 30*time.Second)

	state, _ := locks.Inspect(context.Background(), "report")
	fmt.Println(state.Status, state.Format, state.TTL, "by the clock of the", state.Clock)
	state, _ = locks.Inspect(context.Background(), "nothing")
	fmt.Println(state.Status)
	// Output:
	// held token 30s by the clock of the server
	// free
}

// What a Locker does can be logged, or counted.
func ExampleSlog() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "took" || a.Key == "until" {
			return slog.Attr{} // not the same in each run
		}
		return a
	}}))
	locks := compat.New(pool, txlock.Renamed{}, compat.Options{NoRenew: true, Observer: compat.Slog(log)})
	lock, _ := locks.TryLock(context.Background(), "report", 30*time.Second)
	lock.Release(context.Background())
	// Output:
	// level=INFO msg="lock acquired" key=report tries=1 how=free
	// level=INFO msg="lock released" key=report
}

// An Observer is a function over events.
func ExampleObserver() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	locks := compat.New(pool, txlock.Renamed{}, compat.Options{NoRenew: true, Observer: compat.Observer(func(e compat.Event) {
		fmt.Println(e.Kind, e.Key)
	})})
	locks.Do(context.Background(), "report", 30*time.Second, func(context.Context) error { return nil })
	// Output:
	// attempt report
	// acquired report
	// released report
}
