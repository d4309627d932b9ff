package compat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
)

// single is the Backend of one Algorithm on one server: each step borrows a
// connection for its own length.
type single struct {
	source  Source
	algo    Algorithm
	checked atomic.Uint64 // 1 + the era in which the server was found safe; 0: none, or a connection has broken since

	keeper Keeper       // algo, if leases are to keep their connections; else nil
	free   atomic.Int64 // how many more may
	clock  clock.Clock

	mute  atomic.Int64  // until when releases wake nobody, in nanoseconds of Unix
	lists atomic.Uint64 // what volatile found, and in which era
}

// NewBackend returns the Backend of a on one server, or on the servers of a
// KeySource: for a lock that is made of several.
func NewBackend(source Source, a Algorithm) Backend { return &single{source: source, algo: a} }

func (s *single) Shared() bool {
	a, ok := s.algo.(Shared)
	return ok && a.Shared()
}

// unsent is an error that came before anything was sent: the step did not run.
type unsent struct{ error }

func (e unsent) Unwrap() error { return e.error }

// do runs one step over a connection of its own; once more if all that happened
// was that a cluster redirected it in a way that its Source could not follow.
func (s *single) do(ctx context.Context, key string, step func(redis.Conn) error) error {
	g := guards.Get().(*guard)
	err := s.over(ctx, key, g, step)
	if g.clean { // else what was to be sent may still be read
		*g = guard{}
		guards.Put(g)
	}
	return err
}

// guards are large, and needed for the length of a step.
var guards = sync.Pool{New: func() any { return new(guard) }}

// over is do over a connection that g is to guard.
func (s *single) over(ctx context.Context, key string, g *guard, step func(redis.Conn) error) error {
	err := s.once(ctx, key, g, step)
	if redirected(err) && errors.As(err, new(unsent)) {
		*g = guard{}
		err = s.once(ctx, key, g, step)
	}
	return err
}

// once asks, before it borrows a connection, whether the context is done: redigo
// would kill a healthy connection for it.
func (s *single) once(ctx context.Context, key string, g *guard, step func(redis.Conn) error) error {
	if ctx.Err() != nil {
		return unsent{context.Cause(ctx)}
	}
	c, err := s.connection(ctx, key)
	if err != nil {
		if c != nil {
			c.Close()
		}
		return unsent{fmt.Errorf("setnxlock: no connection: %w", err)}
	}
	g.Conn = c
	g.begin(ctx)
	err = g.verdict(step(g))
	live := g.Err() == nil
	g.kept = g.kept && live
	switch {
	case g.kept:
	case g.refused && live && g.watching:
		s.giveBackLater(g)
	default:
		s.giveBack(g)
	}
	return err
}

// giveBackLater gives a connection back in the background: whoever was refused,
// or lets a lock go, does not wait for the server once more.
func (s *single) giveBackLater(g *guard) {
	g.ctx, g.limit = nil, g.within
	s.clock.AfterFunc(0, func() { s.giveBack(g) })
}

func (s *single) giveBack(g *guard) {
	if g.Err() != nil {
		s.checked.Store(0) // the next connection may lead to another server
	}
	g.giveBack()
}

// verdict is a step's error after what a cluster answered in it. That a server
// was found unsafe while it was moving the slot says nothing about it.
func (g *guard) verdict(err error) error {
	if g.notNow != "" && errors.Is(err, ErrUnsafeServer) {
		err = g.notNow
	}
	if _, refused := notNow(err); refused && !g.ran {
		return unsent{err}
	}
	return err
}

func (s *single) connection(ctx context.Context, key string) (redis.Conn, error) {
	if k, ok := s.source.(KeySource); ok {
		return k.GetFor(ctx, key)
	}
	return s.source.GetContext(ctx)
}

func (s *single) Acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (Lease, error) {
	l := Lease{Key: key}
	safe, err := s.check(ctx, key)
	if err != nil {
		return l, unsent{err}
	}
	if s.keeper != nil && s.free.Add(-1) >= 0 {
		return s.acquireKept(ctx, now, key, ttl, safe)
	} else if s.keeper != nil {
		s.free.Add(1)
	}
	err = s.do(ctx, key, func(c redis.Conn) (err error) {
		era, err := s.still(safe)
		if err != nil {
			return err
		}
		l, err = s.algo.Acquire(c, now(), key, ttl)
		l.era = era
		return err
	})
	return l, err
}

// still returns the era, or an error if it is not the one in which the server was found safe.
func (s *single) still(safe uint64) (uint64, error) {
	era := s.era()
	if _, checked := s.algo.(Checker); checked && era != safe {
		return era, unsent{errReplaced} // the new one may be of another version
	}
	return era, nil
}

// errReplaced is a connection's end to the Locker: it asks again.
var errReplaced = fmt.Errorf("setnxlock: the server was replaced: %w", net.ErrClosed)

// era is 0 for a Source that has none.
func (s *single) era() uint64 {
	if e, ok := s.source.(EraSource); ok {
		return e.Era()
	}
	return 0
}

func (s *single) Extend(ctx context.Context, now func() time.Time, l Lease, ttl time.Duration) (Lease, error) {
	next, settled, broke := s.overKept(ctx, l, func(c redis.Conn) (Lease, bool, error) {
		next, kept, err := s.keeper.ExtendKept(c, now(), l, ttl)
		next.era = l.era
		return next, kept, err
	})
	if settled {
		return next, broke
	}
	other := l
	err := s.do(ctx, l.Key, func(c redis.Conn) (err error) {
		era := s.era()
		if other, err = s.algo.Extend(c, now(), l, ttl); err == nil {
			other.era = era
		}
		return err
	})
	other.pin = nil
	if moot(err, broke) {
		return next, broke
	}
	return other, err
}

// moot reports that a step which was refused, or could not be asked for, tells
// nothing, because what broke may have been done before: the key is then to be read.
func moot(err, broke error) bool {
	return broke != nil && (errors.Is(err, ErrLost) || errors.As(err, new(unsent)))
}

// batchAtMost is how many leases are extended in one write: a server runs it
// without a pause for anybody else.
const batchAtMost = 128

// batches puts together what one server can be asked at once: of a cluster, the
// keys of one slot. A lease that keeps its connection is extended over that.
func (s *single) batches(leases []Lease) [][]int {
	_, several := s.algo.(Batcher)
	_, cluster := s.source.(KeySource)
	open := map[int]int{} // by slot, the batch that has room
	var list [][]int
	for i, l := range leases {
		slot := 0
		if cluster {
			slot = Slot(l.Key)
		}
		at, ok := open[slot]
		if !ok || !several || l.pin != nil || len(list[at]) == batchAtMost {
			at, list = len(list), append(list, nil)
			if l.pin == nil {
				open[slot] = at
			}
		}
		list[at] = append(list[at], i)
	}
	return list
}

func (s *single) extendAll(ctx context.Context, now func() time.Time, leases []Lease, ttls []time.Duration) ([]Lease, []error) {
	var next []Lease
	var errs []error
	err := s.do(ctx, leases[0].Key, func(c redis.Conn) error {
		era := s.era()
		next, errs = s.algo.(Batcher).ExtendAll(c, now(), leases, ttls)
		for i := range next {
			next[i].era = era
		}
		return errors.Join(errs...)
	})
	if next == nil { // nothing was sent
		next, errs = slices.Clone(leases), make([]error, len(leases))
		for i := range errs {
			errs[i] = err
		}
	}
	return next, errs
}

// A pool's idle connections are all dead after a restart of the server or a
// night under its timeout, and each one is found out by using it.
const staleAtMost = 16

// again is do for a step that can be repeated without harm, because it only
// reads: it goes on to the next connection as long as the one it got turns out
// to be closed, or to lead to a server that has the key no more.
func (s *single) again(ctx context.Context, key string, step func(redis.Conn) error) error {
	var err error
	for range staleAtMost {
		if err = s.do(ctx, key, step); !closed(err) && !redirected(err) {
			break
		}
	}
	return err
}

// closed reports that a connection was found closed. A time limit that ran out
// is no such finding: the next connection would only take as long again.
func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func (s *single) Release(ctx context.Context, now func() time.Time, l Lease) error {
	return s.release(ctx, now, l, nil)
}

// release is Release, with r if that is not nil.
func (s *single) release(ctx context.Context, now func() time.Time, l Lease, r *rider) error {
	_, settled, broke := s.overKept(ctx, l, func(c redis.Conn) (Lease, bool, error) {
		c.(*guard).carry(r)
		return l, false, s.keeper.ReleaseKept(c, now(), l)
	})
	if settled {
		return broke
	}
	s.unkeep(l)
	err := s.do(ctx, l.Key, func(c redis.Conn) error {
		c.(*guard).carry(r)
		return s.algo.Release(c, now(), l)
	})
	if moot(err, broke) {
		return broke
	}
	return err
}

func (s *single) Inspect(ctx context.Context, now func() time.Time, key string) (State, error) {
	st := State{Key: key, TTL: NoTTL}
	err := s.again(ctx, key, func(c redis.Conn) (err error) {
		st, err = s.algo.Inspect(c, now(), key)
		return err
	})
	return st, err
}

func (s *single) Repair(ctx context.Context, now func() time.Time, st State, ttl time.Duration) error {
	r, ok := s.algo.(Repairer)
	if !ok {
		return ErrHeld
	}
	return s.do(ctx, st.Key, func(c redis.Conn) error { return r.Repair(c, now(), st, ttl) })
}

// check asks the algorithm, once in each era, whether it is safe on this
// server, and returns the era. A proxy answers what it does not know by closing the
// connection: that is told from a broken network by a read that works in between.
func (s *single) check(ctx context.Context, key string) (era uint64, err error) {
	checker, ok := s.algo.(Checker)
	era = s.era()
	if !ok || s.checked.Load() == era+1 {
		return era, nil
	}
	for try := 0; try < 2; try++ {
		err = s.do(ctx, key, func(c redis.Conn) error {
			era = s.era()
			return checker.Check(c, key)
		})
		if err == nil {
			s.checked.Store(era + 1)
			return era, nil
		}
		var e redis.Error
		if ctx.Err() != nil || errors.As(err, new(unsent)) || errors.Is(err, ErrUnsafeServer) || errors.As(err, &e) {
			return era, err
		}
		if s.again(ctx, key, func(c redis.Conn) error { _, err := c.Do("GET", key); return ignoreRefusal(err) }) != nil {
			return era, err
		}
	}
	if errors.Is(err, net.ErrClosed) { // on our side, by a Source that found it replaced: no proxy
		return era, err
	}
	return era, &UnsafeServerError{
		Why: "it closes the connection on a command that this lock needs, as a proxy does",
		Use: "getsetlock.Classic, which needs SETNX, GET, GETSET and DEL alone",
	}
}

// ignoreRefusal drops an error that the server answered with: an answer all the same.
func ignoreRefusal(err error) error {
	if _, ok := err.(redis.Error); ok {
		return nil
	}
	return err
}
