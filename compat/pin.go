package compat

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
)

// A pin is the connection that a lease keeps: it watches key since that held
// value. One step at a time uses it; it goes back to where it was borrowed when a step
// ends without such a WATCH, or when nobody needs it any more.
type pin struct {
	guard
	s   *single
	key string
	era uint64 // in which it was borrowed

	mu    sync.Mutex
	value string
	busy  bool // a step has it
	left  bool // it was given back; or is to be, by the step that has it
}

// keeping is a Backend whose leases can keep connections.
type keeping interface {
	// keep says how many may, and whose clock does what is not waited for.
	keep(most int, c clock.Clock)

	// unkeep parts a lease that will neither be extended nor released from its
	// connection. It does not block.
	unkeep(l Lease)
}

func (s *single) keep(most int, c clock.Clock) {
	if k, ok := s.algo.(Keeper); ok && most > 0 {
		s.keeper, s.clock = k, c
		s.free.Store(int64(most))
	}
}

// acquireKept is Acquire over a connection that the lease then keeps. One of
// s.free has been taken for it.
func (s *single) acquireKept(ctx context.Context, now func() time.Time, key string, ttl time.Duration, safe uint64) (Lease, error) {
	p, l := &pin{s: s, key: key}, Lease{Key: key}
	err := s.over(ctx, key, &p.guard, func(c redis.Conn) (err error) {
		if p.era, err = s.still(safe); err != nil {
			return err
		}
		l, p.kept, err = s.keeper.AcquireKept(c, now(), key, ttl)
		p.kept, p.refused = p.kept && err == nil, errors.Is(err, ErrHeld)
		l.era = p.era
		return err
	})
	if p.kept {
		p.value, l.pin = l.Value, p
	} else {
		s.free.Add(1)
	}
	return l, err
}

// overKept runs a step over the connection that l keeps. It reports whether the
// step is settled: done or refused. If it is not, it has to be done the other way,
// and broke is why its outcome is not known, or nil if it did not run at all.
func (s *single) overKept(ctx context.Context, l Lease, step func(c redis.Conn) (next Lease, kept bool, err error)) (next Lease, settled bool, broke error) {
	p := l.pin
	if p == nil || ctx.Err() != nil || !p.take(l) {
		return l, false, nil
	}
	p.begin(ctx)
	p.hurry()
	if s.era() != p.era { // a server that was replaced watches nothing
		p.put(l)
		return l, false, nil
	}
	next, p.kept, broke = step(&p.guard)
	if !p.asked && !errors.Is(broke, ErrLost) { // refused before anything was sent
		next, p.kept = l, true
	}
	p.kept = p.kept && p.Err() == nil
	next.pin = nil
	if p.kept {
		next.pin = p
	}
	broke = p.verdict(broke)
	p.put(next)
	if broke != nil && errors.As(broke, new(unsent)) {
		return l, false, nil
	}
	return next, broke == nil || definite(broke), broke
}

// take begins a step. A lease is not the one whose value is watched if it was
// extended since.
func (p *pin) take(l Lease) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy || p.left || p.key != l.Key || p.value != l.Value {
		return false
	}
	p.busy = true
	return true
}

// put ends it.
func (p *pin) put(next Lease) {
	p.mu.Lock()
	p.busy = false
	p.value = next.Value
	stays := p.kept && !p.left
	p.left = !stays
	p.mu.Unlock()
	if !stays {
		p.s.free.Add(1)
		p.s.giveBack(&p.guard)
	}
}

// leave gives the connection back, without waiting for it. p.mu is held, and nobody has p.
func (p *pin) leave() {
	p.left = true
	p.s.free.Add(1)
	p.s.giveBackLater(&p.guard)
}

func (s *single) unkeep(l Lease) {
	p := l.pin
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.left:
	case p.busy:
		p.left = true
	default:
		p.leave()
	}
}

// hurry leaves half of the step's time for another connection: one that was kept
// may have died without a word.
func (g *guard) hurry() {
	g.limit = g.limit / 2
	if g.ctx != nil && g.within > 0 {
		g.ctx = sooner{g.ctx, time.Now().Add(g.within / 2)}
	}
}

// sooner is a context with an earlier deadline, which redigo makes its read
// timeout: in real time, and without ending.
type sooner struct {
	context.Context
	at time.Time
}

func (s sooner) Deadline() (time.Time, bool) {
	if at, ok := s.Context.Deadline(); ok && at.Before(s.at) {
		return at, true
	}
	return s.at, true
}
