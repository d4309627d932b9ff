//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// inside is set in the environment of a program that runs in namespaces of its own.
const inside = "SETNXLOCK_CHAOS_NAMESPACES"

// prepare makes a network namespace one in which rules come before its own addresses.
const prepare = "ip link set lo up && ip rule add pref 100 lookup local && ip rule del pref 0"

// try does what runs do in these namespaces.
const try = "ip rule add pref 10 from 127.1.0.1 to 127.1.0.2 blackhole && mount -t tmpfs none /tmp"

// isolate has this program begin anew in a network and a mount namespace of its own, where the machine lets us, as root
// or in a user namespace: there each server has an address, what one sends to another can be taken away, and a disk can
// be filled. Nothing of it is left when the program ends. It returns in these namespaces, or with the reason why there
// are none.
func isolate() error {
	if isolated() {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return err
	}
	var tried []error
	for _, flag := range []string{"-nm", "-rnm"} {
		out, err := exec.Command(unshare, flag, "sh", "-c", prepare+" && "+try).CombinedOutput()
		if err == nil {
			again := append([]string{"unshare", flag, "sh", "-c", prepare + ` && exec "$0" "$@"`, self}, os.Args[1:]...)
			return syscall.Exec(unshare, again, append(os.Environ(), inside+"=1"))
		}
		tried = append(tried, fmt.Errorf("unshare %s: %w: %s", flag, err, strings.TrimSpace(string(out))))
	}
	return errors.Join(tried...)
}

// isolated reports whether this program has namespaces of its own.
func isolated() bool { return os.Getenv(inside) != "" }

var hosts atomic.Int64

// newHost is the address of the next server: its own, where that is of use.
func newHost() string {
	if !isolated() {
		return "127.0.0.1"
	}
	n := hosts.Add(1)
	return fmt.Sprintf("127.1.%d.%d", n/250, n%250+1)
}

// part takes away what s and others send to each other, for d. Their clients reach all of them.
func part(s *server, others []*server, d time.Duration) error {
	err := s.rules("add", others)
	time.Sleep(d)
	return errors.Join(err, s.rules("del", others))
}

func (s *server) rules(verb string, others []*server) error {
	a, _, _ := net.SplitHostPort(s.addr)
	for _, o := range others {
		b, _, _ := net.SplitHostPort(o.addr)
		for _, way := range [][2]string{{a, b}, {b, a}} {
			out, err := exec.Command("ip", "rule", verb, "pref", "10", "from", way[0], "to", way[1], "blackhole").CombinedOutput()
			if err != nil {
				return fmt.Errorf("ip rule %s: %w: %s", verb, err, out)
			}
		}
	}
	return nil
}
