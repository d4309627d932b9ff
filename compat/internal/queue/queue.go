// Package queue is who waits for a key in this process, and who has it.
//
// It guarantees that those who wait for one key are served in the order in which they came,
// however their contexts end; that the head of a queue alone talks to the server, and nobody
// while a lock of this process has the key, because nothing can come of it; that a grant
// which comes to one that waits no more is passed on; and that a process which has had its
// turns lets others have theirs.
package queue

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is what those get that wait when their queues are closed, or come later.
var ErrClosed = errors.New("setnxlock: the Locker is closed")

// Queues are one process's, one for each key that is waited for or held. P is what a release
// passes on to the next in the queue. The zero Queues has no turns, and passes nothing on.
type Queues[P any] struct {
	Now     func() time.Time
	Apart   bool                            // a release never passes the lock on
	Pause   time.Duration                   // the shortest between two looks, in which others have a chance
	Longest time.Duration                   // the longest
	Undo    func(ctx context.Context, p *P) // is for a lock that was passed on to nobody
	Signals *Signals                        // nil: releases elsewhere wake nobody here
	Run     func(inBackground func())

	mu   sync.Mutex
	of   map[string]*Queue[P]
	last struct { // the key that was released last, and for how long this process had it, again and again
		key string
		had time.Duration
	}
	quiet  time.Duration          // for how long this process is to have had keys when it asks again who waits for one
	known  map[string]*contention // of keys that others have had, and nobody waits for or holds here now
	spare  *Queue[P]              // the last that was forgotten, if nobody waited in it: locks that come and go need one
	closed atomic.Bool

	listenRetryAt time.Time // until when nobody is to listen
}

// A Queue is what is known of one key: the lock of ours that has it, and the entries that
// wait for it. The first waits for that lock to be released or to end.
type Queue[P any] struct {
	key         string
	here        *Holder[P] // the lock of ours that has the key; nil: there is none
	headed      bool       // somebody is at the head
	first, last *Entry[P]
	contention  *contention // nil until somebody had to wait
}

// A Holder is a lock's place, from Took until it is released or gone.
type Holder[P any] struct {
	Since time.Time // when the lock was taken

	queue *Queue[P] // nil: others may hold the key beside us
}

// Join returns key's queue, and an entry in it. A caller that is the head at once gets no entry but its grant.
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

// queue is key's, a new one if there is none. qs.mu is held.
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

// call makes the first entry the head, if there is none and no lock of ours has the key, and
// forgets a queue in which nobody is left. qs.mu is held.
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

// Leave is for a head that goes, with the lock or without.
func (qs *Queues[P]) Leave(q *Queue[P]) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.headed = false
	qs.call(q, Grant[P]{})
}

// Await waits for e's grant, as long as ctx lets it: then ok. A grant that comes when ctx is
// done already is passed on: a lock goes to the next entry, or back to the server.
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

// quit is for an entry that goes before its grant, or returns the one that had come.
func (qs *Queues[P]) quit(e *Entry[P]) (g Grant[P], called bool) {
	qs.mu.Lock()
	if called = e.called; !called {
		e.unlink()
		qs.call(e.queue, g)
	}
	qs.mu.Unlock()
	if called {
		g = <-e.granted // without the mutex: Successor's caller may still be about to bring it
	}
	return g, called
}

// Took notes that h has key.
func (qs *Queues[P]) Took(key string, h *Holder[P]) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.queue(key)
	q.here, h.queue = h, q
	if c := q.contention; c != nil {
		c.begin(h.Since)
		c.looks.over(c.usually, qs.Pause, qs.Longest)
		c.woken, c.vain, c.watched, c.called = false, false, false, false
		c.stop(false)
	}
}

// Wakeable makes the head ready to be woken, and returns what wakes it: then it asks Heard. If
// a lock of ours has the key it is to wait for that one, as the first entry and no longer the
// head: its entry, for ttl, is returned. pause is for how long it may sleep until it looks itself.
func (qs *Queues[P]) Wakeable(q *Queue[P], ttl time.Duration) (e *Entry[P], news <-chan struct{}, pause time.Duration, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.closed.Load() {
		return nil, nil, 0, ErrClosed
	}
	c := qs.contended(q)
	if q.here == nil {
		longest := qs.Longest
		if qs.Apart {
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

// inTurn is how many shortest pauses lie between two looks, at most, where the lock itself says whose turn it is: who was
// woken need not be whose turn has come, and nobody else wakes that client.
const inTurn = 4

// wakeHead wakes the head: to try, or to look. The queues' mutex is held.
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

// Heard reports whether what the head was woken with makes an attempt worth while.
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

// Successor returns the first entry, at the head from now on, if h's lock is to be handed off to it. A head that is there
// already (h's lock was taken past the queue) stays the only one.
func (qs *Queues[P]) Successor(h *Holder[P], able bool, ttl time.Duration, now time.Time) *Entry[P] {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := h.queue
	if q == nil || q.here != h || q.first == nil || !able || q.headed || qs.Apart {
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

// Gone notes that h's lock is lost or detached: the first entry asks.
func (qs *Queues[P]) Gone(h *Holder[P]) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.left(h, Grant[P]{})
}

// Released notes that h's lock was released now. If the turn of this process is over, others get a chance: one that is woken,
// or any that looks while this process pauses.
func (qs *Queues[P]) Released(ctx context.Context, h *Holder[P], ttl time.Duration, now time.Time) {
	q, moment, asks := qs.released(h, ttl, now)
	switch {
	case !asks:
	case moment > 0:
		qs.Run(func() { qs.wake(context.Background(), q, moment) })
	default: // not in the background: the process may end when its release has
		qs.wake(ctx, q, 0)
	}
}

// ReleasedBeside is Released of a lock that others may hold too: the last of them lets those in who wait, and which that is
// is not known here.
func (qs *Queues[P]) ReleasedBeside(ctx context.Context, key string, had time.Duration) {
	qs.mu.Lock()
	asks := qs.asks(qs.of[key], had)
	qs.mu.Unlock()
	if asks {
		qs.Signals.Wake(ctx, key, 0)
	}
}

// released is Released without the wake-up. asks: wake is to follow, after moment; until then q has no head.
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
	q.here, q.headed = nil, true // nobody tries meanwhile
	return q, moment, true
}

// wake wakes a client elsewhere, after a moment, and then lets the next here go on, behind that client: taking the key before
// it would have woken it in vain.
func (qs *Queues[P]) wake(ctx context.Context, q *Queue[P], moment time.Duration) {
	woken := qs.Signals.Wake(ctx, q.key, moment)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.headed = false
	var g Grant[P]
	if woken {
		g = Grant[P]{Yield: 2 * qs.Pause, Woken: true}
		c := qs.contended(q) // also for a call that comes in a moment
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

// Close ends every wait, and lets nobody wait any more.
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

// Closed reports that Close was called.
func (qs *Queues[P]) Closed() bool { return qs.closed.Load() }

// Len is how many keys are waited for or held.
func (qs *Queues[P]) Len() int {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return len(qs.of)
}
