package schedule_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/schedule"
	"github.com/setnxlock/setnxlock/compat/internal/simulate"
)

// A counting clock counts the looks at it. After many looks it sets itself ahead, so that a scheduler that does not rest
// ends its items.
type counting struct {
	*simulate.Clock
	looks atomic.Int64
}

func (c *counting) Now() time.Time {
	if c.looks.Add(1) == 1000 {
		c.Set(time.Hour)
	}
	return c.Clock.Now()
}

// A wall clock that gains some milliseconds and loses them again does not keep the timer busy.
func TestRestsWhileTheClockIsCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{Clock: simulate.NewClock()}
		s := &schedule.Scheduler[string]{Clock: c}
		i := &schedule.Item[string]{Of: "a"}
		s.End = func(string, time.Time) { s.Remove(i) }
		end := c.Now().Add(10 * time.Second)
		c.Set(9 * time.Millisecond)
		s.Add(i, schedule.Times{End: end}, c.Now())
		c.Set(-9 * time.Millisecond)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if n := c.looks.Load(); n > 50 {
			t.Errorf("%d looks at the clock in ten seconds", n)
		}
	})
}
