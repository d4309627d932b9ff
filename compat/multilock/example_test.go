package multilock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// Money goes from one account to another while both are locked, and only then.
func Example() {
	pool := oldredis.MustNew("2.4", oldredis.Options{}).Pool()
	accounts := compat.New(pool, multilock.Tx{}, compat.Options{NoRenew: true, Prefix: "account:"})
	single := compat.New(pool, txlock.Renamed{}, compat.Options{NoRenew: true, Prefix: "account:"})

	ctx := context.Background()
	err := accounts.Do(ctx, multilock.Join("ann", "bob"), 30*time.Second, func(ctx context.Context) error {
		_, err := single.TryLock(ctx, "bob", 30*time.Second)
		fmt.Println(err != nil)
		return nil
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

// Through a proxy, or on a cluster, the keys are taken one after the other.
func ExampleNew() {
	pool := oldredis.MustNew("twemproxy", oldredis.Options{}).Pool()
	sets := compat.NewLocker(multilock.New(compat.Pooled(pool), getsetlock.Classic{}), compat.Options{NoRenew: true})

	lock, err := sets.TryLock(context.Background(), multilock.Join("b", "a"), 30*time.Second)
	fmt.Println(lock.Key(), err)
	fmt.Println(lock.Release(context.Background()))
	// Output:
	// all(a,b) <nil>
	// <nil>
}

func ExampleJoin() {
	fmt.Println(multilock.Join("pears", "apples", "pears"))
	keys, err := multilock.Split("stock:" + multilock.Join("pears", "apples"))
	fmt.Println(keys, err)
	// Output:
	// all(apples,pears)
	// [stock:apples stock:pears] <nil>
}
