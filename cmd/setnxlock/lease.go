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
	host string    // where the lock is, as messages call it

	slept bool // overslept has noticed it
}

// overslept notices that this process or the whole machine was stopped for a while, and then asks the server
// at once whether the lock is still ours: the timers were stopped, too.
func (l *lease) overslept() (lost bool) {
	l.slept = l.asleep()
	now := time.Now()
	l.last = now
	if l.slept && l.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := l.Extend(ctx, l.ttl)
		if err != nil && now.Round(0).After(l.Until().Round(0)) {
			return true
		}
	}
	return l.Context().Err() != nil
}

// asleep reports a pause between calls of overslept longer than a running process leaves, by the wall's time,
// which went on.
func (l *lease) asleep() bool { return time.Now().Round(0).Sub(l.last.Round(0)) > 3*time.Second }

// why explains the loss of the lock.
func (l *lease) why() string {
	if l.slept || l.asleep() {
		return "its time ran out while setnxlock was stopped"
	}
	return whyLost(l.host, context.Cause(l.Context()))
}
