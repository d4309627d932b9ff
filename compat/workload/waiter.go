package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// A LoneWaiter measures how soon a waiter in another process learns that a key is free: one process
// holds the key, one goroutine of another process waits, and there are no other clients.
type LoneWaiter struct {
	// Hold is the minimum time for which the key is held; a random part of up to half of it is
	// added, so that no poll interval fits. Default: 20 ms.
	Hold time.Duration

	// Count is how often each lock goes to the waiter. Default: 50.
	Count int

	// Prefix is as in Workload.
	Prefix string
}

// Run measures all subjects in turns. It sets these fields of each Result: HandOff, Acquire (the
// waiter's), Commands and Trips (the waiter's, for one wait and its release), Sections, Failed and
// Overlaps.
func (w LoneWaiter) Run(ctx context.Context, subjects []Subject, progress func(share float64, name string)) ([]Result, error) {
	if w.Hold < 0 || w.Count < 0 {
		return nil, fmt.Errorf("%w: a number below 0", errWorkload)
	}
	if w.Hold == 0 {
		w.Hold = 20 * time.Millisecond
	}
	if w.Count == 0 {
		w.Count = 50
	}
	two, err := Workload{Processes: 2, Keys: 1, Prefix: w.Prefix}.valid()
	if err != nil {
		return nil, err
	}
	holders, waiters := make([]*trial, len(subjects)), make([]*trial, len(subjects))
	one := two
	one.Processes = 1
	for i, s := range subjects { // a separate meter, so that the holder's commands do not count
		holders[i], waiters[i] = one.open(ctx, s, 2*i), one.open(ctx, s, 2*i+1)
		defer holders[i].close()
		defer waiters[i].close()
	}
	for n := range w.Count {
		for i := range subjects {
			if progress != nil {
				progress(float64(n*len(subjects)+i)/float64(w.Count*len(subjects)), subjects[i].Name)
			}
			if holders[i].err != nil || waiters[i].err != nil || waiters[i].failed.Load() > hopeless/10 {
				continue
			}
			if err := w.measureOnce(ctx, holders[i], waiters[i]); err != nil {
				waiters[i].failed.Add(1)
				waiters[i].failure = err
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
	}
	results := make([]Result, len(subjects))
	for i := range results {
		if waiters[i].err == nil {
			waiters[i].err = holders[i].err
		}
		results[i] = waiters[i].result()
		results[i].Connections += holders[i].meter.Most()
	}
	return results, nil
}

// measureOnce lets the waiter get the key once.
func (w LoneWaiter) measureOnce(ctx context.Context, holder, waiter *trial) error {
	ctx, cancel := context.WithTimeout(ctx, firstLockLimit)
	defer cancel()
	holder.turns = 1
	key := holder.key(1, 0)
	held, err := holder.clients[0].Lock(ctx, key)
	if err != nil {
		return err
	}
	before := waiter.meter.Count()
	type outcome struct {
		held Held
		at   time.Time
		err  error
	}
	asked := time.Now()
	got := make(chan outcome, 1)
	go func() {
		h, err := waiter.clients[0].Lock(ctx, key)
		got <- outcome{h, time.Now(), err}
	}()
	time.Sleep(w.Hold + rand.N(w.Hold/2+1))
	select {
	case o := <-got: // while it was held
		if o.err == nil {
			waiter.overlaps.Add(1)
			o.err = o.held.Release(ctx)
		}
		held.Release(ctx) //nolint:errcheck // the overlap is reported
		return o.err
	default:
	}
	leaving := time.Now()
	if err := held.Release(ctx); err != nil {
		cancel()
		if o := <-got; o.err == nil {
			o.held.Release(context.WithoutCancel(ctx)) //nolint:errcheck
		}
		return err
	}
	o := <-got
	if o.err != nil {
		return o.err
	}
	if err := o.held.Release(ctx); err != nil {
		return err
	}
	waiter.sent = waiter.sent.add(waiter.meter.Count().sub(before))
	waiter.sections.Add(1)
	waiter.measured += o.at.Sub(asked)
	waiter.served[0]++
	waiter.hist[handOff].record(o.at.Sub(leaving))
	waiter.hist[acquire].record(o.at.Sub(asked))
	return nil
}
