package auto_test

import (
	"context"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/auto"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/server"
)

func ExampleNew() {
	redis := oldredis.MustNew("2.2", oldredis.Options{})
	defer redis.Close()

	ctx := context.Background()
	locks, choice, err := auto.New(ctx, compat.Pooled(redis), compat.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(choice.Name)
	err = locks.Do(ctx, "report", 30*time.Second, func(context.Context) error {
		fmt.Println("alone")
		return nil
	})
	fmt.Println(err)
	// Output:
	// tx:guarded
	// alone
	// <nil>
}

func ExampleChoose() {
	for _, version := range []string{"1.2", "2.2", "7.0", "twemproxy"} {
		redis := oldredis.MustNew(version, oldredis.Options{})
		report, err := server.Probe(context.Background(), compat.Pooled(redis), server.Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		choice, err := auto.Choose(context.Background(), compat.Pooled(redis), report, auto.Options{Fence: true})
		fmt.Println(version, choice.Name, err)
		redis.Close()
	}
	// Output:
	// 1.2 getset:classic <nil>
	// 2.2 tx:guarded <nil>
	// 7.0 set:lua <nil>
	// twemproxy  setnxlock: not safe on this server: it has no MULTI, so the fence and the lock can't be had together; use no fence
}
