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
	"github.com/setnxlock/setnxlock/compat/oldredis/realredis"
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
	processes, signal int // the first so many have Options.Signal
	goroutines        int // in each
	section           time.Duration
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
		server, err := oldredis.New("7.0", oldredis.Options{Clock: clock.New()})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		server.SetTrace(func(int, []string, any) { s.commands++ })
		var mu sync.Mutex
		draw := rand.New(rand.NewPCG(seed, 2))
		random := func() float64 { mu.Lock(); defer mu.Unlock(); return draw.Float64() }
		away := 100 * time.Microsecond
		began := time.Now()
		turns := 0
		var all sync.WaitGroup
		for p := range s.had {
			pool := &redis.Pool{MaxIdle: 20, Dial: func() (redis.Conn, error) {
				return faulty.Over(server.Dial(), distant(&away)), nil
			}}
			k := compat.New(pool, txlock.Renamed{}, compat.Options{NoRenew: true, Signal: p < c.signal, Rand: random})
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
	})
	slices.Sort(s.passed)
	return s
}

// used is the part of the time in which somebody had the lock.
func (s shares) used() float64 {
	return float64(len(s.passed)) * 1.05 * float64(s.section) / float64(s.took)
}

func (s shares) aSection() float64 { return float64(s.commands) / float64(len(s.passed)) }

func (s shares) String() string {
	n := len(s.passed)
	return fmt.Sprintf("%d processes of %d, %d with Signal, %v: turns %v, longest waits %v; passed over by %d, %d of 100 by no more than %d, %d at most; %.2f commands a section; in use for %.1f %%",
		s.processes, s.goroutines, s.signal, s.section, s.had, s.longest, s.passed[n/2], 99, s.passed[n*99/100], s.passed[n-1], s.aSection(), 100*s.used())
}

// Each process has about as many turns as any other, whether all of them have Options.Signal, some,
// or none: fleets change one process after the other, and foreign clients never signal. If all have it,
// they pay next to nothing for those that don't.
func TestLongProcessesShareWhetherTheySignal(t *testing.T) {
	realredis.Long(t)
	for _, section := range []time.Duration{time.Millisecond, 10 * time.Millisecond} {
		for _, goroutines := range []int{2, 8} {
			for signal := range 5 {
				s := crowd{4, signal, goroutines, section}.share(t, uint64(signal))
				fair := len(s.passed) / 4
				t.Logf("%v; of a fair share of %d turns each is to have 40 %% to 200 %%", s, fair)
				if slices.Min(s.had) < fair*2/5 || slices.Max(s.had) > 2*fair {
					t.Errorf("%v: fair were %d turns", s, fair)
				}
				if signal == 4 && (s.used() < 0.94 || s.aSection() > 1.35 && section == time.Millisecond || s.aSection() > 1.55) {
					t.Errorf("%v: all have Signal, and it costs too much", s)
				}
			}
		}
	}
}

// Chance does not pass over one process for long: of many that poll, one that has waited for longer looks
// more often. Judged is how many turns one call in a thousand sees go to others, of all runs together: the
// longest of all is chance's own.
func TestLongPollingProcessesAreNotPassedOver(t *testing.T) {
	realredis.Long(t)
	for _, c := range []struct{ processes, most int }{{2, 150}, {4, 450}} {
		var passed []int
		for seed := range uint64(5) {
			s := crowd{c.processes, 0, 8, time.Millisecond}.share(t, seed)
			t.Log(s)
			passed = append(passed, s.passed...)
			if s.used() < 0.87 || s.aSection() > 1.6 {
				t.Errorf("%v: it costs too much", s)
			}
		}
		slices.Sort(passed)
		rare := passed[len(passed)*999/1000]
		t.Logf("figure: %d processes: one call in a thousand was passed over by %d others or more, %d at most",
			c.processes, rare, c.most)
		if rare > c.most {
			t.Errorf("of %d processes, one call in a thousand was passed over by %d others or more, want %d at most", c.processes, rare, c.most)
		}
	}
}
