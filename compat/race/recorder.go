package race

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// A memory is what a client's code can still know of an attempt. A finished
// operation of the algorithm is known by its result alone: an Algorithm keeps
// nothing in itself; and what the Locker reads off its clock it acts upon at
// once, or asks of it only whether it is before the lease's end. Histories that
// come to the same memory are one.
type memory struct {
	past fact // the results of the operations that are over
	now  fact // the operation under way: its time and what it has received
	op   operation
}

// A fact is a hash of something, and of its shape: the same for clients that
// differ only in who is called what.
type fact struct{ exact, shape uint64 }

func (f *fact) number(n uint64) { f.exact, f.shape = mix(f.exact, n), mix(f.shape, n) }

func (f *fact) text(s string, client int) {
	f.exact = text(f.exact, s)
	f.shape = text(f.shape, anonymous(s, client))
}

// text mixes a string in.
func text(h uint64, s string) uint64 {
	h = mix(h, uint64(len(s)))
	for i := 0; i < len(s); i++ {
		h = mix(h, uint64(s[i]))
	}
	return h
}

// anonymous is a text with its tokens marked as the client's own or others'.
func anonymous(s string, client int) string {
	return eachToken(s, func(c int) byte {
		if c == client {
			return '@'
		}
		return '*'
	})
}

// kindOf is all of an error that the code acts upon: which of these it is.
func kindOf(err error) (kinds uint64) {
	if err == nil {
		return 0
	}
	for n, e := range [...]error{compat.ErrForeign, compat.ErrHeld, compat.ErrLost, compat.ErrUnsafeServer, compat.ErrInvalid,
		compat.ErrAborted, compat.ErrUnknown, io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded} {
		kinds |= truth(errors.Is(err, e)) << n
	}
	var e redis.Error
	_, settled := compat.Settled(err)
	return kinds | truth(errors.As(err, &e))<<10 | truth(settled)<<11 | 1<<12
}

// A recorder is the algorithm as the explored Locker sees it: without its Check,
// which the guarantees ask apart. It records when the algorithm says "yours", and
// what the client can remember.
type recorder struct {
	compat.Algorithm
	a *agent
}

// begin notes that an operation begins at a time, and returns the time that
// the algorithm is given.
func (t recorder) begin(op operation, now time.Time, l *compat.Lease) time.Time {
	m := &t.a.memory
	if l != nil && now.Before(l.Until) {
		m.past.number(1)
	}
	m.op, m.now = op, fact{1, 1}
	m.now.number(uint64(op))
	if t.a.timeless != nil && t.a.timeless[op] {
		return now.Add(t.a.shift)
	}
	m.now.number(uint64(now.UnixNano()))
	return now
}

// recorder is the client's algorithm, which is a Keeper only where it is to be used as one.
func (a *agent) recorder() compat.Algorithm {
	t := recorder{a.c.algorithm(a), a}
	if k, ok := t.Algorithm.(compat.Keeper); ok && a.c.entry(a.id).pinned > 0 {
		return pinningRecorder{t, k}
	}
	return t
}

func (t recorder) end(err error, results ...string) {
	m := &t.a.memory
	m.past.number(kindOf(err))
	for _, r := range results {
		m.past.text(r, t.a.id)
	}
	m.now, m.op = fact{}, opNone
}

func (t recorder) endLease(l compat.Lease, err error) {
	t.a.memory.past.lease(l, t.a.id)
	t.end(err)
}

func (f *fact) lease(l compat.Lease, client int) {
	f.number(uint64(l.Until.UnixNano()))
	f.number(uint64(l.Fence))
	f.number(truth(l.Ambiguous))
	f.text(l.Value, client)
	f.text(string(l.How), client)
}

// holds forgets how the lock was obtained: a Lock knows its lease.
func (m *memory) holds(l compat.Lease, client int) {
	m.past = fact{}
	m.past.lease(l, client)
}

// asks notes that an attempt begins.
func (t recorder) asks() {
	if t.a.asks++; t.a.asks > 1 {
		t.a.results = append(t.a.results, result{op: opAgain})
		t.a.memory.past = fact{}
	}
}

func (t recorder) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	t.asks()
	l, err := t.Algorithm.Acquire(c, t.begin(opAcquire, now, nil), key, ttl)
	t.acquired(l, err)
	return l, err
}

func (t recorder) acquired(l compat.Lease, err error) {
	t.a.pinned = false
	t.endLease(l, err)
	t.a.got = err == nil
}

func (t recorder) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	l, err := t.Algorithm.Extend(c, t.begin(opExtend, now, &l), l, ttl)
	t.extended(l, err)
	return l, err
}

func (t recorder) extended(l compat.Lease, err error) {
	t.a.pinned = false
	t.endLease(l, err)
	t.a.got = err == nil && t.a.phase == acquiring
}

func (t recorder) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	err := t.Algorithm.Release(c, t.begin(opRelease, now, &l), l)
	t.end(err)
	return err
}

func (t recorder) Inspect(c redis.Conn, now time.Time, key string) (compat.State, error) {
	st, err := t.Algorithm.Inspect(c, t.begin(opInspect, now, nil), key)
	seen := []string{st.Value, string(st.Status)}
	for _, h := range st.Holders {
		seen = append(seen, h.Value) // the Locker looks for its own among them
	}
	t.end(err, seen...)
	return st, err
}

// A pinningRecorder is the recorder of a Keeper. Whether a lease pins its connection
// is for the client to remember.
type pinningRecorder struct {
	recorder
	k compat.Keeper
}

func (t pinningRecorder) AcquireKept(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, bool, error) {
	t.asks()
	l, pinned, err := t.k.AcquireKept(c, t.begin(opAcquire, now, nil), key, ttl)
	t.acquired(l, err)
	t.pins(pinned)
	t.a.closed = t.a.closed || errors.Is(err, compat.ErrHeld) // in the background, as agent.unpin
	return l, pinned, err
}

func (t pinningRecorder) ExtendKept(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, bool, error) {
	l, pinned, err := t.k.ExtendKept(c, t.begin(opExtend, now, &l), l, ttl)
	t.extended(l, err)
	t.pins(pinned)
	return l, pinned, err
}

func (t pinningRecorder) pins(pinned bool) {
	t.a.pinned = pinned
	t.a.memory.past.number(truth(pinned))
}

func (t pinningRecorder) ReleaseKept(c redis.Conn, now time.Time, l compat.Lease) error {
	err := t.k.ReleaseKept(c, t.begin(opRelease, now, &l), l)
	t.a.pinned = false
	t.end(err)
	return err
}
