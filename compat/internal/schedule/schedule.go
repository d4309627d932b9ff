// Package schedule renews items at set times, and ends items that were not renewed in time. A
// Scheduler has one heap and one timer for any number of items: a goroutine and two timers for each
// of a hundred thousand locks would cost too much.
//
// A Scheduler guarantees that it renews or ends every item when its time has come, unless the item was
// removed. The monotonic clock and the wall clock both count: the first to reach the time decides. The
// Scheduler holds no mutex while it calls Renew or End.
//
// The timer is never set back to a later time. A removed item leaves the timer as it is: it fires
// for nothing, and is set again if there are other items. So items that come and go cost no timer. While
// there are items, and the clock is the computer's, the timer fires at least once a second. The reason
// is suspension: a timer counts by the monotonic clock, which stands still while the machine is
// suspended, and only the wall clock shows an end in the meantime. An item added before such a jump may
// be due before the first item by the monotonic clock. So each item has its place in the heap by the
// earlier of both clocks, and all places are computed again when the clocks have parted.
package schedule

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat/internal/lease"
)

// A Scheduler is ready to use with its Clock and its two functions set.
type Scheduler[T any] struct {
	Clock clock.Clock
	Renew func(due []T)              // renews items that are due now or soon
	End   func(item T, at time.Time) // ends an item: it must Remove the item, or Set new times

	mu     sync.Mutex
	heap   []*Item[T] // the soonest first
	timer  *clock.Timer
	firing time.Time // when the timer fires; zero: never
	base   time.Time // when the first item came
	asOf   time.Time // when the heap was ordered; later items came while the clocks ran alike, unless stale
	stale  bool      // an item came after the clocks had parted
	closed bool

	renewing sync.WaitGroup
}

// wallCheck is the interval of looks at the wall clock while there are items.
const wallCheck = time.Second

// parted is the difference between the clocks from which on all items are read again: more than a wall clock
// gains in some seconds while it is being corrected.
const parted = 10 * time.Millisecond

// Times say when an item is due.
type Times struct {
	End   time.Time
	Renew time.Time // zero: the item is not renewed, or a renewal is under way
}

// early returns how much sooner an item may be renewed, together with others: a thirtieth of a lease, if a renewal
// is due after a third of it.
func (t *Times) early() time.Duration { return t.End.Sub(t.Renew) / 20 }

// An Item holds Of's place in the heap. The scheduler's mutex guards the other fields.
type Item[T any] struct {
	Of T

	times Times
	due   time.Duration // the earlier of both times, since base; readings of both clocks at one moment, asOf
	index int           // in the heap, from 1; 0: not in the heap
}

// read computes due from both times and both clocks, as the clocks are now.
func (i *Item[T]) read(base, now time.Time) {
	i.due = sooner(i.times.End, now).Sub(base)
	if t := i.times.Renew; !t.IsZero() {
		i.due = min(i.due, sooner(t, now).Sub(base))
	}
}

// sooner returns t by the clock that reaches t first, as the clocks are now.
func sooner(t, now time.Time) time.Time {
	mono, wall := t.Sub(now), t.Round(0).Sub(now.Round(0))
	if mono == wall {
		return t
	}
	return now.Add(min(mono, wall))
}

// Add puts i in the heap. at is the moment when t was made. After Close, Add returns false and does nothing.
func (s *Scheduler[T]) Add(i *Item[T], t Times, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.heap = append(s.heap, i)
	i.index, i.times = len(s.heap), t
	s.read(i, at)
	s.fix(i)
	s.arm(at)
	return true
}

// Set changes the times of i, if i is still in the heap.
func (s *Scheduler[T]) Set(i *Item[T], t Times, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.index > 0 && i.times != t {
		i.times = t
		s.read(i, at)
		s.fix(i)
		s.arm(at)
	}
}

// Remove takes i out of the heap: i is neither renewed nor ended any more.
func (s *Scheduler[T]) Remove(i *Item[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(i)
}

// Close stops Add and renewals, and returns the items in the heap. These items still end when due.
func (s *Scheduler[T]) Close() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	all := make([]T, len(s.heap))
	for n, i := range s.heap {
		all[n] = i.Of
	}
	return all
}

// fire ends and renews the items that are due. It also renews items that are due soon, together with others.
func (s *Scheduler[T]) fire() {
	var ended, renew []T
	s.mu.Lock()
	now := s.Clock.Now()
	s.firing = time.Time{}
	s.reread(now)
	for len(s.heap) > 0 {
		i := s.heap[0]
		t := &i.times
		if lease.Past(now, t.End) {
			ended = append(ended, i.Of)
			t.End = now.Add(wallCheck) // End is called again for an item that it neither removed nor set
		} else if t.Renew.IsZero() || !lease.Past(now, t.Renew) && !(len(renew) > 0 && t.Renew.Before(t.End) && s.base.Add(i.due).Sub(now) <= t.early()) {
			if s.base.Add(i.due).After(now) {
				break
			}
			i.read(s.base, now) // the wall clock was ahead by less than parted, and is not any more: the timer would not rest
			s.fix(i)
			continue
		} else {
			renew = append(renew, i.Of)
		}
		t.Renew = time.Time{}
		i.read(s.base, now)
		s.fix(i)
	}
	s.arm(now)
	if s.closed { // the holders are releasing their items
		renew = nil
	}
	if len(renew) > 0 {
		s.renewing.Add(1)
		defer s.renewing.Done()
	}
	s.mu.Unlock()

	for _, of := range ended {
		s.End(of, now)
	}
	if len(renew) > 0 {
		s.Renew(renew)
	}
}

// Wait waits for the renewals under way at Close.
func (s *Scheduler[T]) Wait() { s.renewing.Wait() }

// read computes i's due time as of at. If the clocks parted between asOf and at, it marks the heap as stale:
// the next fire reads all items again. s.mu is held.
func (s *Scheduler[T]) read(i *Item[T], at time.Time) {
	if s.base.IsZero() {
		s.base = at
	}
	if s.asOf.IsZero() || len(s.heap) == 1 {
		s.asOf, s.stale = at, false
	}
	s.stale = s.stale || haveParted(s.asOf, at)
	i.read(s.base, at)
}

// reread puts the heap in order again if the wall clock was set, or the machine suspended. s.mu is held.
func (s *Scheduler[T]) reread(now time.Time) {
	if !s.stale && !haveParted(s.asOf, now) {
		return
	}
	s.asOf, s.stale = now, false
	for _, i := range s.heap {
		i.read(s.base, now)
	}
	slices.SortFunc(s.heap, func(a, b *Item[T]) int { return cmp.Compare(a.due, b.due) })
	for n, i := range s.heap {
		i.index = n + 1
	}
}

// haveParted reports whether one clock gained on the other between two moments.
func haveParted(a, b time.Time) bool {
	return (b.Round(0).Sub(a.Round(0)) - b.Sub(a)).Abs() >= parted
}

// arm sets the timer, if the timer would fire too late. s.mu is held.
//
// An item that became due between at and now is handled at once: a mock clock has been moved meanwhile, and its
// timer would wait for the next move.
func (s *Scheduler[T]) arm(at time.Time) {
	if len(s.heap) == 0 {
		return
	}
	due := s.base.Add(s.heap[0].due)
	if !s.firing.IsZero() && !due.Before(s.firing) {
		return
	}
	d := max(s.Clock.Until(due), 0)
	s.firing = due
	if d > wallCheck && due != due.Round(0) { // due has a monotonic reading
		d, s.firing = wallCheck, s.Clock.Now().Add(wallCheck)
	}
	if s.timer == nil {
		s.timer = s.Clock.AfterFunc(d, s.fire)
	} else {
		s.timer.Reset(d)
	}
	if at.Before(due) && s.Clock.Until(due) <= 0 {
		go s.fire()
	}
}

// drop takes i out of the heap. s.mu is held.
func (s *Scheduler[T]) drop(i *Item[T]) {
	if i.index == 0 {
		return
	}
	last := s.heap[len(s.heap)-1]
	s.swap(i, last)
	s.heap[len(s.heap)-1] = nil
	s.heap = s.heap[:len(s.heap)-1]
	if i.index = 0; i != last {
		s.fix(last)
	}
	if cap(s.heap) > 1024 && len(s.heap) < cap(s.heap)/4 {
		s.heap = slices.Clip(slices.Clone(s.heap)) // few items do not keep the memory of many
	}
}

// fix moves i to its place in the heap. s.mu is held.
func (s *Scheduler[T]) fix(i *Item[T]) {
	for i.index > 1 {
		parent := s.heap[i.index/2-1]
		if i.due >= parent.due {
			break
		}
		s.swap(i, parent)
	}
	for 2*i.index <= len(s.heap) {
		child := s.heap[2*i.index-1]
		if n := 2 * i.index; n < len(s.heap) && s.heap[n].due < child.due {
			child = s.heap[n]
		}
		if child.due >= i.due {
			return
		}
		s.swap(i, child)
	}
}

func (s *Scheduler[T]) swap(i, j *Item[T]) {
	s.heap[i.index-1], s.heap[j.index-1] = j, i
	i.index, j.index = j.index, i.index
}
