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
	Now      func() time.Time
	Handoffs int                             // how often in a row a release may pass the lock on; negative: never
	Pause    time.Duration                   // the shortest, in which others have a chance
	Undo     func(ctx context.Context, p *P) // is for a lock that was passed on to nobody
	Signals  *Signals                        // nil: releases elsewhere wake nobody here
	Run      func(inBackground func())

	mu     sync.Mutex
	of     map[string]*Queue[P]
	spare  *Queue[P] // the last that was forgotten, if nobody waited in it: locks that come and go need one
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
	queue *Queue[P] // nil: others may hold the key beside us
	since time.Time
}

// An Entry is one that waits.
type Entry[P any] struct {
	queue      *Queue[P]
	next, prev *Entry[P]
	ttl        time.Duration // of the lock that it waits for
	called     bool          // out of the queue: its grant is in the channel
	granted    chan Grant[P] // has room for one
}

// A Grant is what an entry waits for: the head of the queue, and perhaps more.
type Grant[P any] struct {
	Passed *P            // the lock itself
	Yield  time.Duration // others are to have a chance first: pause for so long
	Woken  bool          // a client elsewhere was woken, and has the first go
	Failed error         // not a grant, but why there will be none
}

// contention is what a queue knows once somebody has had to wait.
type contention struct {
	share
	cannotHandOff bool // a lease that was handed off could not be extended: no more of it

	news chan struct{} // wakes the head
	try  bool          // with it: an attempt is worth making, not just a look

	listener      *listener
	wakeupPending bool // a wake-up came, and nobody here has made use of it yet

	// What the heads have seen of a key that nothing may ever end: the value that was read,
	// and since when it has stood unchanged. Heads come and go with their contexts; what is
	// seen must outlast them, or a dead key is never repaired.
	watched bool
	seen    string
	since   time.Time
}

// Join returns key's queue, and an entry in it unless the caller, who wants the lock for ttl, is its
// head at once.
func (qs *Queues[P]) Join(key string, ttl time.Duration) (*Queue[P], *Entry[P], error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.closed.Load() {
		return nil, nil, ErrClosed
	}
	q := qs.queue(key)
	if !q.headed && q.here == nil && q.first == nil {
		q.headed = true
		return q, nil, nil
	}
	e := qs.newEntry(q, ttl)
	if e.prev = q.last; e.prev != nil {
		e.prev.next = e
	} else {
		q.first = e
	}
	q.last = e
	return q, e, nil
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
	}
	return q
}

func (qs *Queues[P]) newEntry(q *Queue[P], ttl time.Duration) *Entry[P] {
	qs.contended(q)
	return &Entry[P]{queue: q, ttl: ttl, granted: make(chan Grant[P], 1)}
}

func (qs *Queues[P]) contended(q *Queue[P]) *contention {
	if q.contention == nil {
		q.contention = &contention{news: make(chan struct{}, 1), share: newShare(qs.Signals != nil)}
		if q.here != nil {
			q.contention.began = q.here.since
		}
	}
	return q.contention
}

// pop takes the first entry out of the queue. The queues' mutex is held.
func (q *Queue[P]) pop() *Entry[P] {
	e := q.first
	e.unlink()
	e.called = true
	return e
}

func (e *Entry[P]) unlink() {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		e.queue.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		e.queue.last = e.prev
	}
	e.next, e.prev = nil, nil
}

// Grant is for an entry that Successor returned, once.
func (e *Entry[P]) Grant(g Grant[P]) { e.granted <- g }

// call makes the first entry the head, if there is none and no lock of ours has the key, and
// forgets a queue in which nobody is left. qs.mu is held.
func (qs *Queues[P]) call(q *Queue[P], g Grant[P]) {
	switch {
	case q.headed || q.here != nil:
	case q.first != nil:
		q.headed = true
		q.contention.try = false
		q.pop().granted <- g
	default:
		if c := q.contention; c != nil {
			if c.stop(true); c.wakeupPending {
				c.wakeupPending = false
				qs.wakeAnother(q.key)
			}
		}
		if qs.of[q.key] == q {
			delete(qs.of, q.key)
			if q.contention == nil {
				qs.spare = q
			}
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

func (qs *Queues[P]) passOn(q *Queue[P], g Grant[P]) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q.first == nil {
		return false
	}
	q.pop().granted <- g
	return true
}

// Took notes that h has key since then.
func (qs *Queues[P]) Took(key string, h *Holder[P], since time.Time) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.queue(key)
	q.here, h.queue, h.since = h, q, since
	if c := q.contention; c != nil {
		c.ours(since, c.wakeupPending)
		c.wakeupPending, c.watched = false, false
		c.stop(false)
	}
}

// Wakeable makes the head ready to be woken, and returns what wakes it: then it asks Heard. If
// a lock of ours has the key it is to wait for that one, as the first entry and no longer the
// head: its entry, for ttl, is returned. listening says that a release elsewhere will wake it.
func (qs *Queues[P]) Wakeable(q *Queue[P], ttl time.Duration) (e *Entry[P], news <-chan struct{}, listening bool, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.closed.Load() {
		return nil, nil, false, ErrClosed
	}
	c := qs.contended(q)
	if q.here == nil {
		return nil, c.news, qs.listens(q), nil
	}
	e = qs.newEntry(q, ttl)
	if e.next = q.first; e.next != nil {
		e.next.prev = e
	} else {
		q.last = e
	}
	q.first, q.headed = e, false
	return e, nil, false, nil
}

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

// Heard reports whether what the head was woken with makes an attempt worth while, and for how long it
// is to pause before, because others can't be woken.
func (qs *Queues[P]) Heard(q *Queue[P]) (try bool, pause time.Duration, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.closed.Load() {
		return false, 0, ErrClosed
	}
	c := q.contention
	try, c.try = c.try, false
	if c.wakeupPending && qs.pauses(c) {
		pause = c.pause(qs.Pause)
	}
	return try, pause, nil
}

// Elsewhere notes that a client elsewhere has the key: others do get their turns. changed: it took the
// key since the head last looked. pace is by how much longer the head may pause between two looks.
func (qs *Queues[P]) Elsewhere(q *Queue[P], changed bool) (pace float64) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	c := q.contention
	if c == nil || q.here != nil {
		return 1
	}
	pace = c.others(changed, c.wakeupPending, qs.Signals != nil)
	c.wakeupPending = false
	return pace
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

// most is how many turns in a row a process takes.
func (qs *Queues[P]) most() int {
	if qs.Handoffs < 0 {
		return fairly
	}
	return qs.Handoffs
}

// turn counts one that begins. Before the last it asks, while the holder works, whether anybody waits
// elsewhere: not of clients that can't say so. qs.mu is held.
func (qs *Queues[P]) turn(q *Queue[P]) {
	c, most := q.contention, qs.most()
	if c.turns++; qs.Signals == nil || c.silent >= sure || c.turns != most+c.more-1 || c.more >= (alone-1)*most {
		return
	}
	turns, key := c.turns, q.key
	qs.Run(func() {
		if qs.Signals.Anyone(key) {
			return
		}
		qs.mu.Lock()
		defer qs.mu.Unlock()
		if c.turns == turns || c.turns == turns+1 { // these turns, not later ones
			c.more += most
		}
	})
}

// Successor returns the first entry, at the head from now on, if h's lock is to be handed off
// to it. Otherwise signal says whether the release is to wake a client elsewhere: not while
// this process goes on having its turns. A head that is there already (h's lock was taken past
// the queue) stays the only one.
func (qs *Queues[P]) Successor(h *Holder[P], able bool, ttl time.Duration, now time.Time) (e *Entry[P], signal bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := h.queue
	if q == nil || q.here != h || q.first == nil || q.contention.spent(qs.most(), ttl, now) {
		return nil, true
	}
	c := q.contention
	if !able || q.headed || c.cannotHandOff || qs.Handoffs < 0 {
		return nil, false
	}
	qs.turn(q)
	q.here, q.headed, c.try = nil, true, false
	return q.pop(), false
}

// CannotHandOff notes that a lock of this kind, once passed on, could not be extended.
func (qs *Queues[P]) CannotHandOff(q *Queue[P]) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.contended(q).cannotHandOff = true
}

// Gone notes that h's lock is lost or detached: the first entry asks.
func (qs *Queues[P]) Gone(h *Holder[P]) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.left(h, Grant[P]{})
}

// Released notes that h's lock was. If the process has had its turns, others get a chance: one
// that was woken, or any that looks while this process pauses.
func (qs *Queues[P]) Released(h *Holder[P], woken bool, ttl time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := h.queue; q == nil || q.contention == nil || q.first == nil {
		qs.left(h, Grant[P]{})
	} else if q.here == h {
		qs.left(h, qs.afterTurn(q, woken, ttl))
	}
}

// afterTurn is how the next entry is granted the head after a turn.
func (qs *Queues[P]) afterTurn(q *Queue[P], woken bool, ttl time.Duration) Grant[P] {
	c, now := q.contention, qs.Now()
	if !c.spent(qs.most(), ttl, now) {
		qs.turn(q)
		return Grant[P]{}
	}
	c.over(now)
	if woken {
		return Grant[P]{Woken: true, Yield: c.pause(qs.Pause)}
	}
	if !qs.pauses(c) {
		return Grant[P]{}
	}
	return Grant[P]{Yield: c.pause(qs.Pause)}
}

// pauses reports whether others are to have a chance now, which can't say that they wait.
func (qs *Queues[P]) pauses(c *contention) bool {
	least := worth * qs.Pause
	if c.wakeupPending {
		least *= 2 // so do the others that are woken in their turn
	}
	return c.pauses(least, qs.Signals != nil)
}

// Unwoken is for a head that has found the key free and heard no wake-up: it returns for how long the
// client that was woken may still be on its way, or pauses for those that can't be.
func (qs *Queues[P]) Unwoken(q *Queue[P]) time.Duration {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	c := q.contention
	if c == nil || c.listener == nil || !c.listener.registered || c.wakeupPending || c.silent >= sure {
		return 0
	}
	return 2 * c.pause(qs.Pause)
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

// Fail ends the wait of the entries whose ttl is at most upTo with err, which it took the head so
// long to get that each of them would have got it too, asking by itself.
func (qs *Queues[P]) Fail(q *Queue[P], err error, upTo time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.fail(err, upTo)
}

func (q *Queue[P]) fail(err error, upTo time.Duration) {
	for e := q.first; e != nil; {
		next := e.next
		if e.ttl <= upTo {
			e.unlink()
			e.called = true
			e.granted <- Grant[P]{Failed: err}
		}
		e = next
	}
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

// Waiting is how many entries wait for key, the head not among them.
func (qs *Queues[P]) Waiting(key string) (n int) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.of[key]; q != nil {
		for e := q.first; e != nil; e = e.next {
			n++
		}
	}
	return n
}

// Len is how many keys are waited for or held.
func (qs *Queues[P]) Len() int {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return len(qs.of)
}
