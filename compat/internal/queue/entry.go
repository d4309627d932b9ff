package queue

import (
	"time"
)

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
	Woken  bool          // with Yield: to a client elsewhere that was woken
	Failed error         // not a grant, but why there will be none
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

// Grant is for an entry that Successor returned, once.
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

// Fail ends the wait of the entries whose ttl is at most upTo with err, which it took the head so
// long to get that each of them would have got it too, asking by itself.
func (qs *Queues[P]) Fail(q *Queue[P], err error, upTo time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.fail(err, upTo)
}

// waiting is how many entries it has. The queues' mutex is held.
func (q *Queue[P]) waiting() (n int) {
	for e := q.first; e != nil; e = e.next {
		n++
	}
	return n
}

// Waiting is how many entries wait for key, the head not among them.
func (qs *Queues[P]) Waiting(key string) (n int) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.of[key]; q != nil {
		n = q.waiting()
	}
	return n
}
