package cleaning

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
)

const most = 250 * time.Millisecond

// start returns a Crew, its clock, and a caller's context with what ends it.
func start() (*clock.Mock, *Crew, context.Context, func()) {
	mock := clock.NewMock()
	caller, cancel := context.WithCancel(context.Background())
	return mock, New(mock, most), caller, cancel
}

// open reports that all go on, and fails if one that ended did not end by the limit.
func open(t *testing.T, all ...context.Context) bool {
	t.Helper()
	for _, ctx := range all {
		if ctx.Err() != nil && !errors.Is(context.Cause(ctx), limit.ErrTimeout) {
			t.Errorf("it ended by %v", context.Cause(ctx))
		}
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}

// From the end of the caller's context on an operation has one limit, whichever of its steps cleans
// up, and whatever that leads to.
func TestOneLimit(t *testing.T) {
	mock, c, caller, cancel := start()
	op, end := c.Operation(caller)
	defer end()
	step, done := limit.Within(op, mock, time.Hour)
	defer done()
	cancel()

	first, done := c.After(step)
	if !Late(first) || Late(step) {
		t.Error("what is late is not told from what is not")
	}
	mock.Add(most / 2)
	done()
	second, done := c.After(op)
	defer done()
	within, done := c.After(second)
	defer done()
	mock.Add(most/2 - 1)
	if !open(t, second, within) {
		t.Error("it ended too soon")
	}
	if mock.Add(1); open(t, second) || open(t, within) {
		t.Error("the second has a limit of its own")
	}
	third, done := c.After(step)
	defer done()
	if open(t, third) {
		t.Error("the third has a limit of its own")
	}
}

// While the caller's context goes on each has the whole limit; if it ends in between, what follows has
// what was left.
func TestLimitAsTheContextEnds(t *testing.T) {
	mock, c, caller, cancel := start()
	op, end := c.Operation(caller)
	defer end()
	for range 3 {
		one, done := c.After(op)
		mock.Add(most - 1)
		if !open(t, one) {
			t.Error("it has no limit of its own")
		}
		done()
	}
	one, done := c.After(op)
	mock.Add(most / 2)
	cancel()
	done()
	next, done := c.After(op)
	defer done()
	if !open(t, next) || one.Err() == nil {
		t.Error("it ended too soon, or the one before not at all")
	}
	if mock.Add(most / 2); open(t, next) {
		t.Error("it has a limit of its own")
	}
}

// Calls that belong together share a limit; a context of a call that is over, such as a lock's, is the
// caller's own.
func TestTogether(t *testing.T) {
	mock, c, caller, cancel := start()
	cancel()
	both, end := Together(caller)
	defer end()
	for n := range 2 {
		op, end := c.Operation(both)
		if op != both {
			t.Error("a part is an operation of its own")
		}
		ctx, done := c.After(op)
		if open(t, ctx) != (n == 0) {
			t.Errorf("call %d", n)
		}
		mock.Add(most)
		done()
		end()
	}
	inherited, stop := context.WithCancel(both)
	defer stop()
	op, end := c.Operation(inherited)
	defer end()
	if ctx, done := c.After(op); !open(t, ctx) {
		t.Error("a new operation has the limit of an old one")
	} else {
		done()
	}
}

// A job in the background outlives its operation, has a limit of its own, and is waited for.
func TestJob(t *testing.T) {
	mock, c, caller, cancel := start()
	cancel()
	op, end := c.Operation(caller)
	_, done := c.After(op)
	mock.Add(most)
	job, finish := c.Begin(op)
	done()
	end()
	if !open(t, job) || c.Wait(caller) == nil {
		t.Error("the job ended with its operation")
	}
	if mock.Add(most); open(t, job) {
		t.Error("the job has no limit")
	}
	finish()
	if err := c.Wait(context.Background()); err != nil {
		t.Error(err)
	}
}
