package main

import (
	"context"
	"syscall"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
)

// endWaiting cancels a wait at a signal for the end. The returned function hands the signals back.
func (s *signals) endWaiting(cancel context.CancelCauseFunc) (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case sig := <-s.c:
				if s.asksForEnd(sig) {
					cancel(exit.With(exit.Signal + int(sig.(syscall.Signal))))
				}
			}
		}
	}()
	return func() { close(done); <-stopped }
}

// context returns a context that a signal for the end cancels. COMMAND's status stands.
func (s *signals) context() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	stop := s.endWaiting(func(error) { cancel() })
	return ctx, func() { stop(); cancel() }
}

// supervise passes signals on until the command has ended, and ends it when the
// lock is lost. It returns the status as a shell would.
func (c *child) supervise(signals *signals, lease *lease, grace time.Duration, say func(string, ...any)) (status int, lost bool) {
	defer c.close()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		lost := false
		select {
		case <-lease.Context().Done():
			lost = true
		case <-look.C:
			lost = lease.overslept()
		case s := <-signals.c:
			lost = c.pass(s, lease)
		case ws := <-c.changes:
			if !ws.Stopped() {
				c.ended()
				return shellStatus(ws), false
			}
			lost = c.stopped(ws.StopSignal(), signals, lease)
		}
		if lost {
			say("the lock on %s is lost: %s; the command gets "+howItEnds, named(lease.Key()), lease.why(), grace)
			return c.end(signals, grace), true
		}
	}
}

func shellStatus(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return exit.Signal + int(ws.Signal())
	}
	return ws.ExitStatus()
}
