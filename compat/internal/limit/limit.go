// Package limit bounds the time of a step. Its contexts end by a limit of ours, or with the caller's context.
// The package guarantees that the two ends are never mistaken for each other: the end by our limit is
// ErrTimeout and never context.Canceled, and the caller's end is never ErrTimeout, whatever its cause.
package limit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
)

// ErrTimeout means that a limit of ours ran out. It is a net.Error. errors.Is takes it for
// os.ErrDeadlineExceeded too.
var ErrTimeout error = timeout{}

type timeout struct{}

func (timeout) Error() string        { return "setnxlock: no answer in time" }
func (timeout) Timeout() bool        { return true }
func (timeout) Temporary() bool      { return true }
func (timeout) Is(target error) bool { return target == os.ErrDeadlineExceeded }

// A CallerError wraps an error of the caller's own code: the cause of its context's end, or an error of its
// Dial. That error may belong to another lock, and says nothing about this one: errors.Is and errors.As don't
// look into it.
type CallerError struct{ Err error }

func (e *CallerError) Error() string { return e.Err.Error() }

// Caller returns the wrapped error, for callers that look for it.
func (e *CallerError) Caller() error { return e.Err }

// Dialled wraps an error of the caller's Dial or pool in a CallerError. It returns a server's answer unchanged: the
// answer to AUTH, for example.
func Dialled(err error) error {
	switch err.(type) {
	case nil, redis.Error:
		return err
	}
	return &CallerError{err}
}

// Brought returns the caller's error in err, or nil.
func Brought(err error) error {
	if c := (*CallerError)(nil); errors.As(err, &c) {
		return c.Err
	}
	return nil
}

// ranOut marks the cause of a context that a limit of ours has ended. No caller can make such a cause.
type ranOut struct{ error }

func (r ranOut) Unwrap() error { return r.error }

// Out cancels a context whose limit has run out.
var Out error = ranOut{ErrTimeout}

// RanOut reports whether a limit of ours ended ctx.
func RanOut(ctx context.Context) bool {
	_, ours := context.Cause(ctx).(ranOut)
	return ours
}

// Cancelled reports whether a caller cancelled ctx, or the context whose end As passed on. A cancellation says nothing
// about a server; a limit that ran out may.
func Cancelled(ctx context.Context) bool { return errors.Is(Cause(ctx), context.Canceled) }

// A Context carries the time limit of a whole step. It ends with the limit if it can be cancelled at all.
// Otherwise a function that waits asks Until or Alarm for the end of the limit.
type Context struct {
	context.Context
	Limit time.Duration
	until time.Time // by the connections' clock: the real one
	clock clock.Clock
}

type key struct{}

// Value lets Of and Until find the Context below any context derived from it.
func (l *Context) Value(k any) any {
	if k == (key{}) {
		return l
	}
	return l.Context.Value(k)
}

// Of returns the limit of a step in ctx, or 0 if ctx has none.
func Of(ctx context.Context) time.Duration {
	if l, ok := ctx.Value(key{}).(*Context); ok {
		return l.Limit
	}
	return 0
}

// Cancels reports whether ctx can be cancelled.
func Cancels(ctx context.Context) bool { return ctx.Done() != nil }

// Until returns the end of the limit of a step in ctx, or zero if ctx has none.
func Until(ctx context.Context) (at time.Time) {
	if l, ok := ctx.Value(key{}).(*Context); ok {
		at = l.until
	}
	return at
}

// Timed limits a step whose context can't be cancelled. It needs no goroutine and no timer: the connection's
// own time limit ends the step.
func Timed(ctx context.Context, c clock.Clock, d time.Duration) *Context {
	return &Context{ctx, d, Now().Add(d), c}
}

// Within returns a context that ends with ctx or after d.
func Within(ctx context.Context, c clock.Clock, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := c.AfterFunc(d, func() { cancel(Out) })
	return &Context{ctx, d, Now().Add(d), c}, func() { t.Stop(); cancel(nil) }
}

// Alarm returns a channel for the end of ctx's limit, if ctx can't be cancelled. It returns nil for any other
// ctx, and without a limit.
func Alarm(ctx context.Context) (rings <-chan time.Time, stop func()) {
	if at := Until(ctx); !Cancels(ctx) && !at.IsZero() {
		t := Timer(Left(at))
		return t.C, func() { t.Stop() }
	}
	return nil, func() {}
}

// Over returns an error if ctx or its limit has ended: begin nothing more then.
func Over(ctx context.Context) error {
	if at := Until(ctx); ctx.Err() == nil && !Cancels(ctx) && !at.IsZero() && !Now().Before(at) {
		return ErrTimeout
	}
	return Cause(ctx)
}

// Alongside returns a context with the values of ctx and the end of other. other must have a limit.
func Alongside(ctx, other context.Context) (context.Context, func()) {
	l := other.Value(key{}).(*Context)
	ctx, cancel := context.WithCancelCause(carrying{other, context.WithoutCancel(ctx)})
	return &Context{ctx, l.Limit, l.until, l.clock}, func() { cancel(nil) }
}

// carrying ends with its Context and takes its values from another.
type carrying struct {
	context.Context
	values context.Context
}

func (c carrying) Value(k any) any {
	if v := c.values.Value(k); v != nil {
		return v
	}
	return c.Context.Value(k) // its limit, and package context's own keys
}

// Share returns a context for an n-th of ctx's limit. ctx must have a limit.
func Share(ctx context.Context, n int) (context.Context, func()) {
	if n == 1 {
		return ctx, func() {}
	}
	l := ctx.Value(key{}).(*Context)
	return Within(ctx, l.clock, l.Limit/time.Duration(n))
}

// As returns a cancellation cause that makes Cause(ctx) report what Cause(other) reports. The cause of other itself
// would not do: Cause would report context.Canceled beside a deadline that passed.
func As(other context.Context) error { return as{Cause(other)} }

type as struct{ error }

func (a as) Unwrap() error { return a.error }

// Cause returns the end of ctx as a caller should see it: the caller's own context.Canceled or
// DeadlineExceeded, with its cause, or ErrTimeout if a limit of ours ran out.
func Cause(ctx context.Context) error {
	err, why := ctx.Err(), context.Cause(ctx)
	if other, ok := why.(as); ok {
		return other.error
	}
	switch {
	case err == nil || why == err:
		return err
	case RanOut(ctx):
		return ErrTimeout
	}
	return fmt.Errorf("%w: %w", err, &CallerError{why})
}

// Because adds the end of ctx, if ctx has ended, to the error of a step. An error of a dialer that our limit
// cancelled is not passed off as the caller's cancellation.
func Because(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	why := Cause(ctx)
	for _, said := range []error{err, Brought(err)} {
		if errors.Is(said, ctx.Err()) || errors.Is(said, context.Canceled) || errors.Is(said, context.Cause(ctx)) {
			return why
		}
	}
	return fmt.Errorf("%w: %w", why, err)
}

// A Panicked holds the panic of a user's function that ran behind a done change. The panic goes on after the
// lock has noted the change.
type Panicked struct{ Value any }

func (p *Panicked) Error() string {
	return fmt.Sprintf("setnxlock: a panic behind a change: %v", p.Value)
}

// Slow turns the error of a read or write after its time limit into ErrTimeout.
func Slow(err error) error {
	var n net.Error
	if errors.Is(err, ErrTimeout) {
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &n) && n.Timeout() && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return err
}

// Ended reports whether ctx or its deadline has ended: a connection notices a deadline before the context does.
func Ended(ctx context.Context) bool {
	at, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !Now().Before(at)
}

// Sooner returns ctx with an earlier deadline. redigo takes the deadline for its read timeout, in real time.
// The context itself does not end at the deadline.
func Sooner(ctx context.Context, at time.Time) context.Context { return sooner{ctx, at} }

type sooner struct {
	context.Context
	at time.Time
}

// Early returns the deadline from Sooner, unless ctx's own deadline comes first.
func Early(ctx context.Context) (at time.Time, ok bool) {
	if s, early := ctx.(sooner); early {
		if own, ok := s.Context.Deadline(); !ok || s.at.Before(own) {
			return s.at, true
		}
	}
	return at, false
}

func (s sooner) Deadline() (time.Time, bool) {
	if at, ok := s.Context.Deadline(); ok && at.Before(s.at) {
		return at, true
	}
	return s.at, true
}

// Past has a deadline that has passed: redigo kills a connection that gets Past, and sends nothing.
var Past, _ = context.WithDeadline(context.Background(), time.Unix(1, 0))
