package compat_test

import (
	"context"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/oldredis/realredis"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

var benchmarked = []struct {
	name string
	a    compat.Algorithm
}{
	{"getset:classic", getsetlock.Classic{}},
	{"getset:guarded", getsetlock.Guarded{}},
	{"tx:classic", txlock.Classic{}},
	{"tx:guarded", txlock.Guarded{}},
	{"tx:renamed", txlock.Renamed{}},
	{"set:lua", setlock.Lua{}},
	{"set:watch", setlock.Watched{}},
	{"set:script", setlock.Script{}},
}

// BenchmarkPair is an acquisition and a release on a real server; "pings" is
// what it takes in two PINGs, measured in turn with it on the same server.
func BenchmarkPair(b *testing.B) {
	addr := realredis.Start(b)
	p := &redis.Pool{MaxIdle: 4, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
	defer p.Close()
	for _, m := range benchmarked {
		b.Run(m.name, func(b *testing.B) {
			k := compat.New(p, m.a, compat.Options{})
			var pings, pairs time.Duration
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				lock, err := k.TryLock(context.Background(), "bench", time.Minute)
				if err != nil {
					b.Fatal(err)
				}
				if err := lock.Release(context.Background()); err != nil {
					b.Fatal(err)
				}
				pairs += time.Since(start)
				b.StopTimer()
				start = time.Now()
				for range 2 {
					c := p.Get()
					if _, err := c.Do("PING"); err != nil {
						b.Fatal(err)
					}
					c.Close()
				}
				pings += time.Since(start)
				b.StartTimer()
			}
			b.ReportMetric(float64(pairs)/float64(pings), "pings")
		})
	}
}

// BenchmarkEngine is the same in process: what the engine and the algorithm
// cost by themselves.
func BenchmarkEngine(b *testing.B) {
	for _, m := range benchmarked {
		b.Run(m.name, func(b *testing.B) {
			s := oldredis.MustNew("2.6", oldredis.Options{})
			defer s.Close()
			p := s.Pool()
			k := compat.New(p, m.a, compat.Options{})
			b.ReportAllocs()
			for b.Loop() {
				lock, err := k.TryLock(context.Background(), "bench", time.Minute)
				if err != nil {
					b.Fatal(err)
				}
				if err := lock.Release(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
