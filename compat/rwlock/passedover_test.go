package rwlock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// Of fifteen writers that wait in twelve processes, among readers, each has its turn by and by: none looks so
// much more seldom than the others, because it has waited for long, that hundreds of them go first.
func TestLongWritersAreNotPassedOver(t *testing.T) {
	realredis.Long(t)
	synctest.Test(t, func(t *testing.T) {
		s := must.Get(oldredis.New("2.6", oldredis.Options{Clock: clock.New()}))(t)
		defer s.Close()
		var mu sync.Mutex
		writes, reads := 0, 0
		worst := [2][3]int{}
		var wg sync.WaitGroup
		until := time.Now().Add(30 * time.Second)
		var all []*compat.Locker
		for range 12 {
			source := compat.Source{Bounded: true, Get: func(context.Context, string) (redis.Conn, error) { return s.Dial(), nil }}
			read, write := compat.NewOn(source, rwlock.Read{}, compat.Options{NoRenew: true}), compat.NewOn(source, rwlock.Write{}, compat.Options{NoRenew: true})
			all = append(all, read, write)
			for range 2 {
				wg.Go(func() {
					for time.Now().Before(until) {
						mu.Lock()
						shared := rand.IntN(3) > 0
						stay := time.Duration(rand.Int64N(int64(16 * time.Millisecond)))
						asked, w, r := time.Now(), writes, reads
						mu.Unlock()
						k := write
						if shared {
							k = read
						}
						l, err := k.Lock(t.Context(), "k", 2*time.Second)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						i := 0
						if shared {
							i, reads = 1, reads+1
						} else {
							writes++
						}
						if n := writes - w; n > worst[i][0] {
							worst[i] = [3]int{n, reads - r, int(time.Since(asked).Milliseconds())}
						}
						mu.Unlock()
						time.Sleep(stay)
						if err := l.Release(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		for _, k := range all {
			k.Close(t.Context()) //nolint:errcheck // it ends the moment that a release may leave to others
		}
		t.Logf("figure: %d writers' turns and %d readers'; passed over by as many writers, and readers, for so many ms: a writer %v, of 300 writers at most, a reader %v, of 10 at most; 800 writers' turns at least",
			writes, reads, worst[0], worst[1])
		if n := worst[0][0]; n > 300 || writes < 800 {
			t.Errorf("a writer was passed over by %d of %d others; 1,080 is what there is time for", n, writes)
		}
		if n := worst[1][0]; n > 10 {
			t.Errorf("a reader was passed over by %d writers", n)
		}
	})
}
