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

// together sends changes under WATCH in batches. The changes that come while a batch is under way form the next batch,
// in one transaction. A crowd of releases costs two round trips, where each by itself would cost two, and a connection.
type together struct {
	mu      sync.Mutex
	waiting []*companion
	busy    bool
}

// A companion carries one change, in its batch or on the way to it.
type companion struct {
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
	c := &companion{change: ch, within: limit.Of(ctx), done: make(chan struct{})}
	t := &s.together
	t.mu.Lock()
	t.waiting = append(t.waiting, c)
	begins := !t.busy
	t.busy = true
	t.mu.Unlock()
	if begins {
		s.crew.Run(s.travel)
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
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, c); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		return protocol.NotSent.Mark(err)
	}
	return err
}

// travel carries out batches until none waits.
func (s *server) travel() {
	t := &s.together
	for {
		t.mu.Lock()
		n := min(len(t.waiting), batchAtMost)
		batch := slices.Clone(t.waiting[:n])
		t.waiting = slices.Delete(t.waiting, 0, n)
		t.busy = n > 0
		t.mu.Unlock()
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
func (s *server) carryOut(batch []*companion) {
	changes, within := make([]protocol.Change, len(batch)), time.Duration(0)
	for i, c := range batch {
		changes[i], within = c.change, max(within, c.within)
	}
	ctx := limit.Timed(cleaning.With(context.Background(), s.crew), limit.Real, within)
	ran := false
	err := s.do(ctx, batch[0].change.Key, func(c *call) error {
		ran = true
		_, errs := c.RunAll(changes)
		for i, err := range errs {
			errs[i] = c.verdict(changes[i].Key, err)
			batch[i].err = errs[i]
		}
		return errors.Join(errs...)
	})
	for _, c := range batch {
		if !ran {
			c.err = err
		}
	}
}
