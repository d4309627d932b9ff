package redlock

import (
	"fmt"
	"slices"
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// An id is what a lease is known by: getsetlock's may have one value on several keys.
type id struct{ key, value string }

// A moved holds the changes to a lease's parts while its holder keeps the old Value: an
// extension that did not reach a majority has put new values on some servers, or a server
// has granted its part after a majority had.
type moved struct {
	value string
	until time.Time

	settled chan struct{} // closed when the attempt is over
	parts   []part
	fresh   bool // those that join are
	joins   bool // late parts belong to it; Quorum.mu is held
}

// parts reads the parts of a lease by its Value. Those that come later do not join it.
func (q *Quorum) parts(key, value string) ([]part, error) {
	if q.invalid != nil {
		return nil, q.invalid
	}
	q.mu.Lock()
	latest := value
	if m := q.moved[id{key, value}]; m != nil {
		m.joins, latest = false, m.value
	}
	q.mu.Unlock()
	parts, err := parse(latest, len(q.servers))
	if err != nil { // it can't be ours, whoever asks
		return nil, fmt.Errorf("%w: %w: %v", compat.ErrLost, compat.ErrInvalid, err)
	}
	return parts, nil
}

// open notes the parts of the lease n where its Value does not say all of them, and lets late votes join them.
func (q *Quorum) open(n id, m *moved, votes []answer[compat.Grant]) {
	late := slices.ContainsFunc(votes, func(v answer[compat.Grant]) bool { return v.asked && !v.came })
	q.mu.Lock()
	defer q.mu.Unlock()
	if m.value, m.joins = format(m.parts), late; late || m.value != n.value {
		q.put(n, m)
	} else {
		delete(q.moved, n)
	}
}

// join adds the i-th server's part to the attempt of m. It reports false if that lease has ended.
func (q *Quorum) join(m *moved, i int, p part) bool {
	<-m.settled
	q.mu.Lock()
	defer q.mu.Unlock()
	if m.joins {
		m.parts, p.fresh = slices.Clone(m.parts), m.fresh
		m.parts[i] = p
		m.value = format(m.parts)
	}
	return m.joins
}

// put adds a lease. It drops the ended ones whenever the number has doubled. q.mu is held.
func (q *Quorum) put(n id, m *moved) {
	q.moved[n] = m
	if len(q.moved) <= 2*q.swept {
		return
	}
	for n, other := range q.moved {
		if other.until.Add(time.Minute).Before(m.until) {
			delete(q.moved, n)
		}
	}
	q.swept = len(q.moved)
}

func (q *Quorum) forget(l compat.Grant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.moved, id{l.Key, l.Value})
}
