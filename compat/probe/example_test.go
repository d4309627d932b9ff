package probe_test

import (
	"context"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/probe"
)

func ExampleAsk() {
	redis := oldredis.MustNew("2.2", oldredis.Options{Refuse: []string{"INFO", "PING", "CONFIG"}})
	defer redis.Close()

	r, err := probe.Ask(context.Background(), compat.Pooled(redis), probe.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("WATCH:", r.Can(ability.Watch))
	fmt.Println("RENAMENX keeps the TTL:", r.Can(ability.Renamenx))
	for _, c := range r.Questions {
		if c.Name == "RENAMENX" || c.Name == "PING" {
			fmt.Println(c.Name, "–", c.Answer)
		}
	}
	// Output:
	// WATCH: true
	// RENAMENX keeps the TTL: false
	// PING – ERR unknown command 'PING'
	// RENAMENX – OK, QUEUED, QUEUED, QUEUED, QUEUED, QUEUED, QUEUED, QUEUED, QUEUED, QUEUED, [OK 1 -1 1 OK OK 0 1 1], that is: RENAMENX drops the TTL (it travels with the name since 2.4), so a dead holder's lock would last for ever
}

func ExampleOffset() {
	ours := at(time.Date(2012, 1, 1, 12, 0, 0, 0, time.UTC))
	redis := oldredis.MustNew("1.2", oldredis.Options{Clock: ours}) // has no TIME
	defer redis.Close()
	redis.Advance(time.Hour + 300*time.Millisecond) // ahead of ours

	offset, uncertainty, err := probe.Offset(context.Background(), compat.Pooled(redis), ours, probe.Options{})
	fmt.Println(offset.Round(100*time.Millisecond), uncertainty < 50*time.Millisecond, err)
	// Output: 1h0m0.3s true <nil>
}

func ExampleNew() {
	redis := oldredis.MustNew("2.2", oldredis.Options{})
	defer redis.Close()

	ctx := context.Background()
	locks, choice, err := probe.New(ctx, compat.Pooled(redis), compat.Options{})
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
		report, err := probe.Ask(context.Background(), compat.Pooled(redis), probe.Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		choice, err := probe.Choose(context.Background(), compat.Pooled(redis), report, probe.Options{Fence: true})
		fmt.Println(version, choice.Name, err)
		redis.Close()
	}
	// Output:
	// 1.2 getset:classic <nil>
	// 2.2 tx:guarded <nil>
	// 7.0 set:lua <nil>
	// twemproxy  setnxlock: not safe on this server: it has no MULTI, so the fence and the lock can't be had together; use no fence
}
