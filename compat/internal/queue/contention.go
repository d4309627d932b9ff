package queue

import (
	"context"
	"time"
)

// contention is what a queue knows once somebody has had to wait.
type contention struct {
	turns
	looks
	cannotHandOff bool // a lease that was handed off could not be extended: no more of it

	news chan struct{} // wakes the head
	try  bool          // with it: an attempt is worth making, not just a look

	listener *listener
	woken    bool      // a wake-up came, and nobody here has made use of it yet
	vain     bool      // the last that came was of no use: another client was faster
	free     time.Time // until when the key is left to others
	called   bool      // one of them was woken for that
	front    string    // which of those who wait was to be woken next when the key was last seen to change hands
	silent   bool      // it changes hands without that anybody is woken

	// What the heads have seen of a key that nothing may ever end: the value that was read,
	// and since when it has stood unchanged. Heads come and go with their contexts; what is
	// seen must outlast them, or a dead key is never repaired.
	watched bool
	seen    string
	since   time.Time
}

// kept is of how many keys it is kept that others have had them.
const kept = 64

func (qs *Queues[P]) contended(q *Queue[P]) *contention {
	if q.contention == nil {
		c := &contention{news: make(chan struct{}, 1)}
		if q.contention = c; qs.Signals != nil {
			c.unused = 2 * missed // nobody need be there who can't be woken
		}
		if q.here != nil {
			c.begin(q.here.Since)
		}
	}
	return q.contention
}

// forget keeps what is known of other clients of q, in which nobody is left. qs.mu is held.
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

// Elsewhere notes that a client elsewhere has the key: others do get their turns. changed: it took the key since the head
// last looked. Whether a release wakes those who wait is told by the name of the one who is next: it changes.
func (qs *Queues[P]) Elsewhere(ctx context.Context, q *Queue[P], changed bool) {
	qs.mu.Lock()
	c := q.contention
	if c == nil || q.here != nil {
		qs.mu.Unlock()
		return
	}
	c.began = time.Time{} // this process has no turn
	deaf := qs.Signals == nil || c.silent || qs.Now().Before(qs.listenRetryAt)
	if c.vain = c.vain || c.woken; c.woken || deaf {
		c.used()
	}
	if c.woken = false; changed {
		c.change(qs.Now(), qs.Pause)
	}
	asks := changed && !deaf && c.listener != nil && c.listener.registered
	qs.mu.Unlock()
	if !asks {
		return
	}
	next := qs.Signals.Next(ctx, q.key)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	c.silent = next != "" && next == c.front
	c.front = next
}

// Unchanged notes what the head has read, and returns for how long the same value has stood
// there as one that is watched: that may have to be repaired.
func (qs *Queues[P]) Unchanged(q *Queue[P], value string, watched bool, now time.Time) time.Duration {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	c := qs.contended(q)
	if !watched || !c.watched || value != c.seen {
		c.watched, c.seen, c.since = watched, value, now
	}
	return now.Sub(c.since)
}

// Repaired notes that it was tried: the value has to stand as long again.
func (qs *Queues[P]) Repaired(q *Queue[P], now time.Time) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.contended(q).since = now
}

// again reports whether this process has had one key for long, in many short turns: clients that can't be woken may have
// been kept out. qs.mu is held.
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

// asks reports whether a release looks for a waiter elsewhere: the first release of the process, one of a key for which
// somebody has waited here, one of a lock that was held for the shortest pause, and else one release for each five shortest
// pauses of holding any key. qs.mu is held.
func (qs *Queues[P]) asks(q *Queue[P], had time.Duration) bool {
	if qs.Signals == nil {
		return false
	}
	qs.quiet -= had
	asks := q != nil && q.contention != nil || had >= qs.Pause || qs.quiet <= 0
	if asks {
		qs.quiet = 5 * qs.Pause
	}
	return asks
}

// Unwoken is for a head that has found the key free and heard no wake-up: it returns for how long the
// client that was woken may still be on its way, or is not woken yet, because others have a moment.
func (qs *Queues[P]) Unwoken(q *Queue[P]) time.Duration {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	c := q.contention
	if c == nil || c.listener == nil || !c.listener.registered || c.woken || c.silent {
		return 0
	}
	return 6 * qs.Pause
}

// CannotHandOff notes that a lock of this kind, once passed on, could not be extended.
func (qs *Queues[P]) CannotHandOff(q *Queue[P]) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.contended(q).cannotHandOff = true
}
