package compat_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// realPool is of a real server, which allocates nothing in this process.
func realPool(b *testing.B) *redis.Pool {
	addr := realredis.Start(b)
	p := &redis.Pool{MaxIdle: 64, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
	b.Cleanup(func() { p.Close() })
	return p
}

// pair is an acquisition and a release.
func pair(b *testing.B, acquire func(context.Context, string, time.Duration) (*compat.Lock, error)) {
	lock, err := acquire(context.Background(), "bench", time.Minute)
	if err == nil {
		err = lock.Release(context.Background())
	}
	if err != nil {
		b.Error(err)
	}
}

var benchmarked = []struct {
	name string
	a    protocol.Algorithm
	o    compat.Options
}{
	{"getset:classic", getsetlock.Classic{}, compat.Options{}},
	{"getset:guarded", getsetlock.Guarded{}, compat.Options{}},
	{"getset:listed", getsetlock.ListCAS{}, compat.Options{}},
	{"tx:classic", txlock.Classic{}, compat.Options{}},
	{"tx:renamed", txlock.Renamed{}, compat.Options{}},
	{"tx:renamed/listed", txlock.Renamed{Options: txlock.Options{ListCAS: true}}, compat.Options{}},
	{"set:lua", setlock.Lua{}, compat.Options{}},
}

// BenchmarkPair is an acquisition and a release, beside two PINGs.
func BenchmarkPair(b *testing.B) {
	p := realPool(b)
	b.Run("two PINGs", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for range 2 {
				c := p.Get()
				if _, err := c.Do("PING"); err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
		}
	})
	for _, m := range benchmarked {
		b.Run(m.name, func(b *testing.B) {
			k := compat.New(p, m.a, m.o)
			b.ReportAllocs()
			for b.Loop() {
				pair(b, k.TryLock)
			}
		})
	}
}

// BenchmarkExtend is a renewal.
func BenchmarkExtend(b *testing.B) {
	p := realPool(b)
	for _, m := range benchmarked {
		b.Run(m.name, func(b *testing.B) {
			lock, err := compat.New(p, m.a, m.o).TryLock(context.Background(), "bench", time.Minute)
			if err != nil {
				b.Fatal(err)
			}
			defer lock.Release(context.Background()) //nolint:errcheck // the extensions are what is measured
			b.ReportAllocs()
			for b.Loop() {
				if err := lock.Extend(context.Background(), time.Minute); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOneKey is one section of many goroutines that all want the same key.
func BenchmarkOneKey(b *testing.B) {
	p := realPool(b)
	k := compat.New(p, txlock.Renamed{}, compat.Options{})
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(again *testing.PB) {
		for again.Next() {
			pair(b, k.Lock)
		}
	})
}

// BenchmarkHeld is a lock that is taken while so many are held and renewed, and what each of those
// has in memory.
func BenchmarkHeld(b *testing.B) {
	p := realPool(b)
	heap := func() float64 {
		runtime.GC()
		runtime.GC() // the second frees what finalizers held
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc + m.StackInuse)
	}
	for _, held := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(held), func(b *testing.B) {
			ctx := context.Background()
			o := compat.Options{Observer: func(compat.Event) {}}
			k := compat.New(p, setlock.Lua{}, o)
			defer k.Close(ctx) //nolint:errcheck // the server ends as well
			before, goroutines := heap(), runtime.NumGoroutine()
			for n := range held {
				if _, err := k.TryLock(ctx, fmt.Sprint("held-", held, "-", n), time.Hour); err != nil {
					b.Fatal(err)
				}
			}
			each := (heap() - before) / float64(held)
			goroutines = runtime.NumGoroutine() - goroutines
			b.ReportAllocs()
			for b.Loop() {
				pair(b, k.TryLock)
			}
			b.ReportMetric(each, "B/held")
			b.ReportMetric(float64(goroutines), "goroutines")
		})
	}
}
