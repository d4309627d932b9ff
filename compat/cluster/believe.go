package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/limit"
)

// trust is how long a server that was a master is taken for one: a failover takes longer
// (cluster-node-timeout, 15 s by default).
const trust = time.Second

// believe returns nil if a reply counts: the server at addr, asked at that moment, was a master since. Where it is not
// known, others are asked, not itself. One asks for all.
func (s *Source) believe(ctx context.Context, addr string, asked time.Time) error {
	if s.counts(addr, asked) {
		return nil
	}
	select {
	case s.asks <- struct{}{}:
		defer func() { <-s.asks }()
	case <-ctx.Done():
		return limit.Cause(ctx)
	}
	if s.counts(addr, asked) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	// A server that denies it may not know yet that addr was made a master: it is asked again for a while. A map from
	// such a server would bring the replaced master back.
	for began := time.Now(); ; {
		if s.vouched(ctx, addr) {
			return nil
		}
		select {
		case <-time.After(patience / 4):
		case <-ctx.Done():
		}
		if ctx.Err() != nil || time.Since(began) > trust {
			break
		}
	}
	s.mu.Lock()
	number := s.number
	s.mu.Unlock()
	s.suspect(addr, number)
	if ctx.Err() != nil {
		return s.overdue(ctx, "the other servers")
	}
	return replaced(addr)
}

// vouched reports whether the map of another server names the one at addr a master.
func (s *Source) vouched(ctx context.Context, addr string) bool {
	denied := 0
	for _, other := range s.candidates("") {
		if other == addr || denied == opinions {
			continue
		}
		soon, done := context.WithTimeout(ctx, time.Second)
		m, err := s.slotMap(soon, other)
		done()
		switch named := err == nil && slices.Contains(m.masters, addr); {
		case named && m.has(other):
			return true
		case err == nil && !named:
			denied++
		}
	}
	return false
}

// replaced is the address of a server that no other names a master. To the Locker the connection is closed: it asks
// again over another one.
type replaced string

func (addr replaced) Error() string {
	return fmt.Sprintf("setnxlock: no other server of the cluster names %s a master any more", string(addr))
}

func (replaced) Is(target error) bool { return target == net.ErrClosed }

// counts reports whether the server at addr was a master at a moment, as far as is known. Then it is trusted from
// that moment on, anew.
func (s *Source) counts(addr string, asked time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	alone := s.slots == nil || len(s.slots.masters) == 1 && s.slots.masters[0] == addr
	counts := alone || time.Since(s.named[addr]) < trust
	if counts && s.named[addr].Before(asked) {
		s.named[addr] = asked
	}
	return counts
}

// names notes the masters in an answer of the server at from to a question of that moment. What it says of itself
// proves nothing.
func (s *Source) names(from string, asked time.Time, masters ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, addr := range masters {
		if addr != from {
			s.named[addr] = asked
		}
	}
}
