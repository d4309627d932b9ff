package main

import (
	"bytes"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
)

// A slow terminal takes a line when it likes to.
type slow struct {
	io.Writer
	takes time.Duration // for each line
}

func (s slow) Write(b []byte) (int, error) {
	time.Sleep(s.takes)
	return s.Writer.Write(b)
}

// No lease of the demo ends before its turn because the terminal was stopped, or the machine stood still.
func TestDemoOnASlowTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var says bytes.Buffer
		d := &demo{Screen: screen.Screen{W: slow{&says, 2 * time.Second}}}
		if err := d.crash(); err != nil || d.broken {
			t.Errorf("%v\n%s", err, &says)
		}
	})
}

// A suspended machine finds, when it goes on, that a minute has passed.
type suspended struct {
	clock.Clock
	asked atomic.Int32
}

func (s *suspended) Now() time.Time {
	if s.asked.Add(1) > 500 {
		return s.Clock.Now().Add(time.Minute)
	}
	return s.Clock.Now()
}

// Nor does a worker's, who holds the lock meanwhile.
func TestDemoOnASuspendedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, e := range entries() {
			var says bytes.Buffer
			c := &suspended{Clock: clock.New()}
			d := &demo{Screen: screen.Screen{W: &says}, clock: c}
			if err := d.race(e); err != nil || d.broken {
				t.Errorf("%v\n%s", err, &says)
			}
			if n := c.asked.Load(); n < 1000 {
				t.Errorf("%s: the clock was read %d times", e.name, n)
			}
		}
	})
}
