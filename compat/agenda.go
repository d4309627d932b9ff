package compat

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
)

// An agenda is what a Locker has to do at a set time for the locks it holds: to
// renew them, and to end those whose lease runs out. It is one heap and one
// timer, however many locks there are: a goroutine and two timers for each
// would be what a hundred thousand locks cost.
//
// The timer is never set back to a later time. A lock that was released leaves
// it as it is; it goes off for nothing, and is set anew if there is anything to
// wait for. So locks that come and go cost no timer at all.
type agenda struct {
	clock clock.Clock
	renew func([]*Lock) // those whose renewal is due

	mu    sync.Mutex
	heap  []*Lock // the soonest first
	timer *clock.Timer
	rings time.Time // when the timer goes off; zero: it does not
}

// A place is a lock's on the agenda. The agenda's mutex guards it.
type place struct {
	index int           // in the heap, from 1; 0: it is not on it
	end   time.Time     // when the lock's context ends
	renew time.Time     // when it is renewed; zero: it is not, or is being renewed
	early time.Duration // by how much it may be renewed sooner, together with others
}

// due is when something is to be done.
func (p *place) due() time.Time {
	if !p.renew.IsZero() && p.renew.Before(p.end) {
		return p.renew
	}
	return p.end
}

// add puts l on the agenda: its context ends at end, and it is renewed after
// every, if that is not 0.
func (a *agenda) add(l *Lock, end time.Time, every time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heap = append(a.heap, l)
	l.place = place{index: len(a.heap), end: end}
	l.place.repeat(a.clock, every)
	a.fix(l)
	a.wind()
}

func (p *place) repeat(c clock.Clock, every time.Duration) {
	if every > 0 {
		p.renew, p.early = c.Now().Add(every), every/10
	}
}

// set moves the end and the renewal of a lock that is still on the agenda.
func (a *agenda) set(l *Lock, end time.Time, every time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.place.index > 0 {
		l.place.end = end
		l.place.repeat(a.clock, every)
		a.fix(l)
		a.wind()
	}
}

// renewIn has l, if it is still on the agenda, renewed in a while.
func (a *agenda) renewIn(l *Lock, in time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.place.index > 0 {
		l.place.repeat(a.clock, in)
		a.fix(l)
		a.wind()
	}
}

// remove takes l off: nothing is done for it any more.
func (a *agenda) remove(l *Lock) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(l)
}

// ring does what is due. Renewals that come due soon after are made with it,
// in the same writes: a thirtieth of the ttl sooner than they must be.
func (a *agenda) ring() {
	now := a.clock.Now()
	var ended, renew []*Lock
	a.mu.Lock()
	a.rings = time.Time{}
	for len(a.heap) > 0 {
		l := a.heap[0]
		renewal := l.place.due().Equal(l.place.renew)
		if wait := l.place.due().Sub(now); wait > 0 && !(renewal && len(renew) > 0 && wait <= l.place.early) {
			break
		}
		if renewal {
			renew = append(renew, l)
			l.place.renew = time.Time{} // under way
			a.fix(l)
		} else {
			ended = append(ended, l)
			a.drop(l)
		}
	}
	a.wind()
	a.mu.Unlock()

	for _, l := range ended {
		l.expire()
	}
	if len(renew) > 0 {
		a.renew(renew)
	}
}

// wind sets the timer, if it does not go off soon enough. a.mu is held.
func (a *agenda) wind() {
	if len(a.heap) == 0 {
		return
	}
	due := a.heap[0].place.due()
	if !a.rings.IsZero() && !due.Before(a.rings) {
		return
	}
	a.rings = due
	if d := max(a.clock.Until(due), 0); a.timer == nil {
		a.timer = a.clock.AfterFunc(d, a.ring)
	} else {
		a.timer.Reset(d)
	}
}

// drop takes l out of the heap. a.mu is held.
func (a *agenda) drop(l *Lock) {
	i := l.place.index
	if i == 0 {
		return
	}
	last := len(a.heap)
	a.swap(i, last)
	a.heap[last-1] = nil
	a.heap = a.heap[:last-1]
	l.place.index = 0
	if i < last {
		a.fix(a.heap[i-1])
	}
	if cap(a.heap) > 1024 && len(a.heap) < cap(a.heap)/4 {
		a.heap = slices.Clip(slices.Clone(a.heap)) // what many locks needed, few need not keep
	}
}

// fix moves l to where it belongs. a.mu is held.
func (a *agenda) fix(l *Lock) {
	i := l.place.index
	for i > 1 && a.sooner(i, i/2) {
		a.swap(i, i/2)
		i /= 2
	}
	for {
		child := 2 * i
		if child < len(a.heap) && a.sooner(child+1, child) {
			child++
		}
		if child > len(a.heap) || !a.sooner(child, i) {
			return
		}
		a.swap(i, child)
		i = child
	}
}

func (a *agenda) sooner(i, j int) bool {
	return a.heap[i-1].place.due().Before(a.heap[j-1].place.due())
}

func (a *agenda) swap(i, j int) {
	a.heap[i-1], a.heap[j-1] = a.heap[j-1], a.heap[i-1]
	a.heap[i-1].place.index, a.heap[j-1].place.index = i, j
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
