package goredis_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/adapter/goredis"
	"github.com/setnxlock/setnxlock/txlock"
)

func ExampleSource() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", Protocol: 2, DisableIdentity: true})
	defer client.Close()
	locks := compat.NewOn(goredis.Source(client), txlock.Renamed{}, compat.Options{})
	err := locks.Do(context.Background(), "report", 30*time.Second, func(ctx context.Context) error {
		return client.Set(ctx, "report:state", "running", 0).Err() // the same client, beside the lock
	})
	fmt.Println(err)
}
