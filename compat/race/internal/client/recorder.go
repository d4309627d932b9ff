package client

import (
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A recorder is the algorithm as the explored Locker sees it: without its Check,
// which the guarantees ask apart, and its Repair. It records when the algorithm says
// "yours", and what the client can remember.
//
// Extensions and releases are only named by it: the engine carries them out. That one begins is
// when the engine asks for it, right before it sends; that it ends is told by Change.Observe.
type recorder struct {
	protocol.Algorithm
	a *Agent
}

// recorder wraps the client's algorithm, and records it.
func (a *Agent) recorder() recorder { return recorder{a.Algorithm(a.ID), a} }

func (t recorder) Traits() protocol.Traits {
	of := t.Algorithm.Traits()
	return protocol.Traits{Shared: of.Shared, Most: of.Most, Rotates: of.Rotates}
}

// begin records the start of an operation, and returns the time for the algorithm.
func (t recorder) begin(op operation, now time.Time, l *protocol.Lease) time.Time {
	m := &t.a.Memory
	if l != nil && now.Before(l.Until) {
		m.Past.Number(1)
	}
	m.Op, m.Now = op, Fact{1, 1}
	m.Now.Number(uint64(op))
	if t.a.Timeless != nil && t.a.Timeless[op] {
		return now.Add(t.a.Shift)
	}
	m.Now.Number(uint64(now.UnixNano()))
	return now
}

// beginRelease records the start of l's release. It is told no time; all that the engine has asked of
// its clock is whether the lease has run out.
func (t recorder) beginRelease(l protocol.Lease) {
	m := &t.a.Memory
	if plan.Instant(t.a.ms).Before(l.Until) {
		m.Past.Number(1)
	}
	m.Op, m.Now = OpRelease, Fact{1, 1}
	m.Now.Number(uint64(OpRelease))
	m.Now.Text(l.Value, t.a.ID) // of several that the key may hold
}

func (t recorder) end(err error, results ...string) {
	m := &t.a.Memory
	m.Past.Number(kindOf(err))
	for _, r := range results {
		m.Past.Text(r, t.a.ID)
	}
	m.Now, m.Op = Fact{}, OpNone
}

func (t recorder) endLease(l protocol.Lease, err error) {
	t.a.Memory.Past.lease(l, t.a.ID)
	t.end(err)
}

// asks records the start of an attempt.
func (t recorder) asks() {
	if t.a.asks++; t.a.asks > 1 {
		t.a.Results = append(t.a.Results, Result{Op: OpAgain})
		if !t.a.all {
			t.a.Memory.Past = Fact{}
		}
	}
}

func (t recorder) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	if key != t.a.Setup.Key {
		l, err := t.Algorithm.Acquire(c, t.begin(OpAcquire, now, nil), key, ttl)
		t.endLease(l, err)
		return l, err
	}
	t.asks()
	l, err := t.Algorithm.Acquire(c, t.begin(OpAcquire, now, nil), key, ttl)
	t.endLease(l, err)
	t.a.leased, t.a.Got, t.a.answered = l, err == nil, err != nil
	return l, looked(err)
}

// looked makes a refusal with the key's state. For one that does not, TryLock reads the key once more,
// to tell a lock from what is none: that changes nothing, and is not explored.
func looked(err error) error {
	if h, ok := err.(*protocol.HeldError); ok && h.Value == "" {
		return &protocol.HeldError{Key: h.Key, Value: "not read", Until: h.Until, Foreign: h.Foreign}
	}
	return err
}

func (t recorder) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	if now.Unix() == 0 { // asked whether it can keep the ttl, and no more
		return t.Algorithm.Extend(now, l, ttl, rotate)
	}
	next, ch, err := t.Algorithm.Extend(t.begin(OpExtend, now, &l), l, ttl, rotate)
	if err != nil {
		t.endLease(next, err)
		return next, ch, err
	}
	if next.Value != l.Value && l.Key == t.a.Setup.Key {
		t.a.Value = l.Value + Or + next.Value
	}
	ch.Observe = func(err error) {
		if ch.TakeFence { // the number is among the replies
			t.a.Memory.Past.add(t.a.Memory.Now)
		}
		t.endLease(next, err)
		if l.Key != t.a.Setup.Key {
			return
		}
		t.a.Got, t.a.answered = err == nil, err != nil
		switch protocol.OutcomeOf(err) {
		case protocol.Done:
			next.Ambiguous, next.How = next.Ambiguous || t.a.leased.Ambiguous, t.a.leased.How
			t.a.leased = next
		case protocol.Unknown:
			t.a.leased.Ambiguous = t.a.leased.Ambiguous || next.Ambiguous
			t.a.all = true // it knows of two leases from now on
		}
	}
	return next, ch, nil
}

func (t recorder) Release(l protocol.Lease) protocol.Change {
	return t.releasing(l, t.Algorithm.Release(l))
}

// releasing records the release in ch.
func (t recorder) releasing(l protocol.Lease, ch protocol.Change) protocol.Change {
	t.beginRelease(l)
	ch.Observe = t.recordEnd
	return ch
}

// recordEnd notes how a release ended.
func (t recorder) recordEnd(err error) { t.end(err) }

func (t recorder) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	st, err := t.Algorithm.Inspect(c, t.begin(OpInspect, now, nil), key)
	seen := []string{st.Value, string(st.Status)}
	for _, h := range st.Holders {
		seen = append(seen, h.Value) // the Locker looks for its own among them
	}
	if t.a.adopts {
		t.a.Memory.Past.Number(uint64(st.Until.UnixNano())) // what it finds is its lease
		for _, h := range st.Holders {
			t.a.Memory.Past.Number(uint64(h.Until.UnixNano()))
		}
	}
	t.end(err, seen...)
	t.a.answered = true
	return st, err
}

// Unchecked hides an algorithm's Check.
type Unchecked struct{ protocol.Algorithm }

func (u Unchecked) Traits() protocol.Traits {
	of := u.Algorithm.Traits()
	of.Check = nil
	return of
}

// Or stands between the two values of a client whose extension puts another one on the key.
const Or = "\x00"
