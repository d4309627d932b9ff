package main

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

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
		d := &demo{stage: stage{screen.Screen{W: slow{&says, 2 * time.Second}}}}
		if err := d.crash(); err != nil || d.broken {
			t.Errorf("%v\n%s", err, &says)
		}
	})
}
