package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/auto"
	probing "github.com/setnxlock/setnxlock/compat/server"
	"github.com/setnxlock/setnxlock/compat/workload"
)

// A server is one that all locks are measured on.
type server struct {
	Address string
	Version string
	best    compat.Algorithm // what auto chooses there
	name    string           // of best
}

// meet learns what a server is.
func meet(ctx context.Context, address string) (*server, error) {
	pool := workload.Pool(workload.NewMeter(nil), address, redis.DialConnectTimeout(5*time.Second))
	defer pool.Close()
	r, err := probing.Probe(ctx, compat.Pooled(pool), probing.Options{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	c, err := auto.Choose(ctx, compat.Pooled(pool), r, auto.Options{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return &server{Address: address, Version: r.Version, best: c.Algorithm, name: c.Name}, nil
}

// atLeast compares the server's version.
func (s *server) atLeast(since string) bool { return atLeast(s.Version, since) }

func atLeast(version, since string) bool { return !ability.Older(version, since) }

// start runs the redis-server on the PATH until stop is called.
func start(ctx context.Context) (address string, stop func(), err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", nil, errors.New("there is no redis-server on the PATH (Debian: apt-get install redis-server), and SETNXLOCK_TEST_REDIS names none")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = l.Addr().String()
	l.Close()
	dir, err := os.MkdirTemp("", "setnxlock-bench-")
	if err != nil {
		return "", nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir)
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		cmd.Process.Kill() //nolint:errcheck // it is only to be gone
		cmd.Wait()         //nolint:errcheck
		os.RemoveAll(dir)
	}
	for range 500 {
		c, err := redis.Dial("tcp", address)
		if err == nil {
			c.Close()
			return address, stop, nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			stop()
			return "", nil, context.Cause(ctx)
		}
	}
	stop()
	return "", nil, fmt.Errorf("%s does not answer", path)
}

// servers are those in SETNXLOCK_TEST_REDIS, a comma-separated list as the tests
// have it, or one that is started.
func servers(ctx context.Context, list string) (all []*server, stop func(), err error) {
	stop = func() {}
	if list == "" {
		if list, stop, err = start(ctx); err != nil {
			return nil, nil, err
		}
	}
	for address := range strings.SplitSeq(list, ",") {
		s, err := meet(ctx, strings.TrimSpace(address))
		if err != nil {
			stop()
			return nil, nil, err
		}
		all = append(all, s)
	}
	return all, stop, nil
}
