package compat_test

import (
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// stacks is what stood on the stack at each write to a connection, and a write that can be made to hang.
type stacks struct {
	mu    sync.Mutex
	all   [][]string
	hangs chan struct{} // the next write waits for it
	hung  chan struct{} // and closes this
}

// A watchedConn tells of its writes.
type watchedConn struct {
	net.Conn
	s *stacks
}

func (c watchedConn) Write(b []byte) (int, error) {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var stack []string
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		stack = append(stack, f.Function)
	}
	c.s.mu.Lock()
	c.s.all = append(c.s.all, stack)
	hangs, hung := c.s.hangs, c.s.hung
	c.s.hangs = nil
	c.s.mu.Unlock()
	if hangs != nil {
		close(hung)
		<-hangs
	}
	return c.Conn.Write(b)
}

// between are this module's frames between method and the connection's write, of the last write below method.
func (s *stacks) between(t *testing.T, method string) (ours []string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stack := range slices.Backward(s.all) {
		end := slices.Index(stack, module+method)
		if end < 0 {
			continue // what runs in the background
		}
		for _, f := range stack[:end] {
			if name, is := strings.CutPrefix(f, module); is {
				ours = append(ours, name)
			}
		}
		s.all = nil
		return ours
	}
	t.Fatalf("%s is not on the stack of any write: %q", method, s.all)
	return nil
}

// A step is short: a lock is taken through seven functions of this module at most, and released through eight, between
// the user's call and redigo's, over a borrowed connection, or over the one that a lock has pinned.
//
// Some are longer. The getset locks share what they make of an old timestamp, in two functions of their own. A release under WATCH, over a connection that has not watched the key since the lock was taken, has
// two round trips: the loop over aborted EXECs, and what is made of an answer, stand between the change and the second.
// Over a shared connection the connection itself is this module's: the six functions of package mux choose it, put the
// message behind the others, and write it if it is alone. They take the place of the one that catches redigo's panics.
// Another goroutine writes a crowd's messages, and a crowd's releases under WATCH (batcher.go): they are not counted.
func TestFrames(t *testing.T) {
	for _, c := range []struct {
		name          string
		a             protocol.Algorithm
		with          string
		take, release int
	}{
		{"set:lua", setlock.Lua{}, "", 7, 8},
		{"set:lua", setlock.Lua{}, "shared", 12, 13},
		{"getset:listed", getsetlock.ListCAS{}, "", 9, 8},
		{"tx:classic", txlock.Classic{}, "", 7, 8},
		{"tx:renamed", txlock.Renamed{}, "", 7, 8},
		{"tx:renamed", txlock.Renamed{}, "extended", 7, 10},
	} {
		s := new(stacks)
		addr := must.Get(oldredis.Run(t, "7.0").Listen("127.0.0.1:0"))(t)
		p := &redis.Pool{MaxIdle: 8, Dial: func() (redis.Conn, error) {
			return redis.Dial("tcp", addr.String(), redis.DialNetDial(func(network, addr string) (net.Conn, error) {
				conn, err := net.Dial(network, addr)
				return watchedConn{conn, s}, err
			}))
		}}
		defer p.Close()
		k := compat.New(p, c.a, compat.Options{NoRenew: true})
		if err := try(t, k, "k").Release(background); err != nil { // the server is checked, the script loaded
			t.Fatal(err)
		}
		end := func() {}
		if c.with == "shared" { // as steps are while another one is under way
			hangs, hung := make(chan struct{}), make(chan struct{})
			s.mu.Lock()
			s.hangs, s.hung = hangs, hung
			s.mu.Unlock()
			over := inBackground(func() { k.Inspect(background, "other") }) //nolint:errcheck // it is there to be under way
			<-hung
			end = func() { close(hangs); <-over }
		}
		l := try(t, k, "k")
		if took := s.between(t, "compat.(*Locker).TryLock"); len(took) > c.take {
			t.Errorf("%s %s: %d functions between TryLock and the write, want %d at most: %q", c.name, c.with, len(took), c.take, took)
		}
		if c.with == "extended" {
			must.Do(t, l.Extend(background, 2*ttl))
		}
		must.Do(t, l.Release(background))
		if released := s.between(t, "compat.(*Lock).Release"); len(released) > c.release {
			t.Errorf("%s %s: %d functions between Release and the write, want %d at most: %q", c.name, c.with, len(released), c.release, released)
		}
		end()
	}
}
