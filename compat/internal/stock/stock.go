// Package stock lends the connections of one server to steps. A step waits for its connection in a Stock. After
// the step the connection stays in the Stock for a moment, for the next step.
//
// The package guarantees that no step waits beyond its limit, whatever the pool and its Dial do. At most one
// Dial goes on without a waiting step, and the next step gets its connection. A Stock keeps no connection from
// its pool for longer than a second; a step may.
package stock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// A Get gets a connection, and may hang.
type Get = func(ctx context.Context) (redis.Conn, error)

// A Stock lends the connections of one server.
type Stock struct {
	Most    int           // limits the connections kept between two steps
	Bounded bool          // a Get never outlasts its context
	Idle    func() int    // counts, roughly, the connections available without a Dial; nil: not known
	Full    func() bool   // reports whether the pool hands out no more until a connection comes back; nil: never
	Epoch   func() uint64 // returns the server's epoch; nil: there is only one
	Run     func(func())  // runs a function in the background; nil: go
	Still   bool          // no time passes: a pinned connection has no age, and no other is kept

	mu        sync.Mutex
	kept      []*Conn     // the oldest first
	timer     *time.Timer // fires when the age of the oldest comes; nil: not needed so far
	returning []*Conn     // on the way to their pool: UNWATCH is under way
	closed    bool
	pins      atomic.Uint64 // the last Pin

	waiting  []*waiter
	gets     []*fetch // under way
	room     int      // limits the Dials at a time; it doubles as long as Dials succeed
	suspects int      // the number of idle connections that the next Get must drop
	doubted  time.Time
}

func (s *Stock) run(f func()) {
	if s.Run != nil {
		s.Run(f)
	} else {
		go f()
	}
}

// A waiter is a step in Stock.waiting. A step that gives up leaves the list.
type waiter struct {
	ctx  context.Context
	get  Get
	came chan struct{}
	c    *Conn
	err  error
}

// A fetch is a Get under way.
type fetch struct {
	by     *waiter // the step that began the Get
	began  time.Time
	ctx    context.Context
	cancel context.CancelFunc
	done   func() // ends the job, for Locker.Close
}

const (
	// longest limits a Get after its own step has given up. The other steps then begin a new Get.
	longest = 5 * time.Second

	// forsaken is the age of a Get that no longer counts: it does not heed the end of its context.
	forsaken = time.Minute

	// again is the shortest time between two suspicions of the idle connections.
	again = time.Second
)

// Get returns a connection from the pool, brought by this get or by another step's. It returns an error if ctx
// or its limit ends first.
func (s *Stock) Get(ctx context.Context, get Get) (*Conn, error) {
	if s.Bounded {
		epoch := s.epoch()
		c, err := get(ctx)
		if err != nil {
			return nil, err
		}
		return &Conn{Conn: c, stock: s, born: limit.Now(), epoch: epoch}, nil
	}
	w := &waiter{ctx: ctx, get: get, came: make(chan struct{}, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.fill()
	s.mu.Unlock()
	rings, stop := limit.Alarm(ctx)
	defer stop()
	select {
	case <-w.came:
		return w.c, limit.Because(ctx, w.err)
	case <-ctx.Done():
	case <-rings:
	}
	s.mu.Lock()
	if i := slices.Index(s.waiting, w); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.gaveUp(w)
	}
	s.mu.Unlock()
	if w.c != nil {
		w.c.Close()
	}
	if err := limit.Over(ctx); err != nil {
		return nil, err
	}
	return nil, limit.ErrTimeout
}

// fill begins a Get for each waiting step, but with one Dial at first. s.mu is held.
func (s *Stock) fill() {
	room := max(s.room, 1)
	if s.Idle != nil {
		room += s.Idle()
	}
	for n := s.counted(); n < min(len(s.waiting), room); n++ {
		f := &fetch{by: s.waiting[n], began: limit.Now()}
		f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(f.by.ctx))
		f.done = cleaning.Of(f.by.ctx, cleaning.Alone).Brief()
		s.gets = append(s.gets, f)
		go s.fetch(f)
	}
}

// counted counts the Gets under way, without the forsaken ones. s.mu is held.
func (s *Stock) counted() (n int) {
	for _, f := range s.gets {
		if f.ctx.Err() == nil || limit.Since(f.began) < forsaken {
			n++
		}
	}
	return n
}

// gaveUp cancels Gets after w has left the waiting steps. s.mu is held.
func (s *Stock) gaveUp(w *waiter) {
	s.room = 1
	s.cancelSurplus()
	for _, f := range s.gets {
		if f.by == w && f.ctx.Err() == nil {
			limit.AfterFunc(limit.Left(f.began.Add(longest)), f.cancel)
		}
	}
}

// cancelSurplus cancels the oldest Gets if there are more Gets than waiting steps. s.mu is held.
func (s *Stock) cancelSurplus() {
	for _, f := range s.gets[:max(len(s.gets)-len(s.waiting), 0)] {
		f.cancel()
	}
}

// fetch carries out the Get f.
func (s *Stock) fetch(f *fetch) {
	defer f.done()
	dials := s.Idle == nil || s.Idle() == 0
	s.mu.Lock()
	drop := 0
	if s.Idle != nil {
		drop = min(s.suspects, s.Idle())
		s.suspects = 0
	}
	var back *Conn
	if s.Full != nil && len(s.kept) > 0 && s.Full() {
		back = s.take(0)
	}
	epoch := s.epoch()
	s.mu.Unlock()
	if back != nil {
		back.toPool()
	}
	for range drop {
		if c, err := f.by.get(f.ctx); err == nil {
			wire.Drop(c)
			c.Close()
		}
	}
	var c redis.Conn
	err := f.ctx.Err()
	if err == nil { // after an error no step waits any more
		c, err = f.by.get(f.ctx)
	}
	cancelled := f.ctx.Err() != nil
	f.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets = slices.DeleteFunc(s.gets, func(other *fetch) bool { return other == f })
	switch {
	case err == nil:
		if dials {
			s.room = min(2*max(s.room, 1), 64)
		}
		s.give(&Conn{Conn: c, stock: s, born: limit.Now(), epoch: epoch})
	case !cancelled: // every waiting step would get the same error
		s.room = 1
		for _, w := range s.waiting {
			w.err = err
			w.came <- struct{}{}
		}
		s.waiting = nil
	}
	if len(s.waiting) == 0 {
		s.room = 1
	}
	s.fill()
	s.cancelSurplus()
}

// give passes c to the step that has waited longest. Without a waiting step, c stays or goes back to its pool.
// s.mu is held.
func (s *Stock) give(c *Conn) {
	switch {
	case len(s.waiting) > 0:
		w := s.waiting[0]
		s.waiting = slices.Delete(s.waiting, 0, 1)
		w.c = c
		w.came <- struct{}{}
	case !s.closed && s.makeRoom(false):
		s.keep(c)
	default:
		s.run(c.toPool) // it may wait for the server
	}
}

// Doubt closes the kept and the idle connections after a connection turned out to be dead: they may be dead
// too. It closes idle connections once a second at most.
func (s *Stock) Doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.kept) > 0 {
		wire.Drop(s.kept[0].Conn)
		s.returnAt(0)
	}
	if now := limit.Now(); s.Idle != nil && now.Sub(s.doubted) >= again {
		s.doubted, s.suspects = now, s.Idle()
	}
}
