//go:build unix

package main

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// cutting is the connection of a client that is closed when it tells its name.
type cutting struct {
	net.Conn
	cuts *atomic.Int64
}

func (c cutting) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if bytes.Contains(p[:n], []byte("SETNAME")) {
		c.cuts.Add(1)
		c.Close()
		return 0, io.EOF
	}
	return n, err
}

// A proxy that answers INFO and closes a connection on what it does not know costs a run nothing but that.
func TestClientNameIsRefusedRudely(t *testing.T) {
	t.Parallel()
	server := startServer(t, "7.0")
	var cuts atomic.Int64
	proxy := serve(t, func(c net.Conn) { relay(cutting{c, &cuts}, server, func([]byte) {}) })
	out, errs, status := cli(t, using(proxy), "run", "job", "--", "echo", "runs")
	if out != "runs\n" || errs != "" || status != 0 || cuts.Load() != 1 {
		t.Errorf("%q, %q, status %d, cut %d times", out, errs, status, cuts.Load())
	}
}
