package stock

import (
	"context"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// A Conn is a connection that was got from a Stock. Close gives it back: it stays for the next step, if there is room
// and nothing is wrong with it, or goes back to its pool.
type Conn struct {
	redis.Conn
	stock *Stock
	born  time.Time // when its pool handed it out
	epoch uint64    // in which
	pin   Pin       // who alone may have it; 0: any step
}

var (
	_ redis.ConnWithContext = (*Conn)(nil)
	_ redis.ConnWithTimeout = (*Conn)(nil)
)

// DoContext and the others are its connection's.
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

// A Pin tells a connection that stays in its Stock for one lease, whose key it watches; 0: none does. It is gone when it
// has its age, or a step needs the room.
type Pin uint64

// Close gives the connection back.
func (c *Conn) Close() error {
	c.back(0)
	return nil
}

// Pin is Close for a connection under WATCH; 0: there is no room for it.
func (c *Conn) Pin() Pin { return c.back(Pin(c.stock.pins.Add(1))) }

// back gives it to a step that waits, keeps it, or has it go. What is under WATCH is pin's alone, as long as it is kept.
func (c *Conn) back(pin Pin) (kept Pin) {
	c.pin = pin
	s := c.stock
	s.mu.Lock()
	stays := c.Err() == nil && !s.closed && !s.old(c) && c.epoch == s.epoch()
	switch {
	case stays && pin == 0 && s.Most > 0 && len(s.waiting) > 0:
		s.give(c)
		s.spare()
	case stays && (pin != 0 || !s.Still) && s.makeRoom(pin != 0):
		s.keep(c)
		kept = pin
	case pin != 0: // its server is not waited for
		s.leave(c)
	default:
		defer c.part()
	}
	s.mu.Unlock()
	return kept
}

// age is for how long a connection is kept from its pool, which then tests and replaces it as it does the others.
const age = time.Second

// makeRoom reports that one more stays. One that is pinned does in place of the oldest that is not, or of the oldest: locks
// that are nested are released from the inside. s.mu is held.
func (s *Stock) makeRoom(pinned bool) bool {
	switch {
	case len(s.kept) < s.Most:
		return true
	case !pinned || s.Most == 0:
		return false
	}
	s.spareOne()
	return true
}

// spareOne has the oldest go back that no lease has pinned, or else the oldest. s.mu is held.
func (s *Stock) spareOne() {
	s.part(max(slices.IndexFunc(s.kept, func(c *Conn) bool { return c.pin == 0 }), 0))
}

// keep puts c among those that are kept. s.mu is held.
func (s *Stock) keep(c *Conn) {
	at, _ := slices.BinarySearchFunc(s.kept, c, func(a, b *Conn) int { return a.born.Compare(b.born) })
	if s.kept = slices.Insert(s.kept, at, c); at == 0 {
		s.ring()
	}
}

// take takes the i-th of them out. s.mu is held.
func (s *Stock) take(i int) *Conn {
	c := s.kept[i]
	s.kept = slices.Delete(s.kept, i, i+1)
	return c
}

// part has the i-th go back to its pool. s.mu is held.
func (s *Stock) part(i int) { s.leave(s.take(i)) }

// leave has c go back to its pool, in the background. s.mu is held.
func (s *Stock) leave(c *Conn) {
	if c.pin != 0 {
		s.parting = append(s.parting, c)
	}
	s.run(c.part)
}

// part is Close for one that is not kept any longer: its pool gets it, unless its server does not end the WATCH.
func (c *Conn) part() {
	if c.pin != 0 && c.Err() == nil {
		if _, err := redis.DoWithTimeout(c.Conn, age, "UNWATCH"); err != nil {
			wire.Drop(c.Conn)
		}
	}
	if c.pin != 0 { // from here on Close leaves it alone: redigo's pooled connection can't be killed beside its own Close
		c.stock.mu.Lock()
		c.stock.parting = slices.DeleteFunc(c.stock.parting, func(other *Conn) bool { return other == c })
		c.stock.mu.Unlock()
	}
	c.Conn.Close()
}

// Reserve keeps one connection less, in favour of one that is borrowed for longer than a step; false: there is none to
// spare. Vacate ends that.
func (s *Stock) Reserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Most == 0 {
		return false
	}
	if s.Most--; len(s.kept) > s.Most {
		s.spareOne()
	}
	return true
}

func (s *Stock) Vacate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Most++
}

// Kept is the youngest that no lease has pinned; nil: there is none.
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

// Unpin takes out the connection that p has pinned; nil: it is gone.
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

// expire has those go back that have their age, lead to a server of an earlier epoch, or are known to be dead. s.mu is held.
func (s *Stock) expire() {
	epoch := s.epoch()
	for len(s.kept) > 0 && (s.kept[0].epoch != epoch || s.old(s.kept[0])) {
		s.part(0)
	}
	for i := len(s.kept) - 1; i >= 0; i-- {
		if s.kept[i].Err() != nil {
			s.part(i)
		}
	}
}

func (s *Stock) old(c *Conn) bool { return !s.Still && limit.Since(c.born) >= age }

// ring has the bell ring when the oldest has its age. s.mu is held.
func (s *Stock) ring() {
	if len(s.kept) == 0 || s.Still {
		return
	}
	left := age - limit.Since(s.kept[0].born)
	if s.bell != nil {
		s.bell.Reset(left)
		return
	}
	s.bell = limit.AfterFunc(left, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expire()
		s.ring()
	})
}

// Close has all that are kept go back, keeps none from then on, and gives up the Gets under way.
func (s *Stock) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, f := range s.under {
		f.cancel()
	}
	for len(s.kept) > 0 {
		s.part(0)
	}
	for _, c := range s.parting {
		redis.ReceiveContext(c.Conn, limit.Past) //nolint:errcheck // it ends, also for who waits for its answer
	}
	if s.bell != nil {
		s.bell.Stop()
	}
}

func (s *Stock) epoch() uint64 {
	if s.Epoch == nil {
		return 0
	}
	return s.Epoch()
}
