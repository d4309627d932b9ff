package schedule

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/benbjohnson/clock"
)

// A log records the calls of Renew and End.
type log struct {
	mu      sync.Mutex
	renewed [][]string
	ended   []string
}

func (l *log) Renew(due []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = append(l.renewed, due)
}

func (l *log) End(item string, _ time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = append(l.ended, item)
}

// seen returns the calls so far.
func (l *log) seen() (renewed [][]string, ended []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.renewed), slices.Clone(l.ended)
}

func newScheduler(c clock.Clock) (*Scheduler[string], *log) {
	l := new(log)
	return &Scheduler[string]{Clock: c, Renew: l.Renew, End: l.End}, l
}

// eventually waits until so holds: a mock's timer runs its function on another goroutine.
func eventually(so func() bool) bool {
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// Items due soon after a renewal are renewed with it. Other items end when due.
func TestDueTogether(t *testing.T) {
	m := clock.NewMock()
	s, l := newScheduler(m)
	at := func(seconds int) time.Time { return m.Now().Add(time.Duration(seconds) * time.Second) }
	items := map[string]Times{
		"first":  {End: at(60), Renew: at(20)},
		"soon":   {End: at(60), Renew: at(21)},
		"later":  {End: at(60), Renew: at(24)},
		"ending": {End: at(70)},
	}
	for name, times := range items {
		if !s.Add(&Item[string]{Of: name}, times, m.Now()) {
			t.Fatal("not added")
		}
	}
	m.Add(20 * time.Second)
	eventually(func() bool { renewed, _ := l.seen(); return len(renewed) > 0 })
	if renewed, ended := l.seen(); len(renewed) != 1 || !slices.Equal(renewed[0], []string{"first", "soon"}) || len(ended) > 0 {
		t.Errorf("after 20 s %v were renewed and %v ended", renewed, ended)
	}
}

// After any mix of Add, Set and Remove, the remaining items end when due, in order.
func TestOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3 {
		m := clock.NewMock()
		s, l := newScheduler(m)
		type placed struct {
			item *Item[string]
			end  time.Time
		}
		var all []placed
		for n := range 100 {
			end := m.Now().Add(time.Duration(1+r.IntN(10000)) * time.Second)
			p := placed{&Item[string]{Of: string(rune('A' + n))}, end}
			s.Add(p.item, Times{End: end}, s.Clock.Now())
			all = append(all, p)
			switch i := r.IntN(len(all)); r.IntN(3) {
			case 0:
				s.Remove(all[i].item)
				all = slices.Delete(all, i, i+1)
			case 1:
				all[i].end = m.Now().Add(time.Duration(1+r.IntN(10000)) * time.Second)
				s.Set(all[i].item, Times{End: all[i].end}, s.Clock.Now())
			}
		}
		ends, items := make(map[string]time.Time), make(map[string]*Item[string])
		for _, p := range all {
			ends[p.item.Of], items[p.item.Of] = p.end, p.item
		}
		var removed atomic.Int64
		s.End = func(item string, at time.Time) {
			if at != ends[item] {
				t.Errorf("%q ended at %v, want %v", item, at, ends[item])
			}
			l.End(item, at)
			s.Remove(items[item])
			removed.Add(1)
		}
		slices.SortFunc(all, func(a, b placed) int { return a.end.Compare(b.end) })
		for n, p := range all { // a timer that is set anew may be in the mock's past
			if !eventually(func() bool { m.Set(p.end); return removed.Load() > int64(n) }) {
				t.Fatalf("%d of %d ended", removed.Load(), len(all))
			}
		}
		if _, ended := l.seen(); len(ended) != len(all) {
			t.Fatalf("%d of %d ended", len(ended), len(all))
		}
	}
}

// End is called again for an item that it neither removed nor set.
func TestUndecided(t *testing.T) {
	m := clock.NewMock()
	s, l := newScheduler(m)
	s.Add(&Item[string]{Of: "a"}, Times{End: m.Now().Add(time.Minute)}, s.Clock.Now())
	m.Add(time.Minute)
	m.Add(3 * wallCheck)
	if !eventually(func() bool { _, ended := l.seen(); return len(ended) >= 2 }) {
		_, ended := l.seen()
		t.Errorf("asked %d times", len(ended))
	}
}

func TestClose(t *testing.T) {
	m := clock.NewMock()
	s, _ := newScheduler(m)
	s.Add(&Item[string]{Of: "a"}, Times{End: m.Now().Add(time.Minute)}, s.Clock.Now())
	if left := s.Close(); !slices.Equal(left, []string{"a"}) {
		t.Errorf("%v are left", left)
	}
	if s.Add(&Item[string]{Of: "b"}, Times{End: m.Now().Add(time.Minute)}, s.Clock.Now()) {
		t.Error("added after Close")
	}
}

// Wait ends after the renewal that was under way at Close.
func TestWaitForRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Scheduler[string]{Clock: clock.New(), Renew: func([]string) { time.Sleep(time.Minute) }, End: func(string, time.Time) {}}
		began := time.Now()
		s.Add(&Item[string]{Of: "a"}, Times{End: began.Add(time.Hour), Renew: began.Add(time.Second)}, began)
		time.Sleep(2 * time.Second)
		s.Close()
		s.Wait()
		if took := time.Since(began); took != 61*time.Second {
			t.Errorf("it waited until %v, want 1m1s", took)
		}
	})
}

// A large heap shrinks with its items.
func TestShrinks(t *testing.T) {
	m := clock.NewMock()
	s, _ := newScheduler(m)
	items := make([]Item[string], 10_000)
	for i := range items {
		s.Add(&items[i], Times{End: m.Now().Add(time.Minute)}, s.Clock.Now())
	}
	for i := range items {
		s.Remove(&items[i])
	}
	if n := cap(s.heap); n > 1024 {
		t.Errorf("room for %d is kept", n)
	}
}

// suspended imitates the clock of a suspended machine: the wall clock goes on, the timers and the
// monotonic reading stand still.
type suspended struct {
	*clock.Mock
	base time.Time    // with a monotonic reading
	zero time.Time    // the mock's time at base
	by   atomic.Int64 // seconds
}

func (c *suspended) Now() time.Time {
	t := c.base.Add(c.Mock.Now().Sub(c.zero))
	// The wall clock's seconds stand above 30 bits of nanoseconds.
	*(*uint64)(unsafe.Pointer(&t)) += uint64(c.by.Load()) << 30
	return t
}
func (c *suspended) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// An item whose end came during a suspension ends within a second of the resumption.
func TestSuspended(t *testing.T) {
	m := clock.NewMock()
	c := &suspended{Mock: m, base: time.Now(), zero: m.Now()}
	s, l := newScheduler(c)
	s.Add(&Item[string]{Of: "a"}, Times{End: c.Now().Add(time.Minute)}, s.Clock.Now())
	m.Add(10 * time.Second)
	if _, ended := l.seen(); len(ended) > 0 {
		t.Fatal("ended after 10 s of 60")
	}
	before := c.Now()
	c.by.Store(3600)
	if now := c.Now(); now.Sub(before) != 0 || now.Round(0).Sub(before.Round(0)) != time.Hour {
		t.Fatalf("the monotonic reading moved by %v, the wall clock by %v", now.Sub(before), now.Round(0).Sub(before.Round(0)))
	}
	m.Add(wallCheck)
	eventually(func() bool { _, ended := l.seen(); return len(ended) > 0 })
	if _, ended := l.seen(); len(ended) != 1 {
		t.Errorf("an hour later, by the wall clock: %d have ended", len(ended))
	}
}

// An item whose end came during a suspension ends in time also if another item, added or set after the
// suspension, is due before it by the monotonic clock.
func TestSuspendedBehindOthers(t *testing.T) {
	for name, jump := range map[string]func(c *suspended, s *Scheduler[string], l *log, a *Item[string]){
		"added after it": func(c *suspended, s *Scheduler[string], l *log, _ *Item[string]) {
			c.by.Store(50)
			s.Add(&Item[string]{Of: "b"}, Times{End: c.Now().Add(30 * time.Second)}, c.Now())
		},
		"added before it": func(c *suspended, s *Scheduler[string], l *log, _ *Item[string]) {
			s.Add(&Item[string]{Of: "b"}, Times{End: c.Now().Add(time.Hour), Renew: c.Now().Add(40 * time.Second)}, c.Now())
			c.by.Store(50)
			s.Add(&Item[string]{Of: "c"}, Times{End: c.Now().Add(30 * time.Second)}, c.Now())
		},
		"set anew": func(c *suspended, s *Scheduler[string], l *log, a *Item[string]) {
			end := a.times.End
			c.by.Store(50)
			s.Add(&Item[string]{Of: "b"}, Times{End: c.Now().Add(30 * time.Second)}, c.Now())
			c.Add(2 * time.Second)
			s.Set(a, Times{End: end}, c.Now()) // a lease's end has readings from before the jump
		},
		"asked for before it, added after it": func(c *suspended, s *Scheduler[string], l *log, a *Item[string]) {
			end, asked := a.times.End, c.Now()
			s.Remove(a)
			c.by.Store(50)
			s.Add(&Item[string]{Of: "b"}, Times{End: c.Now().Add(30 * time.Second)}, c.Now())
			c.Add(2 * time.Second)
			s.Add(a, Times{End: end}, asked)
		},
		"set back, and ahead": func(c *suspended, s *Scheduler[string], l *log, _ *Item[string]) {
			c.by.Store(-3600)
			c.Add(2 * time.Second)
			s.Add(&Item[string]{Of: "b"}, Times{End: c.Now().Add(30 * time.Second)}, c.Now())
			c.by.Store(50)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := clock.NewMock()
			c := &suspended{Mock: m, base: time.Now(), zero: m.Now()}
			s, l := newScheduler(c)
			a := &Item[string]{Of: "a"}
			s.Add(a, Times{End: c.Now().Add(time.Minute)}, c.Now())
			m.Add(wallCheck)
			jump(c, s, l, a)
			over := func() bool { _, ended := l.seen(); return slices.Contains(ended, "a") }
			for m.Now().Sub(c.zero) < 12*time.Second {
				if early := m.Now().Sub(c.zero) < 9*time.Second; early && over() {
					t.Fatalf("a has ended %v early", 10*time.Second-m.Now().Sub(c.zero))
				}
				m.Add(wallCheck / 2)
			}
			if !eventually(over) {
				t.Error("a has not ended, by the wall clock two seconds ago")
			}
		})
	}
}

// leaping imitates a mock that another goroutine moves by an hour after Now and before AfterFunc.
type leaping struct{ *clock.Mock }

func (c leaping) AfterFunc(d time.Duration, f func()) *clock.Timer {
	c.Add(time.Hour)
	return c.Mock.AfterFunc(d, f)
}

// An item that becomes due between Add and the setting of the timer ends without another move of the clock.
func TestSetTooLate(t *testing.T) {
	m := leaping{clock.NewMock()}
	s, l := newScheduler(m)
	ended := make(chan struct{})
	i := &Item[string]{Of: "a"}
	s.End = func(item string, at time.Time) { l.End(item, at); s.Remove(i); close(ended) }
	s.Add(i, Times{End: m.Now().Add(time.Minute)}, m.Now())
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("nothing was done")
	}
}
