package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/oneline"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

const (
	// silence is how long a server may say nothing, to a connection or to a command, before
	// it is taken for dead, whatever the step's limit.
	silence = 5 * time.Second

	// patience is how long one may say nothing before others are asked too.
	patience = 200 * time.Millisecond

	// opinions is how many servers are asked for the map while those that tell it
	// still name one that is suspected.
	opinions = 3
)

// An inquiry learns the map of the cluster, in the background: a step that is shorter than
// the answer takes must not keep the next one from finding it.
type inquiry struct {
	done chan struct{} // closed when it is over
	err  error         // why it failed; to be read when it is over
}

// learn learns the map anew, unless it has a higher number by now. Of many who ask at the same time one does it, and
// all wait for that, as long as their ctx lets them.
func (s *Source) learn(ctx context.Context, number uint64, first string) error {
	i := s.inquire(number, first)
	if i == nil {
		return nil
	}
	select {
	case <-i.done:
		return i.err
	case <-ctx.Done():
		return limit.Cause(ctx)
	}
}

// inquire returns the inquiry under way, or a new one with first asked before all others. It returns nil if the map has
// another number now.
func (s *Source) inquire(number uint64, first string) *inquiry {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.number != number:
		return nil
	case s.inquiry != nil:
		return s.inquiry
	}
	i := &inquiry{done: make(chan struct{})}
	if s.closed {
		i.err = ErrClosed
		close(i.done)
		return i
	}
	s.inquiry = i
	s.asking.Go(func() {
		m, err := s.opinion(s.candidates(first))
		s.mu.Lock()
		defer s.mu.Unlock()
		if i.err = err; err == nil {
			s.install(m)
		}
		s.inquiry = nil
		close(i.done)
	})
	return i
}

// A mapAnswer is what one server answered.
type mapAnswer struct {
	addr string
	m    *slotMap
	err  error
}

// opinion asks addrs for the map, the next one as soon as one has answered or said nothing for
// some time. One that names a suspect as a master may only not have heard yet that it was
// replaced: others are asked too.
func (s *Source) opinion(addrs []string) (*slotMap, error) {
	ctx, cancel := context.WithTimeout(s.ctx, silence)
	defer cancel()
	answers := make(chan mapAnswer, len(addrs))
	next := time.NewTimer(0)
	defer next.Stop()
	var found *slotMap
	var errs []error
	for asked, came, maps := 0, 0, 0; came < len(addrs) && maps < opinions; {
		select {
		case <-next.C:
			if asked == len(addrs) && found != nil {
				return found, nil // the rest are the suspects, and say nothing
			}
			if asked < len(addrs) {
				go func(addr string) {
					m, err := s.slotMap(ctx, addr)
					answers <- mapAnswer{addr, m, err}
				}(addrs[asked])
				asked++
				next.Reset(patience)
			}
			continue
		case a := <-answers:
			came++
			if a.err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", a.addr, a.err))
				break
			}
			found = a.m
			if maps++; !s.suspected(found) {
				return found, nil
			}
		case <-ctx.Done():
			if found != nil {
				return found, nil
			}
			return nil, fmt.Errorf("setnxlock: no server tells the map of the cluster: %w", oneline.Join(append(errs, s.overdue(ctx, "the others"))...))
		}
		if asked < len(addrs) {
			next.Reset(0)
		} else {
			next.Reset(patience)
		}
	}
	if found == nil {
		return nil, fmt.Errorf("setnxlock: no server tells the map of the cluster: %w", oneline.Join(errs...))
	}
	return found, nil
}

// overdue returns the error of a server without an answer before ctx ended.
func (s *Source) overdue(ctx context.Context, who string) error {
	switch {
	case s.ctx.Err() != nil:
		return ErrClosed
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w: %s", protocol.ErrTimeout, who)
	}
	return limit.Cause(ctx)
}

// suspected reports whether m names a suspected master.
func (s *Source) suspected(m *slotMap) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(m.masters, func(addr string) bool { return s.suspects[addr] })
}

// install makes m the map. s.mu is held.
func (s *Source) install(m *slotMap) {
	switch {
	case s.slots == nil:
		s.epoch++
	case s.slots.replaced(m):
		s.epoch++
		for slot := range slotCount {
			if was := cmp.Or(s.passed[slot], s.slots.owner(slot)); !s.slots.same(was, m, m.owner(slot)) {
				s.replaced(slot)
			}
		}
	}
	s.slots, s.stale = m, false
	s.number++
	close(s.learnt)
	s.learnt = make(chan struct{})
	clear(s.moving)
	clear(s.passed)
	clear(s.suspects)
	maps.DeleteFunc(s.named, func(_ string, at time.Time) bool { return time.Since(at) >= trust })
	for addr, p := range s.pools {
		if !slices.Contains(m.masters, addr) {
			p.Close() //nolint:errcheck // idle connections to a server that is not a master
			delete(s.pools, addr)
		}
	}
}

// candidates lists the servers to ask for the map, in the order to ask them.
func (s *Source) candidates(first string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var trusted, suspected []string
	seen := map[string]bool{"": true, first: true}
	add := func(addrs []string) {
		addrs = slices.Clone(addrs)
		rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
		for _, a := range addrs {
			switch {
			case seen[a]:
			case s.suspects[a]:
				suspected = append(suspected, a)
			default:
				trusted = append(trusted, a)
			}
			seen[a] = true
		}
	}
	if first != "" {
		trusted = append(trusted, first)
	}
	if s.slots != nil {
		add(s.slots.masters)
		add(s.slots.replicas)
	}
	add(s.seeds)
	return append(trusted, suspected...)
}

// connect dials a master. One that drops packets says nothing: others are asked for the map
// meanwhile, again and again, and when another has taken its place it is given up. Dial need
// not heed its context.
func (s *Source) connect(ctx context.Context, addr string) (redis.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	came, gaveUp := s.dial(bounded, addr)
	defer close(gaveUp)
	pause := patience
	late := time.NewTimer(pause)
	defer late.Stop()
	for was := false; ; {
		s.mu.Lock()
		number, learnt := s.number, s.learnt
		is := s.slots != nil && slices.Contains(s.slots.masters, addr)
		s.mu.Unlock()
		if was && !is {
			return nil, fmt.Errorf("setnxlock: %s was replaced before it answered", addr)
		}
		was = is
		select {
		case g := <-came:
			return g.c, g.err
		case <-late.C:
			s.suspect(addr, number)
			s.inquire(number, "")
			pause *= 2
			late.Reset(min(pause, time.Second))
		case <-learnt:
		case <-s.ctx.Done():
			return nil, ErrClosed
		case <-bounded.Done():
			if ctx.Err() != nil {
				return nil, limit.Cause(ctx)
			}
			return nil, fmt.Errorf("%w: %s, for %v", protocol.ErrTimeout, addr, silence)
		}
	}
}

// A dialled is what a Dial came back with.
type dialled struct {
	c   redis.Conn
	err error
}

// dial dials in the background. A connection that comes after gaveUp was closed is closed.
func (s *Source) dial(ctx context.Context, addr string) (came chan dialled, gaveUp chan struct{}) {
	came, gaveUp = make(chan dialled), make(chan struct{})
	go func() {
		c, err := s.o.Dial(ctx, addr)
		select {
		case came <- dialled{c, limit.Dialled(err)}:
		case <-gaveUp:
			if c != nil {
				c.Close()
			}
		}
	}()
	return came, gaveUp
}
