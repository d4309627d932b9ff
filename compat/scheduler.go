package compat

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat/internal/lease"
)

// A scheduler is what a Locker has to do at a set time for the locks it holds: to renew them,
// and to end those whose lease runs out. It is one heap and one timer, however many locks
// there are: a goroutine and two timers for each would be what a hundred thousand locks cost.
//
// The timer is never set back to a later time. A lock that was released leaves it as it is; it
// fires for nothing, and is armed anew if there is anything to wait for. So locks that come
// and go cost no timer at all. While locks are held it fires once a second at least, where the
// clock is the computer's: a timer counts by the monotonic clock, which stands still while the
// machine is suspended, and a lease that ran out meanwhile is found by the wall clock then.
type scheduler struct {
	clock clock.Clock
	renew func([]*Lock) // those whose renewal is due

	mu     sync.Mutex
	heap   []*Lock // the soonest first
	timer  *clock.Timer
	firing time.Time // when the timer fires; zero: it does not
	closed bool
}

// wallCheck is how often the wall clock is looked at while locks are held.
const wallCheck = time.Second

// An item is a lock's place in the heap. The scheduler's mutex guards it.
type item struct {
	index int           // in the heap, from 1; 0: it is not in it
	end   time.Time     // when the lock's context ends
	renew time.Time     // when it is renewed; zero: it is not, or is being renewed
	early time.Duration // by how much it may be renewed sooner, together with others
}

// due is when something is to be done.
func (i *item) due() time.Time {
	if !i.renew.IsZero() && i.renew.Before(i.end) {
		return i.renew
	}
	return i.end
}

// add puts l in the heap: its context ends at end, and it is renewed at renew, if that is not
// zero, or early sooner. After close it does not.
func (s *scheduler) add(l *Lock, end, renew time.Time, early time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.heap = append(s.heap, l)
	l.item = item{index: len(s.heap), end: end, renew: renew, early: early}
	s.fix(l)
	s.arm()
	return true
}

// set moves the end and the renewal of a lock that is still in the heap.
func (s *scheduler) set(l *Lock, end, renew time.Time, early time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.item.index > 0 && (l.item.end != end || l.item.renew != renew) {
		l.item.end, l.item.renew, l.item.early = end, renew, early
		s.fix(l)
		s.arm()
	}
}

// remove takes l out: nothing is done for it any more.
func (s *scheduler) remove(l *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(l)
}

// close lets no more locks in, and returns those that are held. They end as they would.
func (s *scheduler) close() []*Lock {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return slices.Clone(s.heap)
}

// fire does what is due. Renewals that come due soon after are made with it, in the same
// writes: a thirtieth of the ttl sooner than they must be.
func (s *scheduler) fire() {
	var ended, renew []*Lock
	s.mu.Lock()
	now := s.clock.Now()
	s.firing = time.Time{}
	for len(s.heap) > 0 {
		l := s.heap[0]
		i := &l.item
		renewal := i.due() == i.renew
		if !lease.Past(now, i.due()) && !(renewal && len(renew) > 0 && i.due().Sub(now) <= i.early) {
			break
		}
		if renewal && !lease.Past(now, i.end) {
			renew = append(renew, l)
			i.renew = time.Time{}
		} else {
			ended = append(ended, l)
			i.end = now.Add(wallCheck) // its state machine decides, below
			i.renew = time.Time{}
		}
		s.fix(l)
	}
	s.arm()
	s.mu.Unlock()

	for _, l := range ended {
		l.on(lease.Event{Kind: lease.Tick, At: now}, Lease{})
	}
	if len(renew) > 0 {
		s.renew(renew)
	}
}

// arm sets the timer, if it does not fire soon enough. s.mu is held.
func (s *scheduler) arm() {
	if len(s.heap) == 0 {
		return
	}
	due := s.heap[0].item.due()
	if !s.firing.IsZero() && !due.Before(s.firing) {
		return
	}
	d := max(s.clock.Until(due), 0)
	s.firing = due
	if d > wallCheck && due != due.Round(0) { // it has a monotonic reading
		d, s.firing = wallCheck, s.clock.Now().Add(wallCheck)
	}
	if s.timer == nil {
		s.timer = s.clock.AfterFunc(d, s.fire)
	} else {
		s.timer.Reset(d)
	}
	if lease.Past(s.clock.Now(), due) { // a mock has gone on meanwhile: its timer waits for the next move
		go s.fire()
	}
}

// drop takes l out of the heap. s.mu is held.
func (s *scheduler) drop(l *Lock) {
	i := l.item.index
	if i == 0 {
		return
	}
	last := len(s.heap)
	s.swap(i, last)
	s.heap[last-1] = nil
	s.heap = s.heap[:last-1]
	l.item.index = 0
	if i < last {
		s.fix(s.heap[i-1])
	}
	if cap(s.heap) > 1024 && len(s.heap) < cap(s.heap)/4 {
		s.heap = slices.Clip(slices.Clone(s.heap)) // what many locks needed, few need not keep
	}
}

// fix moves l to where it belongs. s.mu is held.
func (s *scheduler) fix(l *Lock) {
	i := l.item.index
	for i > 1 && s.sooner(i, i/2) {
		s.swap(i, i/2)
		i /= 2
	}
	for {
		child := 2 * i
		if child < len(s.heap) && s.sooner(child+1, child) {
			child++
		}
		if child > len(s.heap) || !s.sooner(child, i) {
			return
		}
		s.swap(i, child)
		i = child
	}
}

func (s *scheduler) sooner(i, j int) bool {
	return s.heap[i-1].item.due().Before(s.heap[j-1].item.due())
}

func (s *scheduler) swap(i, j int) {
	s.heap[i-1], s.heap[j-1] = s.heap[j-1], s.heap[i-1]
	s.heap[i-1].item.index, s.heap[j-1].item.index = i, j
}

// atOnce is how many connections renewals that are due together may use.
const atOnce = 8

// eachAtOnce calls do for each of n, on up to atOnce goroutines, and waits for them.
func eachAtOnce(n int, do func(i int)) {
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			do(i)
		}
	}
	var wg sync.WaitGroup
	for range min(n, atOnce) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}
