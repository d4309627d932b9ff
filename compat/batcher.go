package compat

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// batcher sends changes under WATCH in batches. The changes that come while a batch is under way form the next batch,
// in one transaction. A crowd of releases costs two round trips, where each by itself would cost two, and a connection.
type batcher struct {
	mu      sync.Mutex
	waiting []*batchedChange
	busy    bool
}

// A batchedChange carries one change, in its batch or on the way to it.
type batchedChange struct {
	change protocol.Change
	within time.Duration // how long its step may take
	err    error
	done   chan struct{}
}

// joins reports whether a change can travel with others: one under WATCH, while other steps are under way.
func (s *server) joins(ch *protocol.Change) bool {
	return s.shared != nil && s.underWay.Load() > 0 && ch.Watches() && !ch.Once && !ch.Persistent
}

// join carries ch out in a batch. A caller that gives up harms none of the others.
func (s *server) join(ctx context.Context, ch protocol.Change) error {
	if err := limit.Over(ctx); err != nil {
		return protocol.NotSent.Mark(err)
	}
	s.underWay.Add(1)
	defer s.underWay.Add(-1)
	c := &batchedChange{change: ch, within: limit.Of(ctx), done: make(chan struct{})}
	b := &s.batcher
	b.mu.Lock()
	b.waiting = append(b.waiting, c)
	begins := !b.busy
	b.busy = true
	b.mu.Unlock()
	if begins {
		s.jobs.Run(s.runBatches)
	}
	rings, stop := limit.Alarm(ctx)
	defer stop()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	case <-rings:
	}
	err := limit.Over(ctx)
	if err == nil {
		err = ErrTimeout
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, c); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		return protocol.NotSent.Mark(err)
	}
	return err
}

// runBatches carries out batches until none waits.
func (s *server) runBatches() {
	b := &s.batcher
	for {
		b.mu.Lock()
		n := min(len(b.waiting), batchAtMost)
		batch := slices.Clone(b.waiting[:n])
		b.waiting = slices.Delete(b.waiting, 0, n)
		b.busy = n > 0
		b.mu.Unlock()
		if n == 0 {
			return
		}
		s.carryOut(batch)
		for _, c := range batch {
			close(c.done)
		}
	}
}

// carryOut carries out a batch, within the longest limit of its steps.
func (s *server) carryOut(batch []*batchedChange) {
	changes, within := make([]protocol.Change, len(batch)), time.Duration(0)
	for i, c := range batch {
		changes[i], within = c.change, max(within, c.within)
	}
	ctx := limit.Timed(cleaning.With(context.Background(), s.jobs), limit.Real, within)
	ran := false
	err := s.do(ctx, batch[0].change.Key, func(c *call) error {
		ran = true
		_, errs := c.RunAll(changes)
		for i, err := range errs {
			errs[i] = c.verdict(changes[i].Key, err)
			batch[i].err = errs[i]
		}
		return c.joined(errs)
	})
	for _, c := range batch {
		if !ran {
			c.err = err
		}
	}
}

// joined returns the error of a step with several changes. Other connections must not repeat such a step after a change
// that ran: it would look lost, beside a change that was refused.
func (c *call) joined(errs []error) error {
	err := errors.Join(errs...)
	if err != nil && len(errs) > 1 && c.wire.Session.Ran {
		return protocol.Unknown.Mark(err)
	}
	return err
}
