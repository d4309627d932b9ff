package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// Three servers of three ages, each with the algorithm that suits it, are one
// lock. It outlives the loss of one of them.
func Example() {
	old, older, modern := oldredis.MustNew("2.0", oldredis.Options{}), oldredis.MustNew("2.4", oldredis.Options{}), oldredis.MustNew("7.0", oldredis.Options{})
	defer old.Close()
	defer modern.Close()
	locks := compat.NewLocker(redlock.New([]compat.Backend{
		compat.NewBackend(compat.Pooled(old.Pool()), getsetlock.Classic{}),
		compat.NewBackend(compat.Pooled(older.Pool()), txlock.Renamed{}),
		compat.NewBackend(compat.Pooled(modern.Pool()), setlock.Lua{}),
	}, redlock.Options{
		Names: []string{"old", "older", "modern"},
	}), compat.Options{NoRenew: true})

	ctx := context.Background()
	lock, err := locks.TryLock(ctx, "report", 10*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = locks.TryLock(ctx, "report", 10*time.Second)
	fmt.Println("held:", errors.Is(err, compat.ErrHeld))

	older.Close()
	fmt.Println("extended by two of three:", lock.Extend(ctx, 10*time.Second) == nil)
	fmt.Println("released by two of three:", lock.Release(ctx) == nil)
	// Output:
	// held: true
	// extended by two of three: true
	// released by two of three: true
}

// When too few servers agree, the error has what each of them said.
func ExampleError() {
	modern := oldredis.MustNew("7.0", oldredis.Options{})
	defer modern.Close()
	gone := oldredis.MustNew("7.0", oldredis.Options{})
	gone.Close()
	locks := compat.NewLocker(redlock.New([]compat.Backend{
		compat.NewBackend(compat.Pooled(modern), setlock.Lua{}),
		compat.NewBackend(compat.Pooled(gone), setlock.Lua{}),
	}, redlock.Options{}), compat.Options{NoRenew: true})

	_, err := locks.TryLock(context.Background(), "report", 10*time.Second)
	var e *redlock.Error
	if errors.As(err, &e) {
		fmt.Println(e.Got, "of", e.Of, "servers,", e.Need, "are needed")
		for _, s := range e.Servers {
			fmt.Println(s.Name, "did not agree")
		}
	}
	// Output:
	// 1 of 2 servers, 2 are needed
	// servers[1] did not agree
}
