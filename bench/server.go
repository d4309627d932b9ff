package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// prefix begins all keys.
var prefix = "setnxlock:bench:" + protocol.NewToken()[:8] + ":"

// A server runs all locks in turns.
type server struct {
	address string
	version string
	auto    probe.Choice
	process string // its folder in /proc; "": not known
}

// servers returns the servers of a comma-separated list, or starts one.
func servers(ctx context.Context, list string) (all []*server, stop func(), err error) {
	stop = func() {}
	if list == "" {
		if list, stop, err = start(); err != nil {
			return nil, nil, err
		}
	}
	for address := range strings.SplitSeq(list, ",") {
		s, err := inspect(ctx, strings.TrimSpace(address))
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("%s: %w", address, err)
		}
		all = append(all, s)
	}
	return all, stop, nil
}

// start runs the redis-server on the PATH until stop is called.
func start() (address string, stop func(), err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", nil, errors.New("there is no redis-server on the PATH, and SETNXLOCK_TEST_REDIS names none")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(address)
	p, err := realredis.Launch(exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"), address)
	if err != nil {
		p.Kill()
		return "", nil, fmt.Errorf("%s: %w", path, err)
	}
	return address, p.Kill, nil
}

// inspect asks a server for its version, its best lock and its process.
func inspect(ctx context.Context, address string) (*server, error) {
	p := pool(new(meter), address)
	defer p.Close()
	r, c, err := probe.Find(ctx, compat.Pooled(p), probe.Options{})
	if err != nil {
		return nil, err
	}
	s := &server{address: address, version: r.Version, auto: c}
	if text, err := s.do("INFO"); err == nil {
		_, rest, _ := strings.Cut(text, "process_id:")
		pid, _, _ := strings.Cut(rest, "\r\n")
		name, err := os.ReadFile("/proc/" + pid + "/comm")
		if err == nil && strings.HasSuffix(string(name), "-server\n") { // it is on this machine
			s.process = "/proc/" + pid
		}
	}
	return s, nil
}

func (s *server) atLeast(since string) bool { return !ability.Older(s.version, since) }

// used returns the processor time of the server's main thread, as far as it is known.
func (s *server) used() time.Duration {
	b, err := os.ReadFile(s.process + "/schedstat")
	if err != nil {
		return 0
	}
	ran, _, _ := strings.Cut(string(b), " ")
	ns, _ := strconv.ParseInt(ran, 10, 64) //nolint:errcheck // then it is 0
	return time.Duration(ns)
}

func (s *server) do(name string, args ...any) (string, error) {
	c, err := redis.Dial("tcp", s.address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return redis.String(c.Do(name, args...))
}

// clean removes the keys of cancelled acquisitions.
func (s *server) clean() {
	c, err := redis.Dial("tcp", s.address)
	if err != nil {
		return
	}
	defer c.Close()
	keys, _ := redis.Values(c.Do("KEYS", "*"+prefix+"*")) //nolint:errcheck // what stays ends by its TTL
	for _, key := range keys {
		c.Do("DEL", key) //nolint:errcheck
	}
}
