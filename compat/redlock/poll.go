package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
)

const (
	// atLeast is the least that a server which did not answer in time before has to answer, when
	// the others have decided.
	atLeast = time.Millisecond

	// grace is how long steps may take to notice that their context has ended.
	grace = 50 * time.Millisecond
)

// A poll is a round that asks all servers at once.
type poll[T any] struct {
	q    *Quorum
	r    round[T]
	news chan struct{} // an answer has come

	mu      sync.Mutex
	answers []answer[T]
	left    int              // steps that have not ended
	over    bool             // the answers are final
	missing map[*server]bool // whose steps have not ended after that
	clean   context.Context  // of what comes after that
	ended   func()           // to be called when the last step has ended after that
	stuck   bool             // what has not ended has outlasted clean too
}

// run starts a goroutine for each server. They end with the caller's context, after the limit, or when the round is
// over and what it leaves to be cleaned has had its time. One that is stuck for a quarter longer than the limit, or for
// grace after the caller's context has ended, is left behind, and cleans up after itself when it comes back.
func (p *poll[T]) run(caller context.Context, who []int) {
	o := p.q.o
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(caller))
	slow := o.Clock.AfterFunc(p.r.limit, func() { cancel(limit.Out) })
	for _, i := range who {
		go p.step(ctx, i)
	}
	start, done, decided := o.Clock.Now(), caller.Done(), false
	wait := o.Clock.Timer(p.r.limit + p.r.limit/4)
	for {
		if left, enough := p.state(); left == 0 {
			break
		} else if enough && !decided {
			decided = true
			wait = sooner(o.Clock, wait, p.linger(o.Clock.Since(start)))
		}
		select {
		case <-p.news:
			continue
		case <-done:
			done = nil
			cancel(limit.As(caller))
			wait = sooner(o.Clock, wait, min(p.r.limit/4, grace))
			continue
		case <-wait.C:
		}
		break
	}
	wait.Stop()
	p.leave(caller, who, decided, func(why error) { slow.Stop(); cancel(why) })
}

func sooner(c clock.Clock, t *clock.Timer, d time.Duration) *clock.Timer {
	t.Stop()
	return c.Timer(d)
}

// state counts the servers without an answer, and reports if the answers are enough.
func (p *poll[T]) state() (left int, enough bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left, p.r.enough != nil && p.r.enough(p.answers)
}

// linger returns the wait for the servers without an answer after the others have decided; took is the others' time. A
// server that lagged behind the last time has only as long again.
func (p *poll[T]) linger(took time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := min(max(took, atLeast), p.q.o.Grace)
	for i, a := range p.answers {
		if a.asked && !a.came && !p.q.servers[i].lags.Load() {
			return p.q.o.Grace
		}
	}
	return d
}

// step runs the step on one server, and cleans up if its answer came too late.
func (p *poll[T]) step(ctx context.Context, i int) {
	s := p.q.servers[i]
	value, err := p.r.step(ctx, s, i)
	if limit.RanOut(ctx) {
		err = tooSlow(err)
	}
	p.mu.Lock()
	if !p.over {
		p.answers[i] = answer[T]{asked: true, came: true, value: value, err: err}
		p.left--
		p.mu.Unlock()
		s.lags.Store(false)
		select {
		case p.news <- struct{}{}:
		default:
		}
		return
	}
	clean, stuck := p.clean, p.stuck
	p.mu.Unlock()
	if p.r.late != nil {
		p.clear(clean, stuck, s, i, value, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.missing, s)
	if p.left--; p.stuck {
		s.late.Add(-1)
	}
	if p.left == 0 {
		p.ended()
	}
}

// clear cleans up behind an answer after the round's end. After the time for cleaning too, it has a limit of its own:
// nobody waits for it.
func (p *poll[T]) clear(clean context.Context, stuck bool, s *server, i int, value T, err error) {
	if stuck {
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(clean))
		defer cancel(nil)
		t := p.q.o.Clock.AfterFunc(p.q.limit(0), func() { cancel(limit.Out) })
		defer t.Stop()
		clean = ctx
	}
	p.r.late(clean, s, i, value, err, !stuck)
}

// leave makes the answers final. Steps that have not ended go on while there is time to clean up
// behind them.
func (p *poll[T]) leave(caller context.Context, who []int, decided bool, cancel func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over = true; p.left == 0 {
		cancel(nil)
		return
	}
	clean, done := cleaning.Of(caller, p.q.jobs).Begin(caller)
	p.missing = make(map[*server]bool)
	for _, i := range who {
		if !p.answers[i].came {
			p.missing[p.q.servers[i]] = true
			p.q.servers[i].lags.Store(true)
			if decided {
				p.answers[i].err = errPending
			}
		}
	}
	stop := context.AfterFunc(clean, func() {
		cancel(limit.As(clean))
		p.q.o.Clock.AfterFunc(grace, func() { p.giveUp(done) })
	})
	p.clean = clean
	p.ended = func() {
		stop()
		cancel(nil)
		done()
	}
}

// giveUp ends the wait for stuck steps.
func (p *poll[T]) giveUp(done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left > 0 && !p.stuck {
		p.stuck = true
		for s := range p.missing {
			s.late.Add(1)
		}
		done()
	}
}
