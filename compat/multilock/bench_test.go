package multilock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// BenchmarkPair is an acquisition and a release of a set on a real server.
func BenchmarkPair(b *testing.B) {
	addr := realredis.Start(b)
	p := &redis.Pool{MaxIdle: 4, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
	defer p.Close()
	for _, n := range []int{2, 8} {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprint("bench", i)
		}
		set := multilock.Join(keys...)
		for _, m := range []struct {
			name string
			k    *compat.Locker
		}{
			{"Tx", compat.New(p, multilock.Tx{}, compat.Options{NoRenew: true})},
			{"GetSet", compat.New(p, multilock.GetSet{}, compat.Options{NoRenew: true})},
			{"in turn/tx:renamed", compat.NewLocker(multilock.New(compat.Pooled(p), txlock.Renamed{}), compat.Options{NoRenew: true})},
		} {
			b.Run(fmt.Sprintf("%s/%d", m.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					lock, err := m.k.TryLock(background, set, time.Minute)
					if err != nil {
						b.Fatal(err)
					}
					if err := lock.Release(background); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
