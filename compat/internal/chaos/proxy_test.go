//go:build linux

package main

import (
	"io"
	"math/rand/v2"
	"net"
	"testing"
)

// After a lost piece nothing more arrives over a connection: the client would take the next reply for the lost one.
func TestNothingArrivesBehindAHole(t *testing.T) {
	p := &proxy{counts: &counts{n: map[string]int{}}, random: rand.New(rand.NewPCG(1, 1))}
	p.calm.Store(true)
	from, sender := net.Pipe()
	to, receiver := net.Pipe()
	got := make(chan string)
	go func() {
		b, err := io.ReadAll(receiver)
		if err != nil {
			t.Error(err)
		}
		got <- string(b)
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.pump(from, to, "reply")
		to.Close()
	}()
	for i, piece := range []string{"one", "two", "three"} {
		p.cut.Store(i == 1)
		if _, err := sender.Write([]byte(piece)); err != nil { // returns when the pump has read it
			t.Fatal(err)
		}
		if _, err := sender.Write(nil); err != nil { // the pump reads again: it is done with the piece
			t.Fatal(err)
		}
	}
	sender.Close()
	<-ended
	if b := <-got; b != "one" {
		t.Errorf("%q arrived, want what was sent before the hole", b)
	}
}
