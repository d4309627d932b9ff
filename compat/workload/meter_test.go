package workload

import (
	"context"
	"io"
	"net"
	"testing"
)

const twoAndOne = "*2\r\n$3\r\nGET\r\n$14\r\n*1\r\n$4\r\nPING\r\n\r\n*1\r\n$4\r\nPING\r\nPING\r\n"

// Commands are counted however the writes are split; text that looks like a command inside a value
// is not.
func TestRequestCount(t *testing.T) {
	for size := 1; size <= len(twoAndOne); size++ {
		var r request
		n := 0
		for rest := []byte(twoAndOne); len(rest) > 0; {
			k := min(size, len(rest))
			n += r.count(rest[:k])
			rest = rest[k:]
		}
		if n != 3 {
			t.Errorf("in pieces of %d: %d commands", size, n)
		}
	}
}

// Several writes before an answer, or an answer in several pieces, are one round trip.
func TestMeter(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	m := NewMeter(func(context.Context, string, string) (net.Conn, error) { return client, nil })
	c, err := m.Dial(context.Background(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := io.ReadFull(server, make([]byte, len(twoAndOne)))
		if err == nil {
			_, err = server.Write([]byte("+PONG\r\n+PONG\r\n"))
		}
		done <- err
	}()
	for _, part := range []string{twoAndOne[:9], twoAndOne[9:]} {
		if _, err := c.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.ReadFull(c, make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want := Count{Commands: 3, Trips: 1, Writes: 2, Out: int64(len(twoAndOne)), In: 14}
	if m.Count() != want || m.Open() != 1 {
		t.Errorf("%+v, want %+v; %d open", m.Count(), want, m.Open())
	}
	c.Close()
	c.Close() // closing twice counts once
	if m.Open() != 0 || m.Most() != 1 {
		t.Errorf("%d open, %d at most", m.Open(), m.Most())
	}
}

// Traffic over another dial is counted together with the rest.
func TestMeterOver(t *testing.T) {
	m := NewMeter(func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF })
	if _, err := m.Dial(context.Background(), "", ""); err != io.EOF {
		t.Error(err)
	}
	client, server := net.Pipe()
	defer server.Close()
	c, err := m.Over(func(context.Context, string, string) (net.Conn, error) { return client, nil }).Dial(context.Background(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go io.Copy(io.Discard, server) //nolint:errcheck // until it is closed
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	if beside := m.Beside(); beside.Count() != (Count{}) {
		t.Errorf("beside: %+v", beside.Count())
	} else if _, err := beside.Dial(context.Background(), "", ""); err != io.EOF {
		t.Error(err)
	}
	if got := m.Count(); got.Commands != 1 || m.Open() != 1 || m.Most() != 1 {
		t.Errorf("%+v, %d open", got, m.Open())
	}
}
