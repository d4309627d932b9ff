package oldredis

import (
	"slices"
	"time"

	"github.com/benbjohnson/clock"
)

// A timer runs f, under the server's lock, at a given server time.
type timer struct {
	at   int64 // ns since 1970
	f    func()
	real *clock.Timer
}

// after arms a timer.
func (s *Server) after(d time.Duration, f func()) *timer {
	t := &timer{at: s.nano + int64(d), f: f}
	s.timers = append(s.timers, t)
	if s.clock != nil {
		t.real = s.clock.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.begin()
			s.fireTimers()
		})
	}
	return t
}

// stop disarms a timer.
func (s *Server) stop(t *timer) {
	t.disarm()
	s.timers = slices.DeleteFunc(s.timers, func(o *timer) bool { return o == t })
}

func (t *timer) disarm() {
	if t.real != nil {
		t.real.Stop()
	}
}

// fireTimers runs the due timers, earliest first.
func (s *Server) fireTimers() {
	for {
		next := -1
		for i, t := range s.timers {
			if t.at <= s.nano && (next < 0 || t.at < s.timers[next].at) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		t := s.timers[next]
		s.stop(t)
		t.f()
	}
}
