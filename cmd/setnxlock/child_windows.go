package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"

	"golang.org/x/sys/windows"
)

// signals hold the two signals of Windows: Ctrl-C and Ctrl-Break (SIGINT), and the end of the console
// (SIGTERM).
type signals struct{ c chan os.Signal }

// catch takes them: a second Ctrl-C must not change our exit status.
func catch() *signals {
	s := &signals{c: make(chan os.Signal, 16)}
	signal.Notify(s.c, os.Interrupt, syscall.SIGTERM)
	return s
}

// asksForEnd reports true: each signal ends a wait.
func (*signals) asksForEnd(os.Signal) bool { return true }

// A child is the command, in a job object with all its children. If we are killed, the system closes the
// job's handle and so ends all of them.
type child struct {
	job     windows.Handle
	group   uint32                  // its console process group, and its id
	changes chan syscall.WaitStatus // its end
}

// start starts the command. It is suspended until it is in the job, so that nothing that it
// starts can be outside.
func start(path string, command, env []string, in, out, errs *os.File) (*child, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("no job object: %w", err)
	}
	c := &child{job: job, changes: make(chan syscall.WaitStatus, 1)}
	if err := c.endsWithUs(true); err != nil {
		windows.CloseHandle(job) //nolint:errcheck // it is empty
		return nil, fmt.Errorf("no job object: %w", err)
	}
	cmd := &exec.Cmd{Path: path, Args: command, Env: env, Stdin: in, Stdout: out, Stderr: errs}
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED}
	if err := cmd.Start(); err != nil {
		windows.CloseHandle(job) //nolint:errcheck // it is empty
		return nil, err
	}
	c.group = uint32(cmd.Process.Pid)
	if err := errors.Join(c.enter(), resume(c.group)); err != nil {
		cmd.Process.Kill()       //nolint:errcheck // it has not run yet
		cmd.Wait()               //nolint:errcheck // killed: always an error
		windows.CloseHandle(job) //nolint:errcheck // it is empty
		return nil, err
	}
	go func() {
		cmd.Wait() //nolint:errcheck // the status is asked for
		c.changes <- cmd.ProcessState.Sys().(syscall.WaitStatus)
	}()
	return c, nil
}

// endsWithUs sets whether closing the job's last handle, ours, ends its processes.
func (c *child) endsWithUs(yes bool) error {
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	if yes {
		info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	}
	_, err := windows.SetInformationJobObject(c.job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	return err
}

// enter puts the command into the job.
func (c *child) enter() error {
	p, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, c.group)
	if err != nil {
		return fmt.Errorf("opening the command's process: %w", err)
	}
	defer windows.CloseHandle(p) //nolint:errcheck // nothing is lost by it
	if err := windows.AssignProcessToJobObject(c.job, p); err != nil {
		return fmt.Errorf("putting the command into a job object: %w", err)
	}
	return nil
}

// resume lets a suspended process of one thread run.
func resume(process uint32) error {
	all, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return fmt.Errorf("looking for the command's thread: %w", err)
	}
	defer windows.CloseHandle(all) //nolint:errcheck // nothing is lost by it
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(all, &entry); err == nil; err = windows.Thread32Next(all, &entry) {
		if entry.OwnerProcessID != process {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return fmt.Errorf("opening the command's thread: %w", err)
		}
		defer windows.CloseHandle(thread) //nolint:errcheck // nothing is lost by it
		if _, err := windows.ResumeThread(thread); err != nil {
			return fmt.Errorf("resuming the command: %w", err)
		}
		return nil
	}
	return fmt.Errorf("looking for the command's thread: %w", err)
}

// interrupt sends Ctrl-Break to the command's console group: Ctrl-C is off in a group of its own.
func (c *child) interrupt() {
	windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, c.group) //nolint:errcheck // without a console nobody hears it
}

// howItEnds tells how the command ends when the lock is lost.
const howItEnds = "Ctrl-Break, and is terminated after %v"

// pass makes a Ctrl-Break of each signal.
func (c *child) pass(os.Signal, *lease) (lost bool) {
	c.interrupt()
	return false
}

// stopped reports false: nothing stops a process here.
func (c *child) stopped(syscall.Signal, *signals, *lease) (lost bool) { return false }

// ended keeps the command's background processes alive after its own end.
func (c *child) ended() { c.endsWithUs(false) } //nolint:errcheck // what it leaves running then ends with us

// close closes the job, and ends its processes unless ended was called.
func (c *child) close() { windows.CloseHandle(c.job) } //nolint:errcheck // nothing is lost by it

// end ends the command: Ctrl-Break, and after the grace period, or its own end, the rest of the job.
func (c *child) end(_ *signals, grace time.Duration) (status int) {
	c.interrupt()
	over := time.NewTimer(grace)
	defer over.Stop()
	select {
	case ws := <-c.changes:
		status = shellStatus(ws)
		windows.TerminateJobObject(c.job, 1) //nolint:errcheck // closing the job does the same
	case <-over.C:
		windows.TerminateJobObject(c.job, exit.Signal+uint32(syscall.SIGKILL)) //nolint:errcheck // closing the job does the same
		status = shellStatus(<-c.changes)
	}
	return status
}

// foreground reports true: Windows has no background jobs.
func foreground(*os.File) bool { return true }
