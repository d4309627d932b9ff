//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// A server is a redis-server process.
type server struct {
	binary, version string
	dir             string // of the data
	conf            string // the path of the configuration
	flags           []string
	addr            string
	disk            bool // dir is a disk of its own, for fillDisk
	process         *realredis.Process
}

var versionNumber = regexp.MustCompile(`\d+\.\d+\.\d+`)

// versionOf asks a binary for its version.
func versionOf(binary string) (string, error) {
	for _, flag := range []string{"--version", "-v"} {
		out, _ := exec.Command(binary, flag).CombinedOutput()
		if v := versionNumber.FindString(string(out)); v != "" {
			return v, nil
		}
	}
	if v := versionNumber.FindString(filepath.Base(binary)); v != "" { // the oldest servers know no such flag, and start
		return v, nil
	}
	return "", fmt.Errorf("%s does not say its version", binary)
}

var (
	firstPort  = rand.IntN(ports)
	portsGiven atomic.Int64
)

const ports = 11000

// newPort returns a free port with a free cluster bus, 10000 above. Both lie below the ports of
// outgoing connections, so a restarted server finds its port still free.
func newPort() (int, error) {
	for range 1000 {
		if port := 11000 + (firstPort+int(portsGiven.Add(1)))%ports; free(port) && free(port+10000) {
			return port, nil
		}
	}
	return 0, errors.New("no free port")
}

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		l.Close()
	}
	return err == nil
}

// The configurations for persistence.
const (
	aof = "appendonly yes\nappendfsync always\nsave 900000 1\n" // each change is on disk before the reply
	rdb = "appendonly no\nsave 900000 1\n"                      // only SAVE, BGSAVE and SHUTDOWN save
)

// newServer configures and starts a server, with its data in dir or on a disk there.
func newServer(b binary, dir, conf string, disk bool, flags ...string) (*server, error) {
	port, err := newPort()
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	host := newHost()
	s := &server{binary: b.path, version: b.version, dir: dir, conf: filepath.Join(dir, "redis.conf"), flags: flags,
		addr: fmt.Sprintf("%s:%d", host, port), disk: disk}
	if disk {
		s.dir = filepath.Join(dir, "disk")
		if err := mountDisk(s.dir); err != nil {
			return nil, err
		}
	}
	conf = fmt.Sprintf("port %d\nbind %s\ndir %s\nlogfile %s\n%s", port, host, s.dir, filepath.Join(dir, "log"), conf)
	if len(flags) == 0 {
		conf += "timeout 0\n"
		if !ability.Older(b.version, "2.2") {
			conf += "maxmemory-policy noeviction\n" // the default before 3.0 removes keys with a TTL
		}
	}
	if !ability.Older(b.version, "3.2") {
		conf += "protected-mode no\n" // protected mode refuses the other addresses of 127.0.0.0/8
	}
	if !ability.Older(b.version, "7.0") {
		conf += "enable-debug-command local\nbind-source-addr " + host + "\n" // before 7.0, bind set the source address, too
	}
	if err := os.WriteFile(s.conf, []byte(conf), 0o644); err != nil {
		return nil, err
	}
	return s, s.start()
}

// start starts the server, and waits until it answers.
func (s *server) start() error {
	cmd := exec.Command(s.binary, append([]string{s.conf}, s.flags...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if s.process, err = realredis.Launch(cmd, s.addr); err != nil {
		return fmt.Errorf("%s: %w: see %s", s.addr, err, filepath.Dir(s.conf))
	}
	return nil
}

func (s *server) do(name string, args ...any) (any, error) {
	c, err := redis.Dial("tcp", s.addr, redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(10*time.Second))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(name, args...)
}

func (s *server) signal(sig syscall.Signal) {
	s.process.Signal(sig) //nolint:errcheck // the server may be dead
}

// shutdown makes the server save and end. The server keeps every acknowledged change.
func (s *server) shutdown() error {
	_, err := s.do("SHUTDOWN")
	if e, refused := err.(redis.Error); refused {
		return e
	}
	select {
	case <-s.process.Ended:
		return nil
	case <-time.After(20 * time.Second):
		return fmt.Errorf("%s does not shut down: %v", s.addr, err)
	}
}

// master reports whether the server calls itself a master.
func (s *server) master() (bool, error) {
	c, err := redis.Dial("tcp", s.addr, redis.DialConnectTimeout(300*time.Millisecond), redis.DialReadTimeout(300*time.Millisecond))
	if err != nil {
		return false, err
	}
	defer c.Close()
	info, err := redis.String(c.Do("INFO", "replication"))
	return strings.Contains(info, "role:master"), err
}
