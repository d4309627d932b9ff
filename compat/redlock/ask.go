package redlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
)

// A round is one step on several servers.
type round[T any] struct {
	limit time.Duration
	only  func(i int) bool // which servers; nil: all
	step  func(ctx context.Context, s *server, i int) (T, error)

	// late is told of an answer that came after the round was over: dialling
	// does not always heed a context.
	late func(ctx context.Context, s *server, value T, err error)

	// hopeless ends a sequential round before its last server.
	hopeless func(answers []answer[T]) bool
}

// An answer is one server's.
type answer[T any] struct {
	asked bool
	came  bool // it has answered; until then err is compat.ErrTimeout
	value T
	err   error
}

// none is the value of a step that has none.
type none struct{}

// lateAtMost is how many steps may be stuck in a server before it is not asked
// any more until one of them ends.
const lateAtMost = 16

// grace is how long steps may take to notice that the caller's context has ended.
const grace = 50 * time.Millisecond

var (
	errStuck    = errors.New("setnxlock: earlier requests to it have not ended yet")
	errNotAsked = errors.New("setnxlock: not asked: no majority was left to be had")
)

// ask runs r, on all servers at once or one after the other, and returns their
// answers by position.
func ask[T any](ctx context.Context, q *Quorum, r round[T]) []answer[T] {
	answers := make([]answer[T], len(q.servers))
	var who []int
	for i, s := range q.servers {
		switch {
		case r.only != nil && !r.only(i):
		case s.late.Load() >= lateAtMost:
			answers[i] = answer[T]{asked: true, came: true, err: compat.NotSent.Mark(errStuck)}
		default:
			answers[i] = answer[T]{asked: true, err: compat.ErrTimeout}
			who = append(who, i)
		}
	}
	if q.o.Sequential {
		inTurn(ctx, q, r, answers)
	} else if len(who) > 0 {
		atOnce(ctx, q, r, answers, who)
	}
	return answers
}

func inTurn[T any](ctx context.Context, q *Quorum, r round[T], answers []answer[T]) {
	hopeless := false
	for n := range answers {
		i := (q.o.First + n) % len(answers)
		a := &answers[i]
		switch {
		case !a.asked || a.came:
		case hopeless:
			a.came, a.err = true, compat.NotSent.Mark(errNotAsked)
		default:
			a.value, a.err = r.step(ctx, q.servers[i], i)
			a.came = true
			hopeless = r.hopeless != nil && r.hopeless(answers)
		}
	}
}

// atOnce has a goroutine for each server. They all end with the context, by
// its cancellation or after the limit. One that is stuck for a quarter longer, or for grace
// after the caller's context has ended, is left behind, and cleans up after itself when it
// comes back.
func atOnce[T any](caller context.Context, q *Quorum, r round[T], answers []answer[T], who []int) {
	ctx, cancel := context.WithCancelCause(caller)
	defer cancel(nil)
	slow := q.o.Clock.AfterFunc(r.limit, func() { cancel(compat.ErrTimeout) })
	defer slow.Stop()
	stuck := make(chan struct{})
	leave := q.o.Clock.AfterFunc(r.limit+r.limit/4, func() { close(stuck) })
	defer func() { leave.Stop() }()

	var mu sync.Mutex
	over, left := false, len(who)
	done := make(chan struct{})
	for _, i := range who {
		go func() {
			s := q.servers[i]
			value, err := r.step(ctx, s, i)
			if errors.Is(context.Cause(ctx), compat.ErrTimeout) {
				err = tooSlow(err)
			}
			mu.Lock()
			tooLate := over
			if !tooLate {
				answers[i] = answer[T]{asked: true, came: true, value: value, err: err}
				if left--; left == 0 {
					close(done)
				}
			}
			mu.Unlock()
			if tooLate {
				q.comesBack(ctx, s, func(ctx context.Context) {
					if r.late != nil {
						r.late(ctx, s, value, err)
					}
				})
			}
		}()
	}
	select {
	case <-done:
	case <-stuck:
	case <-caller.Done():
		leave.Stop()
		gone := make(chan struct{})
		leave = q.o.Clock.AfterFunc(min(r.limit/4, grace), func() { close(gone) })
		select {
		case <-done:
		case <-gone:
		}
	}
	mu.Lock()
	defer mu.Unlock()
	over = true
	for _, i := range who {
		if !answers[i].came {
			q.servers[i].late.Add(1)
		}
	}
}

// cleanup is the context of what must be done although ctx has ended, or ends meanwhile. It
// goes on for no longer than cleanupAtMost after it.
func (q *Quorum) cleanup(ctx context.Context) (context.Context, func()) {
	bounded, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	if q.o.Sequential {
		return bounded, func() { cancel(nil) }
	}
	over := make(chan *clock.Timer, 1)
	stop := context.AfterFunc(ctx, func() {
		over <- q.o.Clock.AfterFunc(cleanupAtMost, func() { cancel(compat.ErrTimeout) })
	})
	return bounded, func() {
		if !stop() {
			(<-over).Stop()
		}
		cancel(nil)
	}
}

// cleanupAtMost is the default of compat.Options.Cleanup.
const cleanupAtMost = 250 * time.Millisecond

// comesBack ends a step that was left behind.
func (q *Quorum) comesBack(ctx context.Context, s *server, cleanUp func(context.Context)) {
	defer s.late.Add(-1)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	limit := q.o.Clock.AfterFunc(q.limit(0), func() { cancel(compat.ErrTimeout) })
	defer limit.Stop()
	cleanUp(ctx)
}
