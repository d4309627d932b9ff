//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A terminal is the controlling one. A foreground job shares it: only the group that has it may read it, and
// Ctrl-C and Ctrl-Z go to that group. Its methods do nothing on nil.
type terminal struct {
	tty   *os.File
	group int // ours
	given bool
	whole bool // stdin and stdout are the terminal: nobody else of our group needs it
}

// openTerminal returns the controlling terminal, nil if there is none.
func openTerminal(in, out *os.File) *terminal {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return &terminal{
		tty:   tty,
		group: unix.Getpgrp(),
		whole: term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd())),
	}
}

// atStart reports whether the command should have the terminal from its start:
// we are in the foreground and not part of a pipe, where a pager beside us may
// be reading it. Otherwise the command gets it when it asks.
func (t *terminal) atStart() bool { return t != nil && t.whole && t.ours() }

// ours reports whether our group has the terminal.
func (t *terminal) ours() bool { return t.has(t.group) }

func (t *terminal) has(group int) bool {
	g, err := unix.IoctlGetInt(int(t.tty.Fd()), unix.TIOCGPGRP)
	return err == nil && g == group
}

// give makes group the terminal's owner. Asking for it from the background would stop us (SIGTTOU).
func (t *terminal) give(group int) {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	unix.IoctlSetPointerInt(int(t.tty.Fd()), unix.TIOCSPGRP, group) //nolint:errcheck // without it the job is a background one
	t.given = group != t.group
}

// takeBack makes our group the terminal's owner again, if it was given away.
func (t *terminal) takeBack() {
	if t != nil && t.given {
		t.give(t.group)
		t.given = false
	}
}

func (t *terminal) close() {
	if t != nil {
		t.tty.Close()
	}
}

// foreground reports whether the terminal f is ours: a job in the background must not write over another's
// output.
func foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp() // err: it is not our controlling terminal
}
