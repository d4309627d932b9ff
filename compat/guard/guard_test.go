package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// said is a connection from which data is read, at most so much at a time.
type said struct {
	net.Conn
	data  *bytes.Reader
	piece int
}

func (s said) Read(p []byte) (int, error)      { return s.data.Read(p[:min(len(p), s.piece)]) }
func (s said) SetReadDeadline(time.Time) error { return nil }
func (s said) Close() error                    { return nil }

// hear returns the replies that redigo reads of data.
func hear(data []byte, piece int) (replies []any, err error) {
	dial := Dial(func(context.Context, string, string) (net.Conn, error) {
		return said{data: bytes.NewReader(data), piece: piece}, nil
	})
	raw, _ := dial(nil, "", "") //nolint:staticcheck // of no use here
	c := redis.NewConn(raw, 0, 0)
	for {
		reply, err := c.Receive()
		if e, refused := err.(redis.Error); refused {
			reply = e
		} else if err != nil {
			return replies, err
		}
		replies = append(replies, reply)
	}
}

// What servers say is heard, in whatever pieces it comes.
func TestHonestReplies(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 3<<20)
	said := "+OK\r\n:-12\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n-ERR no\r\n*3\r\n$2\r\na\n\r\n*2\r\n:1\r\n*0\r\n+x\r\n" +
		fmt.Sprintf("$%d\r\n%s\r\n:9223372036854775807\r\n", len(long), long)
	want := []any{"OK", int64(-12), nil, nil, []any{}, []byte{}, redis.Error("ERR no"),
		[]any{[]byte("a\n"), []any{int64(1), []any{}}, "x"}, long, int64(1<<63 - 1)}
	for piece := range 40 {
		if got, err := hear([]byte(said), 1+piece*piece); !reflect.DeepEqual(got, want) || err.Error() != "EOF" {
			t.Fatalf("in pieces of %d: %d replies: %v", 1+piece*piece, len(got), err)
		}
	}
	keys := append([]byte("*100000\r\n"), bytes.Repeat([]byte("$30\r\n123456789012345678901234567890\r\n"), 100000)...)
	if got, err := hear(bytes.Repeat(keys, 3), 4096); len(got) != 3 {
		t.Errorf("three lists of 100,000 keys: %d, %v", len(got), err)
	}
}

// What is not read, and what just is, by the head alone: io.EOF says that more was waited for.
func TestLimits(t *testing.T) {
	for said, want := range map[string]error{
		"$4194304\r\n": io.EOF, "$4194305\r\n": ErrTooLarge,
		"$9223372036854775807\r\n": ErrTooLarge, "$9223372036854775808\r\n": ErrNotRESP,
		"*700000\r\n": io.EOF, "*800000\r\n": ErrTooLarge, "*9223372036854775807\r\n": ErrTooLarge,
		"*400000\r\n*400000\r\n":              ErrTooLarge,
		strings.Repeat("*1\r\n", depthAtMost): io.EOF, strings.Repeat("*1\r\n", depthAtMost+1): ErrTooLarge,
		"+" + strings.Repeat("x", 65533): io.EOF, "+" + strings.Repeat("x", 65536): ErrTooLarge,
		":" + strings.Repeat("0", 32): ErrTooLarge,
		"$-1\r\n":                     io.EOF, "$-2\r\n": ErrNotRESP, "$+1\r\n": ErrNotRESP, "$\r\n": ErrNotRESP, "$1\n": ErrNotRESP,
		"%1\r\n": ErrNotRESP, "\r\n": ErrNotRESP,
	} {
		if _, err := hear([]byte(said), 100); !errors.Is(err, want) {
			t.Errorf("%.40q: %v, want %v", said, err, want)
		}
	}
}

// FuzzGuard has redigo read any bytes: it takes no more than 16 MB for each reply, and its stack holds.
func FuzzGuard(f *testing.F) {
	for _, seed := range []string{"$9223372036854775807\r\n", "*9999999999\r\n", "*2\r\n*1\r\n$-2\r\n", "*700000\r\n",
		"*16\r\n$4194304\r\n",
		"+OK\r\n:1\r\n$3\r\nabc\r\n*2\r\n:1\r\n-x\r\n", "$18446744073709551617\r\n", "$+1\r\nx\r\n", "$1\nx\r\n"} {
		f.Add([]byte(seed), uint8(7))
	}
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		replies, _ := hear(data, 1+int(piece))
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(len(replies)+1)*16<<20 {
			t.Errorf("%d replies took %d bytes", len(replies), took)
		}
	})
}
