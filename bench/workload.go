package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A workload is a task for each lock.
type workload struct {
	goroutines int           // each takes its key, holds it, releases it, and starts again
	keys       int           // goroutine n has key n modulo keys
	section    time.Duration // how long a key is held
	distance   time.Duration // between client and server
	length     time.Duration // of a turn, after a fifth of it to warm up
}

// contended reports goroutines that wait for each other.
func (w workload) contended() bool { return w.keys < w.goroutines }

// The figures of a turn. Times are in seconds.
const (
	rate    = iota // sections a second
	p50            // acquisition and release, without the section
	p99            //
	longest        // wait
	trips          // round trips a section
	cpu            // the server's processor time a section; 0: not known
	kinds
)

type figures [kinds]float64

// A result is the median of a lock's turns.
type result struct {
	name string
	f    figures
}

// run measures all participants on a server, in turns.
func (w workload) run(ctx context.Context, s *server, turns int) ([]result, error) {
	var trials []*trial
	for _, sub := range subjects(s) {
		if w.contended() && !sub.waits {
			continue
		}
		m := &meter{distance: w.distance}
		c, err := sub.open(s, m)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", sub.name, err)
		}
		defer c.close()
		trials = append(trials, &trial{workload: w, server: s, subject: sub, meter: m, client: c})
	}
	for range turns {
		for _, t := range trials {
			f, err := t.turn(ctx)
			if err = cmp.Or(context.Cause(ctx), err); err != nil {
				return nil, fmt.Errorf("%s: %w", t.name, err)
			}
			t.had = append(t.had, f)
		}
	}
	var results []result
	for _, t := range trials {
		results = append(results, result{t.name, median(t.had)})
	}
	return results, nil
}

func median(turns []figures) (m figures) {
	for kind := range m {
		var values []float64
		for _, f := range turns {
			values = append(values, f[kind])
		}
		slices.Sort(values)
		m[kind] = values[len(values)/2]
	}
	return m
}

// A trial is one subject under one workload.
type trial struct {
	workload
	subject
	server *server
	meter  *meter
	client *client
	had    []figures
}

// The phases of a turn.
const (
	warming = iota
	counting
	over
)

// A turn is a time in which one lock has the server to itself.
type turn struct {
	*trial
	phase    atomic.Int32
	stop     context.CancelCauseFunc
	inside   []atomic.Int32 // for each key, how many hold it
	sections atomic.Int64   // so far
}

// grace is the time for a goroutine that does not wait for a lock to finish.
const grace = 50 * time.Millisecond

func (t *trial) turn(ctx context.Context) (figures, error) {
	runtime.GC() // what another lock left is not collected in this one's turn
	began, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	u := &turn{trial: t, stop: stop, inside: make([]atomic.Int32, t.keys)}
	work := began
	if !t.contended() {
		work = context.WithoutCancel(ctx) // nobody waits, and some clients do more work for a context that can end
	}
	workers := make([]worker, t.goroutines)
	var group sync.WaitGroup
	keys := prefix + protocol.NewToken()[:8] // of this turn: a lock that a library leaves behind is in nobody's way
	for i := range workers {
		key := fmt.Sprintf("%s:%d", keys, i%t.keys)
		group.Go(func() { workers[i].work(work, u, i, key) })
	}
	rest(began, t.length/5)
	before, used, start := t.meter.trips.Load(), t.server.used(), time.Now()
	u.phase.CompareAndSwap(warming, counting)
	for rest(began, t.length); u.sections.Load() == 0 && began.Err() == nil && time.Since(start) < time.Minute; {
		rest(began, t.length) // a machine that has no time now has some later
	}
	u.phase.Store(over)
	took, after := time.Since(start), t.meter.trips.Load()
	used = t.server.used() - used
	defer time.AfterFunc(grace, func() { stop(nil) }).Stop()
	ended := make(chan struct{})
	go func() { group.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		return figures{}, errors.New("a client does not come back")
	}

	var f figures
	var pairs []time.Duration
	for _, k := range workers {
		pairs = append(pairs, k.pairs...)
		f[longest] = max(f[longest], k.longest.Seconds())
	}
	if err := context.Cause(began); err != nil && err != context.Canceled {
		return f, err
	}
	if len(pairs) == 0 {
		return f, fmt.Errorf("no lock was taken within %v", took)
	}
	slices.Sort(pairs)
	n := float64(len(pairs))
	f[rate], f[p50], f[p99] = n/took.Seconds(), pairs[len(pairs)/2].Seconds(), pairs[len(pairs)*99/100].Seconds()
	f[trips], f[cpu] = float64(after-before)/n, used.Seconds()/n
	return f, nil
}

// rest waits for d, unless the turn ends first.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// A worker is one goroutine's part of a turn.
type worker struct {
	pairs   []time.Duration // an acquisition and its release each
	longest time.Duration
}

func (k *worker) work(ctx context.Context, u *turn, number int, key string) {
	inside := &u.inside[number%u.keys]
	for u.phase.Load() != over {
		asked := time.Now()
		release, err := u.client.lock(ctx, key)
		got := time.Now()
		counts := u.phase.Load() == counting
		if err != nil && !counts && ctx.Err() != nil { // who still waits at the end has waited so long
			k.longest = max(k.longest, got.Sub(asked))
			return
		}
		if err != nil {
			u.fail(err)
			return
		}
		if inside.Add(1) != 1 {
			u.fail(fmt.Errorf("%s was held twice", key))
		}
		if u.section > 0 {
			time.Sleep(u.section)
		}
		inside.Add(-1)
		leaving := time.Now()
		if err := release(context.WithoutCancel(ctx)); err != nil {
			u.fail(err)
			return
		}
		if counts {
			k.pairs = append(k.pairs, got.Sub(asked)+time.Since(leaving))
			u.sections.Add(1)
			k.longest = max(k.longest, got.Sub(asked))
		}
	}
}

// fail ends the turn with an error.
func (u *turn) fail(err error) {
	u.stop(err)
	u.phase.Store(over)
}
