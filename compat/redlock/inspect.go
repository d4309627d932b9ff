package redlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Inspect reads the key on every server. The State is what an attempt would
// meet:
//
//   - free, or dead, if a majority could be had now, whatever stands on the rest;
//   - held until enough servers for a majority will have become free by themselves; persistent if
//     some of those have no TTL, foreign if what is there is not a lock.
//
// Value is a lease's Value if one holder has every key that is there; beside a majority that is
// held, what has run out does not count. Holders are the votes, by position: one for each such key,
// with its value. If some are missing or their ends are far apart, the votes were split or something
// was left behind.
//
// It returns an [*Error] if too few servers answered to tell.
func (q *Quorum) Inspect(ctx context.Context, now func() time.Time, key string) (compat.State, error) {
	s := compat.State{Key: key, Status: compat.StatusFree, TTL: compat.NoTTL}
	if q.invalid != nil {
		return s, q.invalid
	}
	seen := q.read(ctx, now, key)
	if len(seen) == 1 {
		s, err := seen[0].value, seen[0].err
		s.Value = escape(s.Value) // as in a lease
		return s, err
	}
	n := sightOf(seen)
	parts, clocks := make([]part, len(seen)), make(map[string]bool)
	spare := len(seen) - q.need
	s.Watch = n.watch
	switch {
	case n.notString > spare:
		return s, failed(q, "inspect", key, seen, compat.ErrForeign)
	case n.came < q.need:
		return s, failed(q, "inspect", key, seen, nil)
	case n.free >= q.need && n.there == 0:
		return s, nil
	case n.free >= q.need:
		s.Status = compat.StatusDead
	case n.foreign > spare:
		s.Status = compat.StatusForeign
	default:
		s.Status = compat.StatusHeld
		if s.Until = freeAt(q.need-n.free, n.ends); s.Until.IsZero() {
			s.Status = compat.StatusPersistent
		}
	}
	for i, a := range seen {
		st := a.value
		if a.err != nil || st.Status == compat.StatusFree || st.Status == compat.StatusDead && s.Status == compat.StatusHeld { // not the holder's
			continue
		}
		parts[i].values = []string{st.Value}
		clocks[st.Clock] = true
		s.Holders = append(s.Holders, compat.Holder{Value: st.Value, Until: st.Until})
	}
	s.Open = s.Status == compat.StatusHeld && n.open >= q.need
	s.Value = format(parts)
	s.Format = fmt.Sprintf("votes of %d of %d servers", len(s.Holders), len(seen))
	s.Clock = strings.Join(slices.Sorted(maps.Keys(clocks)), " and ")
	return s, nil
}

// A sight counts servers by what was seen on them.
type sight struct {
	came, free, there, open, foreign, notString int

	ends  []time.Time // of what is held
	watch time.Duration
}

func sightOf(seen []answer[compat.State]) (n sight) {
	for _, a := range seen {
		st := a.value
		switch {
		case errors.Is(a.err, compat.ErrForeign):
			n.came, n.foreign, n.notString = n.came+1, n.foreign+1, n.notString+1
			continue
		case a.err != nil:
			continue
		}
		n.came++
		if st.Open || st.Status == compat.StatusFree || st.Status == compat.StatusDead {
			n.open++
		}
		if st.Status == compat.StatusFree {
			n.free++
			continue
		}
		n.there++
		n.watch = max(n.watch, st.Watch)
		switch st.Status {
		case compat.StatusDead:
			n.free++
		case compat.StatusForeign:
			n.foreign++
		default:
			n.ends = append(n.ends, st.Until)
		}
	}
	return n
}

func (q *Quorum) read(ctx context.Context, now func() time.Time, key string) []answer[compat.State] {
	return ask(ctx, q, round[compat.State]{
		limit: q.limit(0),
		step: func(ctx context.Context, s *server, _ int) (compat.State, error) {
			return s.Inspect(ctx, now, key)
		},
	})
}

// Find returns the lease with this Value. Its end is the time when value will no longer be on a majority. Find returns
// ErrLost if value is not on a majority now, and an [*Error] if too few servers answered to tell.
func (q *Quorum) Find(ctx context.Context, now func() time.Time, key, value string) (compat.Grant, error) {
	l := compat.Grant{Lease: compat.Lease{Key: key, Value: value, Ambiguous: true}}
	parts, err := q.parts(key, value)
	if err != nil {
		return l, err
	}
	seen := q.read(ctx, now, key)
	var ends []time.Time
	silent := 0
	for i, a := range seen {
		p := &parts[i]
		switch {
		case !p.held():
		case a.err != nil && !errors.Is(a.err, compat.ErrForeign):
			silent++
			p.doubt = true
		default:
			v, until := p.in(a.value)
			if v == "" {
				*p = part{}
				continue
			}
			*p = part{values: []string{v}, ambiguous: p.ambiguous, doubt: true}
			if until.IsZero() { // nothing ends it but us
				until = now().Add(persistent)
			}
			ends = append(ends, until)
		}
	}
	switch {
	case len(ends) >= q.need:
		slices.SortFunc(ends, time.Time.Compare)
		l.Until = ends[len(ends)-q.need]
		l.Value = format(parts)
		return l, nil
	case len(ends)+silent < q.need:
		return l, failed(q, "find", key, seen, compat.ErrLost)
	}
	return l, protocol.NotSent.Mark(failed(q, "find", key, seen, nil))
}

// persistent is how long a key without an end is taken to last when it is found.
const persistent = time.Minute

// Repair repairs the key by each server's own algorithm. It changes only servers with the value from s, a State of
// Inspect.
func (q *Quorum) Repair(ctx context.Context, now func() time.Time, s compat.State, ttl time.Duration) error {
	parts, err := q.parts(s.Key, s.Value)
	if err != nil {
		return err
	}
	answers := ask(ctx, q, round[none]{
		limit: q.limit(ttl),
		only:  func(i int) bool { return parts[i].held() },
		step: func(ctx context.Context, server *server, i int) (none, error) {
			st := compat.State{Key: s.Key, Value: parts[i].values[0], Status: compat.StatusPersistent, TTL: compat.NoTTL, Watch: s.Watch}
			return none{}, server.Repair(ctx, now, st, ttl)
		},
	})
	for _, a := range answers {
		if a.asked && a.err == nil {
			return nil
		}
	}
	return failed(q, "repair", s.Key, answers, compat.ErrHeld)
}
