// Package schedule does what is due at set times: it renews items, and ends those that were
// not renewed in time. It is one heap and one timer, however many items there are: a
// goroutine and two timers for each would be what a hundred thousand locks cost.
//
// It guarantees that every item that was added and not removed is renewed or ended when its
// time has come, by the monotonic clock or by the wall clock, whichever says so first; and
// that what is called is called without a mutex held.
//
// The timer is never set back to a later time. An item that was removed leaves it as it is; it
// fires for nothing, and is armed anew if there is anything to wait for. So items that come
// and go cost no timer at all. While there are items it fires once a second at least, where the
// clock is the computer's: a timer counts by the monotonic clock, which stands still while the
// machine is suspended, and an end that came meanwhile is found by the wall clock then. What was
// added before such a jump may be due before what is first by the monotonic clock: each item has
// its place by the clock that says so first, and all are read anew when the clocks have parted.
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
	Renew func(due []T)              // those whose renewal is due, or will be soon
	End   func(item T, at time.Time) // one whose end has come; it is to be removed, or set anew

	mu     sync.Mutex
	heap   []*Item[T] // the soonest first
	timer  *clock.Timer
	firing time.Time // when the timer fires; zero: it does not
	base   time.Time // of what is due: when the first item came
	asOf   time.Time // when the heap was read; every item that came later, while the clocks ran alike
	stale  bool      // one came when they did not
	closed bool

	renewing sync.WaitGroup
}

// wallCheck is how often the wall clock is looked at while there are items.
const wallCheck = time.Second

// parted is by how much the clocks must differ for every item to be looked at: more than what a
// wall clock that is being corrected gains in some seconds.
const parted = 10 * time.Millisecond

// Times are what is due for an item.
type Times struct {
	End   time.Time
	Renew time.Time // zero: it is not renewed, or is being renewed
}

// early is by how much an item may be renewed sooner, together with others: a thirtieth of a lease that is renewed
// when a third of it has passed.
func (t *Times) early() time.Duration { return t.End.Sub(t.Renew) / 20 }

// An Item is Of's place in the heap. The scheduler's mutex guards the rest.
type Item[T any] struct {
	Of T

	times Times
	due   time.Duration // when something is to be done, from the scheduler's base on, in readings of one moment
	index int           // in the heap, from 1; 0: it is not in it
}

// read sets when something is to be done, by the clock that says so first, as they are now.
func (i *Item[T]) read(base, now time.Time) {
	i.due = sooner(i.times.End, now).Sub(base)
	if t := i.times.Renew; !t.IsZero() {
		i.due = min(i.due, sooner(t, now).Sub(base))
	}
}

// sooner is t by the clock that says it first, as they are now.
func sooner(t, now time.Time) time.Time {
	mono, wall := t.Sub(now), t.Round(0).Sub(now.Round(0))
	if mono == wall {
		return t
	}
	return now.Add(min(mono, wall))
}

// Add puts i in the heap; at is when its times were set. After Close it does not.
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

// Set moves the times of an item that is still in the heap.
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

// Remove takes i out: nothing is done for it any more.
func (s *Scheduler[T]) Remove(i *Item[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(i)
}

// Close lets no more items in, begins no more renewals, and returns the items that there are. They end
// as they would.
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

// fire does what is due. Renewals that come due soon after are made with it.
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
			t.End = now.Add(wallCheck) // whose End does neither is asked again
		} else if t.Renew.IsZero() || !lease.Past(now, t.Renew) && !(len(renew) > 0 && t.Renew.Before(t.End) && s.base.Add(i.due).Sub(now) <= t.early()) {
			break
		} else {
			renew = append(renew, i.Of)
		}
		t.Renew = time.Time{}
		i.read(s.base, now)
		s.fix(i)
	}
	s.arm(now)
	if s.closed { // what is held is being released
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

// Wait waits for the renewals that were under way when the scheduler was closed.
func (s *Scheduler[T]) Wait() { s.renewing.Wait() }

// read finds i's place as of at, and has all read anew if the clocks had parted by then, or have
// parted since: the next to fire finds out. s.mu is held.
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

// reread puts the heap in order if the wall clock was set, or the machine suspended. s.mu is held.
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

// haveParted reports that the clocks did not run alike between two moments.
func haveParted(a, b time.Time) bool {
	return (b.Round(0).Sub(a.Round(0)) - b.Sub(a)).Abs() >= parted
}

// arm sets the timer, if it does not fire soon enough. s.mu is held.
//
// What was still to come at that time and is not any more is done at once: a mock has been moved
// meanwhile, and its timer would wait for its next move.
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
	if d > wallCheck && due != due.Round(0) { // it has a monotonic reading
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
		s.heap = slices.Clip(slices.Clone(s.heap)) // what many items needed, few need not keep
	}
}

// fix moves i to where it belongs. s.mu is held.
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
