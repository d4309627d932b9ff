package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/internal/must"
)

// ignored are the signals that a process ignores, a bit for each.
func ignored(t *testing.T, pid int) uint64 {
	t.Helper()
	return must.Get(strconv.ParseUint(ofProcess(pid, "SigIgn"), 16, 64))(t)
}

func has(set uint64, sig syscall.Signal) bool { return set>>(sig-1)&1 == 1 }

// What nohup and a shell's & have setnxlock ignore, the command ignores too, and it does not
// end the wait. Other signals are heard as ever, also if they were ignored.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	address := startServer(t, "2.4")
	for _, how := range []struct {
		name, script string
		signals      []syscall.Signal
	}{
		{"nohup", `trap "" HUP TERM USR1 PIPE ALRM; exec "$@"`, []syscall.Signal{syscall.SIGHUP}},
		{"background", `"$@" <&3 3<&- & wait $!`, []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}},
	} {
		t.Run(how.name, func(t *testing.T) {
			sh := func(args ...string) *show {
				return playCommand(t, address, exec.Command("sh", append([]string{"-c", "exec 3<&0; " + how.script, "sh", "setnxlock"}, args...)...))
			}
			s := sh("run", "job", "--", "sh", "-c", `echo $PPID $$; read line; exit 5`)
			var parent, child int
			must.Get(fmt.Sscan(s.line(), &parent, &child))(t)
			for _, sig := range how.signals {
				if !has(ignored(t, child), sig) {
					t.Errorf("the command does not ignore %v", sig)
				}
				syscall.Kill(parent, sig) //nolint:errcheck
			}
			for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGPIPE, syscall.SIGALRM} {
				if has(ignored(t, child), sig) {
					t.Errorf("the command ignores %v too", sig)
				}
			}
			fmt.Fprintln(s.in, "go on")
			s.want(5, "")

			ask(t, address, "SET", "job", "somebody else's")
			s = sh("run", "-v", "job", "--", "sh", "-c", "exit 5")
			until(t, "it waits", func() bool { return strings.Contains(s.errs.String(), "refused") })
			waiting := s.cmd.Process.Pid
			if how.name == "background" {
				waiting = childOf(t, waiting)
			}
			for _, sig := range how.signals {
				syscall.Kill(waiting, sig) //nolint:errcheck
			}
			ask(t, address, "DEL", "job")
			s.want(5, "")
		})
	}
}

// childOf is the only child of a process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	b := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid)))(t)
	return must.Get(strconv.Atoi(strings.TrimSpace(string(b))))(t)
}

// Nobody renews the lock of a setnxlock that was killed, so the command must not go on.
func TestCommandDiesWithUs(t *testing.T) {
	address := startServer(t, "2.6")
	s := puppets(t, address)
	s.tell("ignore") // SIGTERM
	s.signal(syscall.SIGKILL)
	until(t, "the command is gone", func() bool { return gone(s.pid) })
	if v, _ := redis.String(ask(t, address, "GET", "job"), nil); v != s.token {
		t.Errorf("the key holds %q, and nobody was there to release it", v)
	}
}
