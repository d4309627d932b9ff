// Package limit bounds what a step may take: contexts that end by a limit of ours as well as
// by the caller's own end. It guarantees that the two are never mistaken for each other: ours
// is ErrTimeout and never context.Canceled, the caller's is never ErrTimeout, whatever its cause is.
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

// ErrTimeout means that a limit of ours ran out. It is a net.Error, and
// os.ErrDeadlineExceeded to errors.Is.
var ErrTimeout error = timeout{}

type timeout struct{}

func (timeout) Error() string        { return "setnxlock: no answer in time" }
func (timeout) Timeout() bool        { return true }
func (timeout) Temporary() bool      { return true }
func (timeout) Is(target error) bool { return target == os.ErrDeadlineExceeded }

// A CallerError is an error that a caller brought along: the cause of its context's end, or what its Dial
// returned. It may be another lock's, and says nothing about this one: errors.Is and errors.As don't look through it.
type CallerError struct{ Err error }

func (e *CallerError) Error() string { return e.Err.Error() }

// Caller returns what the caller brought along, to a caller that wants to look at it.
func (e *CallerError) Caller() error { return e.Err }

// Dialled is the error of a caller's Dial or pool: a server's answer, to AUTH say, as it is, any other as a
// CallerError.
func Dialled(err error) error {
	switch err.(type) {
	case nil, redis.Error:
		return err
	}
	return &CallerError{err}
}

// Brought returns the caller's error that err carries; nil: none.
func Brought(err error) error {
	if c := (*CallerError)(nil); errors.As(err, &c) {
		return c.Err
	}
	return nil
}

// ranOut is the cause of a context that a limit of ours has ended: no caller can have it.
type ranOut struct{ error }

func (r ranOut) Unwrap() error { return r.error }

// Out is the cause with which to cancel a context whose limit has run out.
var Out error = ranOut{ErrTimeout}

// RanOut reports that ctx ended by a limit of ours.
func RanOut(ctx context.Context) bool {
	_, ours := context.Cause(ctx).(ranOut)
	return ours
}

// A Context has a time limit for a whole step: it ends with it, if it can be cancelled at all; else who waits in it looks
// when that is.
type Context struct {
	context.Context
	Limit time.Duration
	until time.Time // by the connections' clock, which is the real one
	clock clock.Clock
}

type key struct{}

// Value finds the limit below whatever a caller has put on top of it.
func (l *Context) Value(k any) any {
	if k == (key{}) {
		return l
	}
	return l.Context.Value(k)
}

// Of is the limit of a step in ctx; 0: none is known.
func Of(ctx context.Context) time.Duration {
	if l, ok := ctx.Value(key{}).(*Context); ok {
		return l.Limit
	}
	return 0
}

// Cancels reports that ctx can be cancelled.
func Cancels(ctx context.Context) bool { return ctx.Done() != nil }

// Until is when the limit of a step in ctx ends; zero: none is known.
func Until(ctx context.Context) (at time.Time) {
	if l, ok := ctx.Value(key{}).(*Context); ok {
		at = l.until
	}
	return at
}

// Timed limits a step whose context can't be cancelled. That needs no goroutine to watch it: the connection's own time
// limit does.
func Timed(ctx context.Context, c clock.Clock, d time.Duration) *Context {
	return &Context{ctx, d, Now().Add(d), c}
}

// Within is ctx, until d has passed.
func Within(ctx context.Context, c clock.Clock, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := c.AfterFunc(d, func() { cancel(Out) })
	return &Context{ctx, d, Now().Add(d), c}, func() { t.Stop(); cancel(nil) }
}

// Alarm is a channel that is ready when the limit of a context ends that can't be cancelled; nil: there is none.
func Alarm(ctx context.Context) (rings <-chan time.Time, stop func()) {
	if at := Until(ctx); !Cancels(ctx) && !at.IsZero() {
		t := Timer(Left(at))
		return t.C, func() { t.Stop() }
	}
	return nil, func() {}
}

// Over is why nothing more is to be begun in ctx: its end, or that of its limit; nil: it goes on.
func Over(ctx context.Context) error {
	if at := Until(ctx); ctx.Err() == nil && !Cancels(ctx) && !at.IsZero() && !Now().Before(at) {
		return ErrTimeout
	}
	return Cause(ctx)
}

// Alongside has what ctx carries, but ends with other, which has a limit.
func Alongside(ctx, other context.Context) (context.Context, func()) {
	l := other.Value(key{}).(*Context)
	ctx, cancel := context.WithCancelCause(carrying{other, context.WithoutCancel(ctx)})
	return &Context{ctx, l.Limit, l.until, l.clock}, func() { cancel(nil) }
}

// carrying ends with its Context and has the values of another.
type carrying struct {
	context.Context
	values context.Context
}

func (c carrying) Value(k any) any {
	if v := c.values.Value(k); v != nil {
		return v
	}
	return c.Context.Value(k) // how it ends
}

// Share is ctx, which has a limit, for an n-th of that.
func Share(ctx context.Context, n int) (context.Context, func()) {
	if n == 1 {
		return ctx, func() {}
	}
	l := ctx.Value(key{}).(*Context)
	return Within(ctx, l.clock, l.Limit/time.Duration(n))
}

// As is the cause with which to cancel a context that is to end as another has: Cause says the same
// of both. The other's own cause would not do: context.Canceled would be said beside a deadline that passed.
func As(other context.Context) error { return as{Cause(other)} }

type as struct{ error }

func (a as) Unwrap() error { return a.error }

// Cause is what a context's end means for a caller: its own context.Canceled or
// DeadlineExceeded, or ErrTimeout where a limit of ours ran out, and the cause beside it.
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

// Because adds to a step's error that its context ended, if it did. That a dialer was cancelled
// by a limit of ours is not said as the caller's own cancellation.
func Because(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	why := Cause(ctx)
	for _, said := range []error{err, Brought(err)} {
		if errors.Is(said, ctx.Err()) || errors.Is(said, context.Canceled) {
			return why
		}
	}
	return fmt.Errorf("%w: %w", why, err)
}

// A Panicked is a panic of a user's function behind a change that was done. It goes on when that is known to the lock.
type Panicked struct{ Value any }

func (p *Panicked) Error() string {
	return fmt.Sprintf("setnxlock: a panic behind a change: %v", p.Value)
}

// Slow is ErrTimeout for a read or write that a time limit ended.
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

// Ended reports whether ctx has ended, or is about to: a connection notices a deadline before
// the context does.
func Ended(ctx context.Context) bool {
	at, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !Now().Before(at)
}

// Sooner is ctx with an earlier deadline, which redigo makes its read timeout: in real time,
// and without ending.
func Sooner(ctx context.Context, at time.Time) context.Context { return sooner{ctx, at} }

type sooner struct {
	context.Context
	at time.Time
}

// Early is the deadline that ctx has from Sooner; any other comes with ctx's own end.
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

// Past is a context whose deadline has passed: redigo kills a connection that is asked with it, and sends
// nothing.
var Past, _ = context.WithDeadline(context.Background(), time.Unix(1, 0))
