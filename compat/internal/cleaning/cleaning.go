// Package cleaning is what the steps of a lock leave to be done behind them: within a limit of
// its own, whatever has become of the step's context, and waited for when the Locker is closed.
package cleaning

import (
	"context"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
)

// A Crew does what the steps of one Locker leave behind.
type Crew struct {
	clock clock.Clock
	limit time.Duration
	over  error // what ends a job that takes longer

	mu   sync.Mutex
	jobs int
	idle chan struct{} // closed when there are none any more; nil: nobody waits for that
}

// New returns a Crew that takes no longer than limit for a job, which ends with cause over.
func New(c clock.Clock, limit time.Duration, over error) *Crew {
	return &Crew{clock: c, limit: limit, over: over}
}

type key struct{}

// With is ctx for a step of the Locker whose Crew is c.
func With(ctx context.Context, c *Crew) context.Context { return context.WithValue(ctx, key{}, c) }

// Of returns the Crew of the Locker whose step has ctx, and otherwise if it has none.
func Of(ctx context.Context, otherwise *Crew) *Crew {
	if c, ok := ctx.Value(key{}).(*Crew); ok {
		return c
	}
	return otherwise
}

// Begin begins a job, for which Wait waits until done is called. Its context outlives ctx.
func (c *Crew) Begin(ctx context.Context) (_ context.Context, done func()) {
	c.mu.Lock()
	c.jobs++
	c.mu.Unlock()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	t := c.clock.AfterFunc(c.limit, func() { cancel(c.over) })
	return ctx, sync.OnceFunc(func() {
		t.Stop()
		cancel(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.jobs--; c.jobs == 0 && c.idle != nil {
			close(c.idle)
			c.idle = nil
		}
	})
}

// Wait waits until no job is under way, or ctx ends.
func (c *Crew) Wait(ctx context.Context) error {
	c.mu.Lock()
	if c.jobs == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
