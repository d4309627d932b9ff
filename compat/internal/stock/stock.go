// Package stock has the connections of one server. A step waits here for its connection, which stays here for a moment
// afterwards, for the next step. It guarantees that no step outlasts its limit here, whatever a pool and its Dial do; that
// at most one Dial goes on which nobody waits for, and that the next step gets what it brings; and that no connection is
// kept from its pool for longer than a second, but by a step.
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

// A Stock is of one server.
type Stock struct {
	Most   int           // how many connections it keeps between two steps; 0: none
	Prompt bool          // a Get never outlasts its context
	Idle   func() int    // how many can be had without a Dial, or so; nil: none is known of
	Full   func() bool   // the pool has no more: who wants one waits until another comes back; nil: it never is
	Epoch  func() uint64 // of the server; nil: there is but one
	Run    func(func())  // in the background; nil: go
	Still  bool          // no time passes: what is pinned has no age, and nothing else is kept

	mu      sync.Mutex
	kept    []*Conn     // the oldest first
	bell    *time.Timer // rings when that has its age; nil: none was needed yet
	parting []*Conn     // on their way back, when their server has ended their WATCH
	closed  bool
	pins    atomic.Uint64 // how many there were

	waiting  []*waiter
	under    []*fetch // under way
	room     int      // how many Dials may be at a time: more and more, as long as they succeed
	suspects int      // idle connections that nobody is to get
	doubted  time.Time
}

func (s *Stock) run(f func()) {
	if s.Run != nil {
		s.Run(f)
	} else {
		go f()
	}
}

// A waiter is a step that waits. One that gives up is no longer among those that do.
type waiter struct {
	ctx  context.Context
	get  Get
	came chan struct{}
	c    *Conn
	err  error
}

// A fetch is a Get under way.
type fetch struct {
	by     *waiter // for whom it began
	began  time.Time
	ctx    context.Context
	cancel context.CancelFunc
	done   func() // to who waits for what is left to be done
}

const (
	// longest is how long a Get may take for others than who began it: they begin another then.
	longest = 5 * time.Second

	// forsaken is when one that does not heed the end of its context is counted no longer.
	forsaken = time.Minute

	// again is how soon idle connections are given up once more.
	again = time.Second
)

// Get returns a connection of the pool's, which this get or another's has brought, unless ctx or its limit ends before.
func (s *Stock) Get(ctx context.Context, get Get) (*Conn, error) {
	if s.Prompt {
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

// fill has get run for as many steps as wait, but with one Dial at first. s.mu is held.
func (s *Stock) fill() {
	room := max(s.room, 1)
	if s.Idle != nil {
		room += s.Idle()
	}
	for n := s.counted(); n < min(len(s.waiting), room); n++ {
		f := &fetch{by: s.waiting[n], began: limit.Now()}
		f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(f.by.ctx))
		f.done = cleaning.Of(f.by.ctx, cleaning.Alone).Brief()
		s.under = append(s.under, f)
		go s.fetch(f)
	}
}

// counted is how many are under way, but for those that are forsaken. s.mu is held.
func (s *Stock) counted() (n int) {
	for _, f := range s.under {
		if f.ctx.Err() == nil || limit.Since(f.began) < forsaken {
			n++
		}
	}
	return n
}

// gaveUp is told that w waits no longer. s.mu is held.
func (s *Stock) gaveUp(w *waiter) {
	s.room = 1
	s.spare()
	for _, f := range s.under {
		if f.by == w && f.ctx.Err() == nil {
			limit.AfterFunc(limit.Left(f.began.Add(longest)), f.cancel)
		}
	}
}

// spare gives up what more is under way than steps wait. s.mu is held.
func (s *Stock) spare() {
	for _, f := range s.under[:max(len(s.under)-len(s.waiting), 0)] {
		f.cancel()
	}
}

// fetch carries one out.
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
		back.part()
	}
	for range drop {
		if c, err := f.by.get(f.ctx); err == nil {
			wire.Drop(c)
			c.Close()
		}
	}
	var c redis.Conn
	err := f.ctx.Err()
	if err == nil { // else nobody waits any more
		c, err = f.by.get(f.ctx)
	}
	given := f.ctx.Err() != nil
	f.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under = slices.DeleteFunc(s.under, func(other *fetch) bool { return other == f })
	switch {
	case err == nil:
		if dials {
			s.room = min(2*max(s.room, 1), 64)
		}
		s.give(&Conn{Conn: c, stock: s, born: limit.Now(), epoch: epoch})
	case !given: // all that wait would get the same
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
	s.spare()
}

// give gives c to who has waited longest; else it stays, or goes back to its pool. s.mu is held.
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
		s.run(c.part) // it may wait for the server
	}
}

// Doubt is told that a connection turned out to be dead: those that are kept, and those that are idle, may be as dead.
// They are closed, the idle ones not more often than once a second.
func (s *Stock) Doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.kept) > 0 {
		wire.Drop(s.kept[0].Conn)
		s.part(0)
	}
	if now := limit.Now(); s.Idle != nil && now.Sub(s.doubted) >= again {
		s.doubted, s.suspects = now, s.Idle()
	}
}
