package txlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// A lock on a Redis 2.4. In a program of your own the first line is a
// *redis.Pool instead.
func Example() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	locks := compat.New(pool, txlock.Renamed{}, compat.Options{NoRenew: true})

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
func ExampleOptions_check() {
	pool := oldredis.MustNew("2.0", oldredis.Options{}).Pool()
	_, err := compat.New(pool, txlock.Classic{}, compat.Options{NoRenew: true}).TryLock(context.Background(), "report", 30*time.Second)
	fmt.Println(err)
	// Output:
	// setnxlock: not safe on Redis 2.0.5: it has no WATCH (it came with 2.2); use getsetlock.ListCAS, or where that is refused too getsetlock.Classic
}

// A service in Go joins programs that lock as the book Redis in Action does. The
// name of the key is theirs, too.
func ExampleNamed() {
	const client = "redis-in-action"
	format, err := dialect.Lookup(client)
	if err != nil {
		fmt.Println(err)
		return
	}
	fleet, err := txlock.Named(client)
	if err != nil {
		fmt.Println(err)
		return
	}
	locks := compat.New(oldredis.MustNew("2.4", oldredis.Options{}).Pool(), fleet, compat.Options{NoRenew: true})
	lock, err := locks.TryLock(context.Background(), format.Key("report"), 30*time.Second)
	fmt.Println(lock.Key(), len(lock.Token()), err)
	// Output:
	// lock:report 36 <nil>
}
