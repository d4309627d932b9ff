package semaphore_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/simulate"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// On real servers, at most three of twenty clients are inside although their clocks are up to ten seconds apart and some
// die inside; afterwards all slots can be had.
func TestLongClocksApart(t *testing.T) {
	realredis.Long(t)
	addrs := strings.FieldsFunc(os.Getenv("SETNXLOCK_TEST_REDIS"), func(r rune) bool { return r == ',' })
	if len(addrs) == 0 {
		addrs = []string{realredis.Start(t)}
	}
	for _, addr := range addrs {
		t.Run(addr, func(t *testing.T) {
			ctx := context.Background()
			key := "apart:" + protocol.NewToken()[:8]
			locker := func(o compat.Options) *compat.Locker {
				pool := &redis.Pool{MaxIdle: 2, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
				k := compat.New(pool, semaphore.Lock{Options: semaphore.Options{N: 3}}, o)
				t.Cleanup(func() {
					k.Close(ctx) //nolint:errcheck // what a client that died has left is not its own any more
					pool.Close()
				})
				return k
			}
			var mu sync.Mutex
			inside, most, sections := 0, 0, 0
			enters := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				inside += n
				most = max(most, inside)
				sections += max(n, 0)
			}
			var all sync.WaitGroup
			for n := range 20 {
				all.Go(func() {
					clk := simulate.NewClock()
					clk.Set(time.Duration(n-10) * time.Second / 2)
					k := locker(compat.Options{Clock: clk, NoRenew: true})
					for turn := range 10 {
						l, err := k.Lock(ctx, key, 2*time.Second)
						if err != nil {
							t.Error(err)
							return
						}
						enters(1)
						time.Sleep(2 * time.Millisecond) // the section
						enters(-1)
						if n%5 == 0 && turn == 5 {
							l.Detach(ctx) //nolint:errcheck // a holder that died: its slot is free after the ttl
						} else if err := l.Release(ctx); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			if most != 3 || sections != 200 {
				t.Errorf("%d were inside at once in %d sections, want 3 in 200", most, sections)
			}
			k := locker(compat.Options{})
			for range 3 {
				must.Get(k.Lock(ctx, key, 2*time.Second))(t)
			}
		})
	}
}
