package compat

import (
	"context"
	"sync"
	"time"
)

// lines are a Locker's queues, one for each key that is waited for or held here.
type lines struct {
	mu    sync.Mutex
	of    map[string]*line
	spare *line // the last that was forgotten, if nobody waited in it: locks that come and go need one

	deaf time.Time // until when nobody is to listen
}

// A line is what this process knows of one key: the lock of ours that has it,
// and who waits for it, first come first served. Its head alone talks to the
// server. While a lock of ours has the key nobody does, because nothing can come
// of it: the first in line waits for that lock to be given back or to end.
type line struct {
	here        *Lock // the lock of ours that has the key; nil: there is none
	headed      bool  // somebody is at the head
	first, last *waiter
	crowd       *crowd // nil until somebody had to wait
}

// A waiter stands in line.
type waiter struct {
	line       *line
	next, prev *waiter
	called     bool      // out of the line: its turn is in the channel
	turn       chan turn // has room for one
}

// A turn is what a waiter waits for: the head of the line, and perhaps more.
type turn struct {
	lease  *Lease // the lock itself, handed on
	polite bool   // others are to have a chance first: pause
	woken  bool   // a client elsewhere was woken, and has the first go
	failed error  // not a turn, but why there will be none
}

// A crowd is what a line knows once somebody has had to wait.
type crowd struct {
	turns  int           // how often in a row the key stayed in this process
	began  time.Time     // the first of them
	stiff  bool          // a lease that was handed on could not be extended: no more of it
	gap    time.Duration // between two pauses for others; unseen: nobody else was seen yet
	paused time.Time     // when others last had a chance to come in between

	news chan struct{} // wakes the head
	try  bool          // with it: an attempt is worth making, not just a look

	ear  *ear
	owed bool // it was woken, and nobody here has made use of it yet
}

// fairly is how many turns in a row a process takes that must not hand locks on.
const fairly = 32

// Where no client can say that it waits, a line that has had its turns pauses for
// MinPoll. As long as nobody is seen to use that it pauses less often, down to
// this part of the time.
const (
	seldom               = 64
	unseen time.Duration = -1
)

// join returns key's line, and a place in it unless the caller is its head at once.
func (q *lines) join(key string) (*line, *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.line(key)
	if !ln.headed && ln.here == nil && ln.first == nil {
		ln.headed = true
		return ln, nil
	}
	w := newWaiter(ln)
	if w.prev = ln.last; w.prev != nil {
		w.prev.next = w
	} else {
		ln.first = w
	}
	ln.last = w
	return ln, w
}

// line is key's line, a new one if there is none. q.mu is held.
func (q *lines) line(key string) *line {
	ln := q.of[key]
	if ln == nil {
		if q.of == nil {
			q.of = make(map[string]*line)
		}
		if ln = q.spare; ln == nil {
			ln = new(line)
		}
		q.spare = nil
		q.of[key] = ln
	}
	return ln
}

func newWaiter(ln *line) *waiter {
	ln.gather()
	return &waiter{line: ln, turn: make(chan turn, 1)}
}

func (ln *line) gather() *crowd {
	if ln.crowd == nil {
		ln.crowd = &crowd{news: make(chan struct{}, 1), gap: unseen}
		if ln.here != nil {
			ln.crowd.began = ln.here.since
		}
	}
	return ln.crowd
}

// pop takes the first out of the line. q.mu is held.
func (ln *line) pop() *waiter {
	w := ln.first
	w.unlink()
	w.called = true
	return w
}

func (w *waiter) unlink() {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		w.line.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		w.line.last = w.prev
	}
	w.next, w.prev = nil, nil
}

// call makes the first in line its head, if the head is free and no lock of
// ours has the key, and forgets a line in which nobody is left. q.mu is held.
func (k *Locker) call(key string, ln *line, t turn) {
	switch {
	case ln.headed || ln.here != nil:
	case ln.first != nil:
		ln.headed = true
		ln.crowd.try = false
		ln.pop().turn <- t
	default:
		if c := ln.crowd; c != nil {
			if c.hush(true); c.owed {
				c.owed = false
				go k.wakeAnother(key)
			}
		}
		if k.lines.of[key] == ln {
			delete(k.lines.of, key)
			if ln.crowd == nil {
				k.lines.spare = ln
			}
		}
	}
}

// leave is for who is at the head and goes, with the lock or without.
func (k *Locker) leave(key string, ln *line) {
	k.lines.mu.Lock()
	defer k.lines.mu.Unlock()
	ln.headed = false
	k.call(key, ln, turn{})
}

// quit is for who goes before its turn. A turn that had come is returned: it
// has to be passed on.
func (k *Locker) quit(key string, w *waiter) (t turn, called bool) {
	k.lines.mu.Lock()
	if w.called {
		k.lines.mu.Unlock()
		return <-w.turn, true // it was put there before w.called could be seen
	}
	w.unlink()
	k.call(key, w.line, turn{})
	k.lines.mu.Unlock()
	return turn{}, false
}

// took notes that l has the key.
func (q *lines) took(l *Lock) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.line(l.lease.Key)
	ln.here, l.line = l, ln
	if c := ln.crowd; c != nil {
		if c.turns == 0 {
			c.began = l.since
		}
		c.owed = false
		c.hush(false)
	}
}

// wakeable makes the head ready to be woken. If a lock of ours has the key it is
// to wait for that one, as the first in line and at the head no more: its place
// is returned. listening says that a release elsewhere will wake it.
func (k *Locker) wakeable(key string, ln *line) (w *waiter, listening bool) {
	k.lines.mu.Lock()
	defer k.lines.mu.Unlock()
	ln.gather()
	if ln.here == nil {
		return nil, k.listens(key, ln)
	}
	w = newWaiter(ln)
	if w.next = ln.first; w.next != nil {
		w.next.prev = w
	} else {
		ln.last = w
	}
	ln.first, ln.headed = w, false
	return w, false
}

// tell wakes the head: to try, or to look. q.mu is held.
func (ln *line) tell(try bool) {
	c := ln.crowd
	if c == nil || !ln.headed {
		return
	}
	c.try = c.try || try
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// heard reports whether what the head was woken with makes an attempt worth while.
func (q *lines) heard(ln *line) (try bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	try, ln.crowd.try = ln.crowd.try, false
	return try
}

// elsewhere notes that a client elsewhere has the key: others do get their turns.
func (q *lines) elsewhere(ln *line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := ln.crowd; c != nil && ln.here == nil {
		c.turns, c.gap, c.owed = 0, 0, false
	}
}

// spent reports whether the process has had its turns: most of them in a row, or
// as many as half of ttl had room for.
func (c *crowd) spent(most int, ttl time.Duration, now time.Time) bool {
	return c.turns >= most || c.turns > 0 && now.Sub(c.began) >= ttl/2
}

// turns is how many turns in a row a process may take after its first.
func (o *Options) turns() int {
	if o.MaxHandOvers < 0 {
		return fairly
	}
	return o.MaxHandOvers
}

// heir returns the first in line, at the head from now on, if l is to be handed
// to it. Otherwise signal says whether the release is to wake a client
// elsewhere: not while this process goes on having its turns.
func (k *Locker) heir(l *Lock, able bool, ttl time.Duration, now time.Time) (w *waiter, signal bool) {
	k.lines.mu.Lock()
	defer k.lines.mu.Unlock()
	ln := l.line
	if ln == nil || ln.here != l || ln.first == nil || ln.crowd.spent(k.o.turns(), ttl, now) {
		return nil, true
	}
	c := ln.crowd
	if !able || c.stiff || k.o.MaxHandOvers < 0 {
		return nil, false
	}
	c.turns++
	ln.here, ln.headed, c.try = nil, true, false
	return ln.pop(), false
}

// gone notes that l is lost or handed over: the next in line asks.
func (k *Locker) gone(l *Lock) { k.left(l, func(*line) turn { return turn{} }) }

// gaveBack notes that l was released. If the process has had its turns, others
// get a chance: one that was woken, or whoever looks while this process pauses.
func (k *Locker) gaveBack(l *Lock, woken bool, ttl time.Duration) {
	k.left(l, func(ln *line) turn {
		c := ln.crowd
		if c == nil || ln.first == nil {
			return turn{}
		}
		now := k.now()
		if !c.spent(k.o.turns(), ttl, now) {
			c.turns++
			return turn{}
		}
		c.turns = 0
		gap := c.gap
		if gap == unseen {
			gap = seldom * k.o.MinPoll
		}
		if c.paused.IsZero() {
			c.paused = c.began
		}
		if k.signals() != nil || now.Sub(c.paused) < gap {
			return turn{woken: woken}
		}
		c.paused, c.gap = now, min(max(2*gap, k.o.MinPoll), seldom*k.o.MinPoll)
		return turn{polite: true}
	})
}

func (k *Locker) left(l *Lock, next func(*line) turn) {
	key := l.Key()
	k.lines.mu.Lock()
	defer k.lines.mu.Unlock()
	ln := l.line
	if ln == nil || ln.here != l {
		return
	}
	ln.here = nil
	ln.tell(true)
	k.call(key, ln, next(ln))
}

// fail ends the wait of all in line with err, which it took the head so long to
// get that each of them would have got it too, asking by itself.
func (q *lines) fail(ln *line, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ln.first != nil {
		ln.pop().turn <- turn{failed: err}
	}
}

// await waits in line for w's turn. A turn that comes when ctx is done already
// is passed on.
func (k *Locker) await(ctx context.Context, key string, w *waiter) (turn, bool) {
	select {
	case t := <-w.turn:
		if ctx.Err() == nil {
			return t, true
		}
		k.pass(ctx, key, w.line, t)
	case <-ctx.Done():
		if t, called := k.quit(key, w); called {
			k.pass(ctx, key, w.line, t)
		}
	}
	return turn{}, false
}

// pass passes a turn on that came too late: a lock goes to the next in line, or
// back to the server.
func (k *Locker) pass(ctx context.Context, key string, ln *line, t turn) {
	if t.failed != nil {
		return
	}
	if t.lease != nil {
		k.lines.mu.Lock()
		next := ln.first
		if next != nil {
			ln.pop().turn <- t
		}
		k.lines.mu.Unlock()
		if next != nil {
			return
		}
		k.giveBack(ctx, *t.lease, nil) //nolint:errcheck // what stays ends with its lease
	}
	k.leave(key, ln)
}
