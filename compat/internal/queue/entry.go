package queue

import (
	"time"
)

// An Entry holds a waiter's place in a queue.
type Entry[P any] struct {
	queue      *Queue[P]
	next, prev *Entry[P]
	ttl        time.Duration // of the requested lock
	called     bool          // the entry is out of the queue: its grant is sent or will be sent
	granted    chan Grant[P] // has room for one
}

// A Grant makes an entry the head of its queue, and may bring the lock.
type Grant[P any] struct {
	Passed *P            // the lock itself
	Yield  time.Duration // pause for so long first: others must have a chance
	Woken  bool          // Yield is for a client elsewhere that was woken
	Failed error         // no grant: the reason why none will come
}

func (qs *Queues[P]) newEntry(q *Queue[P], ttl time.Duration) *Entry[P] {
	qs.contended(q)
	return &Entry[P]{queue: q, ttl: ttl, granted: make(chan Grant[P], 1)}
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

// Grant sends g to an entry from Successor. It must be called exactly once.
func (e *Entry[P]) Grant(g Grant[P]) { e.granted <- g }

func (qs *Queues[P]) passOn(q *Queue[P], g Grant[P]) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q.first == nil {
		return false
	}
	q.pop().granted <- g
	return true
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

// Fail returns err to every waiter with a ttl of at most upTo. The head needed so long to get err that each of them
// would have got err too, asking by itself.
func (qs *Queues[P]) Fail(q *Queue[P], err error, upTo time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.fail(err, upTo)
}

// waiting counts the entries. The queues' mutex is held.
func (q *Queue[P]) waiting() (n int) {
	for e := q.first; e != nil; e = e.next {
		n++
	}
	return n
}

// Waiting counts the entries for key, without the head.
func (qs *Queues[P]) Waiting(key string) (n int) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.of[key]; q != nil {
		n = q.waiting()
	}
	return n
}
