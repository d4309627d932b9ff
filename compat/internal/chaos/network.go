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

// inside is an environment variable, set in namespaces of our own.
const inside = "SETNXLOCK_CHAOS_NAMESPACES"

// prepare lets routing rules of a network namespace come before its own addresses.
const prepare = "ip link set lo up && ip rule add pref 100 lookup local && ip rule del pref 0"

// try tests the commands that runs need in these namespaces.
const try = "ip rule add pref 10 from 127.1.0.1 to 127.1.0.2 blackhole && mount -t tmpfs none /tmp"

// isolate restarts this program in a network and a mount namespace of its own, as root or in a user namespace. There
// each server has its own address, rules can cut servers off from each other, and a disk can be filled. The namespaces
// end with the program. isolate returns nil inside them, or the machine's reason to refuse them.
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

// newHost returns the address of the next server. In our own namespaces, each server gets its own address.
func newHost() string {
	if !isolated() {
		return "127.0.0.1"
	}
	n := hosts.Add(1)
	return fmt.Sprintf("127.1.%d.%d", n/250, n%250+1)
}

// part cuts s off from others for d. Clients still reach all of them.
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
