package compat

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// An Observer sees what a Locker does. It is called on the goroutine that does it, between two
// steps: it must not block, and may be called by several goroutines at once.
type Observer func(Event)

// An Event is one thing that happened to a lock, or to an attempt to get one.
type Event struct {
	// Context is that of the call which did it: TryLock, Lock, Do, Extend, Release, Handoff, Adopt or Close. For what
	// nobody called, a renewal or a loss, it is that of the call which took the lock, without its end.
	Context context.Context

	Kind  Kind
	Key   string
	Lease Lease         // as it is after the event, without its Value; for EventRefused and EventAttempt, what was asked for
	Took  time.Duration // how long the step took; for EventAcquired, since Lock was called; for EventReleased, how long it was held
	Tries int           // attempts so far, this one included
	Err   error         // why, for refusals, losses and failures
}

// Kind says what happened.
type Kind string

const (
	EventAttempt  Kind = "attempt"  // one attempt to acquire has ended, Err says how
	EventAcquired Kind = "acquired" // Lease.How says how: free, taken over, resolved, adopted, handed off
	EventRefused  Kind = "refused"  // another client holds it
	EventExtended Kind = "extended" // by Extend or by a renewal
	EventFailed   Kind = "failed"   // a renewal failed and will be tried again
	EventLost     Kind = "lost"     // the lease is no longer ours, or about to end
	EventLingers  Kind = "lingers"  // it was renewed for a hundred ttls and not released; reported once
	EventReleased Kind = "released" // released, or handed off; Err if it was no longer ours or the outcome is unknown
	EventRepaired Kind = "repaired" // a key without a TTL was given one
	EventWeaker   Kind = "weaker"   // package probe took a weaker lock than other clients may get; Err says why
)

// Slog returns an Observer that logs to l: losses, failures and weaker locks as warnings,
// acquisitions, releases and repairs as information, the rest for debugging.
func Slog(l *slog.Logger) Observer {
	return func(e Event) {
		level := slog.LevelDebug
		switch e.Kind {
		case EventLost, EventFailed, EventWeaker, EventLingers:
			level = slog.LevelWarn
		case EventAcquired, EventReleased, EventRepaired:
			if level = slog.LevelInfo; errors.Is(e.Err, ErrLost) { // noticed by the release
				level = slog.LevelWarn
			}
		}
		attrs := []slog.Attr{slog.String("key", e.Key), slog.Duration("took", e.Took)}
		if e.Tries > 0 {
			attrs = append(attrs, slog.Int("tries", e.Tries))
		}
		if e.Kind == EventAcquired {
			attrs = append(attrs, slog.String("how", string(e.Lease.How)))
		}
		if e.Lease.Fence > 0 {
			attrs = append(attrs, slog.Int64("fence", e.Lease.Fence))
		}
		if e.Kind == EventAcquired || e.Kind == EventExtended {
			attrs = append(attrs, slog.Time("until", e.Lease.Until))
		}
		if e.Err != nil {
			attrs = append(attrs, slog.Any("error", e.Err))
		}
		what := "lock " + string(e.Kind)
		if e.Kind == EventFailed {
			what = "renewal failed" // the lock has not
		}
		l.LogAttrs(e.Context, level, what, attrs...)
	}
}
