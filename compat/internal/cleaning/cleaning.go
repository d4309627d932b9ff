// Package cleaning does the work that the steps of a lock leave behind, even if their context has ended:
// within a time limit, which all steps of one operation share, or in the background, where closing the
// Locker waits for the work.
package cleaning

import (
	"context"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
)

// Unattended marks a clock that allows no work in the background: the explorer's, whose clients do one thing after
// the other.
type Unattended interface{ Unattended() }

// Jobs bounds and counts the work that the steps of one Locker leave behind.
type Jobs struct {
	clock clock.Clock
	limit time.Duration

	life context.Context // ends the jobs of Keep and Brief; nil: nothing ends them
	end  func()

	mu      sync.Mutex
	closed  bool
	idles   bool // no job runs in the background
	stands  bool // the clock is a mock: no time passes by itself
	running int
	idle    chan struct{} // closed when no job is running any more; nil: no Wait waits for that
}

// Alone serves steps without a Locker.
var Alone = &Jobs{clock: limit.Real, limit: 250 * time.Millisecond}

// New returns Jobs with a limit for each job. A job over its limit ends with ErrTimeout.
func New(c clock.Clock, limit time.Duration) *Jobs {
	jobs := &Jobs{clock: c, limit: limit}
	_, jobs.idles = c.(Unattended)
	_, jobs.stands = c.(*clock.Mock)
	jobs.life, jobs.end = context.WithCancel(context.Background())
	return jobs
}

type key struct{}

// With returns ctx for a step of the Locker with the Jobs c.
func With(ctx context.Context, c *Jobs) context.Context {
	if ctx.Value(key{}) == c { // ctx may be an Operation of c
		return ctx
	}
	return context.WithValue(ctx, key{}, c)
}

// Of returns the Jobs that With put into ctx, or otherwise if there is none.
func Of(ctx context.Context, otherwise *Jobs) *Jobs {
	if c, ok := ctx.Value(key{}).(*Jobs); ok {
		return c
	}
	return otherwise
}

// An Operation is the context of one call to a Locker. The call may take several steps and clean up after
// each. All of them share one limit, which begins at the end of the caller's context: the call returns when
// the limit has passed.
type Operation struct {
	context.Context
	jobs *Jobs // nil: an operation of several Lockers
	late bool  // After or Begin returned this Operation

	mu   sync.Mutex
	rest context.Context // ends with the limit; nil: the caller's context had not ended at the last look
	stop func()
}

// Operation begins an operation of the Locker with the Jobs c, unless ctx belongs to an operation already. A
// context without cancellation needs no operation.
func (c *Jobs) Operation(ctx context.Context) (_ context.Context, end func()) {
	o, part := ctx.(*Operation)
	if part && !o.late || !limit.Cancels(ctx) {
		return ctx, func() {}
	}
	o = &Operation{Context: ctx, jobs: c}
	return o, o.end
}

// Group begins an operation of several calls. Each call must get the returned context unchanged.
func Group(ctx context.Context) (_ context.Context, end func()) {
	o := &Operation{Context: ctx}
	return o, o.end
}

type operation struct{}

// Value returns the Operation and its Jobs for their keys.
func (o *Operation) Value(k any) any {
	switch {
	case k == operation{}:
		return o
	case k == key{} && o.jobs != nil:
		return o.jobs
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

// After returns a context for work that must be done even if ctx has ended or ends meanwhile. The context
// ends with the limit, or with the rest of the limit in the Operation of ctx.
func (c *Jobs) After(ctx context.Context) (context.Context, func()) {
	o, _ := ctx.Value(operation{}).(*Operation)
	if o == nil {
		o = &Operation{Context: context.WithoutCancel(ctx), jobs: c}
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
	return &Operation{Context: ctx, jobs: c, late: true, rest: rest}, func() {
		done()
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.rest == nil && o.Context.Err() != nil { // the caller's context ended during the work
			o.rest, o.stop = rest, stop
			return
		}
		stop()
	}
}

// Late reports whether ctx comes from After or Begin.
func Late(ctx context.Context) bool {
	o, _ := ctx.Value(operation{}).(*Operation)
	return o != nil && o.late
}

// Begin begins a job in the background. Wait waits for the job until done is called. The job's context
// outlives ctx.
func (c *Jobs) Begin(ctx context.Context) (_ context.Context, done func()) {
	ctx, stop := limit.Within(context.WithoutCancel(ctx), c.clock, c.limit)
	return &Operation{Context: ctx, jobs: c, late: true, rest: ctx}, c.job(stop)
}

// Keep begins a job for later steps too. Its context outlives ctx, and ends after d or at Close. From Close on,
// Wait waits for the job no longer than the limit of any job.
func (c *Jobs) Keep(ctx context.Context, d time.Duration) (_ context.Context, done func()) {
	ctx, stop := limit.Within(context.WithoutCancel(ctx), limit.Real, d)
	if c.life == nil {
		return ctx, stop
	}
	end, kept := c.Brief(), context.AfterFunc(c.life, stop)
	return ctx, func() { kept(); stop(); end() }
}

// Brief begins a job that done ends. From Close on, Wait waits for the job no longer than the limit of any job.
func (c *Jobs) Brief() (done func()) {
	if c.life == nil {
		return func() {}
	}
	end := c.Job()
	closing := context.AfterFunc(c.life, func() { limit.AfterFunc(c.limit, end) })
	return func() { closing(); end() }
}

// job counts a job until done is called. done calls stop.
func (c *Jobs) job(stop func()) (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running++
	return sync.OnceFunc(func() { stop(); c.Leave() })
}

// Enter begins the job of a caller, or returns false after Close. Leave ends the job.
func (c *Jobs) Enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.running++
	}
	return !c.closed
}

// Leave ends a job begun by Enter.
func (c *Jobs) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running--; c.running == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// Job begins a job that done ends.
func (c *Jobs) Job() (done func()) { return c.job(func() {}) }

// Run runs f in the background, as a job.
func (c *Jobs) Run(f func()) {
	if c.idles {
		return
	}
	done := c.Job()
	go func() {
		defer done()
		f()
	}()
}

// Stands reports whether no time passes on the clock by itself: the server's time goes on.
func (c *Jobs) Stands() bool { return c.stands }

// Attended reports whether jobs may run in the background.
func (c *Jobs) Attended() bool { return !c.idles }

// Pause waits for d. From Close on it waits no longer than the limit of any job.
func (c *Jobs) Pause(d time.Duration) {
	t := c.clock.Timer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return
	case <-c.life.Done():
	}
	select {
	case <-t.C:
	case <-limit.After(c.limit):
	}
}

// Close ends the jobs of Keep. After Close, Enter returns false.
func (c *Jobs) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
}

// Wait waits until no job is running, or ctx ends.
func (c *Jobs) Wait(ctx context.Context) error {
	c.mu.Lock()
	if c.running == 0 {
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
