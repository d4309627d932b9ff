package compat_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// BenchmarkOneKey is one section of many goroutines that all want the same key:
// handed off in this process, or released and taken anew each time.
func BenchmarkOneKey(b *testing.B) {
	for _, m := range []struct {
		name string
		o    compat.Options
	}{
		{"hand-off", compat.Options{}},
		{"no-hand-off", compat.Options{MaxHandoffs: -1}},
		{"no-hand-off/pinned", compat.Options{MaxHandoffs: -1, MaxPinned: 1}},
	} {
		b.Run(m.name, func(b *testing.B) {
			s := oldredis.MustNew("2.6.12", oldredis.Options{Clock: clock.New()})
			defer s.Close()
			k := compat.New(s.Pool(), txlock.Renamed{}, m.o)
			b.ReportAllocs()
			b.SetParallelism(16)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					lock, err := k.Lock(context.Background(), "bench", time.Minute)
					if err != nil {
						b.Error(err)
						return
					}
					if err := lock.Release(context.Background()); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkExtend is a renewal, over a pinned connection and over any.
func BenchmarkExtend(b *testing.B) {
	for _, m := range benchmarked {
		b.Run(m.name, func(b *testing.B) {
			s := oldredis.MustNew("2.6.12", oldredis.Options{})
			defer s.Close()
			k := compat.New(s.Pool(), m.a, compat.Options{MaxPinned: m.pinned})
			lock, err := k.TryLock(context.Background(), "bench", time.Minute)
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

// BenchmarkHeld is a lock that is taken while so many are held already: what they
// cost those who come later.
func BenchmarkHeld(b *testing.B) {
	for _, held := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprint(held), func(b *testing.B) {
			s := oldredis.MustNew("2.6.12", oldredis.Options{})
			defer s.Close()
			k := compat.New(s.Pool(), txlock.Renamed{}, compat.Options{Renew: true})
			ctx := context.Background()
			for n := range held {
				lock, err := k.TryLock(ctx, fmt.Sprint("held-", n), time.Hour)
				if err != nil {
					b.Fatal(err)
				}
				defer lock.Release(ctx) //nolint:errcheck // it is over
			}
			b.ReportAllocs()
			for b.Loop() {
				lock, err := k.TryLock(ctx, "bench", time.Minute)
				if err != nil {
					b.Fatal(err)
				}
				if err := lock.Release(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
