package getsetlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// A lock on a Redis 1.2, which has no WATCH and deletes keys with a TTL when
// they are written to.
func Example() {
	pool := oldredis.MustNew("1.2", oldredis.Options{}).Pool()
	locks := compat.New(pool, getsetlock.Classic{}, compat.Options{NoRenew: true})

	err := locks.Do(context.Background(), "report", 30*time.Second, func(ctx context.Context) error {
		fmt.Println("writing the report, alone")
		return nil // ctx would end, with cause compat.ErrLost, before the lease does
	})
	fmt.Println(err)
	// Output:
	// writing the report, alone
	// <nil>
}

// A holder that died is taken over when its time has come. The mock clock moves
// server and clients together, so the test takes no time.
func ExampleGuarded() {
	mock := clock.NewMock()
	pool := oldredis.MustNew("2.2", oldredis.Options{Clock: mock}).Pool()
	locks := compat.New(pool, getsetlock.Guarded{}, compat.Options{NoRenew: true, Clock: mock})

	ctx := context.Background()
	locks.TryLock(ctx, "report", 30*time.Second) // and dies

	_, err := locks.TryLock(ctx, "report", 30*time.Second)
	fmt.Println(err)
	mock.Add(31 * time.Second)
	lock, err := locks.TryLock(ctx, "report", 30*time.Second)
	fmt.Println(lock.Lease().How, err)
	// Output:
	// setnxlock: "report" is held by another client until 1970-01-01T00:00:30.000Z
	// taken over <nil>
}

// A fleet of another language writes milliseconds, as jedis-lock does.
func ExampleDialect() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	algorithm := getsetlock.Guarded{Options: getsetlock.Options{Dialect: getsetlock.Millis}}
	locks := compat.New(pool, algorithm, compat.Options{NoRenew: true})

	lock, err := locks.TryLock(context.Background(), "report", 30*time.Second)
	fmt.Println(len(lock.Token()), err)
	// Output:
	// 13 <nil>
}

// A service in Go joins programs in Python that lock with redis-py 2.9: it
// writes what they write, waits for them, and takes over when they would.
func ExampleNamed() {
	mock := clock.NewMock()
	mock.Set(time.Unix(1795238700, 0))
	server := oldredis.MustNew("2.4", oldredis.Options{Clock: mock})
	server.Dial().Do("SETNX", "report", "1795238718.94") // by redis-py, which died

	dialect, err := getsetlock.Named("redis-py-2.9")
	if err != nil {
		fmt.Println(err)
		return
	}
	algorithm := getsetlock.Guarded{Options: getsetlock.Options{Dialect: dialect}}
	locks := compat.New(server.Pool(), algorithm, compat.Options{NoRenew: true, Clock: mock})
	_, err = locks.TryLock(context.Background(), "report", 30*time.Second)
	fmt.Println(err)
	mock.Add(19 * time.Second)
	lock, err := locks.TryLock(context.Background(), "report", 30*time.Second)
	fmt.Println(lock.Token(), err)
	// Output:
	// setnxlock: "report" is held by another client until 2026-11-21T05:25:18.940Z
	// 1795238749.0 <nil>
}
