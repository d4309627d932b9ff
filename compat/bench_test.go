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
	name   string
	a      compat.Algorithm
	pinned int
}{
	{"getset:classic", getsetlock.Classic{}, 0},
	{"getset:guarded", getsetlock.Guarded{}, 0},
	{"getset:guarded/pinned", getsetlock.Guarded{}, 1},
	{"getset:listed", getsetlock.ListCAS{}, 0},
	{"tx:classic", txlock.Classic{}, 0},
	{"tx:classic/pinned", txlock.Classic{}, 1},
	{"tx:guarded", txlock.Guarded{}, 0},
	{"tx:guarded/pinned", txlock.Guarded{}, 1},
	{"tx:renamed", txlock.Renamed{}, 0},
	{"tx:renamed/pinned", txlock.Renamed{}, 1},
	{"tx:renamed/listed", txlock.Renamed{Options: txlock.Options{ListCAS: true}}, 0},
	{"set:lua", setlock.Lua{}, 0},
	{"set:watch", setlock.Watched{}, 0},
	{"set:watch/pinned", setlock.Watched{}, 1},
	{"set:script", setlock.Script{}, 0},
}

// BenchmarkPair is an acquisition and a release on a real server; "pings" is
// what it takes in two PINGs, measured in turn with it on the same server.
func BenchmarkPair(b *testing.B) {
	addr := realredis.Start(b)
	p := &redis.Pool{MaxIdle: 4, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
	defer p.Close()
	for _, m := range benchmarked {
		b.Run(m.name, func(b *testing.B) {
			k := compat.New(p, m.a, compat.Options{MaxPinned: m.pinned})
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
			s := oldredis.MustNew("2.6.12", oldredis.Options{})
			defer s.Close()
			p := s.Pool()
			k := compat.New(p, m.a, compat.Options{MaxPinned: m.pinned})
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
