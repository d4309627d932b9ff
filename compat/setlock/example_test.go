package setlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// A lock on a newer Redis. In a program of your own the first line is a
// *redis.Pool instead.
func Example() {
	pool := oldredis.MustNew("7.0", oldredis.Options{}).Pool()
	locks := compat.New(pool, setlock.Lua{}, compat.Options{NoRenew: true})

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

// A fleet that moves from txlock to setlock, client by client, excludes itself
// all the while: both write the same bytes.
func Example_migration() {
	pool := oldredis.MustNew("7.0", oldredis.Options{}).Pool()
	old := compat.New(pool, txlock.Renamed{}, compat.Options{NoRenew: true})
	moved := compat.New(pool, setlock.Lua{}, compat.Options{NoRenew: true})

	ctx := context.Background()
	lock, err := old.TryLock(ctx, "report", 30*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = moved.TryLock(ctx, "report", 30*time.Second)
	fmt.Println("held, to the new one:", errors.Is(err, compat.ErrHeld))
	fmt.Println("released:", lock.Release(ctx))
	// Output:
	// held, to the new one: true
	// released: <nil>
}

// A server that forbids scripts is distinguished from one that has them, and the error
// names the lock to use.
func ExampleLua_check() {
	pool := oldredis.MustNew("noscript", oldredis.Options{}).Pool()
	_, err := compat.New(pool, setlock.Lua{}, compat.Options{NoRenew: true}).TryLock(context.Background(), "report", 30*time.Second)
	fmt.Println(err)
	// Output:
	// setnxlock: not safe on Redis 7.0.15: it does not know a command that Redis has had since 2.6 (ERR unknown command 'EVALSHA'): it was renamed or disabled (rename-command), or a proxy in between lacks it; use setlock.Watched, or give the command back its name
}
