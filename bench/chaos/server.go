package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A server is a redis-server of our own, which writes every change to disk before it answers.
type server struct {
	binary, dir string
	addr        string
	cmd         *exec.Cmd
}

var versionNumber = regexp.MustCompile(`\d+\.\d+\.\d+`)

// versionOf asks a binary.
func versionOf(binary string) (string, error) {
	for _, flag := range []string{"--version", "-v"} {
		out, _ := exec.Command(binary, flag).CombinedOutput()
		if v := versionNumber.FindString(string(out)); v != "" {
			return v, nil
		}
	}
	if v := versionNumber.FindString(filepath.Base(binary)); v != "" { // the oldest start when they are asked
		return v, nil
	}
	return "", fmt.Errorf("%s does not say its version", binary)
}

// older compares versions.
func older(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		m, _ := strconv.Atoi(x[i])
		n, _ := strconv.Atoi(y[i])
		if m != n {
			return m < n
		}
	}
	return false
}

func newServer(binary, dir string) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	conf := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nappendonly yes\nappendfsync always\nsave 900000 1\ntimeout 0\nlogfile %s\n", port, dir, filepath.Join(dir, "log"))
	if err := os.WriteFile(filepath.Join(dir, "redis.conf"), []byte(conf), 0o644); err != nil {
		return nil, err
	}
	s := &server{binary: binary, dir: dir, addr: addr}
	return s, s.start()
}

// start starts it, and waits until it answers.
func (s *server) start() error {
	s.cmd = exec.Command(s.binary, filepath.Join(s.dir, "redis.conf"))
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if _, err := s.do("GET", "chaos"); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("the server does not answer")
}

func (s *server) do(name string, args ...any) (any, error) {
	c, err := redis.Dial("tcp", s.addr, redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(10*time.Second))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(name, args...)
}

// kill ends it between two instructions.
func (s *server) kill() {
	s.cmd.Process.Kill() //nolint:errcheck // it may be dead
	s.cmd.Wait()         //nolint:errcheck // killed
}

func (s *server) signal(sig syscall.Signal) { s.cmd.Process.Signal(sig) } //nolint:errcheck // it may be dead
