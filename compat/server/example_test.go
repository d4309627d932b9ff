package server_test

import (
	"context"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/server"
)

func ExampleProbe() {
	redis := oldredis.MustNew("2.2", oldredis.Options{Refuse: []string{"INFO", "PING", "CONFIG"}})
	defer redis.Close()

	r, err := server.Probe(context.Background(), compat.Pooled(redis), server.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("WATCH:", r.Watch)
	fmt.Println("RENAMENX keeps the TTL:", r.Renamenx)
	for _, c := range r.Checks {
		if c.Name == "RENAMENX" || c.Name == "PING" {
			fmt.Println(c.Name, "–", c.Answer)
		}
	}
	// Output:
	// WATCH: true
	// RENAMENX keeps the TTL: false
	// PING – ERR unknown command 'PING'
	// RENAMENX – OK, QUEUED, QUEUED, QUEUED, QUEUED, QUEUED, QUEUED, QUEUED, QUEUED, QUEUED, [OK 1 -1 1 OK OK 0 1 1]
}

func ExampleOffset() {
	ours := at(time.Date(2012, 1, 1, 12, 0, 0, 0, time.UTC))
	redis := oldredis.MustNew("1.2", oldredis.Options{Clock: ours}) // has no TIME
	defer redis.Close()
	redis.Advance(time.Hour + 300*time.Millisecond) // ahead of ours

	offset, uncertainty, err := server.Offset(context.Background(), compat.Pooled(redis), ours, server.Options{})
	fmt.Println(offset.Round(100*time.Millisecond), uncertainty < 50*time.Millisecond, err)
	// Output: 1h0m0.3s true <nil>
}
