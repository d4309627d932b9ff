// Package queue keeps the waiters and the holder of each key in this process.
//
// It makes four guarantees. Waiters for one key are served in the order of their arrival, however
// their contexts end. Only the head of a queue talks to the server, and not even the head while a lock
// of this process has the key: an attempt would fail. A grant for a waiter that has left goes to the
// next one. A process that has had its turn lets other processes have theirs.
package queue

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is returned to waiters when their queues are closed, and to later callers.
var ErrClosed = errors.New("setnxlock: the Locker is closed")

// Queues keeps the queues of one process: one for each key with waiters or a holder. A release passes a P on
// to the next waiter. The zero Queues has no turns, and passes nothing on.
type Queues[P any] struct {
	Now       func() time.Time
	NoHandOff bool                            // a release never passes the lock on
	Pause     time.Duration                   // the shortest pause between two looks, a chance for others
	Longest   time.Duration                   // the longest pause between two looks
	Undo      func(ctx context.Context, p *P) // releases a lock that was passed on, but found no waiter
	Signals   *Signals                        // nil: no release elsewhere wakes a waiter here
	Run       func(inBackground func())

	mu   sync.Mutex
	of   map[string]*Queue[P]
	last struct { // the key of the last release, and how long this process had it, all in all
		key string
		had time.Duration
	}
	untilAsk time.Duration          // how long this process may still have keys before it asks for waiters elsewhere
	known    map[string]*contention // of keys that other clients have had, without a queue here now
	spare    *Queue[P]              // the last forgotten queue without contention: locks that come and go use it again
	closed   atomic.Bool

	listenRetryAt time.Time // no waiter listens before then
}

// A Queue keeps the lock of this process that has a key, and the entries that wait for the key. The first
// entry waits for the release or the end of that lock.
type Queue[P any] struct {
	key         string
	here        *Holder[P] // the lock of this process that has the key; nil: none
	headed      bool       // there is a head: a waiter that may talk to the server
	first, last *Entry[P]
	contention  *contention // nil until a waiter had to wait
}

// A Holder links a lock with its queue, from Took until the lock is released or gone.
type Holder[P any] struct {
	Since time.Time // when the lock was taken

	queue *Queue[P] // nil: others may hold the key at the same time
}

// Join returns key's queue, and an entry in it. A caller that becomes the head at once gets no entry, but its
// grant.
func (qs *Queues[P]) Join(key string, ttl time.Duration) (q *Queue[P], e *Entry[P], g Grant[P], err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.closed.Load() {
		return nil, nil, g, ErrClosed
	}
	q = qs.queue(key)
	if !q.headed && q.here == nil && q.first == nil {
		q.headed = true
		if c := q.contention; c != nil && !c.free.IsZero() {
			g = Grant[P]{Yield: max(c.free.Sub(qs.Now()), 0), Woken: c.called}
		}
		return q, nil, g, nil
	}
	e = qs.newEntry(q, ttl)
	if e.prev = q.last; e.prev != nil {
		e.prev.next = e
	} else {
		q.first = e
	}
	q.last = e
	return q, e, g, nil
}

// queue returns the queue of key, and makes one if there is none. qs.mu is held.
func (qs *Queues[P]) queue(key string) *Queue[P] {
	q := qs.of[key]
	if q == nil {
		if qs.of == nil {
			qs.of = make(map[string]*Queue[P])
		}
		if q = qs.spare; q == nil {
			q = new(Queue[P])
		}
		q.key, qs.spare = key, nil
		qs.of[key] = q
		if c := qs.known[key]; c != nil {
			q.contention = c
			delete(qs.known, key)
		}
	}
	return q
}

// call makes the first entry the head, if there is no head and no lock of ours has the key. It forgets an
// empty queue. qs.mu is held.
func (qs *Queues[P]) call(q *Queue[P], g Grant[P]) {
	switch {
	case q.headed || q.here != nil:
	case q.first != nil:
		q.headed = true
		q.contention.try = false
		q.contention.anew()
		q.pop().granted <- g
	default:
		if c := q.contention; c != nil {
			if c.stop(true); c.woken {
				c.woken = false
				qs.wakeAnother(q.key)
			}
		}
		if qs.of[q.key] == q {
			delete(qs.of, q.key)
			qs.forget(q)
		}
	}
}

// Leave removes the head of q, with the lock or without. The next entry becomes the head.
func (qs *Queues[P]) Leave(q *Queue[P]) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.headed = false
	qs.call(q, Grant[P]{})
}

// Await waits for e's grant until ctx ends; ok reports a grant. A grant that comes after the end of ctx
// goes on: a lock goes to the next entry, or back to the server.
func (qs *Queues[P]) Await(ctx context.Context, e *Entry[P]) (g Grant[P], ok bool) {
	select {
	case g = <-e.granted:
		if ctx.Err() == nil {
			return g, true
		}
	case <-ctx.Done():
		if g, ok = qs.quit(e); !ok {
			return g, false
		}
	}
	if g.Failed != nil {
		return g, false
	}
	if g.Passed != nil {
		if qs.passOn(e.queue, g) {
			return g, false
		}
		qs.Undo(ctx, g.Passed)
	}
	qs.Leave(e.queue)
	return g, false
}

// quit takes e out of its queue. If e has been called, quit returns the grant instead.
func (qs *Queues[P]) quit(e *Entry[P]) (g Grant[P], called bool) {
	qs.mu.Lock()
	if called = e.called; !called {
		e.unlink()
		qs.call(e.queue, g)
	}
	qs.mu.Unlock()
	if called {
		g = <-e.granted // without the mutex: Successor's caller may still have to send the grant
	}
	return g, called
}

// Took notes that h has key, from h.Since on.
func (qs *Queues[P]) Took(key string, h *Holder[P]) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.queue(key)
	q.here, h.queue = h, q
	if c := q.contention; c != nil {
		c.begin(h.Since)
		c.looks.over(c.usually, qs.Pause, qs.Longest)
		c.woken, c.overtaken, c.watched, c.called = false, false, false, false
		c.stop(false)
	}
}

// Wakeable prepares the head for a sleep. It returns the channel news, which wakes the head, and the pause
// after which the head looks at the key itself. A woken head calls Heard. If a lock of ours has the key, the
// head must wait for that lock: it becomes the first entry, for ttl, and Wakeable returns that entry instead.
func (qs *Queues[P]) Wakeable(q *Queue[P], ttl time.Duration) (e *Entry[P], news <-chan struct{}, pause time.Duration, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.closed.Load() {
		return nil, nil, 0, ErrClosed
	}
	c := qs.contended(q)
	if q.here == nil {
		longest := qs.Longest
		if qs.NoHandOff {
			longest = min(longest, inTurn*qs.Pause)
		}
		if qs.listens(q) {
			return nil, c.news, longest * time.Duration(max(c.listener.among/16, 1)), nil
		}
		return nil, c.news, c.looks.next(qs.Now, c.usually, qs.Pause, longest), nil
	}
	e = qs.newEntry(q, ttl)
	if e.next = q.first; e.next != nil {
		e.next.prev = e
	} else {
		q.last = e
	}
	q.first, q.headed = e, false
	return e, nil, 0, nil
}

// inTurn limits the pause between two looks, in shortest pauses, for a lock that itself gives out the turns: the
// woken client may not be the client whose turn has come, and no release wakes the latter.
const inTurn = 4

// wakeHead wakes the head: with try for an attempt, otherwise for a look. The queues' mutex is held.
func (q *Queue[P]) wakeHead(try bool) {
	c := q.contention
	if c == nil || !q.headed {
		return
	}
	c.try = c.try || try
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// Heard reports whether the head was woken for an attempt.
func (qs *Queues[P]) Heard(q *Queue[P]) (try bool, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.closed.Load() {
		return false, ErrClosed
	}
	c := q.contention
	try, c.try = c.try, false
	return try, nil
}

// Successor chooses the next holder of h's lock: the first entry, which becomes the head. It returns nil if the
// lock must not be handed off, and if there is a head already, because h's lock was taken past the queue.
func (qs *Queues[P]) Successor(h *Holder[P], able bool, ttl time.Duration, now time.Time) *Entry[P] {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := h.queue
	if q == nil || q.here != h || q.first == nil || !able || q.headed || qs.NoHandOff {
		return nil
	}
	c := q.contention
	if c.cannotHandOff || c.spent(q.waiting(), qs.Pause, ttl, now) {
		return nil
	}
	c.served++
	q.here, q.headed, c.try = nil, true, false
	return q.pop()
}

// Gone notes the loss or the detach of h's lock: the first entry asks the server.
func (qs *Queues[P]) Gone(h *Holder[P]) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.left(h, Grant[P]{})
}

// Released notes the release of h's lock at now. If the turn of this process is over, other processes get a
// chance: a woken client, or any client that looks while this process pauses.
func (qs *Queues[P]) Released(ctx context.Context, h *Holder[P], ttl time.Duration, now time.Time) {
	q, moment, asks := qs.released(h, ttl, now)
	switch {
	case !asks:
	case moment > 0:
		qs.Run(func() { qs.wake(context.Background(), q, moment) })
	default: // not in the background: the process may end right after its release
		qs.wake(ctx, q, 0)
	}
}

// ReleasedBeside notes the release of a lock that others may hold too. Only the last release frees the key, but no
// holder knows whether it is the last: any of them may wake a waiter.
func (qs *Queues[P]) ReleasedBeside(ctx context.Context, key string, had time.Duration) {
	qs.mu.Lock()
	asks := qs.asks(qs.of[key], had)
	qs.mu.Unlock()
	if asks {
		qs.Signals.Wake(ctx, key, 0)
	}
}

// released does the work of Released, without the wake-up. If it returns asks, the caller must call wake, and
// leave the key free for moment: q gets no head before that.
func (qs *Queues[P]) released(h *Holder[P], ttl time.Duration, now time.Time) (q *Queue[P], moment time.Duration, asks bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q = h.queue; q == nil || q.here != h {
		return nil, 0, false
	}
	c := q.contention
	if q.headed || c != nil && q.first != nil && !c.spent(q.waiting(), qs.Pause, ttl, now) {
		if c != nil {
			c.served++
		}
		qs.left(h, Grant[P]{})
		return nil, 0, false
	}
	if c == nil && qs.again(q.key, now.Sub(h.Since)) {
		c = qs.contended(q)
		c.had, c.unused = rarely*qs.Pause, 2*missed-1
	}
	if c != nil {
		c.end(now)
		most := seldom
		if qs.Signals != nil && !c.silent {
			most = rarely
		}
		if c.leaves(qs.Pause, most, now) {
			moment = 2 * qs.Pause
		}
	}
	if !qs.asks(q, now.Sub(h.Since)) {
		if moment > 0 {
			c.free, c.called = now.Add(moment), false
		}
		qs.left(h, Grant[P]{Yield: moment})
		return nil, 0, false
	}
	q.here, q.headed = nil, true // no waiter here may try meanwhile
	return q, moment, true
}

// wake wakes a client elsewhere, after a moment, and then calls the next waiter here. The waiter here must go behind
// the woken client: taking the key first would waste the wake-up.
func (qs *Queues[P]) wake(ctx context.Context, q *Queue[P], moment time.Duration) {
	woken := qs.Signals.Wake(ctx, q.key, moment)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.headed = false
	var g Grant[P]
	if woken {
		g = Grant[P]{Yield: 2 * qs.Pause, Woken: true}
		c := qs.contended(q) // kept for a caller that joins in a moment
		c.free, c.called = qs.Now().Add(g.Yield), true
	}
	qs.call(q, g)
}

func (qs *Queues[P]) left(h *Holder[P], g Grant[P]) {
	q := h.queue
	if q == nil || q.here != h {
		return
	}
	q.here = nil
	q.wakeHead(true)
	qs.call(q, g)
}

// Close ends every wait. Later waits fail at once.
func (qs *Queues[P]) Close() {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.closed.Store(true)
	for _, q := range qs.of {
		q.fail(ErrClosed, math.MaxInt64)
		if c := q.contention; c != nil {
			c.stop(true)
		}
		q.wakeHead(true)
	}
}

// Closed reports whether Close was called.
func (qs *Queues[P]) Closed() bool { return qs.closed.Load() }

// Len counts the keys with waiters or a holder.
func (qs *Queues[P]) Len() int {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return len(qs.of)
}
