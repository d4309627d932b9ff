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

// inside is set in the environment of a program that runs in a network of its own.
const inside = "SETNXLOCK_CHAOS_NETWORK"

// prepare makes a network namespace one in which rules come before its own addresses.
const prepare = "ip link set lo up && ip rule add pref 100 lookup local && ip rule del pref 0"

// ownNetwork has this program begin anew in a network namespace of its own, where the machine lets us, as root or in a user
// namespace: there each server has an address, and what one sends to another can be taken away. Nothing of it is left
// when the program ends. It returns in that namespace, or with the reason why there is none.
func ownNetwork() error {
	if os.Getenv(inside) != "" {
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
	for _, flag := range []string{"-n", "-rn"} {
		out, err := exec.Command(unshare, flag, "sh", "-c", prepare+" && ip rule add pref 10 from 127.1.0.1 to 127.1.0.2 blackhole").CombinedOutput()
		if err == nil {
			return syscall.Exec(unshare, append([]string{"unshare", flag, "sh", "-c", prepare + ` && exec "$0" "$@"`, self}, os.Args[1:]...), append(os.Environ(), inside+"=1"))
		}
		tried = append(tried, fmt.Errorf("unshare %s: %w: %s", flag, err, strings.TrimSpace(string(out))))
	}
	return errors.Join(tried...)
}

// parting reports whether servers can be parted from each other.
func parting() bool { return os.Getenv(inside) != "" }

var hosts atomic.Int64

// newHost is the address of the next server: its own, where that is of use.
func newHost() string {
	if !parting() {
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
