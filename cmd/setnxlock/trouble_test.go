package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
)

// What libraries say of a connection is told in the user's words; names, files and a server's own words stay.
func TestErrorsInWords(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: 6379}
	broken := &net.OpError{Op: "read", Net: "tcp", Source: at, Addr: at, Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for want, err := range map[string]error{
		"EOF.example: it closed the connection":               fmt.Errorf("EOF.example: %w", io.EOF),
		"probing: it closed the connection":                   fmt.Errorf("probing: %w", broken),
		"it was: connection refused; twice":                   errors.New("it was: dial tcp 10.0.0.5:6379: connect: connection refused; twice"),
		"it was: no such host":                                errors.New("it was: dial tcp: lookup h.example on 10.0.0.53:53: no such host"),
		"the file: open /nonesuch: no such file or directory": fmt.Errorf("the file: %w", &fs.PathError{Op: "open", Path: "/nonesuch", Err: syscall.ENOENT}),
		"the lock could not be released: interrupted":         fmt.Errorf("the lock could not be released: %w: %w", context.Canceled, exit.With(130)),
		"no answer":               context.DeadlineExceeded,
		"ERR dial a friend":       redis.Error("ERR dial a friend"),
		"a reply of another form": errors.New("redigo: unexpected type for String, got type []interface {}"),
	} {
		if got := sentence(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
