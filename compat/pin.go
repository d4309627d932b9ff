package compat

import (
	"context"
	"errors"
	"sync"

	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A pin is the connection that a lease has pinned: it watches key since that held value. As
// long as it lives and EXEC does not abort, nobody has touched the key since, and there is
// nothing left to compare. One step at a time uses it; it goes back to where it was borrowed
// when a step ends without such a WATCH, or when nobody needs it any more.
type pin struct {
	call
	s     *server
	key   string
	epoch uint64 // in which it was borrowed

	mu    sync.Mutex
	value string
	busy  bool // a step has it
	left  bool // it was returned; or is to be, by the step that has it
}

// pinAtMost says how many leases may pin, and who does what is not waited for.
func (s *server) pinAtMost(most int, c *cleaning.Crew) {
	s.crew = c
	if most > 0 {
		s.pins = true
		s.free.Store(int64(most))
	}
}

// overPinned runs a step over the connection that l has pinned, if it can: ran. next is what
// l becomes in it, and pins the connection again if the step ended under such a WATCH. A step
// that could not send anything is to be done the other way.
func (s *server) overPinned(ctx context.Context, l Grant, next *Grant, step func(c *call) error) (err error, ran bool) {
	p := l.pin
	if p == nil || limit.Over(ctx) != nil || !p.take(l) {
		return nil, false
	}
	p.begin(ctx)
	p.wire.Hurry()
	p.wire.Pins, p.wire.Pinned, p.wire.Reaps = false, true, s.reaps.Load() == p.epoch+1
	if s.epoch() != p.epoch || p.Err() != nil { // a server that was replaced watches nothing
		p.put(l)
		return nil, false
	}
	onPanic(func() { err = p.verdict(p.key, step(&p.call)) }, func() {
		wire.Drop(p.wire.Conn)
		p.pinned = false
		p.put(l)
	})
	switch {
	case !p.wire.Asked && protocol.OutcomeOf(err) != protocol.Done && !errors.Is(err, ErrLost): // refused before anything was sent
		p.pinned = true
	default:
		p.pinned = p.wire.Saw.Watches(next.Value) && protocol.OutcomeOf(err) == protocol.Done
	}
	if p.wire.Session.Useless {
		wire.Drop(p.wire.Conn)
	}
	if p.wire.Unheard() {
		s.doubt(l.Key)
	}
	p.pinned = p.pinned && p.Err() == nil
	next.pin = nil
	if p.pinned {
		next.pin = p
	}
	p.put(*next)
	return err, protocol.OutcomeOf(err) != protocol.NotSent && !elsewhere(err)
}

// take begins a step. A lease is not the one whose value is watched if it was extended since.
func (p *pin) take(l Grant) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy || p.left || p.key != l.Key || p.value != l.Value {
		return false
	}
	p.busy = true
	return true
}

// put ends it.
func (p *pin) put(next Grant) {
	p.mu.Lock()
	p.busy = false
	p.value = next.Value
	stays := p.pinned && !p.left
	p.left = !stays
	p.mu.Unlock()
	if !stays {
		p.s.free.Add(1)
		p.s.putBack(&p.call)
	}
}

// unpin parts a lease that will neither be extended nor released from its connection. It does
// not block.
func (s *server) unpin(l Grant) {
	p := l.pin
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return
	}
	p.left = true
	if !p.busy {
		p.s.free.Add(1)
		p.s.returnLater(&p.call)
	}
}
