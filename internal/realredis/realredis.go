// Package realredis starts real Redis servers for the length of a test.
package realredis

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/internal/must"
)

// Start runs a server, as Run does, and returns its address.
func Start(t testing.TB, args ...string) string {
	t.Helper()
	return Run(t, args...).Addr
}

// A Server is a running redis-server.
type Server struct {
	Addr string // 127.0.0.1:port

	t    testing.TB
	args []string
	*Process
}

// Run starts the redis-server from the PATH on a free port of 127.0.0.1, without persistence, with
// args as further options ("--rename-command", "EVAL", ""), and kills it, by its process id, when
// the test ends. Without a redis-server the test ends as Need says.
func Run(t testing.TB, args ...string) *Server {
	t.Helper()
	return run(t, plain(t.TempDir(), args...))
}

// plain returns the arguments of a server without persistence, with others behind them.
func plain(dir string, others ...string) func(port string) []string {
	return func(port string) []string {
		return append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", dir}, others...)
	}
}

// run starts a redis-server with the arguments for a free port.
func run(t testing.TB, args func(port string) []string) *Server {
	t.Helper()
	s := &Server{t: t}
	for try := 0; ; try++ {
		s.Addr = freeAddr(t)
		_, port, _ := net.SplitHostPort(s.Addr)
		s.args = args(port)
		err := s.start()
		if err == nil {
			t.Cleanup(func() { s.Kill() }) // the process of that moment: Restart makes another
			return s
		}
		s.Kill()
		if try == 3 { // the port was taken between freeAddr and the start
			t.Fatalf("redis-server on %s: %v", s.Addr, err)
		}
	}
}

func (s *Server) start() (err error) {
	s.t.Helper()
	s.Process, err = Launch(exec.Command(Need(s.t, "redis-server", "redis-server"), s.args...), s.Addr)
	return err
}

// A Process is a server's.
type Process struct {
	*os.Process
	Ended chan struct{} // closed when the process has ended
}

// Launch starts a server, and waits until it replies at addr. With an error, too, the process must be killed.
func Launch(cmd *exec.Cmd, addr string) (*Process, error) {
	err := cmd.Start()
	p := &Process{cmd.Process, make(chan struct{})}
	go func() {
		cmd.Wait() //nolint:errcheck // killed: always an error
		close(p.Ended)
	}()
	if err == nil {
		err = answers(addr, p.Ended)
	}
	return p, err
}

// Kill ends the process at once, as kill -9 does, and waits until it has ended.
func (p *Process) Kill() {
	if p.Process != nil { // else it did not start
		p.Process.Kill() //nolint:errcheck // it may have ended by itself
	}
	<-p.Ended
}

// Restart starts the server again, empty, on its old address.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		s.t.Fatalf("redis-server on %s, again: %v", s.Addr, err)
	}
}

func freeAddr(t testing.TB) string {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return "127.0.0.1:" + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// answers waits until the server at addr replies, for a minute at most.
func answers(addr string, ended <-chan struct{}) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for {
		if c, err := redis.Dial("tcp", addr, redis.DialReadTimeout(time.Second)); err == nil {
			_, err = c.Do("EXISTS", "realredis")
			c.Close()
			if e, refused := err.(redis.Error); err == nil || refused && !strings.HasPrefix(string(e), "LOADING") {
				return nil // an error is an answer too: a cluster node without slots gives one
			}
		}
		select {
		case <-ended:
			return errors.New("it has ended")
		case <-deadline:
			return errors.New("no answer in a minute")
		case <-tick.C:
		}
	}
}
