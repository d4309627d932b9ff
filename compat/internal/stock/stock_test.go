package stock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// There is one hanging Dial, however many steps have given it up. A step that waits when the Dial returns gets
// its connection. Without a waiting step the connection goes back to the pool.
func TestOneGoesOnForNobody(t *testing.T) {
	for name, heeds := range map[string]bool{"heeds its context": true, "does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := oldredis.Run(t, "7.0")
				var l Stock
				var under, most atomic.Int32
				open := make(chan struct{})
				get := func(ctx context.Context) (redis.Conn, error) {
					most.Store(max(most.Load(), under.Add(1)))
					defer under.Add(-1)
					over := ctx.Done()
					if !heeds {
						over = nil
					}
					select {
					case <-open:
						return s.Dial(), nil
					case <-over:
						return nil, ctx.Err()
					}
				}
				enter := func(d time.Duration) error {
					ctx := limit.Timed(context.Background(), clock.New(), d)
					c, err := l.Get(ctx, get)
					if err == nil {
						c.Close()
					}
					return err
				}
				for range 3 {
					var all sync.WaitGroup
					for range 30 {
						all.Go(func() {
							began := time.Now()
							if err := enter(100 * time.Millisecond); !errors.Is(err, limit.ErrTimeout) || time.Since(began) != 100*time.Millisecond {
								t.Errorf("after %v: %v", time.Since(began), err)
							}
						})
					}
					all.Wait()
				}
				if n := most.Load(); n != 1 {
					t.Errorf("%d Dials at a time", n)
				}
				close(open)
				if err := enter(time.Second); err != nil {
					t.Errorf("when it goes on: %v", err)
				}
			})
		})
	}
}
