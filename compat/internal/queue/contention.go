package queue

import (
	"context"
	"time"
)

// contention stores the knowledge of a queue about other clients, from the first wait on.
type contention struct {
	turns
	looks
	cannotHandOff bool // a lease could not be extended after a hand-off: no more hand-offs

	news chan struct{} // wakes the head
	try  bool          // wake the head for an attempt, not just for a look

	listener   *listener
	woken      bool      // a wake-up came, and no waiter here has used it yet
	overtaken  bool      // another client was faster after the last wake-up
	free       time.Time // the key is left to other clients until then
	called     bool      // one of these clients was woken
	nextTicket string    // the ticket to be woken next when the key last changed hands
	silent     bool      // the key changes hands without wake-ups

	// The heads keep the value of a key that may never end, and the time since when the value has stood
	// unchanged. Heads come and go with their contexts. Their knowledge must outlast them, or a dead key is
	// never repaired.
	watched bool
	seen    string
	since   time.Time
}

// kept limits the keys without a queue in Queues.known.
const kept = 64

func (qs *Queues[P]) contended(q *Queue[P]) *contention {
	if q.contention == nil {
		c := &contention{news: make(chan struct{}, 1)}
		if q.contention = c; qs.Signals != nil {
			c.unused = 2 * missed // perhaps every other client can be woken
		}
		if q.here != nil {
			c.begin(q.here.Since)
		}
	}
	return q.contention
}

// forget drops the empty queue q, and keeps its knowledge about other clients. qs.mu is held.
func (qs *Queues[P]) forget(q *Queue[P]) {
	switch c := q.contention; {
	case c == nil:
		qs.spare = q
	case c.unused < 2*missed || c.called:
		for key := range qs.known { // any of them
			if len(qs.known) < kept {
				break
			}
			delete(qs.known, key)
		}
		if qs.known == nil {
			qs.known = make(map[string]*contention)
		}
		qs.known[q.key] = c
	}
}

// TakenElsewhere notes that a client elsewhere has the key: others do get their turns. changed says that the client
// took the key after the head's last look. TakenElsewhere also finds out whether releases wake waiters: if they do,
// the ticket to be woken next changes with each release.
func (qs *Queues[P]) TakenElsewhere(ctx context.Context, q *Queue[P], changed bool) {
	qs.mu.Lock()
	c := q.contention
	if c == nil || q.here != nil {
		qs.mu.Unlock()
		return
	}
	c.began = time.Time{} // this process has no turn
	cannotListen := qs.Signals == nil || c.silent || qs.Now().Before(qs.listenRetryAt)
	if c.overtaken = c.overtaken || c.woken; c.woken || cannotListen {
		c.used()
	}
	if c.woken = false; changed {
		c.change(qs.Now(), qs.Pause)
	}
	asks := changed && !cannotListen && c.listener != nil && c.listener.registered
	qs.mu.Unlock()
	if !asks {
		return
	}
	next := qs.Signals.Next(ctx, q.key)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	c.silent = next != "" && next == c.nextTicket
	c.nextTicket = next
}

// Unchanged notes the value that the head has read. It returns how long the same value has stood unchanged while
// watched: the key may need a repair.
func (qs *Queues[P]) Unchanged(q *Queue[P], value string, watched bool, now time.Time) time.Duration {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	c := qs.contended(q)
	if !watched || !c.watched || value != c.seen {
		c.watched, c.seen, c.since = watched, value, now
	}
	return now.Sub(c.since)
}

// Repaired notes an attempt to repair the key: the value must stand as long again before the next attempt.
func (qs *Queues[P]) Repaired(q *Queue[P], now time.Time) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.contended(q).since = now
}

// again reports whether this process has had one key for long, in many short turns: it may have kept out
// clients without wake-ups. qs.mu is held.
func (qs *Queues[P]) again(key string, had time.Duration) bool {
	if qs.last.key != key {
		qs.last.key, qs.last.had = key, 0
	}
	qs.last.had += had
	long := qs.last.had >= seldom*5*qs.Pause
	if long {
		qs.last.had = 0
	}
	return long
}

// asks reports whether a release looks for a waiter elsewhere. These releases do: the first of the process,
// each of a key with contention here, and each of a lock held for the shortest pause or longer. Of the others
// one release does for each five shortest pauses of holding any key. qs.mu is held.
func (qs *Queues[P]) asks(q *Queue[P], had time.Duration) bool {
	if qs.Signals == nil {
		return false
	}
	qs.untilAsk -= had
	asks := q != nil && q.contention != nil || had >= qs.Pause || qs.untilAsk <= 0
	if asks {
		qs.untilAsk = 5 * qs.Pause
	}
	return asks
}

// Unwoken returns how long a head that found the key free, without a wake-up, must leave the key to the woken
// client. That client may still be on its way, or the release may still leave the key free for a moment.
func (qs *Queues[P]) Unwoken(q *Queue[P]) time.Duration {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	c := q.contention
	if c == nil || c.listener == nil || !c.listener.registered || c.woken || c.silent {
		return 0
	}
	return 6 * qs.Pause
}

// CannotHandOff notes that a lock could not be extended after a hand-off.
func (qs *Queues[P]) CannotHandOff(q *Queue[P]) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.contended(q).cannotHandOff = true
}
