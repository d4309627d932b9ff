package compat

import (
	"context"
	"sync"
	"time"
)

// queues are a Locker's, one for each key that is waited for or held here.
type queues struct {
	mu    sync.Mutex
	of    map[string]*queue
	spare *queue // the last that was forgotten, if nobody waited in it: locks that come and go need one

	listenRetryAt time.Time // until when nobody is to listen
	closed        bool
}

// A queue is what this process knows of one key: the lock of ours that has it, and the entries
// that wait for it, first come first served. The head alone talks to the server. While a lock
// of ours has the key nobody does, because nothing can come of it: the first entry waits for
// that lock to be released or to end.
type queue struct {
	here        *Lock // the lock of ours that has the key; nil: there is none
	headed      bool  // somebody is at the head
	first, last *entry
	contention  *contention // nil until somebody had to wait
}

// An entry is one that waits.
type entry struct {
	queue      *queue
	next, prev *entry
	called     bool       // out of the queue: its grant is in the channel
	granted    chan grant // has room for one
}

// A grant is what an entry waits for: the head of the queue, and perhaps more.
type grant struct {
	passed *passed // the lock itself
	yield  bool    // others are to have a chance first: pause
	woken  bool    // a client elsewhere was woken, and has the first go
	failed error   // not a grant, but why there will be none
}

// contention is what a queue knows once somebody has had to wait.
type contention struct {
	turns         int           // how often in a row the key stayed in this process
	began         time.Time     // the first of them
	cannotHandOff bool          // a lease that was handed off could not be extended: no more of it
	gap           time.Duration // between two pauses for others; unseen: nobody else was seen yet
	paused        time.Time     // when others last had a chance to come in between

	news chan struct{} // wakes the head
	try  bool          // with it: an attempt is worth making, not just a look

	listener      *listener
	wakeupPending bool // a wake-up came, and nobody here has made use of it yet

	// What the heads have seen of a key that nothing may ever end: the last state that was
	// read, and since when its value has stood unchanged. Heads come and go with their
	// contexts; what is seen must outlast them, or a dead key is never repaired.
	seen  State
	since time.Time
}

// fairly is how many turns in a row a process takes that must not hand locks off.
const fairly = 32

// Where no client can say that it waits, a queue that has had its turns pauses for MinPoll.
// As long as nobody is seen to use that it pauses less often, down to this part of the time.
const (
	seldom               = 64
	unseen time.Duration = -1
)

// join returns key's queue, and an entry in it unless the caller is its head at once.
func (qs *queues) join(key string) (*queue, *entry, error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.closed {
		return nil, nil, ErrClosed
	}
	q := qs.queue(key)
	if !q.headed && q.here == nil && q.first == nil {
		q.headed = true
		return q, nil, nil
	}
	e := newEntry(q)
	if e.prev = q.last; e.prev != nil {
		e.prev.next = e
	} else {
		q.first = e
	}
	q.last = e
	return q, e, nil
}

// queue is key's, a new one if there is none. qs.mu is held.
func (qs *queues) queue(key string) *queue {
	q := qs.of[key]
	if q == nil {
		if qs.of == nil {
			qs.of = make(map[string]*queue)
		}
		if q = qs.spare; q == nil {
			q = new(queue)
		}
		qs.spare = nil
		qs.of[key] = q
	}
	return q
}

func newEntry(q *queue) *entry {
	q.contended()
	return &entry{queue: q, granted: make(chan grant, 1)}
}

func (q *queue) contended() *contention {
	if q.contention == nil {
		q.contention = &contention{news: make(chan struct{}, 1), gap: unseen}
		if q.here != nil {
			q.contention.began = q.here.since
		}
	}
	return q.contention
}

// pop takes the first entry out of the queue. The queues' mutex is held.
func (q *queue) pop() *entry {
	e := q.first
	e.unlink()
	e.called = true
	return e
}

func (e *entry) unlink() {
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

// call makes the first entry the head, if there is none and no lock of ours has the key, and
// forgets a queue in which nobody is left. The queues' mutex is held.
func (k *Locker) call(key string, q *queue, g grant) {
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
				k.background(func() { k.wakeAnother(key) })
			}
		}
		if k.queues.of[key] == q {
			delete(k.queues.of, key)
			if q.contention == nil {
				k.queues.spare = q
			}
		}
	}
}

// leave is for a head that goes, with the lock or without.
func (k *Locker) leave(key string, q *queue) {
	k.queues.mu.Lock()
	defer k.queues.mu.Unlock()
	q.headed = false
	k.call(key, q, grant{})
}

// quit is for an entry that goes before its grant. A grant that had come is returned: it has
// to be passed on.
func (k *Locker) quit(key string, e *entry) (g grant, called bool) {
	k.queues.mu.Lock()
	if e.called {
		k.queues.mu.Unlock()
		return <-e.granted, true // it was put there before e.called could be seen
	}
	e.unlink()
	k.call(key, e.queue, grant{})
	k.queues.mu.Unlock()
	return grant{}, false
}

// took notes that l has key.
func (qs *queues) took(key string, l *Lock) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.queue(key)
	q.here, l.queue = l, q
	if c := q.contention; c != nil {
		if c.turns == 0 {
			c.began = l.since
		}
		c.wakeupPending = false
		c.seen, c.since = State{}, time.Time{}
		c.stop(false)
	}
}

// wakeable makes the head ready to be woken. If a lock of ours has the key it is to wait for
// that one, as the first entry and no longer the head: its entry is returned. listening says
// that a release elsewhere will wake it.
func (k *Locker) wakeable(key string, q *queue) (e *entry, listening bool, err error) {
	k.queues.mu.Lock()
	defer k.queues.mu.Unlock()
	if k.queues.closed {
		return nil, false, ErrClosed
	}
	q.contended()
	if q.here == nil {
		return nil, k.listens(key, q), nil
	}
	e = newEntry(q)
	if e.next = q.first; e.next != nil {
		e.next.prev = e
	} else {
		q.last = e
	}
	q.first, q.headed = e, false
	return e, false, nil
}

// wakeHead wakes the head: to try, or to look. The queues' mutex is held.
func (q *queue) wakeHead(try bool) {
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

// heard reports whether what the head was woken with makes an attempt worth while.
func (qs *queues) heard(q *queue) (try bool, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.closed {
		return false, ErrClosed
	}
	try, q.contention.try = q.contention.try, false
	return try, nil
}

// elsewhere notes that a client elsewhere has the key: others do get their turns.
func (qs *queues) elsewhere(q *queue) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if c := q.contention; c != nil && q.here == nil {
		c.turns, c.gap, c.wakeupPending = 0, 0, false
	}
}

// unchanged notes what the head has read, and returns for how long the same value has stood
// there as one that may have to be repaired.
func (qs *queues) unchanged(q *queue, st State, now time.Time) time.Duration {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	c := q.contended()
	if !st.watched() || !c.seen.watched() || st.Value != c.seen.Value {
		c.seen, c.since = st, now
	}
	return now.Sub(c.since)
}

// repaired notes that it was tried.
func (qs *queues) repaired(q *queue, now time.Time) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.contended().since = now
}

// spent reports whether the process has had its turns: most of them in a row, or as many as
// half of ttl had room for.
func (c *contention) spent(most int, ttl time.Duration, now time.Time) bool {
	return c.turns >= most || c.turns > 0 && now.Sub(c.began) >= ttl/2
}

// turns is how many turns in a row a process may take after its first.
func (o *Options) turns() int {
	if o.MaxHandoffs < 0 {
		return fairly
	}
	return o.MaxHandoffs
}

// successor returns the first entry, at the head from now on, if l is to be handed off to it.
// Otherwise signal says whether the release is to wake a client elsewhere: not while this
// process goes on having its turns. A head that is there already (l was taken past the queue,
// by TryLock) stays the only one.
func (k *Locker) successor(l *Lock, able bool, ttl time.Duration, now time.Time) (e *entry, signal bool) {
	k.queues.mu.Lock()
	defer k.queues.mu.Unlock()
	q := l.queue
	if q == nil || q.here != l || q.first == nil || q.contention.spent(k.o.turns(), ttl, now) {
		return nil, true
	}
	c := q.contention
	if !able || q.headed || c.cannotHandOff || k.o.MaxHandoffs < 0 {
		return nil, false
	}
	c.turns++
	q.here, q.headed, c.try = nil, true, false
	return q.pop(), false
}

// gone notes that l is lost or detached: the first entry asks.
func (k *Locker) gone(l *Lock) { k.left(l, func(*queue) grant { return grant{} }) }

// released notes that l was. If the process has had its turns, others get a chance: one that
// was woken, or any that looks while this process pauses.
func (k *Locker) released(l *Lock, woken bool, ttl time.Duration) {
	k.left(l, func(q *queue) grant {
		c := q.contention
		if c == nil || q.first == nil {
			return grant{}
		}
		now := k.now()
		if !c.spent(k.o.turns(), ttl, now) {
			c.turns++
			return grant{}
		}
		c.turns = 0
		gap := c.gap
		if gap == unseen {
			gap = seldom * k.o.MinPoll
		}
		if c.paused.IsZero() {
			c.paused = c.began
		}
		if k.signalling() != nil || now.Sub(c.paused) < gap {
			return grant{woken: woken}
		}
		c.paused, c.gap = now, min(max(2*gap, k.o.MinPoll), seldom*k.o.MinPoll)
		return grant{yield: true}
	})
}

func (k *Locker) left(l *Lock, next func(*queue) grant) {
	key := l.key
	k.queues.mu.Lock()
	defer k.queues.mu.Unlock()
	q := l.queue
	if q == nil || q.here != l {
		return
	}
	q.here = nil
	q.wakeHead(true)
	k.call(key, q, next(q))
}

// fail ends the wait of all entries with err, which it took the head so long to get that each
// of them would have got it too, asking by itself.
func (qs *queues) fail(q *queue, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.failAll(err)
}

func (q *queue) failAll(err error) {
	for q.first != nil {
		q.pop().granted <- grant{failed: err}
	}
}

// close ends every wait, and lets nobody wait any more.
func (qs *queues) close() {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.closed = true
	for _, q := range qs.of {
		q.failAll(ErrClosed)
		if c := q.contention; c != nil {
			c.stop(true)
		}
		q.wakeHead(true)
	}
}

// await waits for e's grant. A grant that comes when ctx is done already is passed on.
func (k *Locker) await(ctx context.Context, key string, e *entry) (grant, bool) {
	select {
	case g := <-e.granted:
		if ctx.Err() == nil {
			return g, true
		}
		k.passOn(ctx, key, e.queue, g)
	case <-ctx.Done():
		if g, called := k.quit(key, e); called {
			k.passOn(ctx, key, e.queue, g)
		}
	}
	return grant{}, false
}

// passOn passes on a grant that came too late: a lock goes to the next entry, or back to the
// server.
func (k *Locker) passOn(ctx context.Context, key string, q *queue, g grant) {
	if g.failed != nil {
		return
	}
	if g.passed != nil {
		k.queues.mu.Lock()
		next := q.first
		if next != nil {
			q.pop().granted <- g
		}
		k.queues.mu.Unlock()
		if next != nil {
			return
		}
		k.undo(ctx, &g.passed.loose, nil) //nolint:errcheck // what stays ends with its lease
	}
	k.leave(key, q)
}
