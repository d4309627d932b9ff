package stock

import (
	"context"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// A Conn is a connection from a Stock. Close gives it back to the Stock. A healthy connection then stays for
// the next step, if there is room. Otherwise it goes back to its pool.
type Conn struct {
	redis.Conn
	stock *Stock
	born  time.Time // when the pool handed it out
	epoch uint64    // of the server at that time
	pin   Pin       // the only owner of the connection; 0: any step may use it
}

var (
	_ redis.ConnWithContext = (*Conn)(nil)
	_ redis.ConnWithTimeout = (*Conn)(nil)
)

// DoContext calls the connection's own method, as the methods below do.
func (c *Conn) DoContext(ctx context.Context, name string, args ...any) (any, error) {
	return redis.DoContext(c.Conn, ctx, name, args...)
}

func (c *Conn) DoWithTimeout(d time.Duration, name string, args ...any) (any, error) {
	return redis.DoWithTimeout(c.Conn, d, name, args...)
}

func (c *Conn) ReceiveContext(ctx context.Context) (any, error) {
	return redis.ReceiveContext(c.Conn, ctx)
}

func (c *Conn) ReceiveWithTimeout(d time.Duration) (any, error) {
	return redis.ReceiveWithTimeout(c.Conn, d)
}

// A Pin identifies a connection that stays in its Stock for one lease, and watches the lease's key; 0: no
// connection. The connection leaves the Stock when its age has come, or a step needs the room.
type Pin uint64

// Close gives the connection back.
func (c *Conn) Close() error {
	c.giveBack(0)
	return nil
}

// Pin gives a connection under WATCH back to its Stock for one lease. It returns 0 if there is no room.
func (c *Conn) Pin() Pin { return c.giveBack(Pin(c.stock.pins.Add(1))) }

// giveBack passes the connection to a waiting step, keeps it, or returns it to its pool. With pin it is under
// WATCH: the Stock keeps it for pin only.
func (c *Conn) giveBack(pin Pin) (kept Pin) {
	c.pin = pin
	s := c.stock
	s.mu.Lock()
	stays := c.Err() == nil && !s.closed && !s.old(c) && c.epoch == s.epoch()
	switch {
	case stays && pin == 0 && s.Most > 0 && len(s.waiting) > 0:
		s.give(c)
		s.cancelSurplus()
	case stays && (pin != 0 || !s.Still) && s.makeRoom(pin != 0):
		s.keep(c)
		kept = pin
	case pin != 0: // UNWATCH runs in the background: no step waits for the server
		s.returnLater(c)
	default:
		defer c.toPool()
	}
	s.mu.Unlock()
	return kept
}

// age limits the time that a connection is kept from its pool. The pool then tests and replaces it like any other.
const age = time.Second

// makeRoom reports whether one more connection may stay. A pinned connection takes the place of the oldest
// connection without a pin, or of the oldest: the inner one of nested locks is released first. s.mu is held.
func (s *Stock) makeRoom(pinned bool) bool {
	switch {
	case len(s.kept) < s.Most:
		return true
	case !pinned || s.Most == 0:
		return false
	}
	s.evict()
	return true
}

// evict returns the oldest connection without a pin to its pool, or otherwise the oldest. s.mu is held.
func (s *Stock) evict() {
	s.returnAt(max(slices.IndexFunc(s.kept, func(c *Conn) bool { return c.pin == 0 }), 0))
}

// keep puts c among the kept connections. s.mu is held.
func (s *Stock) keep(c *Conn) {
	at, _ := slices.BinarySearchFunc(s.kept, c, func(a, b *Conn) int { return a.born.Compare(b.born) })
	if s.kept = slices.Insert(s.kept, at, c); at == 0 {
		s.arm()
	}
}

// take takes the i-th kept connection out. s.mu is held.
func (s *Stock) take(i int) *Conn {
	c := s.kept[i]
	s.kept = slices.Delete(s.kept, i, i+1)
	return c
}

// returnAt returns the i-th kept connection to its pool. s.mu is held.
func (s *Stock) returnAt(i int) { s.returnLater(s.take(i)) }

// returnLater returns c to its pool, in the background. s.mu is held.
func (s *Stock) returnLater(c *Conn) {
	if c.pin != 0 {
		s.returning = append(s.returning, c)
	}
	s.run(c.toPool)
}

// toPool returns the connection to its pool. It drops the connection if the server does not end its WATCH.
func (c *Conn) toPool() {
	if c.pin != 0 && c.Err() == nil {
		if _, err := redis.DoWithTimeout(c.Conn, age, "UNWATCH"); err != nil {
			wire.Drop(c.Conn)
		}
	}
	if c.pin != 0 { // Stock.Close must not kill c from here on: redigo's pooled connection can't be killed beside its own Close
		c.stock.mu.Lock()
		c.stock.returning = slices.DeleteFunc(c.stock.returning, func(other *Conn) bool { return other == c })
		c.stock.mu.Unlock()
	}
	c.Conn.Close()
}

// Reserve lowers Most by one, in favour of a connection that is borrowed for longer than a step. It returns
// false if Most is 0. Vacate ends the reservation.
func (s *Stock) Reserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Most == 0 {
		return false
	}
	if s.Most--; len(s.kept) > s.Most {
		s.evict()
	}
	return true
}

// Vacate ends a reservation.
func (s *Stock) Vacate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Most++
}

// Kept takes out the youngest connection without a pin, or returns nil.
func (s *Stock) Kept() *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	for i, c := range slices.Backward(s.kept) {
		if c.pin == 0 {
			return s.take(i)
		}
	}
	return nil
}

// Unpin takes out the connection of p, or returns nil if it is gone.
func (s *Stock) Unpin(p Pin) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	i := slices.IndexFunc(s.kept, func(c *Conn) bool { return c.pin == p })
	if i < 0 {
		return nil
	}
	c := s.take(i)
	c.pin = 0
	return c
}

// expire returns connections to their pool if their age has come, if they lead to a server of an earlier epoch,
// or if they are dead. s.mu is held.
func (s *Stock) expire() {
	epoch := s.epoch()
	for len(s.kept) > 0 && (s.kept[0].epoch != epoch || s.old(s.kept[0])) {
		s.returnAt(0)
	}
	for i := len(s.kept) - 1; i >= 0; i-- {
		if s.kept[i].Err() != nil {
			s.returnAt(i)
		}
	}
}

func (s *Stock) old(c *Conn) bool { return !s.Still && limit.Since(c.born) >= age }

// arm sets the timer to the moment when the age of the oldest connection comes. s.mu is held.
func (s *Stock) arm() {
	if len(s.kept) == 0 || s.Still {
		return
	}
	left := age - limit.Since(s.kept[0].born)
	if s.timer != nil {
		s.timer.Reset(left)
		return
	}
	s.timer = limit.AfterFunc(left, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expire()
		s.arm()
	})
}

// Close returns all connections to their pool, keeps none from then on, and cancels the Gets under way.
func (s *Stock) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, f := range s.gets {
		f.cancel()
	}
	for len(s.kept) > 0 {
		s.returnAt(0)
	}
	for _, c := range s.returning {
		redis.ReceiveContext(c.Conn, limit.Past) //nolint:errcheck // kills the connection: a wait for its answer ends too
	}
	if s.timer != nil {
		s.timer.Stop()
	}
}

func (s *Stock) epoch() uint64 {
	if s.Epoch == nil {
		return 0
	}
	return s.Epoch()
}
