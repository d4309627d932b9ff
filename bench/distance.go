package main

import (
	"context"
	"net"
	"runtime"
	"time"
)

// distance is how much later an answer is seen than it came: what a network of one
// data centre adds.
const distance = 250 * time.Microsecond

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// dialFar connects to a server as if it were that far away.
func dialFar(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if tcp, ok := c.(*net.TCPConn); ok {
		return &far{tcp}, err
	}
	return c, err
}

// A far connection keeps every answer back for a while.
type far struct{ *net.TCPConn }

func (c *far) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	for came := time.Now(); time.Since(came) < distance; { // not slept: that would take a millisecond
		runtime.Gosched()
	}
	return n, err
}
