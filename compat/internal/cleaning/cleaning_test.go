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

// start returns Jobs, their clock, and a caller's context with its cancellation.
func start() (*clock.Mock, *Jobs, context.Context, func()) {
	mock := clock.NewMock()
	caller, cancel := context.WithCancel(context.Background())
	return mock, New(mock, most), caller, cancel
}

// open reports whether no context has ended. It fails the test if a context ended for another reason than the limit.
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

// An operation has one limit from the end of the caller's context on, for all of its steps and nested work.
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

// Each piece of work has the whole limit while the caller's context goes on. After the end of that context,
// later work has the rest of the limit.
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

// Calls of a Group share a limit. The context of an earlier call, such as a lock's, begins a new operation.
func TestTogether(t *testing.T) {
	mock, c, caller, cancel := start()
	cancel()
	both, end := Group(caller)
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

// A job in the background outlives its operation and has its own limit. Wait waits for the job.
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
