package queue

import (
	"context"
	"time"
)

// Signals carry wake-ups between processes: a release in one process wakes a waiter in another.
type Signals struct {
	// Listen listens until ctx ends or a wake-up comes; woken reports a wake-up. With first, the listener is
	// woken before all others. Listen calls registered, with the number of listeners, as soon as a release
	// would wake this one. leave, if it is not nil, cancels the registration. With pass, leave passes a wake-up
	// for this listener on to others.
	Listen func(ctx context.Context, key string, first bool, registered func(among int)) (woken bool, leave func(pass bool))

	// Wake leaves the key free for a moment, and then wakes the client elsewhere that has waited longest. It
	// reports whether there is one.
	Wake func(ctx context.Context, key string, moment time.Duration) (woken bool)

	// Next returns the ticket to be woken next, or "" if it is not known.
	Next func(ctx context.Context, key string) string
}

// retry is the pause after a failure to listen. In the meantime waiters poll.
const retry = 10 * time.Second

// A listener listens for the head of a queue.
type listener struct {
	close      context.CancelFunc
	registered bool
	among      int  // the number of listeners, including this one
	pass       bool // the lock was not taken here: other listeners need the wake-up
}

// stop ends the listener. The queues' mutex is held.
func (c *contention) stop(pass bool) {
	if c.listener != nil {
		c.listener.pass = pass
		c.listener.close()
		c.listener = nil
	}
}

// listens starts a listener for the head, if releases signal. It reports whether a release would wake the
// head. qs.mu is held.
func (qs *Queues[P]) listens(q *Queue[P]) bool {
	c := q.contention
	if qs.Signals == nil {
		return false
	}
	if c.listener == nil && !qs.Now().Before(qs.listenRetryAt) {
		ctx, cancel := context.WithCancel(context.Background())
		l := &listener{close: cancel}
		c.listener = l
		key, first := q.key, c.overtaken
		qs.Run(func() { qs.listen(ctx, key, first, q, l) })
	}
	return c.listener != nil && c.listener.registered && !c.silent
}

func (qs *Queues[P]) listen(ctx context.Context, key string, first bool, q *Queue[P], l *listener) {
	woken, leave := qs.Signals.Listen(ctx, key, first, func(among int) {
		qs.mu.Lock()
		defer qs.mu.Unlock()
		if l.among = among; q.contention.listener == l && !l.registered {
			l.registered = true
			q.wakeHead(false)
		}
	})
	l.close()
	wanted, pass := qs.listened(q, l, woken)
	if woken && !wanted {
		qs.Signals.Wake(context.Background(), key, 0)
	}
	if leave != nil {
		leave(pass)
	}
}

// listened notes the end of listener l. wanted reports whether the queue still relied on l.
func (qs *Queues[P]) listened(q *Queue[P], l *listener, woken bool) (wanted, pass bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	c := q.contention
	if c.listener != l {
		return false, l.pass
	}
	c.listener = nil
	if woken {
		c.woken, c.silent = true, false
		q.wakeHead(true)
	} else {
		qs.listenRetryAt = qs.Now().Add(retry)
	}
	return true, true
}

// wakeAnother passes an unused wake-up on to another client.
func (qs *Queues[P]) wakeAnother(key string) {
	qs.Run(func() { qs.Signals.Wake(context.Background(), key, 0) })
}
