//go:build unix

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

func TestSignalsArePassedOn(t *testing.T) {
	address := startServer(t, "2.4")
	s := puppets(t, address)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH} {
		s.signal(sig)
		s.expect("got " + sig.String())
	}
	s.signal(syscall.SIGTERM) // which ends a puppet
	s.want(128+15, "")
	if v := ask(t, address, "GET", "job"); v != nil {
		t.Errorf("the lock was not released: %s", v)
	}
}

// A lease that a machine that stands still for a moment does not outlive; its loss is seen after a third.
const shortLease = "10s"

func TestLostLockKillsTheWholeGroup(t *testing.T) {
	t.Parallel()
	address := startServer(t, "2.6")
	s := puppets(t, address, "--ttl", shortLease, "--grace", "100ms")
	s.tell("ignore")
	fmt.Fprintln(s.in, "fork")
	heard := s.line() + ", " + s.line()
	if !strings.Contains(heard, "forked") {
		t.Fatal(heard)
	}
	ask(t, address, "SET", "job", "somebody else's")
	s.want(statusLost, "is lost")
	until(t, "the group is gone", func() bool { return gone(s.pid) })
	if v, _ := redis.String(ask(t, address, "GET", "job"), nil); v != "somebody else's" {
		t.Errorf("the next holder's lock was removed: %q", v)
	}
}

func TestStoppedCommandIsEndedToo(t *testing.T) {
	t.Parallel()
	address := startServer(t, "2.6")
	s := puppets(t, address, "--ttl", shortLease)
	s.tell("catch")
	syscall.Kill(s.pid, syscall.SIGSTOP) //nolint:errcheck
	ask(t, address, "DEL", "job")
	s.expect("got terminated")
	s.want(statusLost, "")
}

func TestSignalsEndTheWait(t *testing.T) {
	address := startServer(t, "2.4")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		ask(t, address, "SET", "job", "somebody else's")
		s := play(t, address, "run", "-v", "job", "--", "puppet")
		until(t, "it waits", func() bool { return strings.Contains(s.errs.String(), "refused") })
		s.signal(sig)
		s.signal(sig) // a second one must not upset it
		s.want(128+int(sig), "")
		if l := s.line(); l != "(end of output)" {
			t.Errorf("on stdout: %q", l)
		}
		if v, _ := redis.String(ask(t, address, "GET", "job"), nil); v != "somebody else's" {
			t.Errorf("the holder's lock is gone: %q", v)
		}
	}
}

// A signal cuts the last step short, on a server that hangs: COMMAND has ended.
func TestSignalsEndTheLastStep(t *testing.T) {
	t.Parallel()
	for flag, status := range map[string]int{"--quiet": 0, "--hold=1m": 0, "--detach": statusUnavailable} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			address := startServer(t, "2.4")
			var cut, asked atomic.Bool
			over := make(chan struct{})
			defer close(over)
			at := serve(t, func(c net.Conn) {
				relay(c, address, func([]byte) {
					if cut.Load() {
						asked.Store(true)
						<-over
					}
				})
			})
			s := puppets(t, at, flag, "--ttl", "10m")
			cut.Store(true)
			fmt.Fprintln(s.in, "exit 0")
			until(t, "the server is asked", asked.Load)
			began := time.Now()
			s.signal(syscall.SIGTERM)
			s.want(status, ": interrupted")
			if took := time.Since(began); took > patience/2 { // --timeout is patience
				t.Errorf("it ended %v after the signal", took)
			}
			if strings.Contains(s.errs.String(), "exit status") {
				t.Errorf("it says of itself: %s", s.errs)
			}
		})
	}
}

func TestWatchPrintsEachChange(t *testing.T) {
	address := startServer(t, "2.6")
	s := play(t, address, "inspect", "--watch", "--interval", "5ms", "job")
	next := func(want string) {
		t.Helper()
		if l := s.line(); !strings.Contains(l, want) {
			t.Fatalf("%q, want %q", l, want)
		}
	}
	next("free")
	ask(t, address, "SETEX", "job", 100, "mine")
	next("held        the caller's text mine  until")
	ask(t, address, "EXPIRE", "job", 200)
	next("(extended)")
	ask(t, address, "PERSIST", "job")
	next("persistent")
	ask(t, address, "SET", "job", "1200000000")
	next("dead        integer seconds 1200000000")
	ask(t, address, "DEL", "job")
	next("free")
	leave(t, address, "--limit", "3", "job")
	next("held        1 of 3 slots")
	leave(t, address, "--limit", "3", "job") // which ends later
	next("held        2 of 3 slots")
	s.signal(syscall.SIGTERM)
	s.want(-1, "") // as the system has it: inspect catches none
}

// This is the promise itself: eight processes that run a command
// under one lock, on a real server, never run it at once.
func TestEightShellsNeverRunAtOnce(t *testing.T) {
	address := realredis.Start(t)
	for _, algorithm := range []string{"auto", "getset:classic"} {
		t.Run(algorithm, func(t *testing.T) {
			const shells, rounds = 8, 8
			file := filepath.Join(t.TempDir(), "counter")
			var group sync.WaitGroup
			for range shells {
				group.Go(func() {
					for range rounds {
						cmd := exec.Command("setnxlock", "run", "-q", "--unsafe", "--algorithm", algorithm, "--ttl", "1m",
							"counter", "--", "addone", file)
						cmd.Env = append(os.Environ(), "SETNXLOCK_REDIS="+address)
						if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
							t.Errorf("%v: %s", err, out)
							return
						}
					}
				})
			}
			group.Wait()
			b := must.Get(os.ReadFile(file))(t)
			if got, want := string(b), strconv.Itoa(shells*rounds); got != want {
				t.Errorf("the counter says %s, want %s", got, want)
			}
		})
	}
}
