//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/internal/must"
)

// A show is a setnxlock that is running, and its puppet's strings.
type show struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	errs  *syncBuffer
	token string
	pid   int // the puppet's
}

// play starts setnxlock with args.
func play(t *testing.T, address string, args ...string) *show {
	t.Helper()
	return playCommand(t, address, exec.Command("setnxlock", args...))
}

// playCommand starts setnxlock by way of another command.
func playCommand(t *testing.T, address string, cmd *exec.Cmd) *show {
	t.Helper()
	s := &show{t: t, cmd: cmd, lines: make(chan string, 100), errs: &syncBuffer{}}
	s.cmd.Env = append(os.Environ(), "SETNXLOCK_REDIS="+address)
	s.cmd.Stderr = s.errs
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout = w
	must.Do(t, s.cmd.Start())
	w.Close()
	go func() {
		defer close(s.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			s.lines <- in.Text()
		}
	}()
	t.Cleanup(func() {
		s.cmd.Process.Kill() //nolint:errcheck
		if s.pid > 0 {
			syscall.Kill(-s.pid, syscall.SIGKILL) //nolint:errcheck
		}
	})
	return s
}

// puppets starts setnxlock run with a puppet and waits until it plays.
func puppets(t *testing.T, address string, flags ...string) *show {
	t.Helper()
	s := play(t, address, append(append([]string{"run", "job"}, flags...), "--", "puppet")...)
	ready := strings.Fields(s.line())
	if len(ready) != 3 || ready[0] != "ready" {
		t.Fatalf("the puppet said %q; stderr: %s", ready, s.errs)
	}
	s.pid, _ = strconv.Atoi(ready[1])
	s.token = ready[2]
	return s
}

func (s *show) line() string {
	s.t.Helper()
	select {
	case l, ok := <-s.lines:
		if !ok {
			return "(end of output)"
		}
		return l
	case <-time.After(patience):
		s.t.Fatalf("no output; stderr: %s", s.errs)
	}
	return ""
}

func (s *show) expect(want string) {
	s.t.Helper()
	if got := s.line(); got != want {
		s.t.Fatalf("the puppet said %q, want %q; stderr: %s", got, want, s.errs)
	}
}

// tell says words to the puppet and waits until they are done.
func (s *show) tell(words string) {
	s.t.Helper()
	fmt.Fprintln(s.in, words)
	s.expect("did " + words)
}

func (s *show) signal(sig syscall.Signal) { s.cmd.Process.Signal(sig) } //nolint:errcheck

// status waits for the end.
func (s *show) status() int {
	s.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	select {
	case err := <-ended:
		var status *exec.ExitError
		if errors.As(err, &status) {
			return status.ExitCode()
		}
		if err != nil {
			s.t.Fatal(err)
		}
		return 0
	case <-time.After(patience):
		s.t.Fatalf("it does not end; stderr: %s", s.errs)
	}
	return 0
}

func (s *show) want(status int, said string) {
	s.t.Helper()
	if got := s.status(); got != status {
		s.t.Errorf("exit status %d, want %d; stderr: %s", got, status, s.errs)
	}
	if !strings.Contains(s.errs.String(), said) {
		s.t.Errorf("stderr has no %q: %s", said, s.errs)
	}
}

// ask sends one command to the server.
func ask(t *testing.T, address, name string, args ...any) any {
	t.Helper()
	c := must.Get(redis.Dial("tcp", address))(t)
	defer c.Close()
	reply := must.Get(c.Do(name, args...))(t)
	return reply
}

func gone(pid int) bool { return syscall.Kill(-pid, 0) != nil }

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestSignalsArePassedOn(t *testing.T) {
	address := startOld(t, "2.4")
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

func TestLostLockEndsTheCommand(t *testing.T) {
	t.Parallel()
	address := startOld(t, "2.6")
	s := puppets(t, address, "--ttl", shortLease)
	s.tell("catch") // and exits 0: the loss shows all the same
	ask(t, address, "DEL", "job")
	s.expect("got terminated")
	s.want(statusLost, "is lost")
}

func TestLostLockKillsTheWholeGroup(t *testing.T) {
	t.Parallel()
	address := startOld(t, "2.6")
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

func TestServerGoneEndsTheCommand(t *testing.T) {
	t.Parallel()
	address, shut := startStoppable(t, "2.6")
	s := puppets(t, address, "--ttl", shortLease, "--grace", "100ms")
	shut()
	s.want(statusLost, "is lost")
}

func TestLossAtReleaseIsReported(t *testing.T) {
	address := startOld(t, "2.6")
	s := puppets(t, address)
	ask(t, address, "DEL", "job")
	fmt.Fprintln(s.in, "exit 0")
	s.want(statusLost, "was lost while the command ran")

	s = puppets(t, address)
	ask(t, address, "DEL", "job")
	fmt.Fprintln(s.in, "exit 3")
	s.want(statusLost, "was lost while the command ran")
}

func TestStoppedCommandIsEndedToo(t *testing.T) {
	t.Parallel()
	address := startOld(t, "2.6")
	s := puppets(t, address, "--ttl", shortLease)
	s.tell("catch")
	syscall.Kill(s.pid, syscall.SIGSTOP) //nolint:errcheck
	ask(t, address, "DEL", "job")
	s.expect("got terminated")
	s.want(statusLost, "")
}

func TestSignalsEndTheWait(t *testing.T) {
	address := startOld(t, "2.4")
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

// A server that takes connections and says nothing is unreachable, too.
func TestSilentServer(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	for _, algorithm := range []string{"auto", "getset", "tx", "getset:classic"} {
		s := play(t, l.Addr().String(), "run", "--timeout", "50ms", "--algorithm", algorithm, "job", "--", "puppet")
		s.want(statusUnavailable, "")
		if strings.Contains(s.errs.String(), "proxy") {
			t.Errorf("%s: taken for a proxy: %s", algorithm, s.errs)
		}
	}
}

func TestWaitsForTheHolder(t *testing.T) {
	address := startOld(t, "2.2")
	first := puppets(t, address)
	second := play(t, address, "run", "-v", "job", "--", "puppet")
	until(t, "it waits", func() bool { return strings.Contains(second.errs.String(), "refused") })
	select {
	case l := <-second.lines:
		t.Fatalf("two at once: %q", l)
	default:
	}
	fmt.Fprintln(first.in, "exit 4")
	first.want(4, "")
	if l := second.line(); !strings.HasPrefix(l, "ready") {
		t.Fatal(l)
	}
	fmt.Fprintln(second.in, "exit 0")
	second.want(0, "")
}

// A killed setnxlock can't release: its lease ends by itself.
func TestKilledHolderIsTakenOver(t *testing.T) {
	for version, algorithm := range map[string]string{"1.2": "getset", "2.6": "tx"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			address := startOld(t, version)
			first := puppets(t, address, "--ttl", shortLease, "--algorithm", algorithm)
			first.signal(syscall.SIGKILL)
			second := puppets(t, address, "--ttl", shortLease, "--algorithm", algorithm)
			if second.token == first.token {
				t.Error("the same token twice")
			}
			fmt.Fprintln(second.in, "exit 0")
			second.want(0, "")
		})
	}
}

func TestWatchFollows(t *testing.T) {
	address := startOld(t, "2.6")
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
	s.signal(syscall.SIGTERM)
	s.status()
}

// TestEightShells is the promise itself: eight processes that run a command
// under one lock, on a real server, never run it at once.
func TestEightShells(t *testing.T) {
	address := startReal(t)
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
