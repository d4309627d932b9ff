// Package realredis starts a real redis-server for the length of a test.
package realredis

import (
	"errors"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Start runs the redis-server on the PATH on a free port of 127.0.0.1, without
// persistence, with args as further options ("--rename-command", "EVAL", ""),
// and ends it, by its process id, with the test. It returns the address. A
// machine without redis-server fails the test: what was not tested must be seen
// (Debian's package is redis-server; .ci/run installs it).
func Start(t testing.TB, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal("no redis-server on the PATH: this test needs a real one (Debian: apt-get install redis-server)")
	}
	for try := 0; ; try++ {
		addr := freeAddr(t)
		_, port, _ := net.SplitHostPort(addr)
		cmd := exec.Command(path, append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir()}, args...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			cmd.Wait() //nolint:errcheck // killed: always an error
			close(ended)
		}()
		stop := func() {
			cmd.Process.Kill() //nolint:errcheck // it may have ended by itself
			<-ended
		}
		if err := answers(addr, ended); err == nil {
			t.Cleanup(stop)
			return addr
		} else if try == 3 { // the port was taken between our look and its start
			t.Fatalf("redis-server on %s: %v", addr, err)
		}
		stop()
	}
}

func freeAddr(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "127.0.0.1:" + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// answers waits until the server at addr answers, for ten seconds at most.
func answers(addr string, ended <-chan struct{}) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for {
		if c, err := redis.Dial("tcp", addr, redis.DialReadTimeout(time.Second)); err == nil {
			_, err = c.Do("EXISTS", "realredis")
			c.Close()
			if e, refused := err.(redis.Error); err == nil || refused && !strings.HasPrefix(string(e), "LOADING") {
				return nil // a refusal is an answer: a cluster node without slots gives one
			}
		}
		select {
		case <-ended:
			return errors.New("it has ended")
		case <-deadline:
			return errors.New("no answer in ten seconds")
		case <-tick.C:
		}
	}
}
