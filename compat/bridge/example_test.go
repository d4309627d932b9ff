package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/bridge"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// The bridge keeps out the old fleet's clients and the new one's. In a program of
// your own the first line is a *redis.Pool instead.
func Example() {
	pool := oldredis.MustNew("7.0", oldredis.Options{}).Pool()
	b, err := bridge.Named("redis-py-2.9")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	lock, err := compat.New(pool, b, compat.Options{NoRenew: true}).TryLock(ctx, "report", 30*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	for name, a := range map[string]protocol.Algorithm{
		"old": getsetlock.Guarded{},
		"new": setlock.Lua{},
	} {
		_, err := compat.New(pool, a, compat.Options{NoRenew: true}).TryLock(ctx, "report", 30*time.Second)
		fmt.Println(name, "held:", errors.Is(err, compat.ErrHeld))
	}
	fmt.Println("released:", lock.Release(ctx))
	// Unordered output:
	// old held: true
	// new held: true
	// released: <nil>
}

// redis-py's lock since 2.10 and setlock's are the same bytes: no bridge is
// needed, and one can even release what the other took.
func Example_sameBytes() {
	pool := oldredis.MustNew("7.0", oldredis.Options{}).Pool()
	python, err := txlock.Named("redis-py-2.10")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	lock, err := compat.New(pool, python, compat.Options{NoRenew: true}).TryLock(ctx, "report", 30*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	locks := compat.New(pool, setlock.Lua{}, compat.Options{NoRenew: true})
	_, err = locks.TryLock(ctx, "report", 30*time.Second)
	fmt.Println("held:", errors.Is(err, compat.ErrHeld))
	fmt.Println("released:", locks.ReleaseToken(ctx, "report", lock.Token()))
	// Output:
	// held: true
	// released: <nil>
}

// A plan names the stages, and what may run at once.
func ExampleNewPlan() {
	p, err := bridge.NewPlan("jedis-lock", "set")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range p.Stages {
		fmt.Println(s.Name, s.Mix)
	}
	// Output:
	// old []
	// bridge [jedis-lock bridge:jedis-lock]
	// new [bridge:jedis-lock set]
}
