package queue

import (
	"context"
	"time"
)

// Signals are how a release elsewhere wakes a waiter here, and one here a waiter elsewhere.
type Signals struct {
	// Listen listens until ctx ends or a wake-up came: woken. first says that it is to be woken before all others.
	// registered is called when a release would wake it, and told how many wait. leave, if it is not nil, takes it back;
	// with pass a wake-up that may have been meant for it goes on to others.
	Listen func(ctx context.Context, key string, first bool, registered func(among int)) (woken bool, leave func(pass bool))

	// Wake wakes the client elsewhere that has waited longest, after a moment in which the key is to be free: woken, if there
	// is one.
	Wake func(ctx context.Context, key string, moment time.Duration) (woken bool)

	// Next is who would be woken next; "" if that is not known.
	Next func(ctx context.Context, key string) string
}

// retry is how long nobody listens after that has failed: polling is enough.
const retry = 10 * time.Second

// A listener listens for the head of a queue.
type listener struct {
	close      context.CancelFunc
	registered bool
	among      int  // how many wait, this one with them
	pass       bool // the lock was not taken here: others go on waiting
}

// stop ends it. The queues' mutex is held.
func (c *contention) stop(pass bool) {
	if c.listener != nil {
		c.listener.pass = pass
		c.listener.close()
		c.listener = nil
	}
}

// listens has a listener listen for the head, if releases signal, and reports whether a release
// would wake it. qs.mu is held.
func (qs *Queues[P]) listens(q *Queue[P]) bool {
	c := q.contention
	if qs.Signals == nil {
		return false
	}
	if c.listener == nil && !qs.Now().Before(qs.listenRetryAt) {
		ctx, cancel := context.WithCancel(context.Background())
		l := &listener{close: cancel}
		c.listener = l
		key, first := q.key, c.vain
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
	wanted, pass := qs.heardOut(q, l, woken)
	if woken && !wanted {
		qs.Signals.Wake(context.Background(), key, 0)
	}
	if leave != nil {
		leave(pass)
	}
}

// heardOut notes that l listens no more: wanted, if its queue still counted on it.
func (qs *Queues[P]) heardOut(q *Queue[P], l *listener, woken bool) (wanted, pass bool) {
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

// wakeAnother passes on a wake-up of which nobody here has made use.
func (qs *Queues[P]) wakeAnother(key string) {
	qs.Run(func() { qs.Signals.Wake(context.Background(), key, 0) })
}
