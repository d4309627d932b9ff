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
	turns
	looks
	cannotHandOff bool // a lease that was handed off could not be extended: no more of it

	news chan struct{} // wakes the head
	try  bool          // with it: an attempt is worth making, not just a look

	listener *listener
	woken    bool      // a wake-up came, and nobody here has made use of it yet
	vain     bool      // the last that came was of no use: another client was faster
	free     time.Time // until when it is left to them
	front    string    // which of those who wait was to be woken next when the key was last seen to change hands
	silent   bool      // it changes hands without that anybody is woken

	// What the heads have seen of a key that nothing may ever end: the value that was read,
	// and since when it has stood unchanged. Heads come and go with their contexts; what is
	// seen must outlast them, or a dead key is never repaired.
	watched bool
	seen    string
	since   time.Time
}

// Join returns key's queue, and an entry in it unless the caller, who wants the lock for ttl, is its
// head at once: then others may have the first go for so long.
func (qs *Queues[P]) Join(key string, ttl time.Duration) (*Queue[P], *Entry[P], time.Duration, error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.closed.Load() {
		return nil, nil, 0, ErrClosed
	}
	q := qs.queue(key)
	if !q.headed && q.here == nil && q.first == nil {
		q.headed = true
		if q.contention != nil && !q.contention.free.IsZero() {
			return q, nil, q.contention.free.Sub(qs.Now()), nil
		}
		return q, nil, 0, nil
	}
	e := qs.newEntry(q, ttl)
	if e.prev = q.last; e.prev != nil {
		e.prev.next = e
	} else {
		q.first = e
	}
	q.last = e
	return q, e, 0, nil
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

func (qs *Queues[P]) newEntry(q *Queue[P], ttl time.Duration) *Entry[P] {
	qs.contended(q)
	return &Entry[P]{queue: q, ttl: ttl, granted: make(chan Grant[P], 1)}
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
			c.begin(q.here.since)
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

// forget keeps what is known of other clients of q, in which nobody is left. qs.mu is held.
func (qs *Queues[P]) forget(q *Queue[P]) {
	switch c := q.contention; {
	case c == nil:
		qs.spare = q
	case c.unused < 2*missed:
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
		c.begin(since)
		c.looks.over(c.usually, qs.Pause, qs.Longest)
		c.woken, c.vain, c.watched = false, false, false
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
		if qs.listens(q) {
			return nil, c.news, qs.Longest * time.Duration(max(c.listener.among/16, 1)), nil
		}
		return nil, c.news, c.looks.next(qs.Now, c.usually, qs.Pause, qs.Longest), nil
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
		c.change(qs.Now())
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

// Released notes that h's lock was released now. If the turn of this process is over, others get a chance: one that is woken,
// or any that looks while this process pauses.
func (qs *Queues[P]) Released(h *Holder[P], ttl time.Duration, now time.Time) {
	q, moment, asks := qs.released(h, ttl, now)
	switch {
	case !asks:
	case moment > 0:
		qs.Run(func() { qs.wake(q, moment) })
	default: // not in the background: the process may end when its release has
		qs.wake(q, 0)
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
	if c == nil && qs.again(q.key, now.Sub(h.since)) {
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
	if !qs.asks(q, now.Sub(h.since)) {
		if moment > 0 {
			c.free = now.Add(moment)
		}
		qs.left(h, Grant[P]{Yield: moment})
		return nil, 0, false
	}
	q.here, q.headed = nil, true // nobody tries meanwhile
	return q, moment, true
}

// wake wakes who waits elsewhere, after a moment, and then lets the next here go on.
func (qs *Queues[P]) wake(q *Queue[P], moment time.Duration) {
	woken := qs.Signals.Wake(q.key, moment)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.headed = false
	qs.call(q, Grant[P]{Woken: woken})
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
	asks := q.contention != nil || had >= qs.Pause || qs.quiet <= 0
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
		n = q.waiting()
	}
	return n
}

// waiting is how many entries it has. The queues' mutex is held.
func (q *Queue[P]) waiting() (n int) {
	for e := q.first; e != nil; e = e.next {
		n++
	}
	return n
}

// Len is how many keys are waited for or held.
func (qs *Queues[P]) Len() int {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return len(qs.of)
}
