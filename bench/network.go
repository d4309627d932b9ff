package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A meter dials, and counts round trips: how often the client waited for an answer, however many
// commands it had sent. It sits beneath the client library, so it works with any.
type meter struct {
	distance time.Duration // how much later the server gets what is sent

	trips atomic.Int64
}

func (m *meter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{TCPConn: raw.(*net.TCPConn), meter: m, gone: make(chan struct{})}
	if m.distance > 0 {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.sent, c.timer = make(chan request, 1024), os.NewFile(uintptr(fd), "timer")
		go c.carry()
	}
	return c, nil
}

// A conn is counted, and distant if it has a timer. go-redis looks at the socket of a *net.TCPConn
// before each use, as it does in a program.
type conn struct {
	*net.TCPConn
	meter *meter
	asked atomic.Bool // something was sent since the last answer
	close sync.Once

	sent  chan request
	gone  chan struct{}
	timer *os.File // Go's own timers are a millisecond late
}

// A request is on its way.
type request struct {
	bytes []byte
	due   time.Time
}

func (c *conn) Write(b []byte) (int, error) {
	c.asked.Store(true)
	if c.timer == nil {
		return c.TCPConn.Write(b)
	}
	select {
	case c.sent <- request{bytes.Clone(b), time.Now().Add(c.meter.distance)}:
		return len(b), nil
	case <-c.gone:
		return 0, net.ErrClosed
	}
}

// carry delivers each request when it is due, as a network does: one does not wait for the answer
// to another.
func (c *conn) carry() {
	defer c.timer.Close()
	for {
		select {
		case r := <-c.sent:
			if left := time.Until(r.due); left > 0 {
				c.sleep(left)
			}
			if _, err := c.TCPConn.Write(r.bytes); err != nil {
				c.Close() // the reader learns it
			}
		case <-c.gone:
			return
		}
	}
}

// sleep waits by the kernel's clock. A timer that fails does not wait; TestLongDistance would see it.
func (c *conn) sleep(d time.Duration) {
	raw, err := c.timer.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { //nolint:errcheck // then Read returns at once, or never
		unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil) //nolint:errcheck
	})
	c.timer.Read(make([]byte, 8)) //nolint:errcheck
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if n > 0 && c.asked.CompareAndSwap(true, false) {
		c.meter.trips.Add(1)
	}
	return n, err
}

func (c *conn) Close() error {
	c.close.Do(func() { close(c.gone) })
	return c.TCPConn.Close()
}

var _ syscall.Conn = (*conn)(nil)
