package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sys/unix"
)

// apart gives the server one core and this process another, until back
// is called, as if they were two machines: a server that answers from our own core
// answers sooner than any network would, and what is then measured is mostly how much the
// client computes. The error is why it can't be done.
func (s *server) apart() (back func(), err error) {
	pid, err := s.pid()
	if err != nil {
		return nil, err
	}
	var all, ours, theirs unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, err
	}
	theirs.Zero()
	ours.Zero()
	for core := range len(all) * 64 {
		switch {
		case !all.IsSet(core):
		case theirs.Count() == 0:
			theirs.Set(core)
		case ours.Count() == 0:
			ours.Set(core)
		}
	}
	if ours.Count() == 0 {
		return nil, errors.New("there is only one core")
	}
	var was unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &was); err != nil {
		return nil, err
	}
	procs := runtime.GOMAXPROCS(0)
	back = func() {
		pin(pid, &was)         //nolint:errcheck // it may be gone
		pin(os.Getpid(), &all) //nolint:errcheck // it worked before
		runtime.GOMAXPROCS(procs)
	}
	if err := errors.Join(pin(pid, &theirs), pin(os.Getpid(), &ours)); err != nil {
		back()
		return nil, err
	}
	runtime.GOMAXPROCS(1) // as if started so
	return back, nil
}

// pid is the server's, as it says, if that is a redis-server here.
func (s *server) pid() (int, error) {
	host, _, _ := net.SplitHostPort(s.Address)
	if ip := net.ParseIP(host); (ip == nil || !ip.IsLoopback()) && host != "localhost" {
		return 0, errors.New("it is on another machine")
	}
	c, err := redis.Dial("tcp", s.Address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	info, err := redis.String(c.Do("INFO"))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(info, "process_id:")
	id, _, _ := strings.Cut(rest, "\r\n")
	pid, err := strconv.Atoi(id)
	if err != nil {
		return 0, errors.New("it does not say which process it is")
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || !strings.HasPrefix(string(name), "redis-") {
		return 0, fmt.Errorf("process %d is no redis-server here", pid)
	}
	return pid, nil
}

// cpu tells how much processor time the server's main thread has used; nil if that
// can't be known.
func (s *server) cpu() func() time.Duration {
	pid, err := s.pid()
	if err != nil {
		return nil
	}
	return func() time.Duration {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		if err != nil {
			return 0
		}
		ran, _, _ := strings.Cut(string(b), " ")
		ns, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			return 0
		}
		return time.Duration(ns)
	}
}

// pin binds all threads of a process; those it starts later inherit it.
func pin(pid int, set *unix.CPUSet) error {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, set); err != nil && err != unix.ESRCH { // a thread that has ended
			return err
		}
	}
	return nil
}
