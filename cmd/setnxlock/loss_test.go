//go:build unix

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// What cuts a server off, what run says while it can't renew and when the lock is lost: without -v, before COMMAND has ended.
func TestLossSaysWhyAtOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		refuses bool // connections, in place of hanging
		says    []string
	}{
		"hangs": {false, []string{`the lock on "job" is lost: no answer from HOST for [0-9.]+s; the command gets`}},
		"refuses": {true, []string{
			`can't renew "job" since \d\d:\d\d:\d\d \((connection refused|it closed the connection|connection reset by peer)\); lost at \d\d:\d\d:\d\d unless it can`,
			`the lock on "job" is lost: no answer from HOST for [0-9.]+s \((connection refused|it closed the connection|connection reset by peer)\)`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := realredis.Start(t)
			var cut atomic.Bool
			var after atomic.Int64 // bytes that came when the lock was said to be lost
			var s *show
			lost := func() bool { return s != nil && strings.Contains(s.errs.String(), "is lost") }
			over := make(chan struct{})
			defer close(over)
			at := serve(t, func(c net.Conn) {
				if cut.Load() && test.refuses {
					return
				}
				relay(c, address, func(asked []byte) {
					if cut.Load() && lost() {
						after.Add(int64(len(asked)))
					}
					if cut.Load() && test.refuses {
						c.Close()
					} else if cut.Load() {
						<-over
					}
				})
			})
			s = puppets(t, at, "--ttl", shortLease, "--grace", "1s")
			s.tell("ignore")
			cut.Store(true)
			until(t, "the loss is told", lost)
			told := time.Now()
			if gone(s.pid) {
				t.Error("the command ended first")
			}
			s.want(statusLost, "is lost")
			if took := time.Since(told); took > patience/2 { // --timeout is patience
				t.Errorf("it ended %v after the loss", took)
			}
			for _, want := range test.says {
				want = strings.ReplaceAll(want, "HOST", regexp.QuoteMeta(at))
				if !regexp.MustCompile(want).MatchString(s.errs.String()) {
					t.Errorf("no %s in\n%s", want, s.errs)
				}
			}
			if n := after.Load(); n > 0 {
				t.Errorf("%d bytes were sent for a lost lock", n)
			}
		})
	}
}

// A renewal that works again is told, and the next outage anew.
func TestOutagesAreToldOnce(t *testing.T) {
	var b bytes.Buffer
	o := &outages{say: func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }}
	until := time.Now().Add(time.Minute)
	failed := compat.Event{Kind: compat.EventFailed, Key: "x", Lease: compat.Lease{Until: until}, Err: syscall.ECONNREFUSED}
	for _, e := range []compat.Event{{Kind: compat.EventExtended, Key: "x"}, failed, failed, {Kind: compat.EventExtended, Key: "x"}, {Kind: compat.EventExtended, Key: "x"}, failed} {
		o.observe(e)
	}
	want := regexp.MustCompile(`^can't renew "x" since [0-9:]{8} \(connection refused\); lost at [0-9:]{8} unless it can
"x" is renewed again, after 0s
can't renew "x" since .*
$`)
	if !want.Match(b.Bytes()) {
		t.Error(b.String())
	}
}

// Each loss in words.
func TestLossesInWords(t *testing.T) {
	long := time.Now().Add(-8700 * time.Millisecond)
	for want, err := range map[string]error{
		"deleted":                       &compat.LostError{Key: "x", Gone: true},
		"now held by backup@web-2 (77)": &compat.LostError{Key: "x", Value: "setnxlock:web-2:77/backup:0123456789abcdef0123456789abcdef"},
		"now held by web-2 (77)":        &compat.LostError{Key: "x", Value: "w:setnxlock:web-2:77:0123456789abcdef0123456789abcdef"},
		"now held by 4102444800":        &compat.LostError{Key: "x", Value: "4102444800"},
		"no answer from h:1 for 8.7s":   &compat.LostError{Key: "x", Confirmed: long, Renewed: true, Err: fmt.Errorf("x: %w", compat.ErrTimeout)},
		"h:1 has refused to renew it for 8.7s (READONLY you can't)": &compat.LostError{Key: "x", Confirmed: long, Renewed: true, Err: redis.Error("READONLY you can't")},
		"no answer from h:1 for 8.7s (no route to host)":            &compat.LostError{Key: "x", Confirmed: long, Renewed: true, Err: &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}},
		"its time has run out":                                      nil,
	} {
		if got := whyLost("h:1", err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
