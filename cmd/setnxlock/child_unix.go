//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// passedOn lists the signals that the command gets instead of us; the first four end a wait.
var passedOn = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT,
}

// signals hold the caught signals.
type signals struct {
	c     chan os.Signal
	pipes chan os.Signal
}

// catch takes the signals to be passed on, except SIGINT and SIGHUP if they were ignored from the start (nohup): the
// command ignores them as well. Of the others Go does not tell. The signals stay caught to the end: a second Ctrl-C
// must not change our exit status.
func catch() *signals {
	s := &signals{c: make(chan os.Signal, 16), pipes: make(chan os.Signal, 1)}
	if signal.Ignored(syscall.SIGINT) {
		// A shell starts what it runs in the background with both ignored, but Go has already
		// put a handler of its own in the place of the second.
		signal.Ignore(syscall.SIGQUIT)
	}
	for _, sig := range passedOn {
		if !signal.Ignored(sig) {
			signal.Notify(s.c, sig)
		}
	}
	// A stderr that nobody reads any more must not kill us: who would release?
	signal.Notify(s.pipes, syscall.SIGPIPE)
	return s
}

// suspend stops our process group as Ctrl-Z does, and returns when it has been
// continued. Where no shell looks after jobs (ssh host setnxlock ..., a
// container) nobody could continue it, and it goes on at once.
//
// SIGTSTP itself would not stop us: Go's runtime keeps a signal that was once
// caught, also after signal.Reset.
func (s *signals) suspend() {
	session, err := unix.Getsid(0)
	if err != nil || session == unix.Getpgrp() || unix.Kill(session, 0) == unix.ESRCH {
		return
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	syscall.Kill(0, syscall.SIGSTOP) //nolint:errcheck // it is our own group
	<-continued
}

// asksForEnd reports whether a signal ends a wait. Ctrl-Z stops the wait for as long as the shell does.
func (s *signals) asksForEnd(sig os.Signal) bool {
	if sig == syscall.SIGTSTP {
		s.suspend()
	}
	return slices.Contains(passedOn[:4], sig)
}

// A child is the command, in its own process group.
type child struct {
	group   int // its process group, and its leader's id
	changes chan syscall.WaitStatus
	term    *terminal // nil if there is none to share
}

// start starts the command.
func start(path string, command, env []string, in, out, errs *os.File) (*child, error) {
	term := openTerminal(in, out)
	cmd := &exec.Cmd{Path: path, Args: command, Env: env, Stdin: in, Stdout: out, Stderr: errs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	diesWithUs(cmd.SysProcAttr)
	c := &child{changes: make(chan syscall.WaitStatus, 1), term: term}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks: the command ends with the thread that started it
		err := cmd.Start()
		if err == nil {
			c.group = cmd.Process.Pid
			cmd.Process.Release() //nolint:errcheck // it is watched here, for stops too, which os/exec does not tell
		}
		started <- err
		if err == nil {
			c.watch()
		}
	}()
	if err := <-started; err != nil {
		term.close()
		return nil, err
	}
	if term.atStart() {
		term.give(c.group)
		c.signal(syscall.SIGCONT) // it may have asked for the terminal before it had it
	}
	return c, nil
}

// watch reports each stop of the command, and its end.
func (c *child) watch() {
	defer close(c.changes)
	for {
		var ws syscall.WaitStatus
		switch _, err := syscall.Wait4(c.group, &ws, syscall.WUNTRACED, nil); {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return // can't happen: it is our child
		}
		c.changes <- ws
		if !ws.Stopped() {
			return
		}
	}
}

// signal sends s to the whole group, or its rest.
func (c *child) signal(s os.Signal) {
	syscall.Kill(-c.group, s.(syscall.Signal)) //nolint:errcheck // gone is as good
}

// howItEnds tells how the command ends when the lock is lost.
const howItEnds = "SIGTERM, and SIGKILL after %v"

// pass passes a signal on. It reports whether the lease ran out while we were stopped: then the
// command must not continue.
func (c *child) pass(s os.Signal, lease *lease) (lost bool) {
	if s == syscall.SIGCONT && lease.overslept() {
		return true
	}
	c.signal(s)
	return false
}

// ended does nothing after the command's own end: its background processes go on.
func (c *child) ended() {}

// close takes the terminal back.
func (c *child) close() {
	c.term.takeBack()
	c.term.close()
}

// stopped behaves as a shell expects of a stopped job: all of it stops, setnxlock too, and all of it
// continues. It reports whether the lease ran out in between; then the command must not continue.
func (c *child) stopped(by syscall.Signal, signals *signals, lease *lease) (lost bool) {
	wantsTerminal := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	switch {
	case c.term == nil:
		return false // somebody stopped it on purpose, and will continue it
	case wantsTerminal && c.term.ours():
		c.term.give(c.group)
	case wantsTerminal && c.term.has(c.group): // it got it just after it had asked
	default:
		c.term.takeBack()
		signals.suspend()
		if lease.overslept() {
			return true
		}
		if c.term.ours() {
			c.term.give(c.group)
		} else if wantsTerminal {
			return false // in the background it would only ask again
		}
	}
	c.signal(syscall.SIGCONT)
	return false
}

// end ends the command and its children: SIGTERM, and SIGKILL for the rest after the grace period.
func (c *child) end(signals *signals, grace time.Duration) (status int) {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT) // a stopped process hears SIGTERM only then
	over := time.After(grace)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	changes := c.changes
	for {
		select {
		case s := <-signals.c:
			c.signal(s)
		case ws, ok := <-changes:
			if !ok || !ws.Stopped() {
				status, changes = shellStatus(ws), nil
			}
			if changes == nil && over == nil {
				return status // and nothing outlives a SIGKILL
			}
		case <-look.C:
			if changes == nil && syscall.Kill(-c.group, 0) != nil {
				return status // the last of the group is gone
			}
		case <-over:
			c.signal(syscall.SIGKILL)
			if changes == nil {
				return status
			}
			over = nil
		}
	}
}
