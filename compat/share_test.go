package compat_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// distant leads to a server that is so far away: the first half of the time a write is on its way, the
// second half its replies.
func distant(away *time.Duration) faulty.Hook {
	return func(m faulty.Message) (f faulty.Fate) {
		if m.At == 0 {
			f.Before = *away / 2
		}
		if m.At == len(m.Write)-1 {
			f.After = *away / 2
		}
		return f
	}
}

// A crowd is some processes that want one key all the time, over a network.
type crowd struct {
	processes, woken int // the first so many have a connection over which they can be woken
	goroutines       int // in each
	section          time.Duration
}

// What became of it.
type shares struct {
	crowd
	took     time.Duration
	had      []int           // turns of each process
	longest  []time.Duration // wait in each
	passed   []int           // by how many turns of others each call was passed over, sorted
	commands int
}

func (c crowd) share(t *testing.T, seed uint64) (s shares) {
	s = shares{crowd: c, had: make([]int, c.processes), longest: make([]time.Duration, c.processes)}
	synctest.Test(t, func(t *testing.T) {
		server := must.Get(oldredis.New("7.0", oldredis.Options{Clock: clock.New()}))(t)
		defer server.Close()
		server.SetTrace(func(int, []string, any) { s.commands++ })
		var mu sync.Mutex
		draw := rand.New(rand.NewPCG(seed, 2))
		random := func() float64 { mu.Lock(); defer mu.Unlock(); return draw.Float64() }
		away := 100 * time.Microsecond
		began := time.Now()
		turns := 0
		var all sync.WaitGroup
		var lockers []*compat.Locker
		for p := range s.had {
			pool := &redis.Pool{MaxIdle: 20, Dial: func() (redis.Conn, error) {
				return faulty.Over(server.Dial(), distant(&away)), nil
			}}
			source := compat.Pooled(pool)
			if p >= c.woken {
				source.Keep = 0
			}
			k := compat.NewOn(source, txlock.Renamed{}, compat.Options{NoRenew: true, Rand: random})
			lockers = append(lockers, k)
			for range c.goroutines {
				all.Go(func() {
					for time.Since(began) < 30*time.Second {
						mu.Lock()
						asked, before := time.Now(), turns
						mu.Unlock()
						l, err := k.Lock(background, "k", 30*time.Second)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						s.longest[p] = max(s.longest[p], time.Since(asked))
						s.passed = append(s.passed, turns-before)
						turns++
						s.had[p]++
						mu.Unlock()
						time.Sleep(c.section + time.Duration(random()*float64(c.section)/10))
						release(t, l)
					}
				})
			}
		}
		all.Wait()
		s.took = time.Since(began)
		for _, k := range lockers {
			k.Close(background) //nolint:errcheck // it ends the moment that a release may leave to others
		}
	})
	slices.Sort(s.passed)
	return s
}

// used is the part of the time in which somebody had the lock.
func (s shares) used() float64 {
	return float64(len(s.passed)) * 1.05 * float64(s.section) / float64(s.took)
}

func (s shares) aSection() float64 { return float64(s.commands) / float64(len(s.passed)) }

// beyond is by how many times its fair share of turns one call in so many was passed over.
func (s shares) beyond(oneIn int) float64 {
	n := len(s.passed)
	return float64(s.passed[n-1-n/oneIn]) / float64(s.processes*s.goroutines)
}

func (s shares) String() string {
	return fmt.Sprintf("%d processes of %d, of which %d can be woken, sections of %v: in use for %.1f %%, least and most served %d and %d, %.1f commands a section; passed over by so many fair shares: one in a thousand %.1f, the worst %.1f",
		s.processes, s.goroutines, s.woken, s.section, 100*s.used(), slices.Min(s.had), slices.Max(s.had), s.aSection(), s.beyond(1000), s.beyond(len(s.passed)+1))
}

// Fleets of processes share a key: where a release can wake a waiter they take turns, and waiting costs the same however
// many wait; where it can't, nobody waits for long, and many look no more often than few. A lone goroutine that takes the
// lock again at once leaves another its turns.
func TestLongFleets(t *testing.T) {
	realredis.Long(t)
	const none = 1e9
	for _, c := range []struct {
		crowd
		used, least, beyond, commands float64
	}{
		{crowd{8, 8, 8, time.Millisecond}, 0.93, 0.8, 10, 3},
		{crowd{12, 12, 2, time.Millisecond}, 0.92, 0.8, 10, 3},
		{crowd{12, 12, 2, 20 * time.Millisecond}, 0.95, 0.8, 10, 15},
		{crowd{24, 24, 1, time.Millisecond}, 0.7, 0.8, 10, 30},
		{crowd{24, 24, 1, 20 * time.Millisecond}, 0.95, 0.8, 10, 30},
		{crowd{100, 100, 1, 20 * time.Millisecond}, 0.95, 0.5, 10, 35},
		{crowd{2, 2, 1, time.Millisecond}, 0.7, 0.8, 20, 25},
		{crowd{12, 0, 2, 20 * time.Millisecond}, 0.6, 0, 10, 25},
		{crowd{24, 0, 1, 20 * time.Millisecond}, 0.6, 0.1, 10, 40},
		{crowd{100, 0, 1, 20 * time.Millisecond}, 0.6, 0.2, 10, 80},
		{crowd{12, 6, 2, 20 * time.Millisecond}, 0.6, 0.05, 20, 30},
		{crowd{8, 0, 8, time.Millisecond}, 0.5, 0.1, 50, 3},
		{crowd{24, 0, 1, time.Millisecond}, 0.4, 0.1, none, 20},
	} {
		s := c.crowd.share(t, 1)
		t.Logf("%v; bounds: %.0f %%, %.2f of the most served, %.0f commands, %.0f fair shares", s, 100*c.used, c.least, c.commands, c.beyond)
		if share := float64(slices.Min(s.had)) / float64(slices.Max(s.had)); s.used() < c.used || share < c.least || s.beyond(1000) > c.beyond || s.aSection() > c.commands {
			t.Errorf("%v", s)
		}
	}
}
