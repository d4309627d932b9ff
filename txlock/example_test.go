package txlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// A lock on a Redis 2.4. In a program of your own the first line is a
// *redis.Pool instead.
func Example() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	locks := compat.New(pool, txlock.Renamed{}, compat.Options{})

	ctx := context.Background()
	lock, err := locks.TryLock(ctx, "report", 30*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = locks.TryLock(ctx, "report", 30*time.Second)
	fmt.Println("a second client:", errors.Is(err, compat.ErrHeld))
	fmt.Println("released:", lock.Release(ctx))
	// Output:
	// a second client: true
	// released: <nil>
}

// On Redis 2.0 a SETNX deletes a key with a TTL and takes it: the lock says so
// instead of excluding nobody.
func ExampleOptions_Check() {
	pool := oldredis.MustNew("2.0", oldredis.Options{}).Pool()
	_, err := compat.New(pool, txlock.Classic{}, compat.Options{}).TryLock(context.Background(), "report", 30*time.Second)
	fmt.Println(err)
	// Output:
	// setnxlock: not safe on Redis 2.0.5: it has no WATCH (it came with 2.2), so nothing can be released safely; use getsetlock.Classic
}
