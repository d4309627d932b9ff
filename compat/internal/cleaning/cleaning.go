// Package cleaning is what the steps of a lock leave to be done behind them, whatever has become of
// their context: within a limit of its own, which one operation has once, or in the background,
// where closing the Locker waits for it.
package cleaning

import (
	"context"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
)

// Unattended is a clock with which nothing runs in the background: the explorer's, whose clients do one thing after
// the other.
type Unattended interface{ Unattended() }

// A Crew does what the steps of one Locker leave behind.
type Crew struct {
	clock clock.Clock
	limit time.Duration

	life context.Context // of what is kept; nil: nothing ends it
	end  func()

	mu     sync.Mutex
	closed bool
	idles  bool // it runs nothing in the background
	stands bool // no time passes by itself
	jobs   int
	idle   chan struct{} // closed when there are none any more; nil: nobody waits for that
}

// Alone is the Crew of steps without a Locker.
var Alone = &Crew{clock: limit.Real, limit: 250 * time.Millisecond}

// New returns a Crew that takes no longer than limit for a job, which then ends with ErrTimeout.
func New(c clock.Clock, limit time.Duration) *Crew {
	crew := &Crew{clock: c, limit: limit}
	_, crew.idles = c.(Unattended)
	_, crew.stands = c.(*clock.Mock)
	crew.life, crew.end = context.WithCancel(context.Background())
	return crew
}

type key struct{}

// With is ctx for a step of the Locker whose Crew is c.
func With(ctx context.Context, c *Crew) context.Context {
	if ctx.Value(key{}) == c { // as that of an Operation
		return ctx
	}
	return context.WithValue(ctx, key{}, c)
}

// Of returns the Crew of the Locker whose step has ctx, and otherwise if it has none.
func Of(ctx context.Context, otherwise *Crew) *Crew {
	if c, ok := ctx.Value(key{}).(*Crew); ok {
		return c
	}
	return otherwise
}

// An Operation is the context of one call of the Locker's, which may take several steps and clean up
// after each. From the end of the caller's context on all of them have one limit together: the call
// returns when that has passed.
type Operation struct {
	context.Context
	crew *Crew // nil: of no Locker's alone
	late bool  // it is what After or Begin returned

	mu   sync.Mutex
	rest context.Context // ends with the limit; nil: the caller's context has not been seen to have ended
	stop func()
}

// Operation begins an operation of the Locker whose Crew is c, if it is no part of one. What can't be
// cancelled needs none.
func (c *Crew) Operation(ctx context.Context) (_ context.Context, end func()) {
	o, part := ctx.(*Operation)
	if part && !o.late || !limit.Cancels(ctx) {
		return ctx, func() {}
	}
	o = &Operation{Context: ctx, crew: c}
	return o, o.end
}

// Together begins an operation of several calls, each of which is to be passed the context as it is.
func Together(ctx context.Context) (_ context.Context, end func()) {
	o := &Operation{Context: ctx}
	return o, o.end
}

type operation struct{}

// Value finds the Operation and its Crew.
func (o *Operation) Value(k any) any {
	switch {
	case k == operation{}:
		return o
	case k == key{} && o.crew != nil:
		return o.crew
	}
	return o.Context.Value(k)
}

func (o *Operation) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stop != nil {
		o.stop()
	}
}

// After is the context of what must be done although ctx has ended, or ends meanwhile: until the
// limit has passed, or what is left of it in the Operation that ctx is of.
func (c *Crew) After(ctx context.Context) (context.Context, func()) {
	o, _ := ctx.Value(operation{}).(*Operation)
	if o == nil {
		o = &Operation{Context: context.WithoutCancel(ctx), crew: c}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	rest, stop := o.rest, func() {}
	if rest == nil {
		rest, stop = limit.Within(context.Background(), c.clock, c.limit)
		if o.Context.Err() != nil {
			o.rest, o.stop, stop = rest, stop, func() {}
		}
	}
	ctx, done := limit.Alongside(ctx, rest)
	return &Operation{Context: ctx, crew: c, late: true, rest: rest}, func() {
		done()
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.rest == nil && o.Context.Err() != nil { // the caller's context ended in between
			o.rest, o.stop = rest, stop
			return
		}
		stop()
	}
}

// Late reports that ctx is of what is done after the end of the caller's, or in the background.
func Late(ctx context.Context) bool {
	o, _ := ctx.Value(operation{}).(*Operation)
	return o != nil && o.late
}

// Begin begins a job in the background, for which Wait waits until done is called. Its context
// outlives ctx.
func (c *Crew) Begin(ctx context.Context) (_ context.Context, done func()) {
	ctx, stop := limit.Within(context.WithoutCancel(ctx), c.clock, c.limit)
	return &Operation{Context: ctx, crew: c, late: true, rest: ctx}, c.job(stop)
}

// Keep begins a job that is worth more than the step that began it. Its context outlives ctx, and ends when d has passed
// or the Crew closes; then Wait waits for it no longer than for any.
func (c *Crew) Keep(ctx context.Context, d time.Duration) (_ context.Context, done func()) {
	ctx, stop := limit.Within(context.WithoutCancel(ctx), limit.Real, d)
	if c.life == nil {
		return ctx, stop
	}
	end, kept := c.Brief(), context.AfterFunc(c.life, stop)
	return ctx, func() { kept(); stop(); end() }
}

// Brief begins a job that done ends. Once the Crew closes, Wait waits for it no longer than for any.
func (c *Crew) Brief() (done func()) {
	if c.life == nil {
		return func() {}
	}
	end := c.Job()
	closing := context.AfterFunc(c.life, func() { limit.AfterFunc(c.limit, end) })
	return func() { closing(); end() }
}

// job counts a job until done is called, which stops it.
func (c *Crew) job(stop func()) (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs++
	return sync.OnceFunc(func() { stop(); c.Leave() })
}

// Enter begins a job that is a caller's; false: the Crew is closed. Leave ends it.
func (c *Crew) Enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.jobs++
	}
	return !c.closed
}

// Leave is told that a job has ended.
func (c *Crew) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs--; c.jobs == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// Job begins one that done ends.
func (c *Crew) Job() (done func()) { return c.job(func() {}) }

// Run runs f in the background, as a job.
func (c *Crew) Run(f func()) {
	if c.idles {
		return
	}
	done := c.Job()
	go func() {
		defer done()
		f()
	}()
}

// Stands reports that no time passes on the clock by itself: what is waited for elsewhere has another time.
func (c *Crew) Stands() bool { return c.stands }

// Attended reports that something may run in the background.
func (c *Crew) Attended() bool { return !c.idles }

// Pause waits for d, or until the Crew closes.
func (c *Crew) Pause(d time.Duration) {
	t := c.clock.Timer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.life.Done():
	}
}

// Close ends what is kept, and lets nobody enter.
func (c *Crew) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
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
		return limit.Cause(ctx)
	}
}
