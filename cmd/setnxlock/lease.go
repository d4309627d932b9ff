package main

import (
	"context"
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// A lease is the lock as supervise sees it.
type lease struct {
	*compat.Lock
	ttl  time.Duration
	last time.Time // when overslept was last called
}

// overslept notices that this process or the whole machine was stopped for a
// while, and then asks the server at once whether the lock is still ours: a
// machine that sleeps stops the timers that would have told.
func (l *lease) overslept() (lost bool) {
	now := time.Now()
	gap := now.Round(0).Sub(l.last.Round(0)) // by the wall's time, which went on
	l.last = now
	if gap > 3*time.Second && l.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := l.Extend(ctx, l.ttl)
		if err != nil && now.Round(0).After(l.Until().Round(0)) {
			return true
		}
	}
	return l.Context().Err() != nil
}
