// Package lobby is where the steps of one server wait for their connections. It guarantees that no step outlasts its
// limit there, whatever a pool and its Dial do, and that of those that don't heed the end of their context at most one
// goes on for nobody: what it brings is the next step's.
package lobby

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// A Get gets a connection, and may hang.
type Get = func(ctx context.Context) (redis.Conn, error)

// A Lobby is of one server.
type Lobby struct {
	Idle func() int   // how many can be had without a Dial, or so; nil: none is known of
	Run  func(func()) // in the background; nil: go

	mu       sync.Mutex
	waiting  []*waiter
	under    []*fetch // under way
	room     int      // how many Dials may be at a time: more and more, as long as they succeed
	suspects int      // idle connections that nobody is to get
	doubted  time.Time
}

func (l *Lobby) run(f func()) {
	if l.Run != nil {
		l.Run(f)
	} else {
		go f()
	}
}

// A waiter is a step that waits. One that gives up is no longer among those that do.
type waiter struct {
	came chan struct{}
	c    redis.Conn
	err  error
}

// A fetch is a Get under way.
type fetch struct {
	get    Get
	by     *waiter // who began it
	began  time.Time
	ctx    context.Context
	cancel context.CancelFunc
}

const (
	// longest is how long a Get may take for others than who began it: they begin another then.
	longest = 5 * time.Second

	// forsaken is when one that does not heed the end of its context is counted no longer.
	forsaken = time.Minute

	// again is how soon idle connections are given up once more.
	again = time.Second
)

// Enter returns a connection, which this get or another's has brought, unless ctx or its limit ends before.
func (l *Lobby) Enter(ctx context.Context, get Get) (redis.Conn, error) {
	w := &waiter{came: make(chan struct{}, 1)}
	l.mu.Lock()
	l.waiting = append(l.waiting, w)
	l.fill(ctx, get)
	l.mu.Unlock()
	rings, stop := limit.Alarm(ctx)
	defer stop()
	select {
	case <-w.came:
		return w.c, limit.Because(ctx, w.err)
	case <-ctx.Done():
	case <-rings:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		l.leave(w)
	} else if w.c != nil {
		l.give(w.c)
	}
	if err := limit.Over(ctx); err != nil {
		return nil, err
	}
	return nil, limit.ErrTimeout
}

// fill has get run for as many steps as wait, but with one Dial at first. l.mu is held.
func (l *Lobby) fill(ctx context.Context, get Get) {
	room := max(l.room, 1)
	if l.Idle != nil {
		room += l.Idle()
	}
	for n := l.counted(); n < min(len(l.waiting), room); n++ {
		f := &fetch{get: get, by: l.waiting[len(l.waiting)-1], began: time.Now()}
		f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		l.under = append(l.under, f)
		go l.fetch(f)
	}
}

// counted is how many are under way, but for those that are forsaken. l.mu is held.
func (l *Lobby) counted() (n int) {
	for _, f := range l.under {
		if f.ctx.Err() == nil || time.Since(f.began) < forsaken {
			n++
		}
	}
	return n
}

// leave is told that w waits no longer. l.mu is held.
func (l *Lobby) leave(w *waiter) {
	l.room = 1
	l.spare()
	for _, f := range l.under {
		if f.by == w && f.ctx.Err() == nil {
			time.AfterFunc(time.Until(f.began.Add(longest)), f.cancel)
		}
	}
}

// spare gives up what more is under way than steps wait. l.mu is held.
func (l *Lobby) spare() {
	for _, f := range l.under[:max(len(l.under)-len(l.waiting), 0)] {
		f.cancel()
	}
}

// fetch carries one out.
func (l *Lobby) fetch(f *fetch) {
	l.mu.Lock()
	drop := 0
	if l.Idle != nil {
		drop = min(l.suspects, l.Idle())
		l.suspects = 0
	}
	l.mu.Unlock()
	for range drop {
		if c, err := f.get(f.ctx); err == nil {
			wire.Drop(c)
			c.Close()
		}
	}
	dials := l.Idle == nil || l.Idle() == 0
	c, err := f.get(f.ctx)
	given := f.ctx.Err() != nil
	f.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under = slices.DeleteFunc(l.under, func(other *fetch) bool { return other == f })
	switch {
	case err == nil:
		if dials {
			l.room = min(2*max(l.room, 1), 64)
		}
		l.give(c)
	case !given: // all that wait would get the same
		l.room = 1
		for _, w := range l.waiting {
			w.err = err
			w.came <- struct{}{}
		}
		l.waiting = nil
	}
	if len(l.waiting) == 0 {
		l.room = 1
	}
	l.fill(f.ctx, f.get)
	l.spare()
}

// give gives c to who has waited longest, or back to its pool. l.mu is held.
func (l *Lobby) give(c redis.Conn) {
	if len(l.waiting) == 0 {
		l.run(func() { c.Close() }) // it may wait for the server
		return
	}
	w := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	w.c = c
	w.came <- struct{}{}
}

// Doubt is told that a connection turned out to be dead: those that are idle may be as dead. They are closed, not more often
// than once a second.
func (l *Lobby) Doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.Idle != nil && now.Sub(l.doubted) >= again {
		l.doubted, l.suspects = now, l.Idle()
	}
}
