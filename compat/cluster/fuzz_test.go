package cluster

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/guard"
)

// bytesConn is a server that has said all that it will say.
type bytesConn struct {
	net.Conn
	*bufio.Reader
}

func (c bytesConn) Read(p []byte) (int, error)       { return c.Reader.Read(p) }
func (c bytesConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c bytesConn) Close() error                     { return nil }
func (c bytesConn) SetReadDeadline(time.Time) error  { return nil }
func (c bytesConn) SetWriteDeadline(time.Time) error { return nil }

// FuzzAnswers: whatever RESP a server sends as its map of slots, or to redirect, is read without a
// panic, and no slot goes to a server that the map does not have, or that has no address.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:7000\r\n",
		"*2\r\n*4\r\n:0\r\n:5\r\n*2\r\n$0\r\n\r\n:1\r\n*2\r\n$1\r\n?\r\n:2\r\n*3\r\n:6\r\n:16384\r\n*2\r\n$-1\r\n:3\r\n",
		"*1\r\n*3\r\n:9\r\n:-1\r\n*2\r\n$1\r\nh\r\n:1\r\n", "*0\r\n", "*-1\r\n", "$-1\r\n", ":1\r\n", "+OK\r\n",
		"$97\r\na 127.0.0.1:1@2,name master - 0 0 1 connected 0-5460 5462 [5461->-b]\nb 127.0.0.1:2 slave a 0 0 1 ok\r\n",
		"-MOVED 3999 127.0.0.1:6381\r\n", "-ASK 1 :1\r\n", "-MOVED -1 h:1\r\n", "-ASK 99999999999999999999 h:1\r\n", "-MOVED 1 ?:1\r\n", "-MOVED 1 [::1]:1\r\n",
	} {
		f.Add([]byte(s))
	}
	for _, s := range []string{"a 127.0.0.1:1@2 myself,master - 0 0 1 connected 0-5460 [5461->-b]\n", "a :0@0 master,noaddr - 0 0 1 disconnected 1", "a b c d e f g h 5-1", "a h:1 master - 0 0 1 connected 99999999-3"} {
		f.Add([]byte("*" + s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		reply := any(data) // CLUSTER NODES is one text
		if len(data) > 0 && data[0] == '*' && bytes.IndexByte(data, '\r') < 0 {
			reply = data[1:]
		} else if len(data) < 4096 {
			guarded, err := guard.Dial(func(context.Context, string, string) (net.Conn, error) { // as New dials
				return bytesConn{Reader: bufio.NewReader(bytes.NewReader(data))}, nil
			})(t.Context(), "tcp", "")
			if err != nil {
				t.Fatal(err)
			}
			c := redis.NewConn(guarded, 0, 0)
			r, err := c.Receive()
			if reply = r; err != nil {
				reply = err
			}
		}
		const from = "10.0.0.1:7000"
		if to, ok := read(reply, from); ok && (to.addr == "" || to.slot < 0 || to.slot >= slotCount) {
			t.Errorf("%q leads to %+v", data, to)
		}
		for _, parse := range []func(any, string) (*slotMap, error){parseSlots, parseNodes} {
			m, err := parse(reply, from)
			if err != nil || len(m.masters) == 0 {
				continue
			}
			for slot := range slotCount {
				if int(m.of[slot]) > len(m.masters) || m.master(slot) == "" {
					t.Fatalf("%q: slot %d is the %d. of %q", data, slot, m.of[slot], m.masters)
				}
			}
			m.replaced(m)
		}
	})
}
