//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/spf13/cobra"
)

// patience is how long tests wait for what others are about to do.
const patience = time.Minute

// startServer starts a server: "real" is the machine's redis-server, "down" none at all, all else an embedded one of that
// version.
func startServer(t testing.TB, version string) (address string) {
	t.Helper()
	switch version {
	case "real":
		return realredis.Start(t)
	case "down":
		return "127.0.0.1:1"
	}
	address, _ = startStoppable(t, version)
	return address
}

// startStoppable starts an embedded server that ends with the test, or before.
func startStoppable(t testing.TB, version string) (address string, stop func()) {
	t.Helper()
	s := must.Get(oldredis.New(version, oldredis.Options{Clock: clock.New()}))(t)
	stop = func() { s.Close() }
	t.Cleanup(stop)
	return must.Get(s.Listen("127.0.0.1:0"))(t).String(), stop
}

// startAll starts a server for each version of a list with commas.
func startAll(t testing.TB, versions string) string {
	t.Helper()
	all := strings.Split(versions, ",")
	for i, v := range all {
		all[i] = startServer(t, v)
	}
	return strings.Join(all, ",")
}

// freePort returns a port that nobody listens on.
func freePort(t testing.TB) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// serve returns an address whose connections each serves, and closes them then.
func serve(t testing.TB, each func(net.Conn)) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				each(c)
			}()
		}
	}()
	return l.Addr().String()
}

// hangs serves a connection by saying nothing until the client goes.
func hangs(c net.Conn) { io.Copy(io.Discard, c) } //nolint:errcheck // it ends with the connection

// answers serves a connection by one reply to each command.
func answers(reply func(words []string) string) func(net.Conn) {
	return func(c net.Conn) { answersFrom(bufio.NewReader(c), c, reply) }
}

func answersFrom(r *bufio.Reader, w io.Writer, reply func(words []string) string) {
	for {
		words, err := request(r)
		if err != nil {
			return
		}
		if _, err := io.WriteString(w, reply(words)); err != nil {
			return
		}
	}
}

// request reads a command.
func request(r *bufio.Reader) (words []string, err error) {
	line, err := r.ReadString('\n')
	n, _ := strconv.Atoi(strings.Trim(line, "*\r\n"))
	for range n {
		if line, err = r.ReadString('\n'); err != nil {
			return nil, err
		}
		size, _ := strconv.Atoi(strings.Trim(line, "$\r\n"))
		word := make([]byte, size+2)
		if _, err = io.ReadFull(r, word); err != nil {
			return nil, err
		}
		words = append(words, string(word[:size]))
	}
	return words, err
}

// bulk writes a string as a reply.
func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// startLoading starts what answers each command as a server does that is loading its data, until it
// is loaded: then its connections are those of the server at address.
func startLoading(t testing.TB, loaded *atomic.Bool, address string) string {
	return serve(t, func(c net.Conn) {
		if loaded.Load() {
			relay(c, address, func([]byte) {})
			return
		}
		answers(func([]string) string { return "-LOADING Redis is loading the dataset in memory\r\n" })(c)
	})
}

// relay joins a client to the server at address until either goes. What the client asks is passed on
// after before, which gets it.
func relay(client net.Conn, address string, before func(asked []byte)) {
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer client.Close()
		io.Copy(client, server) //nolint:errcheck // one of them ends first
	}()
	for buf := make([]byte, 1<<16); ; {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		before(buf[:n])
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// until polls for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// dial connects to a server until the test ends.
func dial(t testing.TB, address string) redis.Conn {
	t.Helper()
	c := must.Get(redis.Dial("tcp", address))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends one command to the server.
func ask(t testing.TB, address, name string, args ...any) any {
	t.Helper()
	c := must.Get(redis.Dial("tcp", address))(t)
	defer c.Close()
	return must.Get(c.Do(name, args...))(t)
}

// using is the environment in which setnxlock uses the server at an address.
func using(address string) []string { return []string{"SETNXLOCK_REDIS=" + address} }

// rootOf returns the command with all below it.
func rootOf() *cobra.Command {
	return (&app{in: os.Stdin, out: os.Stdout, errs: os.Stderr}).rootCommand()
}

// eachCommand calls f with every command below cmd.
func eachCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	for _, below := range cmd.Commands() {
		f(below)
		eachCommand(below, f)
	}
}

// finish runs a command to its end, and returns what it wrote. One that hangs is killed.
func finish(t testing.TB, cmd *exec.Cmd) (out, errs string, status int) {
	t.Helper()
	var o, e strings.Builder
	if cmd.Stdout == nil {
		cmd.Stdout, cmd.Stderr = &o, &e
	}
	must.Do(t, cmd.Start())
	defer time.AfterFunc(2*patience, func() { cmd.Process.Kill() }).Stop()
	cmd.Wait() //nolint:errcheck // the status is the caller's to judge
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// cli runs setnxlock with more in its environment, and returns what it wrote.
func cli(t testing.TB, env []string, args ...string) (out, errs string, status int) {
	t.Helper()
	cmd := exec.Command("setnxlock", args...)
	cmd.Env = append(os.Environ(), env...)
	return finish(t, cmd)
}

// enough runs a command line that waits in vain for ENOUGH, and returns its exit status. A busy machine may
// not come to connect in that time, so that the next run waits twice as long.
func enough(args []string, run func(args []string) (status int)) (status int) {
	for wait := time.Second; ; wait *= 2 {
		line := slices.Clone(args)
		i := slices.Index(line, "ENOUGH")
		if i >= 0 {
			line[i] = wait.String()
		}
		if status = run(line); i < 0 || status != statusUnavailable || wait > patience {
			return status
		}
	}
}

// command runs setnxlock with a server's address, and returns what it wrote to both streams.
func command(t testing.TB, address string, args ...string) (out string, status int) {
	t.Helper()
	var b strings.Builder
	cmd := exec.Command("setnxlock", args...)
	cmd.Env = append(os.Environ(), using(address)...)
	cmd.Stdout, cmd.Stderr = &b, &b
	_, _, status = finish(t, cmd)
	return b.String(), status
}

// leave takes a lock for ten minutes and leaves it held.
func leave(t testing.TB, address string, args ...string) {
	t.Helper()
	if out, status := command(t, address, slices.Concat([]string{"run", "--detach", "--ttl", "10m"}, args, []string{"--", "true"})...); status != 0 {
		t.Fatalf("%q: %d, %s", args, status, out)
	}
}

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
	s.cmd.Env = append(os.Environ(), using(address)...)
	s.cmd.Stderr = s.errs
	s.in = must.Get(s.cmd.StdinPipe())(t)
	out, w, err := os.Pipe()
	must.Do(t, err)
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
	s.begins()
	return s
}

// begins waits until the puppet plays.
func (s *show) begins() {
	s.t.Helper()
	if n, _ := fmt.Sscanf(s.line(), "ready %d %s", &s.pid, &s.token); n != 2 {
		s.t.Fatalf("no puppet plays; stderr: %s", s.errs)
	}
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

// exits has the puppet end, and demands setnxlock's status and something that it said.
func (s *show) exits(with, status int, said string) {
	s.t.Helper()
	fmt.Fprintln(s.in, "exit", with)
	s.want(status, said)
}

// want demands the status with which setnxlock ends, and something that it said.
func (s *show) want(status int, said string) {
	s.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil && !errors.As(err, new(*exec.ExitError)) {
			s.t.Fatal(err)
		}
	case <-time.After(patience):
		s.t.Fatalf("it does not end; stderr: %s", s.errs)
	}
	if got := s.cmd.ProcessState.ExitCode(); got != status {
		s.t.Errorf("exit status %d, want %d; stderr: %s", got, status, s.errs)
	}
	if !strings.Contains(s.errs.String(), said) {
		s.t.Errorf("stderr has no %q: %s", said, s.errs)
	}
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

// ofProcess reads a field of a process's status on Linux; "" if it is gone.
func ofProcess(pid int, field string) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) //nolint:errcheck // gone
	_, rest, _ := strings.Cut(string(b), "\n"+field+":")
	rest, _, _ = strings.Cut(rest, "\n")
	return strings.TrimSuffix(strings.TrimSpace(rest), " kB")
}
