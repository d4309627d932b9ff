package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/rwlock"
)

// Readers and a writer of one key on a Redis 2.4. In a program of your own the
// first line is a *redis.Pool instead.
func Example() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	read := compat.New(pool, rwlock.Read{}, compat.Options{NoRenew: true})
	write := compat.New(pool, rwlock.Write{}, compat.Options{NoRenew: true})

	ctx := context.Background()
	one, err := read.TryLock(ctx, "catalogue", time.Hour)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = write.TryLock(ctx, "catalogue", time.Hour)
	fmt.Println("a writer beside a reader:", errors.Is(err, compat.ErrHeld))
	fmt.Println("the reader goes:", one.Release(ctx))
	lock, err := write.TryLock(ctx, "catalogue", time.Hour)
	fmt.Println("the writer comes:", err)
	fmt.Println("and goes:", lock.Release(ctx))
	// Output:
	// a writer beside a reader: true
	// the reader goes: <nil>
	// the writer comes: <nil>
	// and goes: <nil>
}

// A client that reads and asks to write would wait for itself. With a name it is
// told so.
func ExampleOptions_client() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	o := rwlock.Options{Client: "order 4711"}
	read := compat.New(pool, rwlock.Read{Options: o}, compat.Options{NoRenew: true})
	write := compat.New(pool, rwlock.Write{Options: o}, compat.Options{NoRenew: true})

	ctx := context.Background()
	err := read.Do(ctx, "catalogue", time.Hour, func(ctx context.Context) error {
		_, err := write.Lock(ctx, "catalogue", time.Hour)
		return err
	})
	fmt.Println(errors.Is(err, rwlock.ErrUpgrade))
	fmt.Println(err)
	// Output:
	// true
	// setnxlock: invalid argument: a reader can't become the writer, because two readers that both waited for that would wait for each other for ever: release the read lock first
}

// A writer goes on as a reader: what it wrote is what it reads, and other readers come in beside it.
func ExampleDowngrade() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	read := compat.New(pool, rwlock.Read{}, compat.Options{NoRenew: true})
	write := compat.New(pool, rwlock.Write{}, compat.Options{NoRenew: true})

	ctx := context.Background()
	lock, err := write.Lock(ctx, "catalogue", time.Hour)
	if err != nil {
		fmt.Println(err)
		return
	}
	reading, err := rwlock.Downgrade(ctx, lock, read, time.Hour)
	fmt.Println("reads:", err)
	_, err = read.TryLock(ctx, "catalogue", time.Hour)
	fmt.Println("another reader:", err)
	_, err = write.TryLock(ctx, "catalogue", time.Hour)
	fmt.Println("a writer:", errors.Is(err, compat.ErrHeld))
	fmt.Println("goes:", reading.Release(ctx))
	// Output:
	// reads: <nil>
	// another reader: <nil>
	// a writer: true
	// goes: <nil>
}

// Before 2.2 a second reader deletes the first: the lock says so.
func ExampleRead_oldServer() {
	pool := oldredis.MustNew("2.0", oldredis.Options{}).Pool()
	_, err := compat.New(pool, rwlock.Read{}, compat.Options{NoRenew: true}).TryLock(context.Background(), "catalogue", 30*time.Second)
	fmt.Println(err)
	// Output:
	// setnxlock: not safe on Redis 2.0.5: ZADD deletes a sorted set that has a TTL, and the readers in it (mended in 2.2); use getsetlock.Classic, which lets one reader in at a time
}
