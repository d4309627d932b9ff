package workload

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// A Keep measures the cost of holding many locks at once while they are renewed.
type Keep struct {
	// Locks is the number of held locks. Default: 1.
	Locks int

	// Takers is the number of goroutines that acquire and release them. Default: 16.
	Takers int

	// Watch is how long the held locks are measured. Default: 1 s. It should be the interval
	// between a lock's renewals, or a multiple of it.
	Watch time.Duration

	// Prefix is as in Workload.
	Prefix string
}

// A Footprint is the cost of held locks.
type Footprint struct {
	Name string `json:"name"`
	Err  string `json:"error,omitempty"`

	Locks       int           `json:"locks"`
	Heap        int64         `json:"heap_bytes"`  // in use, after a collection; more than before the first lock
	Stack       int64         `json:"stack_bytes"` // of goroutines, more than before
	Goroutines  int           `json:"goroutines"`  // more than before
	Connections int64         `json:"connections"` // at the end of the watch
	Taking      time.Duration `json:"taking_ns"`   // all of them
	Giving      time.Duration `json:"giving_ns"`   // of all of them

	Watched  time.Duration `json:"watched_ns"`
	Renewals int64         `json:"renewals"` // while watched
	Commands float64       `json:"commands"` // per renewal
	Writes   float64       `json:"writes"`   // system calls per renewal
	Trips    float64       `json:"trips"`    // round trips per renewal
	CPU      time.Duration `json:"cpu_ns"`   // of this process while watched, per renewal
	Lost     int64         `json:"lost"`     // locks that we no longer held at the end
}

// PerLock returns the memory for one lock, heap and stacks.
func (f Footprint) PerLock() float64 { return ratio(float64(f.Heap+f.Stack), float64(f.Locks)) }

// Rate returns the number of renewals per second.
func (f Footprint) Rate() float64 { return ratio(float64(f.Renewals), f.Watched.Seconds()) }

// Run acquires the locks, watches them, and releases them. An error of s goes into the Footprint;
// Run returns only ctx's error.
func (k Keep) Run(ctx context.Context, s Subject, progress func(share float64, name string)) (Footprint, error) {
	k.Locks = max(k.Locks, 1)
	if k.Takers <= 0 {
		k.Takers = 16
	}
	if k.Watch <= 0 {
		k.Watch = time.Second
	}
	k.Prefix = scratch(k.Prefix)
	if progress == nil {
		progress = func(float64, string) {}
	}
	f := Footprint{Name: s.Name, Locks: k.Locks}
	meter := NewMeter(nil)
	client, err := s.Open(meter)
	if err == nil {
		err = tryOut(ctx, client, k.Prefix+"try")
	}
	if err != nil {
		f.Err = words(err)
		return f, ctx.Err()
	}
	if client.Close != nil {
		defer client.Close() //nolint:errcheck
	}

	if client.Remove != nil { // deferred, so before the client is closed
		defer k.remove(client)
	}
	held := make([]Held, k.Locks)
	before := footing()
	progress(0, s.Name)
	began := time.Now()
	err = k.each(func(i int) (err error) {
		held[i], err = client.Lock(ctx, fmt.Sprintf("%s%d", k.Prefix, i))
		return err
	})
	f.Taking = time.Since(began)
	if err != nil {
		f.Err = words(err)
	} else {
		after := footing()
		f.Heap, f.Stack = max(after.heap-before.heap, 0), max(after.stack-before.stack, 0) // one lock can take less memory than the collection freed
		progress(0.3, s.Name)
		k.watch(ctx, client, meter, &f)
		f.Goroutines = runtime.NumGoroutine() - before.goroutines
		f.Connections = meter.Open()
	}

	progress(0.8, s.Name)
	began = time.Now()
	var mu sync.Mutex
	k.each(func(i int) error { //nolint:errcheck // they are counted
		if held[i] == nil {
			return nil
		}
		if err := held[i].Release(context.WithoutCancel(ctx)); err != nil {
			mu.Lock()
			f.Lost++
			mu.Unlock()
		}
		return nil
	})
	f.Giving = time.Since(began)
	return f, context.Cause(ctx)
}

// remove deletes the remaining keys, a thousand at a time.
func (k Keep) remove(c *Client) {
	ctx, cancel := context.WithTimeout(context.Background(), cleaning)
	defer cancel()
	for i := 0; i < k.Locks; i += 1000 {
		keys := []string{k.Prefix + "try"}
		for n := i; n < min(i+1000, k.Locks); n++ {
			keys = append(keys, fmt.Sprintf("%s%d", k.Prefix, n))
		}
		if c.Remove(ctx, keys...) != nil {
			return
		}
	}
}

// watch measures the held locks for the duration of Watch.
func (k Keep) watch(ctx context.Context, c *Client, m *Meter, f *Footprint) {
	renewals := func() int64 { return 0 }
	if c.Renewals != nil {
		renewals = c.Renewals
	}
	sent, was, cpu, began := m.Count(), renewals(), cpuTime(), time.Now()
	timer := time.NewTimer(k.Watch)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	f.Watched, f.Renewals = time.Since(began), renewals()-was
	used, d, n := cpuTime()-cpu, m.Count().sub(sent), float64(f.Renewals)
	f.Commands, f.Writes, f.Trips = ratio(float64(d.Commands), n), ratio(float64(d.Writes), n), ratio(float64(d.Trips), n)
	f.CPU = time.Duration(ratio(float64(used), n))
}

// each calls f for every lock, Takers at a time.
func (k Keep) each(f func(i int) error) error {
	errs := make([]error, k.Takers)
	var group sync.WaitGroup
	for n := range k.Takers {
		group.Go(func() {
			for i := n; i < k.Locks && errs[n] == nil; i += k.Takers {
				errs[n] = f(i)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

type ground struct {
	heap, stack int64
	goroutines  int
}

// footing returns the resources in use now.
func footing() ground {
	runtime.GC()
	runtime.GC() // the second collection frees what finalizers and sync.Pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return ground{int64(m.HeapAlloc), int64(m.StackInuse), runtime.NumGoroutine()}
}
