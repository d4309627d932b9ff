package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/setnxlock/setnxlock/compat/setlock"
)

// Two importers at once, and a third one that is refused. In a program of your own the first line is a *redis.Pool instead.
func Example() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	jobs := compat.New(pool, semaphore.Lock{Options: semaphore.Options{N: 2}}, compat.Options{NoRenew: true})

	ctx := context.Background()
	var held []*compat.Lock
	for range 2 {
		lock, err := jobs.TryLock(ctx, "import", 30*time.Second)
		if err != nil {
			fmt.Println(err)
			return
		}
		held = append(held, lock)
	}
	_, err := jobs.TryLock(ctx, "import", 30*time.Second)
	fmt.Println("a third one:", errors.Is(err, compat.ErrHeld))
	for _, lock := range held {
		fmt.Println("released:", lock.Release(ctx))
	}
	// Output:
	// a third one: true
	// released: <nil>
	// released: <nil>
}

// On a newer Redis the slots can be the lock of SET NX PX. Each slot has fences of its own: a storage remembers the highest
// of each slot.
func Example_fences() {
	pool := oldredis.MustNew("7.0", oldredis.Options{}).Pool()
	slot := func(token func() string) protocol.Algorithm {
		return setlock.Lua{Options: setlock.Options{Token: token}}
	}
	jobs := compat.New(pool, semaphore.Lock{Options: semaphore.Options{N: 2, Slot: slot, Millis: true, Fence: true}}, compat.Options{NoRenew: true})

	ctx := context.Background()
	stored := map[int]int64{}
	for range 3 {
		lock, err := jobs.TryLock(ctx, "import", 30*time.Second)
		if err != nil {
			fmt.Println(err)
			return
		}
		slot := semaphore.Slot(lock.Token())
		fmt.Println("accepted:", lock.Fence() > stored[slot])
		stored[slot] = lock.Fence()
		lock.Release(ctx) //nolint:errcheck // an example
	}
	// Output:
	// accepted: true
	// accepted: true
	// accepted: true
}
